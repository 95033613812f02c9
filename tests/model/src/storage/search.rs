//! The search: every reachable state, nearest first, and whether each comes to rest.

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use super::action::{Action, Event, Model};
use super::check::is_at_rest;
use super::world::{Call, World};
use super::{Mutation, Scenario};
use crate::fingerprint::{Quick, fingerprint};
use crate::safety::Breach;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of states. States that behave alike count once.
    pub states: usize,
    /// The number of records. Records that behave alike count once.
    pub records: usize,
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
        let Self { states, records, took, .. } = self;
        write!(f, "{all} {states} states, {records} records, {took:.1?}")
    }
}

/// Searches at most `states_max` states. From each state, rest must be reachable without requests.
/// If a rule is taken away, only the damage is looked for, unless the rule is one that leads to
/// rest.
pub fn search(scenario: Scenario, states_max: usize) -> Report {
    let begun = Instant::now();
    let mut search = Search::new(scenario);
    let found = search.run(states_max).err();
    Report {
        states: search.origins.len(),
        records: search.model.decider.records.count(),
        complete: found.is_none() && search.is_complete,
        took: begun.elapsed(),
        found,
    }
}

struct Search {
    model: Model,
    numbers: HashMap<u64, u32, Quick>,
    /// The origin of each state on a shortest way.
    origins: Vec<Option<(u32, Action)>>,
    /// Pairs of states of which the first leads to the second without a request.
    chores: Vec<(u32, u32)>,
    resting: Vec<bool>,
    looks_for_rest: bool,
    is_complete: bool,
}

impl Search {
    fn new(scenario: Scenario) -> Self {
        Self {
            model: Model::new(scenario),
            numbers: HashMap::default(),
            origins: Vec::new(),
            chores: Vec::new(),
            resting: Vec::new(),
            looks_for_rest: matches!(scenario.mutation, None | Some(Mutation::NoSecondTry)),
            is_complete: false,
        }
    }

    fn run(&mut self, states_max: usize) -> Result<(), (Breach, String)> {
        let initial = self.model.initial().map_err(|breach| (breach, String::new()))?;
        let mut ahead = VecDeque::from([(initial.clone(), 0)]);
        self.remember(&initial, None);
        while let Some((world, at)) = ahead.pop_front() {
            for event in self.model.events(&world) {
                for is_missed in [false, true] {
                    if is_missed && !self.model.scenario.stale {
                        continue;
                    }
                    let action = Action { event, is_missed };
                    let after = match self.model.next(&world, action) {
                        Ok(Some(after)) => after,
                        Ok(None) => continue,
                        Err(breach) => {
                            let story = self.tell(at, Some(action), &breach);
                            return Err((breach, story));
                        }
                    };
                    let (number, is_new) = self.remember(&after, Some((at, action)));
                    if self.looks_for_rest && event.is_chore() && !is_missed {
                        self.chores.push((at, number));
                    }
                    if is_new {
                        if self.origins.len() > states_max {
                            return Ok(());
                        }
                        ahead.push_back((after, number));
                    }
                }
            }
        }
        self.is_complete = true;
        if self.looks_for_rest { self.check_rest() } else { Ok(()) }
    }

    /// The number of a state, and whether it is new.
    fn remember(&mut self, world: &World, by: Option<(u32, Action)>) -> (u32, bool) {
        let next = u32::try_from(self.origins.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(fingerprint(world)).or_insert(next);
        if number == next {
            self.origins.push(by);
            self.resting.push(is_at_rest(&self.model, world));
        }
        (number, number == next)
    }

    /// Checks that a state at rest is reachable from every state without a request.
    fn check_rest(&mut self) -> Result<(), (Breach, String)> {
        // The pairs are sorted by the second state, to follow them backwards.
        self.chores.sort_unstable_by_key(|(_, to)| *to);
        let from = |to: u32| self.chores.partition_point(|(_, at)| *at < to);
        let mut rests = vec![false; self.origins.len()];
        let resting = (0_u32..).zip(&self.resting).filter(|(_, rests)| **rests);
        let mut queue: VecDeque<u32> = resting.map(|(at, _)| at).collect();
        while let Some(at) = queue.pop_front() {
            if !std::mem::replace(&mut rests[at as usize], true) {
                let before = &self.chores[from(at)..from(at + 1)];
                queue.extend(before.iter().map(|(before, _)| *before));
            }
        }
        match rests.iter().position(|rests| !rests) {
            Some(stuck) => {
                let breach = Breach::new("it never comes to rest from here");
                let story = self.tell(u32::try_from(stuck).unwrap_or(u32::MAX), None, &breach);
                Err((breach, story))
            }
            None => Ok(()),
        }
    }

    /// Repeats the actions that lead to the breach, and writes them down.
    fn tell(&mut self, at: u32, last: Option<Action>, breach: &Breach) -> String {
        let mut actions: Vec<Action> = last.into_iter().collect();
        let mut at = at;
        while let Some((from, by)) = self.origins[at as usize] {
            actions.push(by);
            at = from;
        }
        actions.reverse();
        let mut story = String::new();
        let Ok(mut world) = self.model.initial() else { return story };
        for (index, action) in actions.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(story, "{:>3}. {}", index + 1, describe(&world, *action));
            if let Ok(Some(after)) = self.model.next(&world, *action) {
                let _ = writeln!(story, "        {}", self.picture(&after));
                world = after;
            }
        }
        let _ = writeln!(story, "     => {breach}");
        story
    }

    fn picture(&self, world: &World) -> String {
        let [source, copy] = world.records.map(|record| self.model.decider.records.picture(record));
        let volumes = world.volumes.iter().map(|id| format!("volume {}@{}", id.name, id.store));
        let snapshots = world.snapshots.iter();
        let snapshots = snapshots.map(|it| format!("snapshot {}@{}", it.id.name, it.id.store));
        let calls = world.calls.iter().map(|call| format!("{:?} {:?}", call.work, call.progress));
        let stored: Vec<String> = volumes.chain(snapshots).collect();
        let calls: Vec<String> = calls.collect();
        let (stored, calls) = (stored.join(", "), calls.join(", "));
        format!("S: {source}; C: {copy}; at the storage: {stored}; calls: {calls}")
    }
}

fn describe(world: &World, action: Action) -> String {
    let call = |at: usize| world.calls.get(at).map(|Call { work, .. }| format!("{work:?}"));
    let call = |at: usize| call(at).unwrap_or_default();
    let missed = if action.is_missed { ", which the second replica misses" } else { "" };
    let what = match action.event {
        Event::Decided { role, ask, stale } => {
            let by = if stale { ", by the replica that is behind" } else { "" };
            format!("{role:?}: {ask:?}{by}")
        }
        Event::Arrives { call: at, executor } => {
            format!("{} reaches executor {executor}", call(at))
        }
        Event::Ends { call: at, ending } => format!("{} ends: {ending:?}", call(at)),
        Event::Recorded { call: at } => format!("the answer of {} is recorded", call(at)),
        Event::Expired { role } => format!("{role:?}: no call may act any more"),
        Event::SnapshotReady { .. } => "the snapshot is ready".to_owned(),
        Event::Vanished { snapshot: true } => "the snapshot disappears".to_owned(),
        Event::Vanished { snapshot: false } => "the source disappears".to_owned(),
    };
    format!("{what}{missed}")
}
