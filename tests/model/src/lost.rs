//! A half of the plugin that can be reached no more, for good: what is waited for then, and what
//! must come to rest all the same.
//!
//! A claim whose next call goes there waits for it, holds what it holds, and is tried again for
//! ever (that each failure is said on the claim, [`decide`](crate::decide) checks). Whatever waits
//! for nothing there must get as far as if the plugin were whole.

use berth_domain::volume::State;

use crate::action::Action;
use crate::decide::{Ask, Decision, Proof};
use crate::model::Model;
use crate::safety::Breach;
use crate::world::{Claim, World};

impl Model {
    /// Whether all that comes of the action is one more call to what is lost. It is made each time
    /// that the claim's next try has come; good weather waits for none.
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
        // Where it is led on, it is because no call is needed for that.
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
