//! The events that may happen next.

use super::action::{Event, Model};
use super::decide::{Ask, Decision};
use super::plugin::endings;
use super::records::Facts;
use super::world::{
    AGENT, BOTH, Call, CopyOf, EXECUTORS, Outcome, Owner, Progress, Record, Role, SNAPSHOT_NAMES,
    Work, World,
};
use super::{Mutation, Request};

const OWNERS: [Owner; 3] = [Owner::Operation, Owner::Snapshot, Owner::Claim];

impl Model {
    pub(super) fn events(&mut self, world: &World) -> Vec<Event> {
        let mut events = Vec::new();
        for (role, ask) in self.requests(world, world.records) {
            events.push(Event::Decided { role, ask, stale: false });
        }
        for (role, ask) in self.chores(world, world.records) {
            events.push(Event::Decided { role, ask, stale: false });
        }
        if let Some(view) = world.view {
            let mut asks = self.requests(world, view.records);
            if self.scenario.is(Mutation::NoGuard) {
                asks.extend(self.chores(world, view.records));
            }
            let stale = |(role, ask)| Event::Decided { role, ask, stale: true };
            events.extend(asks.into_iter().map(stale));
        }
        for (at, call) in world.calls.iter().enumerate() {
            self.call_events(world, at, call, &mut events);
        }
        for role in BOTH {
            let facts = self.decider.records.facts(world.records[role.at()]);
            let is_sent = |call: &Call| call.role == role && call.live;
            if facts.is_live || world.calls.iter().any(is_sent) {
                events.push(Event::Expired { role });
            }
        }
        let unready = world.snapshots.iter().enumerate().filter(|(_, snapshot)| !snapshot.ready);
        events.extend(unready.map(|(at, _)| Event::SnapshotReady { at }));
        if self.scenario.has(Request::Vanish) && !world.vanished {
            events.extend([false, true].map(|snapshot| Event::Vanished { snapshot }));
        }
        events
    }

    fn call_events(&self, world: &World, at: usize, call: &Call, events: &mut Vec<Event>) {
        match call.progress {
            Progress::Sent if call.live || self.scenario.is(Mutation::LateCalls) => {
                let executors = match call.target {
                    Some(executor) => executor..=executor,
                    None => 0..=EXECUTORS - 1,
                };
                events.extend(executors.map(|executor| Event::Arrives { call: at, executor }));
            }
            Progress::Sent => {}
            Progress::AtWork(executor) => {
                let store = if self.scenario.local && executor != AGENT { executor } else { 0 };
                let endings = endings(world, call, store);
                events.extend(endings.into_iter().map(|ending| Event::Ends { call: at, ending }));
            }
            Progress::Answered(_) => events.push(Event::Recorded { call: at }),
        }
    }

    /// The requests that users and workloads may send, by what a replica sees.
    fn requests(&self, world: &World, seen: [Record; 2]) -> Vec<(Role, Ask)> {
        let scenario = &self.scenario;
        let [source, copy] = seen.map(|record| self.decider.records.facts(record));
        let copied = |snapshot| copy.copies.is_some_and(|of| of.snapshot == snapshot);
        let mut of_source = Vec::new();
        for (request, first_use) in [(Request::Create, false), (Request::CreateAtFirstUse, true)] {
            let name = self.free_name(world, Role::Source.names());
            if let Some(name) = name.filter(|_| scenario.has(request) && source.stage.is_none()) {
                of_source.push(Ask::Create { name, of: None, first_use });
            }
        }
        if scenario.has(Request::Delete) && source.stage.is_some() {
            of_source.push(Ask::Delete { copied: copied(false) });
        }
        if scenario.has(Request::Claim) {
            of_source.push(Ask::Take);
        }
        for (request, size) in [(Request::Expand, 2), (Request::ExpandMore, 3)] {
            if scenario.has(request) {
                of_source.push(Ask::Expand { size });
            }
        }
        if scenario.has(Request::Modify) {
            of_source.push(Ask::Modify);
        }
        let name = self.free_snapshot_name(world);
        if let Some(name) = name.filter(|_| scenario.has(Request::Cut)) {
            of_source.push(Ask::Cut { name });
        }
        if scenario.has(Request::DeleteSnapshot) && source.snapshot.is_some() {
            of_source.push(Ask::DeleteSnapshot { copied: copied(true) });
        }
        let mut asks: Vec<_> = of_source.into_iter().map(|ask| (Role::Source, ask)).collect();
        let name = self.free_name(world, Role::Copy.names());
        if let Some(name) = name.filter(|_| copy.stage.is_none()) {
            let is_requested = |of: &CopyOf| {
                scenario.has(if of.snapshot { Request::CopySnapshot } else { Request::CopyVolume })
            };
            let origins = if scenario.is(Mutation::CopyAnything) {
                source.stored()
            } else {
                source.origins()
            };
            let origins = origins.into_iter().flatten().filter(is_requested);
            asks.extend(
                origins
                    .map(|of| (Role::Copy, Ask::Create { name, of: Some(of), first_use: false })),
            );
        }
        if scenario.has(Request::ClaimCopy) {
            asks.push((Role::Copy, Ask::Take));
        }
        if scenario.has(Request::ExpandCopy) && copy.stage.is_some() {
            asks.push((Role::Copy, Ask::Expand { size: 2 }));
        }
        if scenario.has(Request::DeleteCopy) && copy.stage.is_some() {
            asks.push((Role::Copy, Ask::Delete { copied: false }));
        }
        asks
    }

    /// The steps that workers take by themselves, by what a replica sees.
    fn chores(&mut self, world: &World, seen: [Record; 2]) -> Vec<(Role, Ask)> {
        let mut asks = Vec::new();
        for role in BOTH {
            let record = seen[role.at()];
            let facts = self.decider.records.facts(record).clone();
            if facts.operation.is_some() {
                let drive = |executor| Ask::Drive { owner: Owner::Operation, executor };
                let executors = self.executors(&facts).into_iter();
                asks.extend(executors.map(|executor| (role, drive(executor))));
            }
            // The calls of a group are made for its leading volume.
            let is_led = self.scenario.is_grouped() && role == Role::Copy;
            if let Some(snapshot) = facts.snapshot.as_ref().filter(|_| !is_led) {
                let executor = self.scenario.local.then_some(snapshot.source.store);
                asks.push((role, Ask::Drive { owner: Owner::Snapshot, executor }));
            }
            if facts.claim.is_some() {
                asks.push((role, Ask::Release));
            }
            // A worker waits for the answer until the deadline.
            let answered = |owner| {
                let is_call = |call: &&Call| call.role == role && call.owner == owner;
                let mut calls = world.calls.iter().filter(is_call);
                calls.any(|call| call.current && matches!(call.progress, Progress::Answered(_)))
            };
            for owner in OWNERS {
                if owner == Owner::Snapshot && is_led {
                    continue;
                }
                if facts.calling.contains(&owner) && !facts.is_live && !answered(owner) {
                    asks.push((role, Ask::Answer { owner, outcome: Outcome::Unanswered }));
                }
            }
        }
        // A call that is given up twice is recorded once.
        asks.retain(|(role, ask)| {
            let record = seen[role.at()];
            let is_new =
                |decision| !matches!(decision, Decision::Writes { after, .. } if after == record);
            let given_up = matches!(ask, Ask::Answer { .. });
            !given_up || self.decider.decide(record, *ask).map_or(true, is_new)
        });
        asks
    }

    /// The executors that may get the next call of an operation.
    fn executors(&self, facts: &Facts) -> Vec<Option<u8>> {
        if !self.scenario.local {
            return vec![None];
        }
        let known = facts.id.or(facts.copies.map(|of| of.id)).map(|id| id.store);
        let last = facts.operation.as_ref().filter(|operation| operation.sticks);
        let last = last.filter(|_| !self.scenario.is(Mutation::AnyExecutor));
        match known.or(last.and_then(|operation| operation.executor)) {
            Some(executor) => vec![Some(executor)],
            None => (0..EXECUTORS).map(Some).collect(),
        }
    }

    /// A name that is not in use. Names are new for each incarnation, and reused only when nothing
    /// can confuse the two.
    fn free_name(&self, world: &World, names: [u8; 2]) -> Option<u8> {
        let seen = world.view.map(|view| view.records).into_iter().flatten();
        let records = world.records.into_iter().chain(seen);
        let facts: Vec<&Facts> = records.map(|it| self.decider.records.facts(it)).collect();
        let is_free = |name: &u8| {
            let on_record = facts.iter().any(|facts| {
                facts.name == Some(*name)
                    || facts.id.is_some_and(|id| id.name == *name)
                    || facts.copies.is_some_and(|of| !of.snapshot && of.id.name == *name)
                    || facts.snapshot.as_ref().is_some_and(|it| it.source.name == *name)
            });
            let in_call = world.calls.iter().any(|call| match call.work {
                Work::Create { name: called, of } => {
                    called == *name || of.is_some_and(|of| !of.snapshot && of.id.name == *name)
                }
                Work::Delete { id }
                | Work::Expand { id, .. }
                | Work::Modify { id }
                | Work::Cut { of: id, .. }
                | Work::Publish { id }
                | Work::Unpublish { id } => id.name == *name,
                Work::DeleteSnapshot { .. } | Work::ExpandNode | Work::Detach => false,
            });
            !on_record && !in_call && world.volumes.iter().all(|id| id.name != *name)
        };
        names.into_iter().find(is_free)
    }

    fn free_snapshot_name(&self, world: &World) -> Option<u8> {
        let seen = world.view.map(|view| view.records).into_iter().flatten();
        let records = world.records.into_iter().chain(seen);
        let facts: Vec<&Facts> = records.map(|it| self.decider.records.facts(it)).collect();
        let is_free = |name: &u8| {
            let on_record = facts.iter().any(|facts| {
                facts.snapshot.as_ref().is_some_and(|it| it.name == *name)
                    || facts.copies.is_some_and(|of| of.snapshot && of.id.name == *name)
            });
            let in_call = world.calls.iter().any(|call| match call.work {
                Work::Create { of, .. } => of.is_some_and(|of| of.snapshot && of.id.name == *name),
                Work::Cut { name: called, .. } => called == *name,
                Work::DeleteSnapshot { id } => id.name == *name,
                _ => false,
            });
            let at_storage = world.snapshots.iter().any(|snapshot| snapshot.id.name == *name);
            !on_record && !in_call && !at_storage
        };
        SNAPSHOT_NAMES.into_iter().find(is_free)
    }
}
