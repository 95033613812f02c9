//! A half of the plugin becomes unreachable for good. Some claims wait for it, and everything else
//! must come to rest.
//!
//! A claim whose next call goes to the lost half waits, holds its volume, and is retried for ever.
//! ([`decide`](crate::decide) checks that each failure is written on the claim.) Everything that
//! does not wait for that half must get as far as with a whole plugin.

use berth_domain::volume::State;

use crate::action::Action;
use crate::decide::{Ask, Decision, Proof};
use crate::model::Model;
use crate::safety::Breach;
use crate::world::{Claim, World};

impl Model {
    /// Whether the only effect of the action is one more call to the lost half. That call is made
    /// each time that the claim is due for a retry. Good weather does not wait for it.
    pub(crate) fn is_in_vain(&mut self, world: &World, action: Action) -> Result<bool, Breach> {
        let (alloc, ask) = match action {
            Action::Mount(at) => {
                let node = self.node_of(world.grants[at].alloc);
                return Ok(world.nodes[node].plugin_lost);
            }
            Action::Begin(alloc, wanted) => {
                (alloc, Ask::Begin { alloc, wanted, proof: Proof::None })
            }
            Action::Take(alloc, controller) => {
                (alloc, Ask::Take { alloc, controller: Some(controller) })
            }
            _ => return Ok(false),
        };
        let Some(claim) = world.record.claims[alloc] else { return Ok(false) };
        if !self.waits_for_the_lost(world, alloc, claim) {
            return Ok(false);
        }
        // A claim that makes progress needs no call for that.
        let Decision::Decided { record, call, .. } = self.decider.decide(world.record, ask)? else {
            return Ok(false);
        };
        let stays = record.claims[alloc].is_some_and(|after| after.state == claim.state);
        Ok(stays && call.is_some())
    }

    /// Whether the next call for the claim goes to a lost node or plugin.
    pub(crate) fn waits_for_the_lost(&self, world: &World, alloc: usize, claim: Claim) -> bool {
        match claim.state {
            State::Waiting | State::Taken => false,
            State::Publishing | State::NodeDetached => world.controller_lost,
            State::Unpublishing => world.nodes[self.node_of(alloc)].plugin_lost,
        }
    }
}
