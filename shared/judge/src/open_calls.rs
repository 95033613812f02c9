//! Calls in flight.
//!
//! Owns: calls that have begun and not ended, and which calls must not overlap. Promises: a call of
//! a killed process stays open until its node starts again. Never: judges order.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use berth_csi::{Rpc, Service};

use super::finding::LogLine;
use super::log_row::{CallArguments, LogRow};
use super::volume_model::CallContext;
use super::volume_use::{CallId, CallLines};

/// A call that has begun.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub rpc: Rpc,
    pub at: String,
    pub instance: String,
    pub seq: u64,
    pub args: CallArguments,
    pub lines: CallLines,
    /// The slots that it occupies, each once.
    pub slots: Vec<CallSlot>,
    /// Whether its caller left.
    pub is_gone: bool,
}

/// At most one call may be in flight per slot (CSI, "Concurrency").
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum CallSlot {
    Volume(String),
    VolumeOnNode(String, String),
    /// A volume, snapshot or group that is being created, and has no id yet.
    Name(Rpc, String),
    Snapshot(String),
    Group(String),
}

impl CallSlot {
    pub fn of_call(rpc: Rpc, at: &str, args: &CallArguments) -> BTreeSet<Self> {
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let name = || some(&args.name).map(|name| Self::Name(rpc, name));
        match (rpc.service(), rpc) {
            // The volume in these requests is only a filter.
            (_, Rpc::ListVolumes | Rpc::ListSnapshots | Rpc::GetCapacity) => BTreeSet::new(),
            (_, Rpc::CreateVolume) => name().into_iter().collect(),
            (_, Rpc::DeleteSnapshot | Rpc::GetSnapshot) => {
                some(&args.snapshot_id).map(Self::Snapshot).into_iter().collect()
            }
            (_, Rpc::CreateVolumeGroupSnapshot) => {
                let volumes = args.volumes().map(|id| Self::Volume(id.to_owned()));
                name().into_iter().chain(volumes).collect()
            }
            (Service::GroupController, _) => {
                let members = args.snapshot_ids.iter().cloned().map(Self::Snapshot);
                some(&args.group_snapshot_id).map(Self::Group).into_iter().chain(members).collect()
            }
            (Service::Controller, _) => {
                args.volume().map(|id| Self::Volume(id.to_owned())).into_iter().collect()
            }
            (Service::Node, _) => {
                let volume = some(&args.volume_id);
                volume.map(|id| Self::VolumeOnNode(id, at.to_owned())).into_iter().collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// Whether the driver also allows only one call in this slot.
    pub fn is_checked_by_driver(&self) -> bool {
        matches!(self, Self::Volume(_) | Self::VolumeOnNode(..))
    }
}

impl OpenCall {
    pub fn from_row(row: LogRow, line: LogLine) -> Option<Self> {
        let rpc = row.rpc?;
        Some(Self {
            rpc,
            slots: CallSlot::of_call(rpc, &row.node_id, &row.args).into_iter().collect(),
            at: row.node_id,
            instance: row.instance,
            seq: row.seq,
            args: row.args,
            lines: Rc::new(RefCell::new(vec![line])),
            is_gone: false,
        })
    }

    pub fn context(&self, by: CallId) -> CallContext<'_> {
        let Self { rpc, at, args, lines, .. } = self;
        CallContext { by, rpc: *rpc, at, args, lines }
    }
}

#[derive(Default, Debug)]
pub(super) struct OpenCalls {
    calls: BTreeMap<CallId, OpenCall>,
    by_place: HashMap<(String, u64), CallId>,
    by_slot: HashMap<CallSlot, Vec<CallId>>,
}

impl OpenCalls {
    pub fn add(&mut self, id: CallId, open: OpenCall) {
        self.by_place.insert((open.instance.clone(), open.seq), id);
        for slot in &open.slots {
            self.by_slot.entry(slot.clone()).or_default().push(id);
        }
        self.calls.insert(id, open);
    }

    pub fn remove(&mut self, id: CallId) -> Option<OpenCall> {
        let open = self.calls.remove(&id)?;
        self.by_place.remove(&(open.instance.clone(), open.seq));
        for slot in &open.slots {
            let Some(calls) = self.by_slot.get_mut(slot) else { continue };
            calls.retain(|other| *other != id);
            if calls.is_empty() {
                self.by_slot.remove(slot);
            }
        }
        Some(open)
    }

    /// The open call that this line belongs to.
    pub fn find(&self, row: &LogRow) -> Option<CallId> {
        self.by_place.get(&(row.instance.clone(), row.seq)).copied()
    }

    pub fn get(&self, id: CallId) -> Option<&OpenCall> {
        self.calls.get(&id)
    }

    pub fn get_mut(&mut self, id: CallId) -> Option<&mut OpenCall> {
        self.calls.get_mut(&id)
    }

    pub fn contains(&self, id: CallId) -> bool {
        self.calls.contains_key(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (CallId, &OpenCall)> {
        self.calls.iter().map(|(id, open)| (*id, open))
    }

    pub fn in_slot(&self, slot: &CallSlot) -> impl Iterator<Item = (CallId, &OpenCall)> {
        let ids = self.by_slot.get(slot).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.get(*id)?)))
    }
}
