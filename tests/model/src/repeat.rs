//! Calls that arrive more than once, and the memory that executors have of what they saw (rule 4).
//!
//! The second time may be as late as any call may be: after the first was answered, and after what
//! was done next because of the answer. An attempt that was answered is over to all rules but one:
//! the executor that saw a newer attempt for the volume refuses an older one. It does not refuse
//! the same again.
//!
//! Only the controller's executor has that memory here, and only where the controller runs once:
//! several do not know what each other saw. An agent does without, which is the harder world.

use berth_domain::volume::CallKind;

use crate::model::Model;
use crate::scenario::{Mutation, Trouble};
use crate::world::{Call, World};

impl Model {
    /// A call reaches its executor, and will once more.
    pub(crate) fn repeat(&mut self, world: &mut World, at: usize) {
        let again = world.calls[at];
        self.deliver(world, at);
        world.calls.push(again);
    }

    /// The position of a new call among those on their way.
    pub(crate) fn next_order(&self, world: &World, kind: CallKind) -> u8 {
        if !self.scenario.has(Trouble::Repeated) || !kind.is_controller() {
            return 0;
        }
        let known = world.calls.iter().map(|call| call.order);
        known.max().unwrap_or(0).saturating_add(1)
    }

    /// The executor has seen the call, and will do nothing older.
    pub(crate) fn overtake(&self, world: &mut World, seen: Call) {
        let remembers = self.scenario.controllers() == 1 && !self.scenario.is(Mutation::NoMemory);
        if !remembers || world.controller_lost {
            return;
        }
        for call in world.calls.iter_mut().filter(|call| call.order < seen.order) {
            call.old |= is_ordered(call);
        }
    }
}

/// Whether it makes a difference when the call was asked for.
fn is_ordered(call: &Call) -> bool {
    call.order > 0 && !call.at_work
}

/// Only which was asked for first can matter, of those on their way.
pub(crate) fn rank_orders(world: &mut World) {
    for call in world.calls.iter_mut().filter(|call| !is_ordered(call)) {
        call.order = 0;
    }
    let mut orders: Vec<u8> =
        world.calls.iter().map(|call| call.order).filter(|o| *o > 0).collect();
    orders.sort_unstable();
    orders.dedup();
    for call in &mut world.calls {
        let place = orders.iter().position(|order| *order == call.order);
        call.order = place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0);
    }
}
