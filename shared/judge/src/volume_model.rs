//! The model of one volume.
//!
//! Owns: the uses of a volume, rebuilt from calls. Promises: follows CSI's lifecycle by the effects
//! of the calls alone. Never: judges.

use std::collections::BTreeMap;
use std::rc::Rc;

use berth_csi::Rpc;

use super::finding::ObjectKind;
use super::log_row::{CallArguments, CallEffect, HeldVolume, LogRow};
use super::volume_use::{CallId, CallLines, UseLocation, UseRequest, VolumeUse};

#[derive(Default, Debug)]
pub(super) struct VolumeModel {
    pub things: BTreeMap<UseLocation, VolumeUse>,
    pub expansion: Option<Expansion>,
}

/// The newest `ControllerExpandVolume`.
#[derive(Debug)]
pub(super) struct Expansion {
    by: CallId,
    pub lines: CallLines,
    /// Whether the CO knows that it succeeded.
    pub is_known: bool,
    /// Whether the CO knew that an earlier one had succeeded.
    was_known: bool,
}

/// A call, as the model sees it.
pub(super) struct CallContext<'a> {
    pub by: CallId,
    pub rpc: Rpc,
    /// The node of the instance that serves it.
    pub at: &'a str,
    pub args: &'a CallArguments,
    pub lines: &'a CallLines,
}

impl CallContext<'_> {
    /// What it is about, for people: an id, or the name of what it creates.
    pub fn object(&self) -> (ObjectKind, String) {
        let Self { args, .. } = self;
        let (kind, id) = match self.rpc {
            Rpc::CreateVolume => (ObjectKind::Volume, &args.name),
            Rpc::DeleteSnapshot | Rpc::GetSnapshot => (ObjectKind::Snapshot, &args.snapshot_id),
            Rpc::CreateVolumeGroupSnapshot => (ObjectKind::Group, &args.name),
            Rpc::DeleteVolumeGroupSnapshot | Rpc::GetVolumeGroupSnapshot => {
                (ObjectKind::Group, &args.group_snapshot_id)
            }
            _ => return (ObjectKind::Volume, args.volume().unwrap_or_default().to_owned()),
        };
        (kind, id.clone())
    }

    /// The use that it creates, if any.
    pub fn created_location(&self) -> Option<UseLocation> {
        let Self { at, args, .. } = self;
        let node = (*at).to_owned();
        match self.rpc {
            Rpc::ControllerPublishVolume => {
                Some(UseLocation::Attachment { node: args.node_id.clone() })
            }
            Rpc::NodeStageVolume => {
                Some(UseLocation::Stage { node, path: args.staging_target_path.clone() })
            }
            Rpc::NodePublishVolume => {
                Some(UseLocation::Publication { node, path: args.target_path.clone() })
            }
            _ => None,
        }
    }
}

impl VolumeModel {
    /// Whether no later call could contradict anything in it.
    pub fn is_blank(&self) -> bool {
        self.things.is_empty() && self.expansion.is_none()
    }

    pub fn attachment(&self, node: &str) -> Option<&VolumeUse> {
        self.things.get(&UseLocation::Attachment { node: node.to_owned() })
    }

    pub fn attachments(&self) -> impl Iterator<Item = (&str, &VolumeUse)> {
        self.things.iter().filter_map(|(place, thing)| match place {
            UseLocation::Attachment { node } => Some((node.as_str(), thing)),
            _ => None,
        })
    }

    /// Stages and publications on all nodes.
    pub fn uses(&self) -> impl Iterator<Item = (&UseLocation, &VolumeUse)> {
        self.things.iter().filter(|(place, _)| place.path().is_some())
    }

    /// Stages and publications that can write: of nodes that were not fenced since.
    pub fn live_uses(&self) -> impl Iterator<Item = (&UseLocation, &VolumeUse)> {
        self.uses().filter(|(_, thing)| !thing.is_cut)
    }

    /// Uses of a node from before it was fenced.
    pub fn stale_on(&self, node: &str) -> impl Iterator<Item = (&UseLocation, &VolumeUse)> {
        self.uses_on(node).filter(|(_, thing)| thing.is_cut)
    }

    /// The node was fenced: its uses can no longer write.
    pub fn cut_off(&mut self, node: &str) {
        let uses = self.things.iter_mut().filter(|(place, _)| place.path().is_some());
        uses.filter(|(place, _)| place.node() == node).for_each(|(_, thing)| thing.is_cut = true);
    }

    /// Stages and publications on this node.
    pub fn uses_on(&self, node: &str) -> impl Iterator<Item = (&UseLocation, &VolumeUse)> {
        self.uses().filter(move |(place, _)| place.node() == node)
    }

    /// The nodes that a detach is about; an empty node id means all.
    pub fn nodes_of(&self, args: &CallArguments) -> Vec<String> {
        if args.node_id.is_empty() {
            self.attachments().map(|(node, _)| node.to_owned()).collect()
        } else {
            vec![args.node_id.clone()]
        }
    }

    /// A call began; it may take effect from now on.
    pub fn apply_begin(&mut self, call: &CallContext<'_>) {
        if let Some(place) = call.created_location() {
            let thing = || {
                VolumeUse::possible(
                    UseRequest::from_arguments(call.args),
                    call.by,
                    Rc::clone(call.lines),
                )
            };
            self.things.entry(place).or_insert_with(thing);
        }
        for place in self.undone_by(call) {
            if let Some(thing) = self.things.get_mut(&place) {
                thing.mark_undoing(call.by, call.lines);
            }
        }
        if call.rpc == Rpc::ControllerExpandVolume {
            let was_known = self.expansion.as_ref().is_none_or(|before| before.is_known);
            let (by, lines) = (call.by, Rc::clone(call.lines));
            self.expansion = Some(Expansion { by, lines, is_known: false, was_known });
        }
    }

    pub fn apply_end(&mut self, call: &CallContext<'_>, row: &LogRow) {
        if let Some(place) = call.created_location() {
            self.made(place, call, row);
        }
        for place in self.undone_by(call) {
            let stays = |thing: &mut VolumeUse| thing.undone(call.by, row);
            if !self.things.get_mut(&place).is_none_or(stays) {
                self.things.remove(&place);
            }
        }
        if let Some(expansion) = self.expansion.as_mut().filter(|newest| newest.by == call.by) {
            expansion.is_known = match row.effect {
                Some(CallEffect::Done) => row.is_known_success(),
                Some(CallEffect::None) => expansion.was_known,
                Some(CallEffect::Unknown) | None => false,
            };
        }
    }

    fn made(&mut self, place: UseLocation, call: &CallContext<'_>, row: &LogRow) {
        // An instance that started meanwhile did not find the use, and yet it was created.
        if row.effect != Some(CallEffect::None) {
            let thing = || {
                VolumeUse::possible(
                    UseRequest::from_arguments(call.args),
                    call.by,
                    Rc::clone(call.lines),
                )
            };
            self.things.entry(place.clone()).or_insert_with(thing);
        }
        let Some(thing) = self.things.get_mut(&place) else { return };
        if !thing.made(call.by, call.lines, call.args, row) {
            self.things.remove(&place);
        }
    }

    /// The uses that the call undoes.
    fn undone_by(&self, call: &CallContext<'_>) -> Vec<UseLocation> {
        let CallContext { at, args, .. } = call;
        let node = (*at).to_owned();
        match call.rpc {
            Rpc::ControllerUnpublishVolume => {
                let nodes = self.nodes_of(args).into_iter();
                nodes.map(|node| UseLocation::Attachment { node }).collect()
            }
            Rpc::NodeUnstageVolume => {
                vec![UseLocation::Stage { node, path: args.staging_target_path.clone() }]
            }
            Rpc::NodeUnpublishVolume => {
                vec![UseLocation::Publication { node, path: args.target_path.clone() }]
            }
            _ => Vec::new(),
        }
    }

    /// An instance started on this node: what it did not find is gone.
    pub fn settle(&mut self, node: &str, holding: Option<&HeldVolume>) {
        self.things.retain(|place, _| match place {
            UseLocation::Stage { node: on, path } if on == node => {
                holding.is_some_and(|holding| holding.staging.as_ref() == Some(path))
            }
            UseLocation::Publication { node: on, path } if on == node => {
                holding.is_some_and(|holding| holding.targets.contains(path))
            }
            _ => true,
        });
    }
}
