//! Claims whose keys were deleted although they may be mounted.
//!
//! **Owns** what this process saw of them. The claim protocol deletes no claim that is `taken`. So
//! such a key was deleted by hand, or this process missed the writes before the deletion.
//!
//! **Promises** that such a claim is known from the moment at which it is not listed any more,
//! until its node has reported the mount, or [`KEPT_FOR`] has passed: by then every running agent
//! has compared its mounts with the claims.
//!
//! **Never** concludes that nothing is mounted: a process that did not see the claim does not know
//! of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_domain::volume::{Claim, Handle, State};
use berth_domain::{AllocId, NodeId, VolumeKey};
use tokio::time::Instant;

/// Agents compare their mounts at least every 75 s; this is long enough for that, and for the
/// comparison that confirms it.
const KEPT_FOR: Duration = Duration::from_secs(120);
/// Most claims that are kept.
const MAX: usize = 100_000;

/// A claim whose key was deleted without a release.
#[derive(Debug, Clone)]
pub struct LostClaim {
    /// The node on which it may be mounted.
    pub node: NodeId,
    /// The volume that it was granted for, if its record said so.
    handle: Option<Handle>,
    seen: Instant,
}

/// The claims whose keys were deleted without a release: a cheap handle.
#[derive(Debug, Clone, Default)]
pub struct LostClaims(Arc<Mutex<BTreeMap<(VolumeKey, AllocId), LostClaim>>>);

impl LostClaims {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(VolumeKey, AllocId), LostClaim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the claim's key was deleted.
    pub(super) fn record_deletion(&self, volume: &VolumeKey, alloc: &AllocId, claim: &Claim) {
        if claim.state != State::Taken {
            return;
        }
        let mut claims = self.lock();
        claims.retain(|_, lost| lost.seen.elapsed() < KEPT_FOR);
        if claims.len() < MAX {
            let ids = claim.plugin.clone().zip(claim.external_id.clone());
            let handle = ids.map(|(plugin, external_id)| Handle { plugin, external_id });
            let lost = LostClaim { node: claim.node.clone(), handle, seen: Instant::now() };
            claims.insert((volume.clone(), alloc.clone()), lost);
        }
    }

    /// Records that the claim is there.
    pub(super) fn record_claim(&self, volume: &VolumeKey, alloc: &AllocId) {
        let mut claims = self.lock();
        if !claims.is_empty() {
            claims.remove(&(volume.clone(), alloc.clone()));
        }
    }

    /// Forgets the claims whose mounts are known from another record.
    pub fn forget(&self, is_known: impl Fn(&VolumeKey, &AllocId, &LostClaim) -> bool) {
        self.lock().retain(|(volume, alloc), lost| !is_known(volume, alloc, lost));
    }

    /// The nodes where the volume with this name or this handle may be mounted.
    pub fn nodes_of(&self, volume: &VolumeKey, handle: Option<&Handle>) -> Vec<NodeId> {
        let claims = self.lock();
        let is_of = |name: &VolumeKey, lost: &LostClaim| match (&lost.handle, handle) {
            (Some(lost), Some(handle)) => lost == handle,
            _ => name == volume,
        };
        let recent = claims.iter().filter(|(_, lost)| lost.seen.elapsed() < KEPT_FOR);
        let of_volume = recent.filter(|((name, _), lost)| is_of(name, lost));
        of_volume.map(|(_, lost)| lost.node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold as _;
    use berth_domain::{Namespace, PluginId, VolumeId};

    use super::*;
    use crate::projection::Volumes;

    fn claim(state: &str) -> Vec<u8> {
        format!(
            r#"{{"state":"{state}","node":"n1","mode":"write","since":"2026-01-01T00:00:00Z",
                "reason":"","access":"single-node-writer","attachment":"file-system",
                "controller":true,"plugin":"p","external_id":"x","schema":1}}"#
        )
        .into_bytes()
    }

    #[test]
    fn a_claim_that_was_deleted_while_it_was_taken_is_lost_until_it_is_known_again() {
        let key = "default.v.claim.a";
        let mut volumes = Volumes::default();
        let lost = volumes.lost().clone();
        let name = |id| VolumeKey::new(Namespace::default(), VolumeId::new(id).unwrap());
        let handle =
            |id: &str| Handle { plugin: PluginId::new("p").unwrap(), external_id: id.to_owned() };
        volumes.put(key, 1, &claim("node-detached"));
        volumes.delete(key, 2);
        assert!(lost.nodes_of(&name("v"), None).is_empty(), "it was released");
        volumes.put(key, 3, &claim("taken"));
        volumes.delete(key, 4);
        let n1 = [NodeId::new("n1").unwrap()];
        assert_eq!(lost.nodes_of(&name("v"), None), n1);
        assert_eq!(lost.nodes_of(&name("renamed"), Some(&handle("x"))), n1);
        assert!(lost.nodes_of(&name("v"), Some(&handle("y"))).is_empty(), "another volume");
        volumes.put(key, 5, &claim("taken"));
        assert!(lost.nodes_of(&name("v"), None).is_empty(), "it is there again");
        volumes.delete(key, 6);
        lost.forget(|_, alloc, lost| alloc.as_str() == "a" && lost.node == n1[0]);
        assert!(lost.nodes_of(&name("v"), None).is_empty(), "its node has said so");
    }
}
