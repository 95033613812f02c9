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
    pub all_uses: BTreeMap<UseLocation, VolumeUse>,
    pub expansion: Option<Expansion>,
}

/// The newest `ControllerExpandVolume`.
#[derive(Debug)]
pub(super) struct Expansion {
    by: CallId,
    pub lines: CallLines,
    /// Whether the CO knows that it succeeded.
    pub is_known: bool,
    /// Whether the CO knew that an earlier expansion had succeeded.
    was_known: bool,
}

/// A call in the form that the model uses.
pub(super) struct CallContext<'a> {
    pub by: CallId,
    pub rpc: Rpc,
    /// The node of the instance that serves it.
    pub at: &'a str,
    pub args: &'a CallArguments,
    pub lines: &'a CallLines,
}

impl CallContext<'_> {
    /// What it is about, for messages: an id, or the name of what it creates.
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
    /// Whether there is nothing that a later call could contradict.
    pub fn is_blank(&self) -> bool {
        self.all_uses.is_empty() && self.expansion.is_none()
    }

    pub fn attachment(&self, node: &str) -> Option<&VolumeUse> {
        self.all_uses.get(&UseLocation::Attachment { node: node.to_owned() })
    }

    pub fn attachments(&self) -> impl Iterator<Item = (&str, &VolumeUse)> {
        self.all_uses.iter().filter_map(|(location, volume_use)| match location {
            UseLocation::Attachment { node } => Some((node.as_str(), volume_use)),
            _ => None,
        })
    }

    /// Stages and publications on all nodes.
    pub fn uses(&self) -> impl Iterator<Item = (&UseLocation, &VolumeUse)> {
        self.all_uses.iter().filter(|(location, _)| location.path().is_some())
    }

    /// Stages and publications that can write: those of nodes that were not fenced since.
    pub fn live_uses(&self) -> impl Iterator<Item = (&UseLocation, &VolumeUse)> {
        self.uses().filter(|(_, volume_use)| !volume_use.is_cut)
    }

    /// Uses of a node from before it was fenced.
    pub fn stale_on(&self, node: &str) -> impl Iterator<Item = (&UseLocation, &VolumeUse)> {
        self.uses_on(node).filter(|(_, volume_use)| volume_use.is_cut)
    }

    /// The node was fenced: its uses can no longer write.
    pub fn cut_off(&mut self, node: &str) {
        let uses = self.all_uses.iter_mut().filter(|(location, _)| location.path().is_some());
        uses.filter(|(location, _)| location.node() == node)
            .for_each(|(_, volume_use)| volume_use.is_cut = true);
    }

    /// Stages and publications on this node.
    pub fn uses_on(&self, node: &str) -> impl Iterator<Item = (&UseLocation, &VolumeUse)> {
        self.uses().filter(move |(location, _)| location.node() == node)
    }

    /// The nodes that a detach names; an empty node id means all nodes.
    pub fn nodes_of(&self, args: &CallArguments) -> Vec<String> {
        if args.node_id.is_empty() {
            self.attachments().map(|(node, _)| node.to_owned()).collect()
        } else {
            vec![args.node_id.clone()]
        }
    }

    /// A call began; it may take effect from now on.
    pub fn apply_begin(&mut self, call: &CallContext<'_>) {
        if let Some(location) = call.created_location() {
            let possible_use = || {
                VolumeUse::possible(
                    UseRequest::from_arguments(call.args),
                    call.by,
                    Rc::clone(call.lines),
                )
            };
            self.all_uses.entry(location).or_insert_with(possible_use);
        }
        for location in self.undone_by(call) {
            if let Some(volume_use) = self.all_uses.get_mut(&location) {
                volume_use.mark_undoing(call.by, call.lines);
            }
        }
        if call.rpc == Rpc::ControllerExpandVolume {
            let was_known = self.expansion.as_ref().is_none_or(|before| before.is_known);
            let (by, lines) = (call.by, Rc::clone(call.lines));
            self.expansion = Some(Expansion { by, lines, is_known: false, was_known });
        }
    }

    pub fn apply_end(&mut self, call: &CallContext<'_>, row: &LogRow) {
        if let Some(location) = call.created_location() {
            self.made(location, call, row);
        }
        for location in self.undone_by(call) {
            let stays = |volume_use: &mut VolumeUse| volume_use.undone(call.by, row);
            if !self.all_uses.get_mut(&location).is_none_or(stays) {
                self.all_uses.remove(&location);
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

    fn made(&mut self, location: UseLocation, call: &CallContext<'_>, row: &LogRow) {
        // An instance that started meanwhile may not have found the use although it was created.
        if row.effect != Some(CallEffect::None) {
            let possible_use = || {
                VolumeUse::possible(
                    UseRequest::from_arguments(call.args),
                    call.by,
                    Rc::clone(call.lines),
                )
            };
            self.all_uses.entry(location.clone()).or_insert_with(possible_use);
        }
        let Some(volume_use) = self.all_uses.get_mut(&location) else { return };
        if !volume_use.made(call.by, call.lines, call.args, row) {
            self.all_uses.remove(&location);
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

    /// An instance started on this node: uses that it did not find are gone.
    pub fn settle(&mut self, node: &str, holding: Option<&HeldVolume>) {
        self.all_uses.retain(|location, _| match location {
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
