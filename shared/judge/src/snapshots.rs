//! Groups of snapshots, and which snapshots are ready to use.
//!
//! Owns: the members of each group, and the snapshots that an answer called not ready. Promises:
//! knows only what answers said; a list that the log has cut off says nothing about the rest.
//! Never: knows names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use berth_csi::Rpc;

use super::log_row::{AnsweredSnapshot, CallEffect, LOGGED_ENTRIES_MAX, LogRow, ObjectId};
use super::volume_model::CallContext;
use super::volume_use::CallLines;

#[derive(Default, Debug)]
pub(super) struct SnapshotRegistry {
    groups: HashMap<String, AnsweredMembers>,
    /// By the id of the snapshot.
    memberships: HashMap<String, Membership>,
    /// By the id of the snapshot: the last call whose answer called it not ready.
    unready: BTreeMap<String, CallLines>,
}

/// All members of a group.
#[derive(Debug)]
pub(super) struct AnsweredMembers {
    ids: BTreeSet<String>,
    pub lines: CallLines,
}

/// The group of a snapshot, and the call that said so.
#[derive(Debug)]
pub(super) struct Membership {
    pub group: String,
    pub lines: CallLines,
}

impl SnapshotRegistry {
    pub fn membership(&self, snapshot: &str) -> Option<&Membership> {
        self.memberships.get(snapshot)
    }

    /// The members of the group in this call, if the call names others.
    pub fn named_otherwise(&self, call: &CallContext<'_>) -> Option<&AnsweredMembers> {
        let named_ids = &call.args.snapshot_ids;
        let members = self.groups.get(&call.args.group_snapshot_id)?;
        // The log may have cut the list off.
        if named_ids.len() >= LOGGED_ENTRIES_MAX {
            return None;
        }
        let is_same = named_ids.len() == members.ids.len()
            && named_ids.iter().all(|id| members.ids.contains(id));
        (!is_same).then_some(members)
    }

    /// The last call whose answer called this snapshot not ready to use.
    pub fn unready(&self, snapshot: &str) -> Option<&CallLines> {
        self.unready.get(snapshot)
    }

    /// What the call deletes, with all members of a group.
    pub fn deletes(&self, call: &CallContext<'_>) -> Vec<ObjectId> {
        let args = call.args;
        match call.rpc {
            Rpc::DeleteVolume => vec![ObjectId::Volume(args.volume_id.clone())],
            Rpc::DeleteSnapshot => vec![ObjectId::Snapshot(args.snapshot_id.clone())],
            Rpc::DeleteVolumeGroupSnapshot => {
                let members = self.groups.get(&args.group_snapshot_id);
                let members = members.into_iter().flat_map(|members| &members.ids);
                let members: BTreeSet<_> = members.chain(&args.snapshot_ids).collect();
                let members = members.into_iter().map(|id| ObjectId::Snapshot(id.clone()));
                [ObjectId::Group(args.group_snapshot_id.clone())]
                    .into_iter()
                    .chain(members)
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// `is_told`: the CO knows that the call succeeded.
    pub fn apply_end(
        &mut self,
        call: &CallContext<'_>,
        row: &LogRow,
        is_told: bool,
        deleted: &[ObjectId],
    ) {
        if row.effect != Some(CallEffect::Done) {
            return;
        }
        match call.rpc {
            Rpc::CreateSnapshot | Rpc::GetSnapshot => {
                self.learn(&row.answer.snapshot, call.lines, is_told);
            }
            Rpc::CreateVolumeGroupSnapshot | Rpc::GetVolumeGroupSnapshot => {
                self.learn_group(call, row, is_told);
            }
            Rpc::ListSnapshots => {
                let entries = &row.answer.entries;
                let snapshots = entries.iter().filter_map(|entry| entry.snapshot.as_ref());
                snapshots.for_each(|snapshot| self.learn(snapshot, call.lines, is_told));
                if entries.len() >= LOGGED_ENTRIES_MAX {
                    // The rest of the list may have called them ready.
                    self.unready.clear();
                }
            }
            _ => {}
        }
        for object in deleted {
            match object {
                ObjectId::Snapshot(id) => {
                    self.memberships.remove(id);
                    self.unready.remove(id);
                }
                ObjectId::Group(id) => _ = self.groups.remove(id),
                ObjectId::Volume(_) => {}
            }
        }
    }

    fn learn_group(&mut self, call: &CallContext<'_>, row: &LogRow, is_told: bool) {
        let group = &row.answer.group_snapshot;
        for snapshot in &group.snapshots {
            self.learn(snapshot, call.lines, is_told);
        }
        let ids: BTreeSet<_> =
            group.snapshots.iter().map(|snapshot| snapshot.snapshot_id.clone()).collect();
        let is_whole = group.snapshots.len() < LOGGED_ENTRIES_MAX && !ids.contains("");
        if is_whole && !ids.is_empty() && !group.group_snapshot_id.is_empty() {
            let members = || AnsweredMembers { ids, lines: Rc::clone(call.lines) };
            self.groups.entry(group.group_snapshot_id.clone()).or_insert_with(members);
        }
    }

    fn learn(&mut self, snapshot: &AnsweredSnapshot, lines: &CallLines, is_told: bool) {
        let AnsweredSnapshot { snapshot_id: id, group_snapshot_id: group, ready_to_use } = snapshot;
        if id.is_empty() {
            return;
        }
        if !group.is_empty() {
            let membership = || Membership { group: group.clone(), lines: Rc::clone(lines) };
            self.memberships.entry(id.clone()).or_insert_with(membership);
        }
        if is_told && *ready_to_use {
            self.unready.remove(id);
        } else if is_told {
            self.unready.insert(id.clone(), Rc::clone(lines));
        }
    }
}
