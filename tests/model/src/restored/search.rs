//! The search: every reachable state, nearest first.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use super::bus::read;
use super::decide::Decider;
use super::world::{ALLOCS, Access, Ask, Call, Grant, Registered, Service, World};
use super::{Restore, Scenario};
use crate::fingerprint::{Quick, fingerprint};
use crate::safety::Breach;

/// The actions that may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// An alloc is registered.
    Register(usize),
    /// An alloc ends.
    End(usize),
    /// The service that knows all stored records decides, and stores its decision at once.
    AtOnce(Ask),
    /// The other service compares the bucket, and reads new messages.
    Look,
    /// That service restarts.
    Restart,
    /// That service decides on its memory.
    Decide(Ask),
    /// That service compares the bucket before it sends its write.
    Check,
    /// Its write reaches the bucket.
    Store,
    /// A grant reaches its agent.
    Mount(Grant),
    /// A call reaches its executor.
    Deliver(Call),
    /// An agent compares its mounts with the claims that a service lists.
    Compare(usize, Lister),
    /// The bucket is backed up.
    BackUp,
    /// The bucket is removed, or set back by another tool.
    SetBack,
    /// The new incarnation begins.
    Begin,
}

/// The service that lists claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lister {
    /// The service that knows all stored records.
    Current,
    /// The service that decides on its memory.
    Memory,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of states. States that behave alike count once.
    pub states: usize,
    /// Whether these are all states; otherwise the search stopped at its limit or at a breach.
    pub complete: bool,
    /// How long it took.
    pub took: Duration,
    /// The breach, and the actions that led to it.
    pub found: Option<(Breach, String)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.complete { "all" } else { "not all" };
        write!(f, "{all} {} states, {:.1?}", self.states, self.took)
    }
}

/// Searches at most `states_max` states.
pub fn search(scenario: Scenario, states_max: usize) -> Report {
    let begun = Instant::now();
    let mut search = Search {
        scenario,
        decider: Decider::new(),
        seen: HashSet::default(),
        origins: Vec::new(),
        ahead: VecDeque::new(),
    };
    let mut report = Report::default();
    search.run(states_max, &mut report);
    report.took = begun.elapsed();
    report
}

struct Search {
    scenario: Scenario,
    decider: Decider,
    seen: HashSet<u64, Quick>,
    /// For each state, the state and the action that led to it.
    origins: Vec<(Option<usize>, Action)>,
    ahead: VecDeque<(World, Option<usize>)>,
}

impl Search {
    fn run(&mut self, states_max: usize, report: &mut Report) {
        let mut first = World { runs: [!self.scenario.deletes, true], ..World::default() };
        first.stream.record = self.decider.first();
        // This is the message of the registration.
        first.stream.messages.push(0);
        first.stream.head = 1;
        first.stream.allocs[0] = Registered::Live;
        first.service.memory = Some(read(&first.stream));
        self.seen.insert(fingerprint(&first));
        self.ahead.push_back((first, None));
        while let Some((world, at)) = self.ahead.pop_front() {
            if report.states == states_max {
                return;
            }
            report.states += 1;
            for action in self.actions(&world) {
                let mut after = world.clone();
                let done = self.apply(&mut after, action);
                if let Err(breach) = done.and_then(|()| self.decider.check(after.stream.record)) {
                    let story = self.story(at, action);
                    report.found = Some((breach, story));
                    return;
                }
                if self.seen.insert(fingerprint(&after)) {
                    self.ahead.push_back((after, Some(self.origins.len())));
                    self.origins.push((at, action));
                }
            }
        }
        report.complete = true;
    }

    fn story(&self, mut at: Option<usize>, last: Action) -> String {
        let mut lines = vec![format!("{last:?}")];
        while let Some((from, by)) = at.map(|at| self.origins[at]) {
            lines.push(format!("{by:?}"));
            at = from;
        }
        lines.reverse();
        lines.join("\n")
    }

    /// All actions that may happen next. Some of them may change nothing.
    fn actions(&self, world: &World) -> Vec<Action> {
        let mut actions = Vec::new();
        let is_served = world.is_served(self.scenario);
        self.of_bucket(world, &mut actions);
        for at in 0..ALLOCS {
            let is_due = !world.runs[at] && world.is_registered(at, Registered::Live);
            if world.runs[at] || is_due {
                actions.push(Action::End(at));
            }
            if world.runs[at] && world.is_registered(at, Registered::Never) {
                actions.push(Action::Register(at));
            }
            if is_served {
                actions.push(Action::Compare(at, Lister::Current));
            }
            if world.service.memory.is_some() {
                actions.push(Action::Compare(at, Lister::Memory));
            }
        }
        if is_served {
            let asks = world.requests(self.scenario, &self.decider, world.stream.record);
            actions.extend(asks.into_iter().map(Action::AtOnce));
        }
        self.of_service(world, &mut actions);
        actions.extend(world.grants.iter().map(|grant| Action::Mount(*grant)));
        actions.extend(world.calls.iter().map(|call| Action::Deliver(*call)));
        actions
    }

    fn of_bucket(&self, world: &World, actions: &mut Vec<Action>) {
        if world.stream.access == Access::Unfinished {
            actions.push(Action::Begin);
        } else if world.setbacks > 0 {
            // A person accepts a bucket that another tool has set back.
            let is_stock = self.scenario.restore == Restore::Stock;
            if is_stock && world.stream.number == 0 {
                actions.push(Action::Begin);
            }
        } else if world.backup.is_some() {
            actions.push(Action::SetBack);
        } else {
            actions.push(Action::BackUp);
        }
    }

    fn of_service(&self, world: &World, actions: &mut Vec<Action>) {
        let service = &world.service;
        actions.push(Action::Look);
        if self.scenario.restarts && !world.has_restarted {
            actions.push(Action::Restart);
        }
        match (&service.pending, &service.memory) {
            (Some(pending), _) if pending.is_checked => actions.push(Action::Store),
            (Some(_), _) => actions.push(Action::Check),
            (None, Some(memory)) => {
                let asks = world.requests(self.scenario, &self.decider, memory.record);
                actions.extend(asks.into_iter().map(Action::Decide));
            }
            (None, None) => {}
        }
    }

    fn apply(&mut self, world: &mut World, action: Action) -> Result<(), Breach> {
        let (scenario, decider) = (self.scenario, &mut self.decider);
        match action {
            Action::Register(at) => world.register(scenario, at),
            Action::End(at) => world.end(at),
            Action::AtOnce(ask) => world.decide_at_once(scenario, decider, ask),
            Action::Look => world.look(scenario),
            Action::Restart => {
                world.service = Service::default();
                world.has_restarted = true;
            }
            Action::Decide(ask) => world.decide_by_memory(scenario, decider, ask),
            Action::Check => world.check(scenario),
            Action::Store => world.store(decider),
            Action::Mount(grant) => world.mount(scenario, grant)?,
            Action::Deliver(call) => world.deliver(call)?,
            Action::Compare(at, lister) => {
                let memory = match lister {
                    Lister::Current => Some(read(&world.stream)),
                    Lister::Memory => world.service.memory.clone(),
                };
                if let Some(memory) = memory {
                    world.compare(scenario, decider, at, &memory);
                }
            }
            Action::BackUp => world.backup = Some(world.stream.clone()),
            Action::SetBack => world.set_back(scenario),
            Action::Begin => world.begin_incarnation(scenario),
        }
        world.normalise(&self.decider);
        Ok(())
    }
}
