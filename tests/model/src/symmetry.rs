//! Searches worlds only once that differ only in which of two interchangeable allocs is which.
//!
//! Allocs are interchangeable if they use the volume in the same way on the same node. Two nodes
//! are interchangeable if their allocs are. `step` compares the names of allocs and nodes for
//! equality only, so its decision for one holds for the other.

use crate::fingerprint::fingerprint;
use crate::model::Model;
use crate::scenario::Placed;
use crate::world::{NODES, World};

impl Model {
    /// A number that is the same for all equivalent worlds: a sum does not depend on the order of
    /// nodes and allocs.
    pub(crate) fn likeness(&self, world: &World) -> u64 {
        let nodes = (0..NODES).map(|node| {
            let allocs = self.scenario.allocs.iter().enumerate();
            let here = allocs.filter(|(_, placed)| placed.node == node);
            let of_allocs = here.map(|(alloc, placed)| of_alloc(world, alloc, *placed));
            let there = &world.nodes[node];
            let busy = there.busy.map(|call| (call.kind, call.caller));
            let life = (there.presence, there.gone, there.evidence, there.uses, there.plugin_lost);
            let of_node = (world.attached[node], there.staged, busy, life);
            fingerprint(&(of_node, of_allocs.fold(0, u64::wrapping_add)))
        });
        let view = world.view.map(|view| view.spec);
        let lost = world.controller_lost;
        let of_volume = (world.attempts_left, world.record.spec, view, lost);
        fingerprint(&(nodes.fold(0, u64::wrapping_add), of_volume))
    }
}

/// All facts about one alloc, except its name.
fn of_alloc(world: &World, alloc: usize, placed: Placed) -> u64 {
    let calls = world.calls.iter().filter(|call| call.alloc == alloc);
    let calls = calls.map(|call| {
        let at_work = call.at_work.then_some(call.behind);
        let of_order = (call.order, call.old, call.asks);
        fingerprint(&(call.kind, call.attempt, call.epoch, call.left, at_work, of_order))
    });
    let answers = world.answers.iter().filter(|answer| answer.alloc == alloc);
    let answers = answers.map(|answer| fingerprint(&(answer.attempt, answer.outcome)));
    let grants = world.grants.iter().filter(|grant| grant.alloc == alloc);
    let grants = grants.map(|grant| fingerprint(&grant.epoch));
    let there = &world.nodes[placed.node];
    fingerprint(&(
        placed.mode,
        world.record.claims[alloc],
        calls.fold(0, u64::wrapping_add),
        answers.fold(0, u64::wrapping_add),
        grants.fold(0, u64::wrapping_add),
        (
            there.intents[alloc],
            there.told_to_detach[alloc],
            there.ended[alloc],
            there.mounted[alloc],
        ),
        there.busy.is_some_and(|call| call.alloc == alloc),
        (world.proven[alloc], world.view.map(|view| view.claims[alloc])),
    ))
}
