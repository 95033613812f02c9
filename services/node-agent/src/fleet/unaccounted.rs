//! Mounts on this node that no claim covers, as far as they are known.
//!
//! The comparison with the claims finds them, the report to the registry names them, and releases
//! and new mounts of their volumes are refused meanwhile.

use berth_domain::plugin::UnaccountedMount;
use berth_domain::{AllocId, VolumeKey};
use tokio::sync::watch;

/// Mounts that one report names at most. A node has a few hundred volumes.
const NAMED_MAX: usize = 512;

/// What is known of the mounts without a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownMounts {
    /// The mounts, sorted.
    pub mounts: Vec<UnaccountedMount>,
    /// Whether all mounts have been compared with the claims since the agent started.
    pub is_compared: bool,
}

/// The mounts. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct UnaccountedMounts(watch::Sender<KnownMounts>);

impl UnaccountedMounts {
    /// Whether the alloc's mount of the volume is one.
    pub fn has(&self, volume: &VolumeKey, alloc: &AllocId) -> bool {
        self.0.borrow().mounts.iter().any(|mount| is_of(mount, volume, alloc))
    }

    /// Whether the alloc's mount of the volume is one, or may be one: nothing has been compared
    /// yet.
    pub fn may_have(&self, volume: &VolumeKey, alloc: &AllocId) -> bool {
        !self.0.borrow().is_compared || self.has(volume, alloc)
    }

    /// All that is known.
    pub fn read_known(&self) -> KnownMounts {
        self.0.borrow().clone()
    }

    /// Tells of each change.
    pub fn subscribe(&self) -> watch::Receiver<KnownMounts> {
        self.0.subscribe()
    }

    /// These are all; each one that is new is answered. `is_whole` says whether each mount was
    /// found to have a claim or to have none.
    pub fn replace(&self, mut all: Vec<UnaccountedMount>, is_whole: bool) -> Vec<UnaccountedMount> {
        all.sort();
        let is_cut = all.len() > NAMED_MAX;
        all.truncate(NAMED_MAX);
        let mut new = all.clone();
        self.0.send_if_modified(|known| {
            new.retain(|mount| !known.mounts.contains(mount));
            let is_compared = !is_cut && (known.is_compared || is_whole);
            let next = KnownMounts { mounts: all, is_compared };
            let is_changed = *known != next;
            *known = next;
            is_changed
        });
        new
    }

    /// The alloc's mount of the volume is gone.
    pub fn remove(&self, volume: &VolumeKey, alloc: &AllocId) {
        self.0.send_if_modified(|known| {
            let before = known.mounts.len();
            known.mounts.retain(|mount| !is_of(mount, volume, alloc));
            known.mounts.len() != before
        });
    }
}

fn is_of(mount: &UnaccountedMount, volume: &VolumeKey, alloc: &AllocId) -> bool {
    mount.is_named(volume) && mount.alloc == *alloc
}
