//! Refuses requests for a volume that has a mount here which no claim covers.
//!
//! **Owns** the comparison of the node's uses with the claims that the caller knows. A record may
//! be lost: a key is deleted by hand, or an older backup is restored. Then the claim service takes
//! a mounted volume for free, and would detach it under its workload.
//!
//! **Promises** that while the node has such a mount, no use of the volume counts as gone and none
//! is added.
//!
//! **Never** unmounts: a workload may use the mount.

use std::collections::BTreeSet;

use berth_contract::code::Code;
use berth_contract::hint::volume_argument;
use berth_contract::message::call::Call;
use berth_contract::message::claim::Grant;
use berth_contract::problem::Problem;
use berth_domain::access::AccessMode;
use berth_domain::{AllocId, PluginId, VolumeKey};

use super::Mounter;
use crate::journal::JournalledUse;
use crate::plan::VolumeOnNode;

/// The other claims on the volume at this node, by the claim service.
#[derive(Debug)]
pub(super) struct ClaimsBeside {
    allocs: BTreeSet<AllocId>,
    /// The list may lack claims of later epochs.
    until_epoch: u64,
}

impl ClaimsBeside {
    /// The list that a detach carries.
    pub(super) fn from_call(call: &Call) -> Option<Self> {
        let allocs = call.claims_beside.as_ref()?.iter().cloned().collect();
        Some(Self { allocs, until_epoch: call.revision })
    }

    /// The list that a grant carries. `None` if any number of allocs may write, because then
    /// another mount is no danger.
    pub(super) fn from_grant(grant: &Grant) -> Option<Self> {
        let shared = [AccessMode::SingleNodeMultiWriter, AccessMode::MultiNodeMultiWriter];
        let beside = grant.claims_beside.as_ref().filter(|_| !shared.contains(&grant.access))?;
        Some(Self { allocs: beside.iter().cloned().collect(), until_epoch: grant.epoch })
    }
}

impl Mounter {
    /// Refuses while the node has a mount of the volume for an alloc that has no claim.
    pub(super) fn check_accounted(
        &self,
        volume: &VolumeKey,
        plugin: &PluginId,
        alloc: &AllocId,
        beside: &ClaimsBeside,
        scene: VolumeOnNode<'_>,
    ) -> Result<(), Problem> {
        let VolumeOnNode { journal: known, mounts: table, place } = scene;
        let is_covered = |other: &AllocId| other == alloc || beside.allocs.contains(other);
        // After an older backup was restored, revisions begin again below those in the journal.
        let is_certain = |other: &AllocId, entry: &JournalledUse| {
            entry.epoch <= beside.until_epoch || self.shared.unaccounted.has(volume, other)
        };
        let mut uses = known.uses.iter();
        let uncovered = uses.find(|(other, entry)| !is_covered(other) && is_certain(other, entry));
        let node = &self.shared.host.node;
        let (whose, path, undo) = if let Some((other, entry)) = uncovered {
            let argument = volume_argument(volume);
            let undo = format!("`berth node unmount {node} {argument}`; this goes on by itself");
            (format!("alloc {other}"), entry.target.clone(), undo)
        } else {
            // For an agent that lost its journal: paths in the mount table follow from the ids.
            let paths = &self.shared.paths;
            let others = beside.allocs.iter().chain(known.uses.keys());
            let mut dirs: Vec<_> =
                others.map(|other| paths.volume_paths(plugin, volume, other).alloc_dir).collect();
            dirs.extend([place.alloc_dir.clone(), place.staging.clone()]);
            let mut mounted = table.beneath(&place.volume_dir);
            let stray = mounted.find(|point| !dirs.iter().any(|dir| point.starts_with(dir)));
            let Some(path) = stray else { return Ok(()) };
            let undo = format!("`umount {}` there; this goes on by itself", path.display());
            ("an alloc that the journal does not name".to_owned(), path.to_owned(), undo)
        };
        let path = path.display();
        let message = format!(
            "node {node} has volume {volume} mounted at {path} for {whose}, and no claim covers it"
        );
        let next = format!("end what uses {path} on node {node}, then {undo}");
        Err(Problem::new(Code::MountUnaccounted, message).retryable().next(next))
    }
}
