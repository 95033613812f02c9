//! Executors, and the plugin's controller.
//!
//! The model is weaker than rule 4: an executor here does not remember the newest attempt that it
//! has seen, so the rest of the protocol must be safe without that. The plugin may refuse here
//! whatever that memory would refuse, so the model misses no behaviour that is possible with it.
//!
//! Each executor sees only its own lock. If several executors serve one plugin, the plugin may be
//! called for a volume while it works on another call for it: it answers ABORTED, or the second
//! call waits. Where each node has its own controller, the plugin gives no such help: a caller
//! first asks the other executors where an earlier call may be under way.

use berth_domain::volume::CallKind;

use crate::action::Ending;
use crate::model::Model;
use crate::safety::Breach;
use crate::scenario::{Mutation, Scenario, Trouble};
use crate::world::{Answer, Call, NODES, Outcome, World};

impl Model {
    /// A call reaches its executor, which takes it up or refuses it (rule 4).
    pub(crate) fn deliver(&mut self, world: &mut World, at: usize) {
        let call = world.calls[at];
        if call.asks {
            return self.ask_first(world, at);
        }
        // The executor's clock may be slow by the margin, so the call may still seem in time after
        // its deadline.
        let in_time = call.may_begin() || self.scenario.is(Mutation::NoDeadline);
        if in_time {
            self.overtake(world, call);
        }
        let taken_up = in_time
            && !call.old
            && if call.kind.is_controller() {
                !world.controller_lost && self.has_a_controller_for(world, call)
            } else {
                self.detach(world, call)
            };
        if taken_up {
            if call.kind.is_controller() && !self.scenario.has(Trouble::OwnControllers) {
                world.calls[at].behind = u8::try_from(controller_calls(world)).unwrap_or(u8::MAX);
            }
            world.calls[at].at_work = true;
        } else {
            // The call is too late, or no executor exists, or each executor holds the volume's lock
            // for a call that the plugin has not answered.
            world.calls.remove(at);
            let told_apart = [Trouble::Confirmed, Trouble::OwnControllers];
            let told_apart = told_apart.into_iter().any(|trouble| self.scenario.has(trouble));
            let asked = world.controller_lost || !told_apart;
            answer(world, call, if asked { Outcome::Failed } else { Outcome::Unasked });
        }
    }

    /// Before the call, the other node's controller is asked. The call is not made while that
    /// controller works on one.
    fn ask_first(&self, world: &mut World, at: usize) {
        let call = world.calls[at];
        if self.is_at_work(world, |node| node != self.node_of(call.alloc)) {
            world.calls.remove(at);
            answer(world, call, Outcome::Unasked);
        } else {
            world.calls[at].asks = false;
        }
    }

    /// Whether some executor holds no call for the volume.
    fn has_a_controller_for(&self, world: &World, call: Call) -> bool {
        if self.scenario.has(Trouble::OwnControllers) {
            !self.is_at_work(world, |node| node == self.node_of(call.alloc))
        } else {
            controller_calls(world) < self.scenario.controllers()
        }
    }

    /// Whether a controller works on a call for a claim on such a node.
    fn is_at_work(&self, world: &World, on: impl Fn(usize) -> bool) -> bool {
        let mut at_work = world.calls.iter().filter(|call| call.at_work);
        at_work.any(|call| call.kind.is_controller() && on(self.node_of(call.alloc)))
    }

    /// The plugin acts or not, and reports success or not.
    pub(crate) fn end_controller_call(
        &mut self,
        world: &mut World,
        at: usize,
        ending: Ending,
    ) -> Result<(), Breach> {
        let call = world.calls.remove(at);
        let jumps = self.scenario.is(Mutation::PluginJumpsLine);
        for other in world.calls.iter_mut().filter(|other| other.behind > call.behind) {
            other.behind = if jumps { 0 } else { other.behind - 1 };
        }
        let node = self.node_of(call.alloc);
        if ending.acted() {
            if call.kind == CallKind::ControllerPublish {
                publish(&self.scenario, world, node)?;
            } else {
                unpublish(&self.scenario, world, node)?;
            }
        }
        // A plugin that is called out of turn answers ABORTED, which this request does not expect.
        let aborts = call.behind > 0 && self.scenario.has(Trouble::Confirmed);
        answer(world, call, if aborts { Outcome::Unasked } else { outcome(ending) });
        Ok(())
    }
}

/// The number of controller calls that an executor accepted and the plugin has not ended.
fn controller_calls(world: &World) -> usize {
    world.calls.iter().filter(|call| call.at_work && call.kind.is_controller()).count()
}

/// The controller attaches (safety rule 2).
fn publish(scenario: &Scenario, world: &mut World, node: usize) -> Result<(), Breach> {
    let node = scenario.attached_at(node);
    let elsewhere = world.attached.iter().enumerate().any(|(at, is)| *is && at != node);
    if scenario.access.is_exclusive() && elsewhere {
        return Err(Breach::new("safety 2: published for one node while attached to another"));
    }
    world.attached[node] = true;
    Ok(())
}

/// The controller detaches (safety rule 3).
fn unpublish(scenario: &Scenario, world: &mut World, node: usize) -> Result<(), Breach> {
    let place = scenario.attached_at(node);
    let there = (0..NODES).filter(|at| scenario.attached_at(*at) == place);
    // A mount on a fenced node cannot be written to.
    for there in there.map(|at| &world.nodes[at]).filter(|there| !there.is_fenced()) {
        if there.mounted.contains(&true) {
            return Err(Breach::new("safety 3: unpublished by the controller while mounted"));
        }
        if there.staged {
            return Err(Breach::new("safety 3: unpublished by the controller while staged"));
        }
    }
    world.attached[place] = false;
    Ok(())
}

pub(crate) fn outcome(ending: Ending) -> Outcome {
    match ending {
        Ending::Done => Outcome::Done,
        Ending::DoneButError | Ending::Error => Outcome::Failed,
        Ending::Refused => Outcome::Refused,
        Ending::NoRoom => Outcome::Exhausted,
    }
}

/// The answer is under way. It may arrive at any time, or never.
pub(crate) fn answer(world: &mut World, call: Call, outcome: Outcome) {
    world.answers.push(Answer { alloc: call.alloc, attempt: call.attempt, outcome });
}
