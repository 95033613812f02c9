//! Names and ids of volumes, snapshots and groups.
//!
//! Owns: which names are taken, and with which parameters; which of their requests were not
//! answered; and which ids are deleted. Promises: a name is free again after its object is deleted,
//! or after a request for it was refused; of the deleted ids, the oldest beyond a bound are
//! forgotten. Never: knows the use of a volume.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use berth_csi::Rpc;
use serde_json::{Value, json};

use super::log_row::{CallEffect, LogRow, ObjectId};
use super::volume_model::CallContext;
use super::volume_use::{CallId, CallLines};

/// Deleted ids that are remembered, at most; the oldest are forgotten.
const MOST_DELETED: usize = 10_000;

#[derive(Default, Debug)]
pub(super) struct ObjectRegistry {
    names: HashMap<ObjectName, TakenName>,
    /// Names that may be taken without the CO's knowledge.
    doubtful: BTreeSet<ObjectName>,
    ids: HashMap<ObjectId, ObjectName>,
    deleted: HashMap<ObjectId, CallLines>,
    oldest: VecDeque<ObjectId>,
    /// When a list was answered last, in microseconds since 1970.
    listed_us: HashMap<Rpc, u64>,
}

/// The creating RPC is part of the name: volumes, snapshots and groups have separate names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct ObjectName {
    pub rpc: Rpc,
    pub name: String,
}

/// A name that is taken or may be.
#[derive(Debug)]
pub(super) struct TakenName {
    asked: Value,
    by: CallId,
    pub lines: CallLines,
    /// Whether the CO knows that it is taken.
    pub is_known: bool,
    /// What it is made from.
    sources: Vec<ObjectId>,
    /// The newest request for the name.
    pub newest: CallLines,
    /// The newest line of a request for it, in microseconds since 1970.
    pub last_us: u64,
    /// Whether the CO has since listed all objects, and deleted one whose id was in no answer to a
    /// creation.
    pub may_be_deleted: bool,
}

impl TakenName {
    fn new(call: &CallContext<'_>, now_us: u64) -> Self {
        Self {
            asked: repeatable_parameters(call),
            by: call.by,
            lines: Rc::clone(call.lines),
            is_known: false,
            sources: call.args.sources(),
            newest: Rc::clone(call.lines),
            last_us: now_us,
            may_be_deleted: false,
        }
    }
}

impl ObjectName {
    /// The name that this call gives.
    pub fn of_call(call: &CallContext<'_>) -> Option<Self> {
        let is_create = matches!(
            call.rpc,
            Rpc::CreateVolume | Rpc::CreateSnapshot | Rpc::CreateVolumeGroupSnapshot
        );
        is_create.then(|| Self { rpc: call.rpc, name: call.args.name.clone() })
    }

    /// The RPC that lists the objects of this kind.
    fn list(&self) -> Rpc {
        if self.rpc == Rpc::CreateVolume { Rpc::ListVolumes } else { Rpc::ListSnapshots }
    }

    fn is_of_kind(&self, object: &ObjectId) -> bool {
        let creates = match object {
            ObjectId::Volume(_) => Rpc::CreateVolume,
            ObjectId::Snapshot(_) => Rpc::CreateSnapshot,
            ObjectId::Group(_) => Rpc::CreateVolumeGroupSnapshot,
        };
        self.rpc == creates
    }
}

impl ObjectRegistry {
    /// The entry of the call's name, if it is taken or may be with other parameters.
    pub fn taken_otherwise(&self, call: &CallContext<'_>) -> Option<&TakenName> {
        let entry = self.names.get(&ObjectName::of_call(call)?)?;
        (entry.asked != repeatable_parameters(call)).then_some(entry)
    }

    pub fn deleted_by(&self, object: &ObjectId) -> Option<&CallLines> {
        self.deleted.get(object)
    }

    /// Names that may be taken without the CO's knowledge.
    pub fn doubtful(&self) -> impl Iterator<Item = (&ObjectName, &TakenName)> {
        self.doubtful.iter().filter_map(|name| Some((name, self.names.get(name)?)))
    }

    /// Requests that may be making something from this object, as far as the CO knows.
    pub fn unfinished_from(
        &self,
        source: &ObjectId,
    ) -> impl Iterator<Item = (&ObjectName, &TakenName)> {
        self.doubtful().filter(move |(_, entry)| entry.sources.contains(source))
    }

    pub fn apply_begin(&mut self, call: &CallContext<'_>, now_us: u64) {
        let Some(name) = ObjectName::of_call(call) else { return };
        let entry = self.names.entry(name.clone()).or_insert_with(|| TakenName::new(call, now_us));
        (entry.newest, entry.last_us) = (Rc::clone(call.lines), now_us);
        entry.may_be_deleted = false;
        if !entry.is_known {
            self.doubtful.insert(name);
        }
    }

    /// The caller of this call left.
    pub fn apply_gone(&mut self, call: &CallContext<'_>, now_us: u64) {
        let entry = ObjectName::of_call(call).and_then(|name| self.names.get_mut(&name));
        if let Some(entry) = entry {
            entry.last_us = entry.last_us.max(now_us);
        }
    }

    /// `is_told`: the CO knows that the call succeeded. `deleted`: what it deletes.
    pub fn apply_end(
        &mut self,
        call: &CallContext<'_>,
        row: &LogRow,
        is_told: bool,
        deleted: Vec<ObjectId>,
    ) {
        if let Some(name) = ObjectName::of_call(call) {
            self.settle(name, call, row, is_told);
        }
        if is_told && matches!(call.rpc, Rpc::ListVolumes | Rpc::ListSnapshots) {
            self.listed_us.insert(call.rpc, row.time_us());
        }
        if row.effect == Some(CallEffect::Done) {
            for object in deleted {
                self.delete(object, call.lines);
            }
        }
    }

    fn settle(&mut self, name: ObjectName, call: &CallContext<'_>, row: &LogRow, is_told: bool) {
        let now_us = row.time_us();
        if row.effect == Some(CallEffect::None) {
            let is_free =
                |entry: &TakenName| !entry.is_known && (entry.by == call.by || row.is_definite());
            if self.names.get(&name).is_some_and(is_free) {
                self.names.remove(&name);
                self.doubtful.remove(&name);
            }
            return;
        }
        let entry = self.names.entry(name.clone()).or_insert_with(|| TakenName::new(call, now_us));
        entry.last_us = entry.last_us.max(now_us);
        if row.effect == Some(CallEffect::Done) {
            (entry.asked, entry.lines) = (repeatable_parameters(call), Rc::clone(call.lines));
            entry.is_known |= is_told;
            for member in &row.answer.group_snapshot.snapshots {
                self.deleted.remove(&ObjectId::Snapshot(member.snapshot_id.clone()));
            }
            if let Some(object) = row.made() {
                // A plugin may wrongly answer the id of another object.
                let id_name = self.ids.entry(object.clone()).or_insert_with(|| name.clone());
                if *id_name == name {
                    self.deleted.remove(&object);
                }
            }
        }
        if entry.is_known {
            self.doubtful.remove(&name);
        } else {
            self.doubtful.insert(name);
        }
    }

    /// Whether the CO knows this id as the id of the call's name.
    pub fn is_made_by(&self, object: &ObjectId, call: &CallContext<'_>) -> bool {
        self.ids.get(object).is_some_and(|name| ObjectName::of_call(call).as_ref() == Some(name))
    }

    fn delete(&mut self, object: ObjectId, lines: &CallLines) {
        if let Some(name) = self.ids.remove(&object) {
            self.names.remove(&name);
            self.doubtful.remove(&name);
        } else {
            for name in self.doubtful.iter().filter(|name| name.is_of_kind(&object)) {
                let listed_us = self.listed_us.get(&name.list()).copied().unwrap_or_default();
                if let Some(entry) = self.names.get_mut(name) {
                    entry.may_be_deleted |= listed_us > entry.last_us;
                }
            }
        }
        if self.deleted.insert(object.clone(), Rc::clone(lines)).is_none() {
            self.oldest.push_back(object);
        }
        if self.oldest.len() > MOST_DELETED
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.deleted.remove(&oldest);
        }
    }
}

/// The parameters that must be equal in repeated requests for one name.
fn repeatable_parameters(call: &CallContext<'_>) -> Value {
    let args = call.args;
    let mut sources: Vec<_> = args.sources().iter().map(|source| format!("{source:?}")).collect();
    // The order of a group's volumes has no meaning.
    sources.sort();
    json!([
        args.volume_capabilities,
        args.capacity_range,
        args.parameters,
        args.mutable_parameters,
        args.accessibility_requirements,
        sources
    ])
}
