//! The actions that may happen next.

use berth_domain::volume::{CallKind, State};

use crate::model::Model;
use crate::scenario::{Attaches, Mutation, Trouble};
use crate::world::{Call, Node, Presence, World};

/// An action. Numbers are indices of the world's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// An agent asks for the claim of an alloc; the alloc may have returned under the same id. The
    /// flag says whether the plugin's controller attaches.
    Take(usize, bool),
    /// A caller releases the claim.
    Release(usize),
    /// A worker asks for the next call of a release. The flag says whether the alloc still wants
    /// the claim.
    Begin(usize, bool),
    /// The caller of a call gives up waiting for its answer.
    GiveUp(usize),
    /// A call reaches its executor for the last time.
    Deliver(usize),
    /// A call reaches its executor, and will arrive once more.
    Repeat(usize),
    /// The plugin ends the controller call that it works on.
    Controller(usize, Ending),
    /// An answer reaches the record.
    Report(usize),
    /// A grant reaches its agent.
    Mount(usize),
    /// The plugin ends the node call that it works on.
    Node(usize, Ending),
    /// A node's agent crashes and starts again. The plugin goes on with its call.
    Crash(usize),
    /// A node reboots, which removes all its mounts.
    Reboot(usize),
    /// A node's agent starts without its journal.
    LoseJournal(usize),
    /// A node goes, and the calls of its agent and its plugin end with it.
    Off(usize),
    /// An operator reads a node's record, and then makes sure that nothing on the node can write.
    Gather(usize),
    /// The operator uses this evidence to declare the node gone.
    Prove(usize),
    /// A node returns. The flag says whether it booted and has no mounts; otherwise it returns with
    /// its mounts.
    Return(usize, bool),
    /// A node that counts as gone undoes one mount, or reports that it has undone all.
    Undo(usize),
    /// A node that was gone learns which claims are older than its return.
    Fence(usize),
    /// A service sees a claim, and afterwards sees that its node is gone.
    SeeProof(usize),
    /// The service uses this proof, perhaps much later.
    UseProof(usize),
    /// A second claim service reads the record.
    Look,
    /// A replica decides a claim, a release, or a checkpoint on the record that it read earlier.
    Late(usize, LateAsk),
    /// A person says of a claim that the storage has it detached. That is true at this moment.
    Confirm(usize),
    /// The volume is registered, or updated.
    Register,
    /// The volume is deregistered. The flag says whether by force, which closes it.
    Deregister(bool),
    /// The plugin's controller becomes unreachable for good.
    LoseController,
    /// The plugin on a node becomes unreachable for good.
    LosePlugin(usize),
}

/// The requests to a second service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LateAsk {
    /// To take.
    Take,
    /// To release.
    Release,
    /// For the next call of a release.
    Begin,
    /// To deregister the volume.
    Deregister,
}

/// How a plugin ends a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// It acts, and reports success.
    Done,
    /// It acts, and reports an error.
    DoneButError,
    /// It does not act, and reports an error.
    Error,
    /// It does not act, and reports that it never will.
    Refused,
    /// It does not act, and reports that it has no room.
    NoRoom,
}

impl Ending {
    /// Whether the plugin acted.
    pub(crate) fn acted(self) -> bool {
        matches!(self, Self::Done | Self::DoneButError)
    }
}

const ENDINGS: [Ending; 3] = [Ending::Done, Ending::DoneButError, Ending::Error];

impl Model {
    /// All actions that may happen next. Some of them may change nothing.
    pub fn actions(&self, world: &World) -> Vec<Action> {
        let mut actions = vec![Action::Tick];
        for alloc in 0..self.scenario.allocs.len() {
            self.add_alloc_actions(world, alloc, &mut actions);
        }
        for (at, call) in world.calls.iter().enumerate() {
            match (call.at_work, call.kind) {
                (false, _) => {
                    actions.push(Action::Deliver(at));
                    if self.scenario.has(Trouble::Repeated) {
                        actions.push(Action::Repeat(at));
                    }
                }
                (true, CallKind::NodeDetach) => {}
                // The plugin works on another call for the volume: it answers ABORTED, or lets this
                // call wait.
                (true, _) if !self.is_its_turn(call) => {
                    actions.push(Action::Controller(at, Ending::Error));
                }
                (true, kind) => {
                    actions.extend(ENDINGS.map(|ending| Action::Controller(at, ending)));
                    if kind == CallKind::ControllerPublish {
                        actions.push(Action::Controller(at, Ending::Refused));
                        if self.scenario.has(Trouble::NoRoom) {
                            actions.push(Action::Controller(at, Ending::NoRoom));
                        }
                    }
                }
            }
        }
        actions.extend((0..world.answers.len()).map(Action::Report));
        for (at, grant) in world.grants.iter().enumerate() {
            let node = &world.nodes[self.node_of(grant.alloc)];
            if node.busy.is_none() && node.presence == Presence::Present {
                actions.push(Action::Mount(at));
            }
        }
        self.add_absences(world, &mut actions);
        self.add_other_services(world, &mut actions);
        self.add_losses(world, &mut actions);
        for (at, node) in world.nodes.iter().enumerate() {
            let is_busy = node.busy.is_some();
            if is_busy && node.plugin_lost {
                actions.push(Action::Node(at, Ending::Error));
            } else if is_busy && !self.scenario.nodes_fail {
                actions.push(Action::Node(at, Ending::Done));
            }
            if self.scenario.loses_journal && *node != Node::default() {
                actions.push(Action::LoseJournal(at));
            }
            if !self.scenario.nodes_fail || node.presence != Presence::Present {
                continue;
            }
            if is_busy && !node.plugin_lost {
                actions.extend(ENDINGS.map(|ending| Action::Node(at, ending)));
            }
            if is_busy {
                actions.push(Action::Crash(at));
            }
            if node.busy.is_some() || node.in_use() {
                actions.push(Action::Reboot(at));
            }
        }
        actions
    }

    /// Evidence is true when it is gathered: the node is off. It is used at any later time. If the
    /// node returned in between, its record has changed, and the evidence is refused.
    fn add_absences(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, node) in world.nodes.iter().enumerate().filter(|(at, _)| self.scenario.goes(*at)) {
            if node.evidence {
                actions.push(Action::Prove(at));
            }
            match node.presence {
                Presence::Present => actions.push(Action::Off(at)),
                Presence::Off => {
                    actions.extend([Action::Return(at, true), Action::Return(at, false)]);
                    if !node.gone && !node.evidence {
                        actions.push(Action::Gather(at));
                    }
                }
                Presence::Back => actions.extend([Action::Undo(at), Action::Off(at)]),
                Presence::Undone => actions.push(Action::Fence(at)),
            }
        }
        for alloc in 0..self.scenario.allocs.len() {
            let is_there = world.record.claims[alloc].is_some();
            if is_there && world.nodes[self.node_of(alloc)].gone {
                actions.push(Action::SeeProof(alloc));
            }
            if is_there && world.proven[alloc] {
                actions.push(Action::UseProof(alloc));
            }
        }
    }

    /// The calls to a lost plugin have ended before, answered or not.
    fn add_losses(&self, world: &World, actions: &mut Vec<Action>) {
        let controller_works = |call: &Call| call.at_work && call.kind.is_controller();
        let may_lose_controller =
            self.scenario.has(Trouble::ControllerLost) && !world.controller_lost;
        if may_lose_controller && !world.calls.iter().any(controller_works) {
            actions.push(Action::LoseController);
        }
        let node = &world.nodes[0];
        let may_lose_plugin = self.scenario.has(Trouble::NodePluginLost) && !node.plugin_lost;
        if may_lose_plugin && node.busy.is_none() {
            actions.push(Action::LosePlugin(0));
        }
    }

    /// Whether the plugin's controller may act on the call now, because no earlier call waits for
    /// it.
    fn is_its_turn(&self, call: &Call) -> bool {
        call.behind == 0 || self.scenario.is(Mutation::PluginOverlaps)
    }

    fn add_other_services(&self, world: &World, actions: &mut Vec<Action>) {
        if self.scenario.has(Trouble::Deregistered) {
            actions.extend([Action::Register, Action::Deregister(false), Action::Deregister(true)]);
        }
        if !self.scenario.has(Trouble::SecondService) {
            return;
        }
        actions.push(Action::Look);
        if world.view.is_some_and(|view| view != world.record) {
            for alloc in 0..self.scenario.allocs.len() {
                let asks = [LateAsk::Take, LateAsk::Release, LateAsk::Begin];
                actions.extend(asks.map(|ask| Action::Late(alloc, ask)));
            }
            if self.scenario.has(Trouble::Deregistered) {
                actions.push(Action::Late(0, LateAsk::Deregister));
            }
        }
    }

    fn is_attached(&self, world: &World, alloc: usize) -> bool {
        world.attached[self.scenario.attached_at(self.node_of(alloc))]
    }

    fn add_alloc_actions(&self, world: &World, alloc: usize, actions: &mut Vec<Action>) {
        // Allocs end and return at any time, so each may or may not be wanted at each step.
        match self.scenario.attaches {
            Attaches::Always => actions.push(Action::Take(alloc, true)),
            Attaches::Never => actions.push(Action::Take(alloc, false)),
            Attaches::Changes => {
                actions.extend([Action::Take(alloc, true), Action::Take(alloc, false)]);
            }
        }
        let Some(claim) = world.record.claims[alloc] else { return };
        if !matches!(claim.state, State::Unpublishing | State::NodeDetached) {
            actions.push(Action::Release(alloc));
        }
        actions.push(Action::Begin(alloc, false));
        // This is an abandoned place in the queue, or a reservation.
        if matches!(claim.state, State::Waiting | State::Publishing) {
            actions.push(Action::Begin(alloc, true));
        }
        if claim.attempt.is_some() {
            actions.push(Action::GiveUp(alloc));
        }
        if self.scenario.has(Trouble::Confirmed) && !self.is_attached(world, alloc) {
            actions.push(Action::Confirm(alloc));
        }
        if self.scenario.has(Trouble::Unstaged) && claim.state == State::Unpublishing {
            actions.push(Action::Confirm(alloc));
        }
    }
}
