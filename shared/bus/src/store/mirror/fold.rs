//! The projection that a mirror keeps equal to its bucket.

/// A projection of a bucket's keys and values.
pub trait Fold: Send + Sync + 'static {
    /// The key now has this value.
    fn put(&mut self, key: &str, revision: u64, value: &[u8]);
    /// The key was put before, and is gone now.
    fn delete(&mut self, key: &str, revision: u64);
    /// This host's clock was set back, so times that the projection read from it may be wrong.
    fn clock_set_back(&mut self) {}
}
