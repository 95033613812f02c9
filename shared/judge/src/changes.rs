//! Sizes and mutable parameters of volumes, as the CO knows them.
//!
//! Owns: the largest size that the CO was told or that an unanswered call may give, and the
//! modification that was not answered. Promises: a definite refusal ends the doubt. Never: knows
//! what the storage really has.

use std::collections::HashMap;
use std::rc::Rc;

use berth_csi::Rpc;
use serde_json::Value;

use super::log_row::{CallEffect, LogRow, ObjectId};
use super::objects::ObjectRegistry;
use super::volume_model::CallContext;
use super::volume_use::{CallId, CallLines};

#[derive(Default, Debug)]
pub(super) struct ChangeRegistry {
    /// By volume: the modification that may be done without the CO's knowledge.
    modifications: HashMap<String, OpenModification>,
    /// By volume.
    sizes: HashMap<String, VolumeSizes>,
}

#[derive(Debug)]
struct OpenModification {
    asked: Value,
    by: CallId,
    lines: CallLines,
}

#[derive(Default, Debug)]
struct VolumeSizes {
    told: Option<SizeProof>,
    /// An expansion that may be done without the CO's knowledge.
    open: Option<SizeProof>,
}

/// A size of a volume, and the call that it comes from.
#[derive(Debug)]
pub(super) struct SizeProof {
    pub bytes: i64,
    by: CallId,
    pub lines: CallLines,
}

impl SizeProof {
    fn new(bytes: i64, call: &CallContext<'_>) -> Self {
        Self { bytes, by: call.by, lines: Rc::clone(call.lines) }
    }
}

impl ChangeRegistry {
    /// The open modification of the volume, if this call asks for something else.
    pub fn modified_otherwise(&self, call: &CallContext<'_>) -> Option<&CallLines> {
        let open = self.modifications.get(&call.args.volume_id)?;
        (open.asked != call.args.mutable_parameters).then_some(&open.lines)
    }

    /// The largest size that the volume has or may have, if this call asks for less.
    pub fn larger(&self, call: &CallContext<'_>) -> Option<&SizeProof> {
        let VolumeSizes { told, open } = self.sizes.get(&call.args.volume_id)?;
        let largest = told.iter().chain(open).max_by_key(|size| size.bytes)?;
        let required = call.args.required_bytes();
        (required > 0 && required < largest.bytes).then_some(largest)
    }

    pub fn apply_begin(&mut self, call: &CallContext<'_>) {
        let id = &call.args.volume_id;
        match call.rpc {
            Rpc::ControllerModifyVolume => {
                let (asked, by) = (call.args.mutable_parameters.clone(), call.by);
                let open = || OpenModification { asked, by, lines: Rc::clone(call.lines) };
                self.modifications.entry(id.clone()).or_insert_with(open);
            }
            Rpc::ControllerExpandVolume => {
                let open = &mut self.sizes.entry(id.clone()).or_default().open;
                let bytes = call.args.required_bytes();
                if open.as_ref().is_none_or(|open| open.bytes < bytes) {
                    *open = Some(SizeProof::new(bytes, call));
                }
            }
            _ => {}
        }
    }

    /// `is_told`: the CO knows that the call succeeded.
    pub fn apply_end(
        &mut self,
        call: &CallContext<'_>,
        row: &LogRow,
        is_told: bool,
        objects: &ObjectRegistry,
    ) {
        let id = &call.args.volume_id;
        let is_ended = |by: CallId| match row.effect {
            Some(CallEffect::Done) => is_told,
            Some(CallEffect::None) => by == call.by || row.is_definite(),
            Some(CallEffect::Unknown) | None => false,
        };
        match call.rpc {
            Rpc::ControllerModifyVolume
                if self.modifications.get(id).is_some_and(|open| is_ended(open.by)) =>
            {
                self.modifications.remove(id);
            }
            Rpc::ControllerExpandVolume => {
                let sizes = self.sizes.entry(id.clone()).or_default();
                sizes.open.take_if(|open| is_ended(open.by));
                if row.effect == Some(CallEffect::Done) && is_told {
                    sizes.raise_told(smallest(call, row.answer.capacity_bytes), call);
                }
                if sizes.told.is_none() && sizes.open.is_none() {
                    self.sizes.remove(id);
                }
            }
            Rpc::CreateVolume if is_told => {
                let created = row.made().filter(|created| objects.is_made_by(created, call));
                if let Some(ObjectId::Volume(id)) = created {
                    let bytes = smallest(call, row.answer.volume.capacity_bytes);
                    self.sizes.entry(id).or_default().raise_told(bytes, call);
                }
            }
            Rpc::DeleteVolume if row.effect == Some(CallEffect::Done) => {
                self.modifications.remove(id);
                self.sizes.remove(id);
            }
            _ => {}
        }
    }
}

impl VolumeSizes {
    fn raise_told(&mut self, bytes: i64, call: &CallContext<'_>) {
        if self.told.as_ref().is_none_or(|told| told.bytes < bytes) {
            self.told = Some(SizeProof::new(bytes, call));
        }
    }
}

/// The size that the CO may count on: what it required, unless it was told less. If the plugin
/// rounded up, a repeated request still requires less than the volume has.
fn smallest(call: &CallContext<'_>, told_bytes: i64) -> i64 {
    match call.args.required_bytes() {
        0 => told_bytes,
        required if told_bytes > 0 => required.min(told_bytes),
        required => required,
    }
}
