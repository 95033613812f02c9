//! Nodes that go and come back, and the proofs in between (rule 12).
//!
//! A node that is off, or fenced, has its mounts and can write to none of them. It may come back as
//! it went. Its agent learns that it was declared gone, undoes everything, and reports that. Only
//! then the node counts as ready, and only then a fence is lifted. Its agent refuses every older
//! grant, because a proof that was read before may still be used for its claim.
//!
//! Its journal may be lost meanwhile. Then it goes by what is mounted: its agent takes down nothing
//! that it does not know, and does not count as there either before a person has.

use crate::model::Model;
use crate::scenario::Mutation;
use crate::world::{ALLOCS, Life, NODES, Node, World};

impl Model {
    /// The node goes, with whatever its agent and its plugin are at.
    pub(crate) fn off(&self, world: &mut World, node_at: usize) {
        self.end_detach(world, node_at, None);
        let node = &mut world.nodes[node_at];
        node.busy = None;
        node.life = Life::Off;
    }

    /// An operator reads the node's record, and then makes sure that nothing on the node can write.
    pub(crate) fn gather(world: &mut World, node_at: usize) {
        let node = &mut world.nodes[node_at];
        node.evidence = node.life == Life::Off && !node.gone;
    }

    /// It is put on record, if the record is still as it was when the evidence was gathered.
    pub(crate) fn prove(world: &mut World, node_at: usize) {
        let node = &mut world.nodes[node_at];
        node.gone |= node.evidence;
        node.evidence = false;
    }

    /// The node is back.
    pub(crate) fn come_back(&self, world: &mut World, node_at: usize, booted: bool) {
        let node = &mut world.nodes[node_at];
        if booted {
            node.mounted = [false; ALLOCS];
            node.staged = false;
        }
        node.life = if node.gone { Life::Back } else { Life::Here };
        // Its record changes with its first report.
        node.evidence &= self.scenario.is(Mutation::StaleEvidence);
        if node.gone && self.scenario.is(Mutation::NoUndo) {
            counts_as_there(node);
        }
        if self.scenario.is(Mutation::EarlyFence) {
            self.follow_only_newer(world, node_at);
        }
    }

    /// The node undoes a use; or unstages, when none is left; or counts as there, when nothing is.
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
                node.life = Life::Here;
            }
        }
    }

    /// The node learns which claims there are, and were; those that come are newer.
    pub(crate) fn fence(&self, world: &mut World, node_at: usize) {
        self.follow_only_newer(world, node_at);
        world.nodes[node_at].life = Life::Here;
    }

    fn follow_only_newer(&self, world: &mut World, node_at: usize) {
        for alloc in 0..self.scenario.allocs.len() {
            if self.node_of(alloc) == node_at {
                let newest = self.epochs_of(world, alloc).max().unwrap_or(0);
                let Node { told, ended, .. } = &mut world.nodes[node_at];
                told[alloc] = newest.max(told[alloc]);
                if !self.scenario.is(Mutation::JournalFence) {
                    ended[alloc] = newest.max(ended[alloc]);
                }
            }
        }
    }
}

/// Its record says so from now on.
fn counts_as_there(node: &mut Node) {
    node.gone = false;
    node.life = Life::Undone;
}

const _: () = assert!(NODES >= 2, "one node goes and another takes over");
