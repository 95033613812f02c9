//! What may happen next.

use berth_domain::volume::{CallKind, State};

use crate::model::Model;
use crate::scenario::{Attaches, Mutation, Trouble};
use crate::world::{Call, Life, Node, World};

/// One thing that happens. Numbers are places in the world's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// An agent asks for the claim of an alloc, which may have come back under the same id; the
    /// plugin says whether its controller attaches.
    Take(usize, bool),
    /// A caller gives the claim up.
    Release(usize),
    /// A worker asks for the next call of a release; the alloc wants the claim, or has ended.
    Begin(usize, bool),
    /// A worker waited for its answer in vain.
    GiveUp(usize),
    /// A call reaches its executor.
    Deliver(usize),
    /// A call reaches its executor, and will once more.
    Repeat(usize),
    /// The plugin ends the controller call it is at.
    Controller(usize, Ending),
    /// An answer reaches the record.
    Report(usize),
    /// A grant reaches its agent.
    Mount(usize),
    /// The plugin ends the node call it is at.
    Node(usize, Ending),
    /// A node's agent crashes and starts again; the plugin does not notice.
    Crash(usize),
    /// A node reboots: nothing is mounted there any more.
    Reboot(usize),
    /// A node's agent starts without its journal.
    LoseJournal(usize),
    /// A node goes, with whatever its agent and its plugin are at.
    Off(usize),
    /// An operator reads a node's record, and then makes sure that nothing on the node can write.
    Gather(usize),
    /// The operator declares the node gone by this evidence.
    Prove(usize),
    /// A node is back: after a boot, when nothing is mounted, or as it went.
    Return(usize, bool),
    /// A node that counts as gone undoes something, or has undone everything and says so.
    Undo(usize),
    /// A node that was gone learns which claims are older than its return.
    Fence(usize),
    /// A service sees a claim, and then that its node is gone.
    SeeProof(usize),
    /// It uses what it saw, which may be a while ago.
    UseProof(usize),
    /// A second claim service looks at the record.
    Look,
    /// A replica decides on the record that it read before: a claim, a release, or a checkpoint.
    Late(usize, LateAsk),
    /// A person says of a claim that the storage has it detached, which is so when it is said.
    Confirm(usize),
    /// The volume is registered, or updated.
    Register,
    /// The volume is deregistered; by force, it is closed.
    Deregister(bool),
    /// The plugin's controller can be reached no more.
    LoseController,
    /// The plugin on a node can be reached no more.
    LosePlugin(usize),
}

/// What a second service is asked.
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
    /// It acted, and says so.
    Done,
    /// It acted, and says that it failed.
    DoneButError,
    /// It did not act, and says that it failed.
    Error,
    /// It did not act, and says that it never will.
    Refused,
    /// It did not act, and says that it has no room.
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
    /// Everything that may happen next; some of it may change nothing.
    pub fn actions(&self, world: &World) -> Vec<Action> {
        let mut actions = vec![Action::Tick];
        for alloc in 0..self.scenario.allocs.len() {
            self.of_alloc(world, alloc, &mut actions);
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
                // The plugin is at another call for the volume: it answers ABORTED, or has it wait.
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
            if node.busy.is_none() && node.life == Life::Here {
                actions.push(Action::Mount(at));
            }
        }
        self.of_nodes_that_go(world, &mut actions);
        self.of_other_services(world, &mut actions);
        self.of_what_is_lost(world, &mut actions);
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
            if !self.scenario.nodes_fail || node.life != Life::Here {
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

    /// Evidence is true when it is gathered: the node is off. It is used at any later time. When
    /// the node was back in between, its record has changed, and the evidence is refused.
    fn of_nodes_that_go(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, node) in world.nodes.iter().enumerate().filter(|(at, _)| self.scenario.goes(*at)) {
            if node.evidence {
                actions.push(Action::Prove(at));
            }
            match node.life {
                Life::Here => actions.push(Action::Off(at)),
                Life::Off => {
                    actions.extend([Action::Return(at, true), Action::Return(at, false)]);
                    if !node.gone && !node.evidence {
                        actions.push(Action::Gather(at));
                    }
                }
                Life::Back => actions.extend([Action::Undo(at), Action::Off(at)]),
                Life::Undone => actions.push(Action::Fence(at)),
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

    /// What was under way then has ended before, answered or not.
    fn of_what_is_lost(&self, world: &World, actions: &mut Vec<Action>) {
        let at_work = |call: &Call| call.at_work && call.kind.is_controller();
        let controller = self.scenario.has(Trouble::ControllerLost) && !world.controller_lost;
        if controller && !world.calls.iter().any(at_work) {
            actions.push(Action::LoseController);
        }
        let node = &world.nodes[0];
        let plugin = self.scenario.has(Trouble::NodePluginLost) && !node.plugin_lost;
        if plugin && node.busy.is_none() {
            actions.push(Action::LosePlugin(0));
        }
    }

    /// Whether the plugin's controller may act on the call now: it was asked for no other before.
    fn is_its_turn(&self, call: &Call) -> bool {
        call.behind == 0 || self.scenario.is(Mutation::PluginOverlaps)
    }

    fn of_other_services(&self, world: &World, actions: &mut Vec<Action>) {
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

    fn of_alloc(&self, world: &World, alloc: usize, actions: &mut Vec<Action>) {
        // Allocs end and come back at any time: each is now wanted, now not, and nothing is kept.
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
        // An abandoned place in the queue, or a reservation.
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
