//! Calls that arrive more than once, and the executors' memory of the newest call (rule 4).
//!
//! The second arrival may be as late as any call may be: after the first was answered, and after
//! what followed from that answer. An answered attempt is over for all rules except one: an
//! executor that saw a newer attempt for the volume refuses an older one. It does not refuse the
//! same attempt again.
//!
//! Only the controller's executor has that memory here, and only where the controller runs once:
//! several executors do not know what the others saw. An agent does without it, which is the harder
//! world.

use berth_domain::volume::CallKind;

use crate::model::Model;
use crate::scenario::{Mutation, Trouble};
use crate::world::{Call, World};

impl Model {
    /// A call reaches its executor, and will arrive once more.
    pub(crate) fn repeat(&mut self, world: &mut World, at: usize) {
        let again = world.calls[at];
        self.deliver(world, at);
        world.calls.push(again);
    }

    /// The order number of a new call among those under way.
    pub(crate) fn next_order(&self, world: &World, kind: CallKind) -> u8 {
        if !self.scenario.has(Trouble::Repeated) || !kind.is_controller() {
            return 0;
        }
        let known = world.calls.iter().map(|call| call.order);
        known.max().unwrap_or(0).saturating_add(1)
    }

    /// The executor has seen the call, and refuses older ones from now on.
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

/// Whether the order of the call makes a difference.
fn is_ordered(call: &Call) -> bool {
    call.order > 0 && !call.at_work
}

/// Turns the order numbers of the calls under way into ranks, because only their order can matter.
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
