//! Mounts on this node that no claim covers, as far as they are known.
//!
//! [`crate::compare`] finds them, the report to the registry names them, and releases and new
//! mounts of their volumes are refused meanwhile.

use berth_domain::plugin::UnaccountedMount;
use berth_domain::{AllocId, VolumeKey};
use tokio::sync::watch;

/// Mounts that one report names at most. A node has a few hundred volumes.
const NAMED_MAX: usize = 512;

/// The mounts, sorted. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct UnaccountedMounts(watch::Sender<Vec<UnaccountedMount>>);

impl UnaccountedMounts {
    /// Whether the alloc's mount of the volume is one.
    pub fn has(&self, volume: &VolumeKey, alloc: &AllocId) -> bool {
        self.0.borrow().iter().any(|mount| is_of(mount, volume, alloc))
    }

    /// All of them.
    pub fn list(&self) -> Vec<UnaccountedMount> {
        self.0.borrow().clone()
    }

    /// Tells of each change.
    pub fn subscribe(&self) -> watch::Receiver<Vec<UnaccountedMount>> {
        self.0.subscribe()
    }

    /// These are all; each one that is new is answered.
    pub fn replace(&self, mut all: Vec<UnaccountedMount>) -> Vec<UnaccountedMount> {
        all.sort();
        all.truncate(NAMED_MAX);
        let mut new = all.clone();
        self.0.send_if_modified(|known| {
            new.retain(|mount| !known.contains(mount));
            let is_changed = *known != all;
            *known = all;
            is_changed
        });
        new
    }

    /// The alloc's mount of the volume is gone.
    pub fn remove(&self, volume: &VolumeKey, alloc: &AllocId) {
        self.0.send_if_modified(|known| {
            let before = known.len();
            known.retain(|mount| !is_of(mount, volume, alloc));
            known.len() != before
        });
    }
}

fn is_of(mount: &UnaccountedMount, volume: &VolumeKey, alloc: &AllocId) -> bool {
    mount.is_of(volume) && mount.alloc == *alloc
}
