//! Whether a call may change the storage now.
//!
//! Owns: the rules of creating, changing, copying and deleting volumes, snapshots and groups.
//! Promises: finds every rule that a call breaks. As `check`, it is written from the spec. Never:
//! changes the model.

use std::rc::Rc;

use berth_csi::Rpc;

use super::changes::ChangeRegistry;
use super::check::BrokenRule;
use super::log_row::ObjectId;
use super::objects::{ObjectName, ObjectRegistry};
use super::open_calls::{CallSlot, OpenCalls};
use super::rule::Rule;
use super::snapshots::SnapshotRegistry;
use super::volume_model::CallContext;
use super::volume_use::CallLines;

/// A call, and what exists or may exist at the storage.
pub(super) struct StorageCheck<'a> {
    pub call: &'a CallContext<'a>,
    pub objects: &'a ObjectRegistry,
    pub snapshots: &'a SnapshotRegistry,
    pub changes: &'a ChangeRegistry,
    pub in_flight: &'a OpenCalls,
}

impl StorageCheck<'_> {
    /// All rules that the call breaks by being made now.
    pub fn find_broken_rules(&self) -> Vec<BrokenRule> {
        let mut broken: Vec<_> = match self.call.rpc {
            Rpc::CreateVolume => {
                self.find_conflict().into_iter().chain(self.find_unready_source()).collect()
            }
            Rpc::CreateSnapshot | Rpc::CreateVolumeGroupSnapshot => {
                self.find_conflict().into_iter().collect()
            }
            Rpc::DeleteVolume => self.find_unfinished_copies(),
            Rpc::DeleteSnapshot => {
                self.find_membership().into_iter().chain(self.find_unfinished_copies()).collect()
            }
            Rpc::DeleteVolumeGroupSnapshot => {
                self.find_other_members().into_iter().chain(self.find_unfinished_copies()).collect()
            }
            Rpc::GetVolumeGroupSnapshot => self.find_other_members().into_iter().collect(),
            Rpc::ControllerExpandVolume => self.find_smaller_expansion().into_iter().collect(),
            Rpc::ControllerModifyVolume => self.find_changed_modification().into_iter().collect(),
            _ => Vec::new(),
        };
        broken.extend(self.find_use_of_deleted());
        broken
    }

    /// A name that is taken, or may be, with other parameters.
    fn find_conflict(&self) -> Option<BrokenRule> {
        let name_taken = self.objects.taken_otherwise(self.call)?;
        let (rule, what) = if name_taken.is_known {
            let what = "the name is taken, by something with other parameters; choose another";
            (Rule::CreateConflict, what)
        } else {
            let what = "asked for again with other parameters, and may exist; repeat the same call";
            (Rule::RetryChanged, what)
        };
        Some(broken(rule, what, &name_taken.lines))
    }

    /// A source that is not ready to use, as far as the CO was told.
    fn find_unready_source(&self) -> Option<BrokenRule> {
        let sources = self.call.args.sources().into_iter();
        let mut unready = sources.filter_map(|source| match source {
            ObjectId::Snapshot(id) => Some((self.snapshots.unready(&id)?, id)),
            _ => None,
        });
        let (lines, id) = unready.next()?;
        let what = format!("made from the snapshot {id:?}, which is not ready_to_use yet");
        Some(broken(Rule::SourceNotReady, what, lines))
    }

    /// Unanswered requests to make something from what the call deletes. Requests that the CO still
    /// waits for are found as overlaps.
    fn find_unfinished_copies(&self) -> Vec<BrokenRule> {
        let deleted = self.snapshots.deletes(self.call);
        let unfinished = deleted.iter().flat_map(|object| self.objects.unfinished_from(object));
        let unanswered = unfinished.filter(|(name, _)| !self.is_awaited(name));
        let unfinished = unanswered.map(|(ObjectName { rpc, name }, taken)| {
            let what = format!(
                "{rpc} of {name:?} from it was not answered; repeat that until it is answered"
            );
            broken(Rule::DeleteOfSource, what, &taken.newest)
        });
        unfinished.collect()
    }

    /// Whether a call that gives this name is in flight, and is reported as an overlap. A call for
    /// a snapshot or group is not, after its caller left.
    fn is_awaited(&self, name: &ObjectName) -> bool {
        let slot = CallSlot::Name(name.rpc, name.name.clone());
        let mut calls = self.in_flight.in_slot(&slot);
        calls.any(|(_, open)| !open.is_gone || open.rpc == Rpc::CreateVolume)
    }

    /// A member of a group is deleted with the group.
    fn find_membership(&self) -> Option<BrokenRule> {
        let membership = self.snapshots.membership(&self.call.args.snapshot_id)?;
        let what = format!(
            "a member of the group {:?}; delete the group with DeleteVolumeGroupSnapshot",
            membership.group
        );
        Some(broken(Rule::DeleteOfMember, what, &membership.lines))
    }

    /// A call about a group names exactly its members.
    fn find_other_members(&self) -> Option<BrokenRule> {
        let members = self.snapshots.named_otherwise(self.call)?;
        let what = "snapshot_ids are not the members of the group; pass on those of its creation";
        Some(broken(Rule::OtherMembers, what, &members.lines))
    }

    fn find_smaller_expansion(&self) -> Option<BrokenRule> {
        let larger = self.changes.larger(self.call)?;
        let what = format!(
            "expanded to {} bytes, and has or may have {}; a volume never becomes smaller",
            self.call.args.required_bytes(),
            larger.bytes
        );
        Some(broken(Rule::SmallerExpansion, what, &larger.lines))
    }

    fn find_changed_modification(&self) -> Option<BrokenRule> {
        let lines = self.changes.modified_otherwise(self.call)?;
        let what = "a modification with other parameters was not answered; repeat that first";
        Some(broken(Rule::RetryChanged, what, lines))
    }

    /// Checks that nothing that was deleted is used.
    fn find_use_of_deleted(&self) -> Vec<BrokenRule> {
        let args = self.call.args;
        let used = match self.call.rpc {
            Rpc::CreateVolume | Rpc::CreateSnapshot | Rpc::CreateVolumeGroupSnapshot => {
                args.sources()
            }
            Rpc::ControllerPublishVolume
            | Rpc::ControllerExpandVolume
            | Rpc::ControllerModifyVolume
            | Rpc::NodeStageVolume
            | Rpc::NodePublishVolume
            | Rpc::NodeExpandVolume => vec![ObjectId::Volume(args.volume_id.clone())],
            _ => Vec::new(),
        };
        let deleted = used.iter().filter_map(|object| self.objects.deleted_by(object));
        deleted
            .map(|lines| broken(Rule::UseAfterDelete, "used after it was deleted", lines))
            .collect()
    }
}

fn broken(rule: Rule, what: impl Into<String>, lines: &CallLines) -> BrokenRule {
    BrokenRule { rule, what: what.into(), others: vec![Rc::clone(lines)] }
}

/// Whether `other`, which is in flight, copies something of `deleted`.
pub(super) fn copies_from(deleted: &[ObjectId], other: &CallContext<'_>) -> bool {
    // Calls that make snapshots or groups are about their volumes, so the check of overlaps finds
    // them.
    other.rpc == Rpc::CreateVolume
        && other.args.sources().iter().any(|source| deleted.contains(source))
}
