//! What may happen next.

use berth_domain::volume::{CallKind, State};

use crate::model::Model;
use crate::scenario::Attaches;
use crate::world::{Node, World};

/// One thing that happens. Numbers are places in the world's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// An agent asks for the claim of an alloc, which may have come back under the same id; the
    /// plugin says whether its controller attaches.
    Take(usize, bool),
    /// Somebody gives the claim up.
    Release(usize),
    /// A worker asks for the next call of a release; the alloc wants the claim, or has ended.
    Begin(usize, bool),
    /// A worker waited for its answer in vain.
    GiveUp(usize),
    /// A call reaches its executor.
    Deliver(usize),
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
    /// A node starts anew: nothing is mounted there any more.
    Reboot(usize),
    /// A node's agent starts without its journal.
    LoseJournal(usize),
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
                (false, _) => actions.push(Action::Deliver(at)),
                (true, CallKind::NodeDetach) => {}
                (true, kind) => {
                    actions.extend(ENDINGS.map(|ending| Action::Controller(at, ending)));
                    if kind == CallKind::ControllerPublish {
                        actions.push(Action::Controller(at, Ending::Refused));
                    }
                }
            }
        }
        actions.extend((0..world.answers.len()).map(Action::Report));
        for (at, grant) in world.grants.iter().enumerate() {
            if world.nodes[self.node_of(grant.alloc)].busy.is_none() {
                actions.push(Action::Mount(at));
            }
        }
        for (at, node) in world.nodes.iter().enumerate() {
            if node.busy.is_some() && !self.scenario.nodes_fail {
                actions.push(Action::Node(at, Ending::Done));
            }
            if !self.scenario.nodes_fail {
                continue;
            }
            if node.busy.is_some() {
                actions.extend(ENDINGS.map(|ending| Action::Node(at, ending)));
                actions.push(Action::Crash(at));
            }
            if node.busy.is_some() || node.in_use() {
                actions.push(Action::Reboot(at));
            }
            if self.scenario.loses_journal && *node != Node::default() {
                actions.push(Action::LoseJournal(at));
            }
        }
        actions
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
        if claim.state == State::Publishing {
            actions.push(Action::Begin(alloc, true));
        }
        if claim.attempt.is_some() {
            actions.push(Action::GiveUp(alloc));
        }
    }
}
