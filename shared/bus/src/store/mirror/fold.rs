//! What a mirror keeps equal to its bucket.

/// What a projection makes of each key.
pub trait Fold: Send + Sync + 'static {
    /// The key has this value now.
    fn put(&mut self, key: &str, revision: u64, value: &[u8]);
    /// The key, which was put before, is gone.
    fn delete(&mut self, key: &str, revision: u64);
    /// This host's clock was set back: what the projection took from it before may be wrong.
    fn clock_set_back(&mut self) {}
}
