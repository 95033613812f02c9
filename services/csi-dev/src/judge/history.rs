//! One volume, as the calls so far have made it.
//!
//! Owns: the volume's state rebuilt from calls, and which call made what. Promises: what a call in
//! flight, or one without an end, may have done counts as "may be so". Never: reads a log.

use std::collections::BTreeMap;

use berth_csi::Rpc;

use super::calls::{CallRecord, Calls};
use crate::backend::{Attachment, Published, Running, Staged, State};
use crate::capability::{AccessMode, Capability};
use crate::log::{Args, Begin, Holding};
use crate::rules::{self, Scope, Violation};

/// What a node's instance demands before it uses a volume. Nothing, while no start was seen.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Needs {
    /// That the volume is attached.
    pub attach: bool,
    /// That the volume is staged before it is published.
    pub stage: bool,
}

/// A rule that was broken, and the calls that made it wrong.
type Broken = (Violation, Vec<usize>);

/// One volume so far.
#[derive(Default, Debug)]
pub(super) struct History {
    state: State,
    makers: BTreeMap<Thing, Maker>,
    /// Calls in flight, and those that never ended.
    open: Vec<usize>,
}

/// Something that a call makes and another one undoes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Thing {
    Attachment { node: String },
    Stage { node: String, path: String },
    Publication { node: String, target: String },
}

impl Thing {
    fn node(&self) -> &String {
        match self {
            Self::Attachment { node }
            | Self::Stage { node, .. }
            | Self::Publication { node, .. } => node,
        }
    }
}

/// The call that made a thing, or may have.
#[derive(Clone, Copy, Debug)]
struct Maker {
    call: usize,
    sure: bool,
}

impl History {
    /// The calls that this one must not overlap with, but does.
    pub fn overlaps(&self, calls: &Calls<'_>, begin: &Begin) -> Vec<Broken> {
        let node = &begin.source.node_id;
        let Some(scope) = Scope::of(begin.call.rpc) else { return Vec::new() };
        let violation = |running| match scope {
            Scope::Volume => Violation::OverlappingControllerCalls { running },
            Scope::VolumeOnNode => Violation::OverlappingNodeCalls { node: node.clone(), running },
        };
        self.open
            .iter()
            .map(|open| (*open, calls.get(*open)))
            .filter(|(_, other)| {
                Scope::of(other.begin.call.rpc) == Some(scope)
                    && (scope == Scope::Volume || other.begin.source.node_id == *node)
                    && other.waited_until_us > begin.begin_us
            })
            .map(|(open, other)| (violation(running(other)), vec![open]))
            .collect()
    }

    /// The rule of order that this call breaks.
    pub fn broken_by(&self, calls: &Calls<'_>, begin: &Begin, needs: Needs) -> Option<Broken> {
        let (state, args) = (&self.state, &begin.call.args);
        let node = &begin.source.node_id;
        let on_node = |node: &str| self.open_on_node(calls, node, begin.begin_us);
        let attached =
            || if needs.attach { rules::attached(state, node).map(drop) } else { Ok(()) };
        let used = |readonly| match args.access_mode {
            Some(mode) => rules::use_on(state, node, mode, readonly),
            None => Ok(()),
        };
        let staged = || {
            let asked = args.staging.as_deref();
            if needs.stage { rules::publish_from(state, node, asked) } else { Ok(()) }
        };
        let kept = match begin.call.rpc {
            Rpc::ControllerPublishVolume => {
                let (node, mode) = (args.node.as_deref()?, args.access_mode?);
                rules::attach(state, node, mode, args.readonly.unwrap_or_default())
            }
            Rpc::ControllerUnpublishVolume => self.nodes_of(args).iter().try_for_each(|node| {
                let open = on_node(node);
                rules::detach(state, node, open.map(|open| running(calls.get(open))))
            }),
            Rpc::NodeStageVolume => {
                let path = args.staging.as_deref().unwrap_or_default();
                attached().and_then(|()| used(true)).and_then(|()| rules::stage(state, node, path))
            }
            Rpc::NodePublishVolume => attached()
                .and_then(|()| used(args.readonly.unwrap_or_default()))
                .and_then(|()| staged()),
            Rpc::NodeUnstageVolume => rules::unstage(state, node),
            _ => Ok(()),
        };
        let violation = kept.err()?;
        let mut proof = self.proof(&violation);
        if let Violation::DetachBeforeUnstage { node, .. } = &violation {
            proof.extend(on_node(node));
            proof.dedup();
        }
        Some((violation, proof))
    }

    /// Notes that a call began, which may do its work at any time from now on.
    pub fn may_be_done(&mut self, begin: &Begin, place: usize) {
        self.open.push(place);
        let Some(thing) = thing(begin) else { return };
        // What is there already stays as it is: a stage at another path, too, until it is replaced.
        let is_there = match &thing {
            Thing::Stage { node, .. } => self.state.staged_on(node).is_some(),
            thing => self.makers.contains_key(thing),
        };
        if !is_there {
            self.make(begin, thing, Maker { call: place, sure: false });
        }
    }

    /// Notes that a call ended, in whatever way.
    pub fn has_ended(&mut self, place: usize) {
        self.open.retain(|open| *open != place);
    }

    /// Notes that what a call asked for is so.
    pub fn is_done(&mut self, begin: &Begin, place: usize) {
        let args = &begin.call.args;
        let node = begin.source.node_id.clone();
        if let Some(thing) = thing(begin) {
            return self.make(begin, thing, Maker { call: place, sure: true });
        }
        match begin.call.rpc {
            Rpc::ControllerUnpublishVolume => {
                for node in self.nodes_of(args) {
                    self.undo(&Thing::Attachment { node });
                }
            }
            Rpc::NodeUnstageVolume => {
                let path = args.staging.clone().unwrap_or_default();
                self.undo(&Thing::Stage { node, path });
            }
            Rpc::NodeUnpublishVolume => {
                let target = args.target.clone().unwrap_or_default();
                self.undo(&Thing::Publication { node, target });
            }
            _ => {}
        }
    }

    /// Notes that a call has changed nothing.
    pub fn is_not_done(&mut self, place: usize) {
        let unsure = |maker: &Maker| maker.call == place && !maker.sure;
        let makers = self.makers.iter().filter(|(_, maker)| unsure(maker));
        let undone: Vec<_> = makers.map(|(thing, _)| thing.clone()).collect();
        for thing in undone {
            self.undo(&thing);
        }
    }

    /// Notes what a node holds when its instance starts: what else might be there is not.
    pub fn settle(&mut self, node: &str, holding: Option<&Holding>) {
        let holds = |thing: &Thing| match thing {
            Thing::Attachment { .. } => true,
            Thing::Stage { node: on, path } => {
                on != node || holding.is_some_and(|holding| holding.staging.as_ref() == Some(path))
            }
            Thing::Publication { node: on, target } => {
                on != node || holding.is_some_and(|holding| holding.targets.contains(target))
            }
        };
        let gone: Vec<_> = self.makers.keys().filter(|thing| !holds(thing)).cloned().collect();
        for thing in gone {
            self.undo(&thing);
        }
    }

    fn make(&mut self, begin: &Begin, thing: Thing, maker: Maker) {
        let Args { readonly, access_mode, .. } = begin.call.args;
        let readonly = readonly.unwrap_or_default();
        // Where no mode was given, the strictest.
        let capability = Capability::mount(access_mode.unwrap_or(AccessMode::SingleNodeWriter));
        let settled = maker.sure;
        match &thing {
            Thing::Attachment { node } => {
                let attachment = Attachment { capability, readonly, number: 0 };
                self.state.attachments.insert(node.clone(), attachment);
            }
            Thing::Stage { node, path } => {
                self.state.stage(node, Staged { path: path.clone(), capability, settled });
            }
            Thing::Publication { node, target } => {
                self.state.publish(node, target, Published { capability, readonly, settled });
            }
        }
        self.makers.insert(thing, maker);
    }

    fn undo(&mut self, thing: &Thing) {
        self.makers.remove(thing);
        match thing {
            Thing::Attachment { node } => _ = self.state.attachments.remove(node),
            Thing::Stage { node, path } => {
                if self.state.staged_on(node).is_some_and(|staged| staged.path == *path) {
                    self.state.unstage(node);
                }
            }
            Thing::Publication { node, target } => self.state.unpublish(node, target),
        }
    }

    /// The nodes that a controller call is about; none given means all that have the volume.
    fn nodes_of(&self, args: &Args) -> Vec<String> {
        match &args.node {
            Some(node) => vec![node.clone()],
            None => self.state.attachments.keys().cloned().collect(),
        }
    }

    /// A node call that was in flight on `node` at this time, whoever waited for it.
    fn open_on_node(&self, calls: &Calls<'_>, node: &str, at_us: u64) -> Option<usize> {
        self.open.iter().copied().find(|open| {
            let other = calls.get(*open);
            Scope::of(other.begin.call.rpc) == Some(Scope::VolumeOnNode)
                && other.begin.source.node_id == node
                && other.in_flight_until_us > at_us
        })
    }

    /// The calls that made what a violation names.
    fn proof(&self, violation: &Violation) -> Vec<usize> {
        let attached = |nodes: &[String]| {
            nodes.iter().map(|node| Thing::Attachment { node: node.clone() }).collect()
        };
        let used = |node: &String, staged: Option<&String>, published: &[String]| {
            let stage = staged.map(|path| Thing::Stage { node: node.clone(), path: path.clone() });
            let targets = published
                .iter()
                .map(|target| Thing::Publication { node: node.clone(), target: target.clone() });
            stage.into_iter().chain(targets).collect()
        };
        let on_nodes = |nodes: &[String]| {
            let is_there = |thing: &&Thing| nodes.contains(thing.node());
            self.makers.keys().filter(is_there).cloned().collect()
        };
        let things: Vec<Thing> = match violation {
            Violation::ExclusiveAttach { held_by, .. } => attached(held_by),
            Violation::ExclusiveUse { held_by, .. } | Violation::SecondWriter { held_by, .. } => {
                on_nodes(held_by)
            }
            Violation::DetachBeforeUnstage { node, staged, published, .. } => {
                used(node, staged.as_ref(), published)
            }
            Violation::UnstageBeforeUnpublish { node, published } => used(node, None, published),
            Violation::PublishBeforeStage { node, staged, .. } => used(node, staged.as_ref(), &[]),
            Violation::SecondStagingPath { node, staged, .. } => used(node, Some(staged), &[]),
            Violation::NodeCallBeforeAttach { .. }
            | Violation::OverlappingControllerCalls { .. }
            | Violation::OverlappingNodeCalls { .. } => Vec::new(),
        };
        things.iter().filter_map(|thing| self.makers.get(thing)).map(|maker| maker.call).collect()
    }
}

/// What a call makes, if it makes something.
fn thing(begin: &Begin) -> Option<Thing> {
    let args = &begin.call.args;
    let node = begin.source.node_id.clone();
    match begin.call.rpc {
        Rpc::ControllerPublishVolume => Some(Thing::Attachment { node: args.node.clone()? }),
        Rpc::NodeStageVolume => Some(Thing::Stage { node, path: args.staging.clone()? }),
        Rpc::NodePublishVolume => Some(Thing::Publication { node, target: args.target.clone()? }),
        _ => None,
    }
}

fn running(call: &CallRecord<'_>) -> Running {
    Running {
        rpc: call.begin.call.rpc,
        instance: call.begin.source.instance.clone(),
        seq: call.begin.seq,
        since_us: call.begin.begin_us,
        caller_gone: call.waited_until_us < call.in_flight_until_us,
    }
}
