//! Nodes that go and return, and the proofs in between (rule 12).
//!
//! A node that is off or fenced keeps its mounts and can write to none of them. It may return with
//! its mounts. Its agent learns that it was declared gone, undoes all mounts, and reports that.
//! Only then does the node count as ready, and only then is a fence lifted. Its agent refuses every
//! older grant, because a proof that was read earlier may still be used for its claim.
//!
//! The journal may be lost meanwhile. The agent then goes by its mounts: it takes down no mount
//! that it does not know, and the node does not count as present before a person has taken them
//! down.

use crate::model::Model;
use crate::scenario::Mutation;
use crate::world::{ALLOCS, NODES, Node, Presence, World};

impl Model {
    /// The node goes, and the calls of its agent and its plugin end with it.
    pub(crate) fn off(&self, world: &mut World, node_at: usize) {
        self.end_detach(world, node_at, None);
        let node = &mut world.nodes[node_at];
        node.busy = None;
        node.presence = Presence::Off;
    }

    /// An operator reads the node's record, and then makes sure that nothing on the node can write.
    pub(crate) fn gather(world: &mut World, node_at: usize) {
        let node = &mut world.nodes[node_at];
        node.evidence = node.presence == Presence::Off && !node.gone;
    }

    /// The node is recorded as gone, if its record has not changed since the evidence was gathered.
    pub(crate) fn prove(world: &mut World, node_at: usize) {
        let node = &mut world.nodes[node_at];
        node.gone |= node.evidence;
        node.evidence = false;
    }

    /// The node returns.
    pub(crate) fn come_back(&self, world: &mut World, node_at: usize, booted: bool) {
        let node = &mut world.nodes[node_at];
        if booted {
            node.mounted = [false; ALLOCS];
            node.staged = false;
        }
        node.presence = if node.gone { Presence::Back } else { Presence::Present };
        // The first report of the node changes its record.
        node.evidence &= self.scenario.is(Mutation::StaleEvidence);
        if node.gone && self.scenario.is(Mutation::NoUndo) {
            counts_as_there(node);
        }
        if self.scenario.is(Mutation::EarlyFence) {
            self.follow_only_newer(world, node_at);
        }
    }

    /// The node undoes one use, or unstages when no use is left, or counts as present when nothing
    /// is left.
    pub(crate) fn undo(&self, world: &mut World, node_at: usize) {
        let is_kept = |alloc: usize| {
            let claim = world.record.claims[alloc];
            self.scenario.is(Mutation::KeepClaimed) && claim.is_some_and(|claim| !claim.proof)
        };
        let kept: Vec<bool> = (0..ALLOCS).map(is_kept).collect();
        let node = &mut world.nodes[node_at];
        let left = |alloc: &usize| node.mounted[*alloc] || node.intents[*alloc].is_some();
        let next = (0..ALLOCS).filter(left).find(|alloc| !kept[*alloc]);
        if let Some(alloc) = next {
            node.mounted[alloc] = false;
            node.intents[alloc] = None;
        } else if node.staged && !kept.contains(&true) {
            node.staged = false;
        } else {
            counts_as_there(node);
            if self.scenario.is(Mutation::NoFence) || self.scenario.is(Mutation::EarlyFence) {
                node.presence = Presence::Present;
            }
        }
    }

    /// The node learns which claims exist and existed. Later claims are newer.
    pub(crate) fn fence(&self, world: &mut World, node_at: usize) {
        self.follow_only_newer(world, node_at);
        world.nodes[node_at].presence = Presence::Present;
    }

    fn follow_only_newer(&self, world: &mut World, node_at: usize) {
        for alloc in 0..self.scenario.allocs.len() {
            if self.node_of(alloc) == node_at {
                let newest = self.epochs_of(world, alloc).max().unwrap_or(0);
                let Node { told_to_detach, ended, .. } = &mut world.nodes[node_at];
                told_to_detach[alloc] = newest.max(told_to_detach[alloc]);
                if !self.scenario.is(Mutation::JournalFence) {
                    ended[alloc] = newest.max(ended[alloc]);
                }
            }
        }
    }
}

/// The node's record says from now on that it is present.
fn counts_as_there(node: &mut Node) {
    node.gone = false;
    node.presence = Presence::Undone;
}

const _: () = assert!(NODES >= 2, "one node goes and another takes over");
