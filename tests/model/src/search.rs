//! The search: every reachable state, nearest first, so that the story of a breach is as short as
//! possible.

use std::collections::{HashSet, VecDeque};
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use crate::action::Action;
use crate::fingerprint::Quick;
use crate::model::Model;
use crate::safety::Breach;
use crate::scenario::{Mutation, Scenario};
use crate::weather::Weather;
use crate::world::World;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of states. States that behave alike count once.
    pub states: usize,
    /// The number of actions that were tried.
    pub actions: usize,
    /// The largest number of actions on a shortest way to a state.
    pub depth: usize,
    /// Whether these are all states; otherwise the search stopped at its limit or at a breach.
    pub complete: bool,
    /// How long it took.
    pub took: Duration,
    /// The breach, if one was found.
    pub found: Option<FoundBreach>,
}

/// A breach, and how it comes about.
#[derive(Debug)]
pub struct FoundBreach {
    /// The broken rule.
    pub breach: Breach,
    /// The number of actions that lead to it.
    pub steps: usize,
    /// Each action and the world after it, for a person to read.
    pub story: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, actions, depth, complete, took, .. } = self;
        let all = if *complete { "all" } else { "not all" };
        write!(f, "{all} {states} states, {actions} actions, depth {depth}, {took:.1?}")
    }
}

/// How a state was reached.
struct Origin {
    from: Option<usize>,
    by: Action,
    depth: usize,
}

/// Searches at most `states_max` states. From each state, good weather must lead to rest. If a rule
/// is taken away, only the damage is looked for, unless the rule is one that leads to rest.
pub fn search(scenario: &Scenario, states_max: usize) -> Report {
    let begun = Instant::now();
    let mut report = Report::default();
    report.found = Search::new(scenario).run(states_max, &mut report).err();
    report.took = begun.elapsed();
    report
}

struct Search {
    model: Model,
    weather: Weather,
    seen: HashSet<u64, Quick>,
    origins: Vec<Origin>,
    /// The worlds to search next, each with the index of its origin.
    ahead: VecDeque<(World, Option<usize>)>,
}

impl Search {
    fn new(scenario: &Scenario) -> Self {
        let model = Model::new(scenario.clone());
        let initial = model.initial();
        Self {
            seen: HashSet::from_iter([model.likeness(&initial)]),
            ahead: VecDeque::from([(initial, None)]),
            weather: Weather::new(scenario),
            origins: Vec::new(),
            model,
        }
    }

    fn run(&mut self, states_max: usize, report: &mut Report) -> Result<(), FoundBreach> {
        while let Some((world, at)) = self.ahead.pop_front() {
            if report.states == states_max {
                return Ok(());
            }
            report.states += 1;
            report.depth = at.map_or(0, |at| self.origins[at].depth);
            let looks =
                matches!(self.model.scenario().mutation, None | Some(Mutation::NoSecondTry));
            if looks && let Err(breach) = self.weather.comes_to_rest(&mut self.model, &world) {
                let mut found = self.tell(at, None, breach);
                let way_on = self.weather.story(&mut self.model, &world);
                found.story.push_str(&way_on);
                return Err(found);
            }
            for action in self.model.actions(&world) {
                report.actions += 1;
                match self.model.next(&world, action) {
                    Ok(after) => self.remember(after, action, at, report.depth + 1),
                    Err(breach) => return Err(self.tell(at, Some(action), breach)),
                }
            }
        }
        report.complete = true;
        Ok(())
    }

    fn remember(&mut self, world: World, by: Action, from: Option<usize>, depth: usize) {
        if self.seen.insert(self.model.likeness(&world)) {
            self.ahead.push_back((world, Some(self.origins.len())));
            self.origins.push(Origin { from, by, depth });
        }
    }

    /// Repeats the actions that lead to the breach, and writes them down.
    fn tell(&mut self, at: Option<usize>, last: Option<Action>, breach: Breach) -> FoundBreach {
        let mut actions: Vec<Action> = last.into_iter().collect();
        let mut at = at;
        while let Some(origin) = at.map(|at| &self.origins[at]) {
            actions.push(origin.by);
            at = origin.from;
        }
        actions.reverse();
        let mut story = format!("{}: {breach}\n", self.model.scenario());
        let mut world = self.model.initial();
        for (index, action) in actions.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(story, "{:>3}. {}", index + 1, self.model.describe(&world, *action));
            if let Ok(after) = self.model.next(&world, *action) {
                let _ = writeln!(story, "        {}", self.model.picture(&after));
                world = after;
            }
        }
        let _ = writeln!(story, "     => {breach}");
        FoundBreach { breach, steps: actions.len(), story }
    }
}
