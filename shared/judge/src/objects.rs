//! Names and ids of volumes and snapshots.
//!
//! Owns: which names are taken, with which parameters, and which ids are deleted. Promises: a name
//! is free again after its object is deleted; the oldest deletions beyond a bound are forgotten.
//! Never: knows the use of a volume.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use berth_csi::Rpc;
use serde_json::{Value, json};

use super::log_row::{CallEffect, LogRow, ObjectId};
use super::volume_model::CallContext;
use super::volume_use::CallLines;

/// Deleted ids that are remembered; the oldest are forgotten.
const MOST_DELETED: usize = 10_000;

#[derive(Default, Debug)]
pub(super) struct ObjectRegistry {
    names: HashMap<ObjectName, TakenName>,
    ids: HashMap<ObjectId, ObjectName>,
    deleted: HashMap<ObjectId, CallLines>,
    oldest: VecDeque<ObjectId>,
}

/// The creating RPC is part of the name: volumes and snapshots have separate names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ObjectName(Rpc, String);

/// A name that is or may be taken.
#[derive(Debug)]
pub(super) struct TakenName {
    asked: Value,
    by: u64,
    pub lines: CallLines,
    /// Whether the CO knows it.
    pub is_known: bool,
}

impl ObjectRegistry {
    /// The name in this call, if it is or may be taken with other parameters.
    pub fn taken_otherwise(&self, call: &CallContext<'_>) -> Option<&TakenName> {
        let taken = self.names.get(&name(call)?)?;
        (taken.asked != repeatable_parameters(call)).then_some(taken)
    }

    pub fn deleted_by(&self, object: &ObjectId) -> Option<&CallLines> {
        self.deleted.get(object)
    }

    pub fn apply_begin(&mut self, call: &CallContext<'_>) {
        if let Some(name) = name(call) {
            let (asked, by, lines) = (repeatable_parameters(call), call.by, Rc::clone(call.lines));
            self.names.entry(name).or_insert(TakenName { asked, by, lines, is_known: false });
        }
    }

    pub fn apply_end(&mut self, call: &CallContext<'_>, row: &LogRow) {
        if let Some(name) = name(call) {
            self.made(name, call, row);
        }
        if let Some(object) = deletes(call).filter(|_| row.effect == Some(CallEffect::Done)) {
            if let Some(name) = self.ids.remove(&object) {
                self.names.remove(&name);
            }
            self.note_deleted(object, call.lines);
        }
    }

    fn made(&mut self, name: ObjectName, call: &CallContext<'_>, row: &LogRow) {
        let Some(taken) = self.names.get_mut(&name) else { return };
        match row.effect {
            Some(CallEffect::Done) => {
                (taken.asked, taken.lines) = (repeatable_parameters(call), Rc::clone(call.lines));
                taken.is_known |= row.is_known_success();
                if let Some(object) = row.made() {
                    self.deleted.remove(&object);
                    self.ids.insert(object, name);
                }
            }
            Some(CallEffect::None) if taken.by == call.by && !taken.is_known => {
                self.names.remove(&name);
            }
            _ => {}
        }
    }

    fn note_deleted(&mut self, object: ObjectId, lines: &CallLines) {
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

pub(super) fn deletes(call: &CallContext<'_>) -> Option<ObjectId> {
    match call.rpc {
        Rpc::DeleteVolume => Some(ObjectId::Volume(call.args.volume_id.clone())),
        Rpc::DeleteSnapshot => Some(ObjectId::Snapshot(call.args.snapshot_id.clone())),
        _ => None,
    }
}

fn name(call: &CallContext<'_>) -> Option<ObjectName> {
    let is_create = matches!(call.rpc, Rpc::CreateVolume | Rpc::CreateSnapshot);
    is_create.then(|| ObjectName(call.rpc, call.args.name.clone()))
}

/// The parameters that must be equal in repeated requests for one name.
fn repeatable_parameters(call: &CallContext<'_>) -> Value {
    let args = call.args;
    let source = format!("{:?}", args.source());
    json!([
        args.volume_capabilities,
        args.capacity_range,
        args.parameters,
        args.accessibility_requirements,
        source
    ])
}
