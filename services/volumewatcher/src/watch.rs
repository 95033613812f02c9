//! Projections that wake what a change may concern.

use berth_bus::{Bucket, Fold, Mirror, MirrorError, MirrorOptions};
use berth_contract::key::{self, VolumeEntry};
use berth_domain::volume::{Claim, State};
use berth_domain::{AllocId, VolumeKey};
use berth_service::projection::{Allocs, Volumes};
use berth_service::reconcile::Waker;

/// What is worked on: one claim of one volume.
pub type ClaimKey = (VolumeKey, AllocId);

/// Whether a claim is, or may be, work: anything but one that is granted, or in line, and wanted.
pub fn is_work(claim: &Claim, wanted: bool) -> bool {
    match claim.state {
        State::Waiting | State::Taken => !wanted,
        // Undone when nobody comes back for it; the claim service says when.
        State::Publishing | State::Unpublishing | State::NodeDetached => true,
    }
}

/// Volumes; a change of one wakes all its claims, because a call for one may have been in the way
/// of another (rule 3).
pub struct WokenVolumes {
    pub volumes: Volumes,
    waker: Waker<ClaimKey>,
}

impl WokenVolumes {
    pub fn new(waker: Waker<ClaimKey>) -> Self {
        Self { volumes: Volumes::default(), waker }
    }

    pub async fn start(
        self,
        bucket: &Bucket,
        options: MirrorOptions,
    ) -> Result<Mirror<Self>, MirrorError> {
        Mirror::start(bucket, ">", self, options).await
    }

    fn wake(&self, key: &str) {
        let Some(VolumeEntry::Spec(volume) | VolumeEntry::Claim(volume, _)) =
            key::parse_volume(key)
        else {
            return;
        };
        let Some(subtree) = self.volumes.get(&volume) else { return };
        for (alloc, claim) in &subtree.volume.claims {
            // Whether a granted claim is wanted is the allocs' to say.
            if claim.state != State::Taken || key::claim(&volume, alloc) == key {
                self.waker.wake((volume.clone(), alloc.clone()));
            }
        }
    }
}

impl Fold for WokenVolumes {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        self.volumes.put(key, revision, value);
        self.wake(key);
    }

    fn delete(&mut self, key: &str, revision: u64) {
        self.volumes.delete(key, revision);
        self.wake(key);
    }
}

/// Allocs; one that changes wakes the claims on the volumes it asked for.
pub struct WokenAllocs {
    pub allocs: Allocs,
    waker: Waker<ClaimKey>,
}

impl WokenAllocs {
    pub fn new(waker: Waker<ClaimKey>) -> Self {
        Self { allocs: Allocs::default(), waker }
    }

    pub async fn start(
        self,
        bucket: &Bucket,
        options: MirrorOptions,
    ) -> Result<Mirror<Self>, MirrorError> {
        Mirror::start(bucket, ">", self, options).await
    }

    fn wake(&self, key: &str) {
        let Some((namespace, id)) = key::parse_alloc(key) else { return };
        let Some((_, alloc)) = self.allocs.get(&namespace, &id) else { return };
        for (volume, _) in alloc.requests() {
            let volume = VolumeKey::new(namespace.clone(), volume);
            self.waker.wake((volume, id.clone()));
        }
    }
}

impl Fold for WokenAllocs {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        self.allocs.put(key, revision, value);
        self.wake(key);
    }

    fn delete(&mut self, key: &str, revision: u64) {
        // Before it is forgotten which volumes it asked for.
        self.wake(key);
        self.allocs.delete(key, revision);
    }
}
