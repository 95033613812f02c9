//! What a plugin says of a volume's size, beside what it was asked for.
//!
//! **Never** lets a size that cannot be right become what Berth believes.

use crate::limits::VOLUME_BYTES_MAX;
use crate::volume::CreatedVolume;
use crate::volume::storage::Provision;

/// A size from the plugin: 0 if it says none.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizeAnswer {
    pub bytes: u64,
    pub required: u64,
    pub limit: Option<u64>,
}

impl SizeAnswer {
    /// The size of a volume that was created.
    pub(super) const fn of_creation(asked: &Provision, made: &CreatedVolume) -> Self {
        let (required, limit) = (asked.required_bytes, asked.limit_bytes);
        Self { bytes: made.capacity_bytes, required, limit }
    }

    /// No volume has the largest number there is.
    const fn is_nonsense(&self) -> bool {
        self.bytes >= VOLUME_BYTES_MAX
    }

    /// Whether the volume is smaller than it had to be.
    pub(super) const fn is_short(&self) -> bool {
        self.bytes > 0 && self.bytes < self.required
    }

    /// The size if it says one that may be; otherwise the one that was required. Not for one that
    /// is short.
    pub(super) const fn believed(&self) -> u64 {
        if self.bytes == 0 || self.is_nonsense() { self.required } else { self.bytes }
    }

    /// What is wrong with it. `did` says what the plugin answered for, up to the number.
    pub(super) fn fault(&self, did: &str) -> Option<String> {
        let Self { bytes, required, .. } = self;
        if self.is_nonsense() {
            return Some(format!("{did} {bytes} bytes, as it says, which no volume has"));
        }
        if self.is_short() {
            return Some(format!("{did} {bytes} bytes, and {required} were requested"));
        }
        let limit = self.limit.filter(|limit| bytes > limit)?;
        Some(format!("{did} {bytes} bytes, more than the limit {limit}"))
    }
}
