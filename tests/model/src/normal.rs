//! Reduces equivalent states to one, so that the search is finite.
//!
//! Epochs are compared only with epochs of the same alloc, and places in the queue only with each
//! other, so both become ranks. Whatever can have no effect any more is dropped: an answer of an
//! old attempt (after a check that it is refused), a call that is too late for any executor (its
//! refusal has the effect of an earlier refusal by the plugin), and a grant that its agent would
//! ignore.

use berth_domain::volume::CallKind;

use crate::model::Model;
use crate::repeat::rank_orders;
use crate::safety::Breach;
use crate::scenario::Mutation;
use crate::world::{ALLOCS, AttemptId, Presence, World};

impl Model {
    pub(crate) fn normalise(&mut self, world: &mut World) -> Result<(), Breach> {
        name_attempts(world);
        self.drop_the_spent(world)?;
        self.rank_epochs(world);
        rank_tickets(world);
        rank_orders(world);
        world.sort();
        world.answers.dedup();
        world.grants.dedup();
        Ok(())
    }

    fn drop_the_spent(&mut self, world: &mut World) -> Result<(), Breach> {
        if !self.scenario.is(Mutation::OldAnswers) {
            for at in 0..world.answers.len() {
                if world.answers[at].attempt == AttemptId::Old {
                    self.check_stale(world, world.answers[at].alloc)?;
                }
            }
            world.answers.retain(|answer| answer.attempt != AttemptId::Old);
        }
        let deadlines = !self.scenario.is(Mutation::NoDeadline);
        world.calls.retain(|call| {
            let too_late = deadlines && !call.may_begin();
            let refused = call.old && call.attempt == AttemptId::Old;
            call.at_work || !(too_late || refused)
        });
        let nodes = &world.nodes;
        world.grants.retain(|grant| {
            let node = &nodes[self.scenario.allocs[grant.alloc].node];
            let superseded = node.intents[grant.alloc].is_some_and(|epoch| epoch > grant.epoch);
            node.told_to_detach[grant.alloc] < grant.epoch && !superseded
        });
        // For an absent node, a grant older than its newest one makes no difference: the node
        // follows none of them when it returns.
        let newest = |of: usize| world.grants.iter().filter(move |grant| grant.alloc == of);
        let newest: Vec<_> =
            (0..ALLOCS).map(|of| newest(of).map(|grant| grant.epoch).max()).collect();
        world.grants.retain(|grant| {
            let node = &nodes[self.scenario.allocs[grant.alloc].node];
            node.presence == Presence::Present || Some(grant.epoch) == newest[grant.alloc]
        });
        Ok(())
    }

    /// Every epoch of the alloc, except those that its agent was told to detach.
    pub(crate) fn epochs_of(&self, world: &World, alloc: usize) -> impl Iterator<Item = u8> {
        let node = &world.nodes[self.node_of(alloc)];
        let claim = world.record.claims[alloc].map(|claim| claim.epoch);
        let calls = world.calls.iter().filter(move |call| call.alloc == alloc);
        let grants = world.grants.iter().filter(move |grant| grant.alloc == alloc);
        let seen = world.view.and_then(|view| view.claims[alloc]).map(|claim| claim.epoch);
        claim
            .into_iter()
            .chain(seen)
            .chain(node.intents[alloc])
            .chain(calls.map(|call| call.epoch))
            .chain(grants.map(|grant| grant.epoch))
    }

    fn rank_epochs(&self, world: &mut World) {
        for alloc in 0..self.scenario.allocs.len() {
            // No rule compares the epoch of a controller call.
            for call in world.calls.iter_mut().filter(|call| call.kind != CallKind::NodeDetach) {
                call.epoch = 0;
            }
            let mut epochs: Vec<u8> =
                self.epochs_of(world, alloc).filter(|epoch| *epoch > 0).collect();
            epochs.sort_unstable();
            epochs.dedup();
            let rank = |epoch: u8| {
                let up_to = epochs.iter().filter(|known| **known <= epoch).count();
                u8::try_from(up_to).unwrap_or(u8::MAX)
            };
            let node = self.scenario.allocs[alloc].node;
            for record in std::iter::once(&mut world.record).chain(&mut world.view) {
                if let Some(claim) = &mut record.claims[alloc] {
                    claim.epoch = rank(claim.epoch);
                }
            }
            for call in world.calls.iter_mut().filter(|call| call.alloc == alloc) {
                call.epoch = rank(call.epoch);
            }
            for grant in world.grants.iter_mut().filter(|grant| grant.alloc == alloc) {
                grant.epoch = rank(grant.epoch);
            }
            let node = &mut world.nodes[node];
            node.intents[alloc] = node.intents[alloc].map(rank);
            // All later claims have higher epochs, so only the epochs that are in use matter.
            node.told_to_detach[alloc] = rank(node.told_to_detach[alloc]);
            // The journal says so too, as long as it exists.
            let outlives = self.scenario.loses_journal;
            node.ended[alloc] = if outlives { rank(node.ended[alloc]) } else { 0 };
        }
    }
}

impl World {
    /// Messages under way have no order, so they are sorted.
    pub(crate) fn sort(&mut self) {
        self.calls.sort_unstable_by_key(|c| {
            (c.alloc, c.at_work, c.asks, c.behind, c.attempt, c.order, c.old, c.epoch)
        });
        self.answers.sort_unstable();
        self.grants.sort_unstable();
    }
}

/// Names the attempt on the record current, and any other attempt old.
fn name_attempts(world: &mut World) {
    let record = world.record;
    let name = |alloc: usize, id: AttemptId| {
        let on_record = record.claims[alloc].and_then(|claim| claim.attempt);
        let is_current = on_record.is_some_and(|attempt| attempt.id == id);
        if is_current && id != AttemptId::Old { AttemptId::Current } else { AttemptId::Old }
    };
    for call in &mut world.calls {
        call.attempt = name(call.alloc, call.attempt);
        if call.at_work {
            call.left = 0;
        }
    }
    for answer in &mut world.answers {
        answer.attempt = name(answer.alloc, answer.attempt);
    }
    for (alloc, seen) in world.view.iter_mut().flat_map(|view| view.claims.iter_mut().enumerate()) {
        if let Some(attempt) = seen.as_mut().and_then(|claim| claim.attempt.as_mut()) {
            attempt.id = name(alloc, attempt.id);
        }
    }
    let attempts = world.record.claims.iter_mut().flatten().filter_map(|c| c.attempt.as_mut());
    attempts.for_each(|attempt| attempt.id = AttemptId::Current);
}

fn rank_tickets(world: &mut World) {
    let seen = world.view.iter().flat_map(|view| &view.claims);
    let claims = world.record.claims.iter().chain(seen).flatten();
    let mut tickets: Vec<u8> = claims.map(|claim| claim.ticket).filter(|t| *t > 0).collect();
    tickets.sort_unstable();
    tickets.dedup();
    let seen = world.view.iter_mut().flat_map(|view| &mut view.claims);
    for claim in world.record.claims.iter_mut().chain(seen).flatten() {
        let place = tickets.iter().position(|ticket| *ticket == claim.ticket);
        claim.ticket = place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0);
    }
}
