//! One step of the world.

use crate::action::Action;
use crate::decide::Decider;
use crate::safety::{self, Breach};
use crate::scenario::Scenario;
use crate::world::{LONG_AGO, NODES, World};

/// A scenario, and the cache of its decisions.
pub struct Model {
    pub(crate) scenario: Scenario,
    pub(crate) decider: Decider,
}

impl Model {
    /// A model of the scenario.
    pub fn new(scenario: Scenario) -> Self {
        Self { decider: Decider::new(scenario.clone()), scenario }
    }

    /// The scenario that is searched.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The world before the first action.
    pub fn initial(&self) -> World {
        World { attempts_left: self.scenario.attempts, ..World::default() }
    }

    /// The world after the action, or the same world if the action changed nothing. A breach if a
    /// safety rule was broken by the action or is broken now.
    pub fn next(&mut self, before: &World, action: Action) -> Result<World, Breach> {
        let mut world = before.clone();
        match action {
            Action::Tick => tick(&mut world),
            Action::Take(alloc, controller) => self.take(&mut world, alloc, controller)?,
            Action::Release(alloc) => self.release(&mut world, alloc)?,
            Action::Begin(alloc, wanted) => self.begin(&mut world, alloc, wanted)?,
            Action::GiveUp(alloc) => self.give_up(&mut world, alloc)?,
            Action::Report(at) => self.report(&mut world, at)?,
            Action::Deliver(at) => self.deliver(&mut world, at),
            Action::Repeat(at) => self.repeat(&mut world, at),
            Action::Controller(at, ending) => self.end_controller_call(&mut world, at, ending)?,
            Action::Mount(at) => self.mount(&mut world, at),
            Action::Node(node, ending) => self.end_node_call(&mut world, node, ending)?,
            Action::Crash(node) => self.crash(&mut world, node),
            Action::Reboot(node) => self.reboot(&mut world, node),
            Action::LoseJournal(node) => self.lose_journal(&mut world, node),
            Action::Off(node) => self.off(&mut world, node),
            Action::Prove(node) => Self::prove(&mut world, node),
            Action::Gather(node) => Self::gather(&mut world, node),
            Action::Return(node, booted) => self.come_back(&mut world, node, booted),
            Action::Undo(node) => self.undo(&mut world, node),
            Action::Fence(node) => self.fence(&mut world, node),
            Action::SeeProof(alloc) => world.proven[alloc] = true,
            Action::UseProof(alloc) => self.use_proof(&mut world, alloc)?,
            Action::Look => world.view = Some(world.record),
            Action::Late(alloc, ask) => self.late(&mut world, alloc, ask)?,
            Action::Confirm(alloc) => self.confirm(&mut world, alloc)?,
            Action::Register => self.register(&mut world)?,
            Action::Deregister(force) => self.deregister(&mut world, force)?,
            Action::LoseController => world.controller_lost = true,
            Action::LosePlugin(node) => world.nodes[node].plugin_lost = true,
        }
        self.normalise(&mut world)?;
        safety::check(&self.scenario, &world)?;
        Ok(world)
    }

    pub(crate) fn node_of(&self, alloc: usize) -> usize {
        self.scenario.allocs[alloc].node
    }

    /// The other allocs of the node.
    pub(crate) fn others_on(&self, node: usize, alloc: usize) -> impl Iterator<Item = usize> {
        let allocs = self.scenario.allocs;
        (0..allocs.len()).filter(move |other| *other != alloc && allocs[*other].node == node)
    }
}

fn tick(world: &mut World) {
    for record in std::iter::once(&mut world.record).chain(&mut world.view) {
        for attempt in record.claims.iter_mut().flatten().filter_map(|c| c.attempt.as_mut()) {
            attempt.left = (attempt.left - 1).max(LONG_AGO);
        }
    }
    for call in world.calls.iter_mut().filter(|call| !call.at_work) {
        call.left = (call.left - 1).max(LONG_AGO);
    }
}

const _: () = assert!(NODES >= 2, "two nodes are the least that can be at odds");
