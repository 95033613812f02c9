//! One volume, as the calls so far have made it.
//!
//! Owns: the things of a volume, rebuilt from calls. Promises: follows CSI's lifecycle by the
//! calls' effects alone. Never: judges.

use std::collections::BTreeMap;
use std::rc::Rc;

use berth_csi::Rpc;

use super::row::{Ask, Effect, Holding, Row};
use super::thing::{Asked, CallId, Lines, Place, Thing};

/// One volume so far.
#[derive(Default, Debug)]
pub(super) struct Volume {
    pub things: BTreeMap<Place, Thing>,
    pub expansion: Option<Expansion>,
}

/// The newest `ControllerExpandVolume`.
#[derive(Debug)]
pub(super) struct Expansion {
    by: CallId,
    pub lines: Lines,
    /// Whether the CO was told that it succeeded.
    pub is_known: bool,
    /// Whether one before it had.
    was_known: bool,
}

/// A call with everything that the model needs of it.
pub(super) struct Asking<'a> {
    pub by: CallId,
    pub rpc: Rpc,
    /// The node whose instance serves it.
    pub at: &'a str,
    pub ask: &'a Ask,
    pub lines: &'a Lines,
}

impl Asking<'_> {
    /// Where it makes something, if it does.
    pub fn makes(&self) -> Option<Place> {
        let Self { at, ask, .. } = self;
        let node = (*at).to_owned();
        match self.rpc {
            Rpc::ControllerPublishVolume => Some(Place::Attachment { node: ask.node_id.clone() }),
            Rpc::NodeStageVolume => {
                Some(Place::Stage { node, path: ask.staging_target_path.clone() })
            }
            Rpc::NodePublishVolume => {
                Some(Place::Publication { node, path: ask.target_path.clone() })
            }
            _ => None,
        }
    }
}

impl Volume {
    /// Whether nothing is known of it that a later call could contradict.
    pub fn is_blank(&self) -> bool {
        self.things.is_empty() && self.expansion.is_none()
    }

    pub fn attachment(&self, node: &str) -> Option<&Thing> {
        self.things.get(&Place::Attachment { node: node.to_owned() })
    }

    pub fn attachments(&self) -> impl Iterator<Item = (&str, &Thing)> {
        self.things.iter().filter_map(|(place, thing)| match place {
            Place::Attachment { node } => Some((node.as_str(), thing)),
            _ => None,
        })
    }

    /// What is staged or published, anywhere.
    pub fn uses(&self) -> impl Iterator<Item = (&Place, &Thing)> {
        self.things.iter().filter(|(place, _)| place.path().is_some())
    }

    /// What is staged or published, and may write.
    pub fn live_uses(&self) -> impl Iterator<Item = (&Place, &Thing)> {
        self.uses().filter(|(_, thing)| !thing.is_cut)
    }

    /// What a fenced node still has from before.
    pub fn stale_on(&self, node: &str) -> impl Iterator<Item = (&Place, &Thing)> {
        self.uses_on(node).filter(|(_, thing)| thing.is_cut)
    }

    /// The storage takes nothing from this node: what it has cannot write any more.
    pub fn cut_off(&mut self, node: &str) {
        let uses = self.things.iter_mut().filter(|(place, _)| place.path().is_some());
        uses.filter(|(place, _)| place.node() == node).for_each(|(_, thing)| thing.is_cut = true);
    }

    /// What is staged or published on this node.
    pub fn uses_on(&self, node: &str) -> impl Iterator<Item = (&Place, &Thing)> {
        self.uses().filter(move |(place, _)| place.node() == node)
    }

    /// The nodes that a detaching call is about: no node means all.
    pub fn nodes_of(&self, ask: &Ask) -> Vec<String> {
        if ask.node_id.is_empty() {
            self.attachments().map(|(node, _)| node.to_owned()).collect()
        } else {
            vec![ask.node_id.clone()]
        }
    }

    /// A call began, which may do its work at any time from now on.
    pub fn begun(&mut self, call: &Asking<'_>) {
        if let Some(place) = call.makes() {
            let thing = || Thing::may_be(Asked::of(call.ask), call.by, Rc::clone(call.lines));
            self.things.entry(place).or_insert_with(thing);
        }
        for place in self.undone_by(call) {
            if let Some(thing) = self.things.get_mut(&place) {
                thing.may_go(call.by, call.lines);
            }
        }
        if call.rpc == Rpc::ControllerExpandVolume {
            let was_known = self.expansion.as_ref().is_none_or(|before| before.is_known);
            let (by, lines) = (call.by, Rc::clone(call.lines));
            self.expansion = Some(Expansion { by, lines, is_known: false, was_known });
        }
    }

    /// A call ended so.
    pub fn ended(&mut self, call: &Asking<'_>, row: &Row) {
        if let Some(place) = call.makes() {
            self.made(place, call, row);
        }
        for place in self.undone_by(call) {
            let stays = |thing: &mut Thing| thing.undone(call.by, row);
            if !self.things.get_mut(&place).is_none_or(stays) {
                self.things.remove(&place);
            }
        }
        if let Some(expansion) = self.expansion.as_mut().filter(|newest| newest.by == call.by) {
            expansion.is_known = match row.effect {
                Some(Effect::Done) => row.is_told(),
                Some(Effect::None) => expansion.was_known,
                Some(Effect::Unknown) | None => false,
            };
        }
    }

    fn made(&mut self, place: Place, call: &Asking<'_>, row: &Row) {
        // An instance that started meanwhile did not find it, and yet it was made.
        if row.effect != Some(Effect::None) {
            let thing = || Thing::may_be(Asked::of(call.ask), call.by, Rc::clone(call.lines));
            self.things.entry(place.clone()).or_insert_with(thing);
        }
        let Some(thing) = self.things.get_mut(&place) else { return };
        if !thing.made(call.by, call.lines, call.ask, row) {
            self.things.remove(&place);
        }
    }

    /// What the call undoes.
    fn undone_by(&self, call: &Asking<'_>) -> Vec<Place> {
        let Asking { at, ask, .. } = call;
        let node = (*at).to_owned();
        match call.rpc {
            Rpc::ControllerUnpublishVolume => {
                let nodes = self.nodes_of(ask).into_iter();
                nodes.map(|node| Place::Attachment { node }).collect()
            }
            Rpc::NodeUnstageVolume => {
                vec![Place::Stage { node, path: ask.staging_target_path.clone() }]
            }
            Rpc::NodeUnpublishVolume => {
                vec![Place::Publication { node, path: ask.target_path.clone() }]
            }
            _ => Vec::new(),
        }
    }

    /// An instance started on this node: what it does not find there is not there.
    pub fn settle(&mut self, node: &str, holding: Option<&Holding>) {
        self.things.retain(|place, _| match place {
            Place::Stage { node: on, path } if on == node => {
                holding.is_some_and(|holding| holding.staging.as_ref() == Some(path))
            }
            Place::Publication { node: on, path } if on == node => {
                holding.is_some_and(|holding| holding.targets.contains(path))
            }
            _ => true,
        });
    }
}
