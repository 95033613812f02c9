//! Refuses requests for a volume that has a mount here which no claim covers.
//!
//! **Owns** the comparison of the node's uses with the claims that the caller knows. A record may
//! be lost: a key is deleted by hand, or an older backup is restored. Then the claim service takes
//! a mounted volume for free, and would detach it under its workload.
//!
//! **Promises** that while the node has such a mount, no use of the volume counts as gone and none
//! is added. A volume is what its plugin calls it: the mount may be of a time when it had another
//! name, and the name may have been given to another volume since.
//!
//! **Never** unmounts: a workload may use the mount.

use std::collections::HashSet;

use berth_contract::code::Code;
use berth_contract::hint::volume_argument;
use berth_contract::problem::Problem;
use berth_domain::{AllocId, NodeId, VolumeKey};

use super::beside::{AccountedUse, ClaimsBeside};
use super::volumes::LocalVolumes;
use crate::executor::PluginVolume;
use crate::journal::JournalledUse;
use crate::mounts::plan::VolumeOnNode;

/// A use that no claim covers.
struct UncoveredUse {
    /// The name of the volume when it was mounted.
    volume: VolumeKey,
    alloc: AllocId,
    entry: JournalledUse,
}

impl LocalVolumes {
    /// Refuses to mount while the node has a mount of the volume that no claim covers, under
    /// whatever name, or another volume where this one goes. `beside` is none if any number of
    /// allocs may write.
    pub(super) fn check_mountable(
        &self,
        wanted: AccountedUse<'_>,
        beside: Option<&ClaimsBeside>,
        scene: VolumeOnNode<'_>,
    ) -> Result<(), Problem> {
        let AccountedUse { volume, handle, .. } = wanted;
        // Its paths follow from its name. Another volume of that name may have them.
        let mut uses = scene.journal.uses.iter();
        let foreign = uses.find(|(_, entry)| !is_same_volume(entry, handle));
        if let Some((alloc, entry)) = foreign {
            let what = format!(
                "has another volume of plugin {}, {:?}, mounted as {volume}",
                entry.plugin, entry.external_id
            );
            return Err(self.refuse_beside(volume, alloc, entry, &what));
        }
        // A volume is staged at one path of a node, so this holds for shared volumes, too.
        if let Some(other) = self.uses_under_other_names(wanted).into_iter().next() {
            return Err(self.refuse_uncovered(wanted, &other));
        }
        match beside {
            Some(beside) => self.check_covered(wanted, beside, scene),
            None => Ok(()),
        }
    }

    /// Refuses to take an alloc's use down while the node has a mount of the volume that no claim
    /// covers: afterwards the controller would detach the volume under it.
    pub(super) fn check_accounted(
        &self,
        leaving: AccountedUse<'_>,
        beside: &ClaimsBeside,
        scene: VolumeOnNode<'_>,
    ) -> Result<(), Problem> {
        // A claim of another registration covers its mount, and keeps the controller from detaching
        // (rule 17).
        let others = self.uses_under_other_names(leaving).into_iter();
        let mut uncovered =
            others.filter(|other| self.unaccounted.may_have(&other.volume, &other.alloc));
        if let Some(other) = uncovered.next() {
            return Err(self.refuse_uncovered(leaving, &other));
        }
        self.check_covered(leaving, beside, scene)
    }

    /// The uses of the same volume under other names.
    fn uses_under_other_names(&self, of: AccountedUse<'_>) -> Vec<UncoveredUse> {
        let uses = self.journal.uses_of(&of.handle.plugin, &of.handle.external_id);
        let others = uses.into_iter().filter(|(volume, ..)| volume != of.volume);
        others.map(|(volume, alloc, entry)| UncoveredUse { volume, alloc, entry }).collect()
    }

    /// Refuses while an alloc without a claim has the volume here under its present name.
    fn check_covered(
        &self,
        of: AccountedUse<'_>,
        beside: &ClaimsBeside,
        scene: VolumeOnNode<'_>,
    ) -> Result<(), Problem> {
        let AccountedUse { volume, handle, alloc } = of;
        let VolumeOnNode { journal: known, mounts: table, place } = scene;
        let is_covered = |other: &AllocId| other == alloc || beside.allocs.contains(other);
        // After an older backup was restored, revisions begin again below those in the journal.
        let is_certain = |other: &AllocId, entry: &JournalledUse| {
            entry.epoch <= beside.until_epoch || self.unaccounted.has(volume, other)
        };
        let mut uses = known.uses.iter().filter(|(_, entry)| is_same_volume(entry, handle));
        let uncovered = uses.find(|(other, entry)| !is_covered(other) && is_certain(other, entry));
        if let Some((other, entry)) = uncovered {
            let (volume, alloc, entry) = (volume.clone(), other.clone(), entry.clone());
            return Err(self.refuse_uncovered(of, &UncoveredUse { volume, alloc, entry }));
        }
        // For an agent that lost its journal: paths in the mount table follow from the ids.
        let paths = &self.paths;
        let others = beside.allocs.iter().chain(known.uses.keys());
        let mut dirs: HashSet<_> = others
            .map(|other| paths.volume_paths(&handle.plugin, volume, other).alloc_dir)
            .collect();
        dirs.extend([place.alloc_dir.clone(), place.staging.clone()]);
        let mut mounted = table.beneath(&place.volume_dir);
        let stray = mounted.find(|point| !point.ancestors().any(|dir| dirs.contains(dir)));
        let Some(path) = stray else { return Ok(()) };
        let node = &self.node;
        let path = path.display();
        let message = format!(
            "node {node} has volume {volume} mounted at {path} for an alloc that the journal does \
             not name, and no claim covers it"
        );
        let next = format!(
            "end what uses {path} on node {node}, then `umount {path}` there; this goes on by \
             itself"
        );
        Err(Problem::new(Code::MountUnaccounted, message).retryable().next(next))
    }

    fn refuse_uncovered(&self, of: AccountedUse<'_>, other: &UncoveredUse) -> Problem {
        let UncoveredUse { volume, alloc, entry } = other;
        if volume.namespace != of.volume.namespace {
            return refuse_hidden(&self.node, of.volume);
        }
        let name = if volume == of.volume {
            String::new()
        } else {
            format!(" (as {volume}, the same volume of plugin {})", entry.plugin)
        };
        let what = format!("has volume {}{name} mounted", of.volume);
        self.refuse_beside(volume, alloc, entry, &what)
    }

    /// The refusal beside a mount of the volume that had this name.
    fn refuse_beside(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        entry: &JournalledUse,
        what: &str,
    ) -> Problem {
        let (node, path) = (&self.node, entry.target.display());
        let message =
            format!("node {node} {what} at {path} for alloc {alloc}, and no claim covers it");
        let argument = volume_argument(volume);
        let next = format!(
            "end what uses {path} on node {node}, then `berth node unmount {node} {argument}`; \
             this goes on by itself"
        );
        Problem::new(Code::MountUnaccounted, message).retryable().next(next)
    }
}

/// The refusal beside a mount of the volume that has a name of another namespace: callers of this
/// one may not know that name, the alloc, or the path that is made of both.
fn refuse_hidden(node: &NodeId, volume: &VolumeKey) -> Problem {
    let message = format!(
        "node {node} has volume {volume} mounted as a volume of another namespace, and no claim \
         covers it"
    );
    let next = format!(
        "an operator sees the mount with `berth node status {node}`, ends what uses it, and takes \
         it down there; this goes on by itself"
    );
    Problem::new(Code::MountUnaccounted, message).retryable().next(next)
}

fn is_same_volume(entry: &JournalledUse, handle: &PluginVolume) -> bool {
    entry.is_of(&handle.plugin, &handle.external_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_under_a_name_of_another_namespace_is_told_without_that_name() {
        let volume: VolumeKey = VolumeKey::new("ours".parse().unwrap(), "data".parse().unwrap());
        let problem = refuse_hidden(&NodeId::new("n1").unwrap(), &volume);
        assert_eq!(
            problem.message,
            "node n1 has volume ours/data mounted as a volume of another namespace, and no claim \
             covers it"
        );
    }
}
