//! The effects of events.

use berth_domain::volume::Volume;

use super::check::{check_arrival, check_state};
use super::decide::{Ask, Decider, Decision};
use super::plugin::{Ending, end_call};
use super::world::{
    AGENT, BOTH, Call, EXECUTORS, Id, Outcome, Owner, Progress, Role, StoredSnapshot, View, Work,
    World,
};
use super::{Mutation, Scenario, Start};
use crate::safety::Breach;

/// The events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A replica decides, and stores its decision. `stale` says whether it is the replica that
    /// lags.
    Decided { role: Role, ask: Ask, stale: bool },
    /// A call reaches an executor.
    Arrives { call: usize, executor: u8 },
    /// The plugin ends a call.
    Ends { call: usize, ending: Ending },
    /// The result of a call is recorded.
    Recorded { call: usize },
    /// No call of the volume that was sent may act any more.
    Expired { role: Role },
    /// A volume can be made of a snapshot.
    SnapshotReady { at: usize },
    /// S, or its snapshot, disappears from the storage.
    Vanished { snapshot: bool },
}

/// An event, and whether the second replica has not yet seen its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) event: Event,
    pub(super) is_missed: bool,
}

impl Event {
    /// Whether it happens without a request of a user.
    pub(super) const fn is_chore(self) -> bool {
        match self {
            Self::Decided { ask, stale, .. } => {
                !stale && matches!(ask, Ask::Drive { .. } | Ask::Release | Ask::Answer { .. })
            }
            Self::Vanished { .. } => false,
            Self::Arrives { .. }
            | Self::Ends { .. }
            | Self::Recorded { .. }
            | Self::Expired { .. }
            | Self::SnapshotReady { .. } => true,
        }
    }
}

/// The rules by which a world continues.
pub(super) struct Model {
    pub(super) scenario: Scenario,
    pub(super) decider: Decider,
}

impl Model {
    pub(super) fn new(scenario: Scenario) -> Self {
        Self { scenario, decider: Decider::new(scenario) }
    }

    /// The world at the start, with records as Berth writes them.
    pub(super) fn initial(&mut self) -> Result<World, Breach> {
        let empty = self.decider.records.number(Volume::default())?;
        let mut world = World {
            records: [empty; 2],
            view: None,
            volumes: Vec::new(),
            snapshots: Vec::new(),
            vanished: false,
            calls: Vec::new(),
        };
        if self.scenario.start == Start::Empty {
            return Ok(world);
        }
        let executor = self.scenario.local.then_some(0);
        let id = Id { name: 0, store: 0 };
        let drive = |owner| Ask::Drive { owner, executor };
        let answer = |owner, outcome| Ask::Answer { owner, outcome };
        let create = |id: Id| {
            vec![
                Ask::Create { name: id.name, of: None, first_use: false },
                drive(Owner::Operation),
                answer(Owner::Operation, Outcome::Created { id }),
            ]
        };
        world.volumes.push(id);
        let mut asks = create(id);
        if self.scenario.is_grouped() {
            let id = Id { name: Role::Copy.names()[0], store: 0 };
            world.volumes.push(id);
            for ask in create(id) {
                let decision = self.decider.decide(world.records[1], ask)?;
                if let Decision::Writes { after, .. } = decision {
                    world.records[1] = after;
                }
            }
        }
        if self.scenario.start == Start::Snapshotted {
            world.snapshots.push(StoredSnapshot { id, ready: true });
            asks.extend([
                Ask::Cut { name: 0 },
                drive(Owner::Snapshot),
                answer(Owner::Snapshot, Outcome::Cut { id, ready: true }),
            ]);
        }
        for ask in asks {
            if let Decision::Writes { after, .. } = self.decider.decide(world.records[0], ask)? {
                world.records[0] = after;
            }
        }
        Ok(world)
    }

    /// The world after an event; `None` if the event changes nothing.
    pub(super) fn next(&mut self, before: &World, action: Action) -> Result<Option<World>, Breach> {
        let mut world = before.clone();
        let mut written = [false; 2];
        match action.event {
            Event::Decided { role, ask, stale } => {
                written = self.commit(&mut world, role, ask, stale)?;
            }
            Event::Arrives { call, executor } => self.arrive(&mut world, call, executor)?,
            Event::Ends { call, ending } => end_call(self, &mut world, call, ending)?,
            Event::Recorded { call } => {
                let Call { role, owner, progress, .. } = world.calls.remove(call);
                if let Progress::Answered(outcome) = progress {
                    let ask = Ask::Answer { owner, outcome };
                    written = self.commit(&mut world, role, ask, false)?;
                }
            }
            Event::Expired { role } => self.expire(&mut world, role)?,
            Event::SnapshotReady { at } => world.snapshots[at].ready = true,
            Event::Vanished { snapshot } => {
                world.vanished = true;
                if snapshot {
                    world.snapshots.clear();
                } else {
                    world.volumes.retain(|id| !Role::Source.names().contains(&id.name));
                }
            }
        }
        if action.is_missed {
            if written == [false; 2] {
                return Ok(None);
            }
            let fresh = written.map(|written| !written);
            world.view = Some(View { records: before.records, fresh });
        } else if let Some(view) = &mut world.view {
            for (fresh, written) in view.fresh.iter_mut().zip(written) {
                *fresh &= !written;
            }
        }
        self.normalise(&mut world);
        if world == *before {
            return Ok(None);
        }
        check_state(self, &world)?;
        Ok(Some(world))
    }

    fn normalise(&mut self, world: &mut World) {
        world.normalise(&self.scenario);
        let Some(view) = &mut world.view else { return };
        let records = &mut self.decider.records;
        // An old record only matters for the decision of the other replica. If that record allows
        // no more than the present one does, it does not matter at all.
        let is_news = match view.fresh {
            _ if self.scenario.is(Mutation::NoGuard) => view.records != world.records,
            [true, false] => {
                view.records[1] = records.alike_as_copy(view.records[1]);
                let [seen, now] = [view.records[1], world.records[1]];
                let [seen, now] = [seen, now].map(|record| records.facts(record).copies);
                view.records[0] = world.records[0];
                now.is_some() && seen != now
            }
            [false, true] => {
                view.records[0] = records.alike_as_source(view.records[0]);
                let [seen, now] = [view.records[0], world.records[0]];
                let [seen, now] = [seen, now].map(|record| records.facts(record).origins());
                view.records[1] = world.records[1];
                seen.into_iter().any(|of| of.is_some() && !now.contains(&of))
            }
            _ => false,
        };
        world.view = world.view.filter(|_| is_news);
    }

    /// Decides on the records as a replica sees them, and stores the decision under the guard.
    /// Returns which records were written.
    fn commit(
        &mut self,
        world: &mut World,
        role: Role,
        ask: Ask,
        stale: bool,
    ) -> Result<[bool; 2], Breach> {
        let now = View { records: world.records, fresh: [true; 2] };
        let seen = if stale { world.view.take().unwrap_or(now) } else { now };
        let decision = self.decider.decide(seen.records[role.at()], ask)?;
        let Decision::Writes { after, mut call } = decision else { return Ok([false; 2]) };
        // Either all members of a group are written, or none.
        let mut of_other = None;
        if self.scenario.is_grouped() && ask.is_of_snapshot() {
            let decision = self.decider.decide(seen.records[Role::Copy.at()], ask)?;
            let Decision::Writes { after, call: asks } = decision else { return Ok([false; 2]) };
            of_other = Some(after).filter(|_| !self.scenario.is(Mutation::LeaderStored));
            if let (Some(call), Some(asks)) = (&mut call, asks) {
                call.asks |= asks.asks && !self.scenario.is(Mutation::LeaderAsks);
            }
        }
        // The copy and its source are written in one batch, each under its own guard.
        let is_copy = matches!(ask, Ask::Create { of: Some(_), .. });
        let fences = is_copy && !self.scenario.is(Mutation::NoFence);
        let mut written = [false; 2];
        written[role.at()] = true;
        written[Role::Source.at()] |= fences;
        written[Role::Copy.at()] |= of_other.is_some();
        let passes = written.iter().zip(seen.fresh).all(|(written, fresh)| !written || fresh);
        if !passes && !self.scenario.is(Mutation::NoGuard) {
            return Ok([false; 2]);
        }
        world.records[role.at()] = after;
        if let Some(after) = of_other {
            world.records[Role::Copy.at()] = after;
        }
        let calling = self.decider.records.facts(after).calling.clone();
        let is_late = !passes;
        for other in world.calls.iter_mut().filter(|other| other.role == role) {
            let is_replaced = call.is_some_and(|call| call.owner == other.owner);
            other.current &= calling.contains(&other.owner) && !is_replaced && !is_late;
        }
        if let Some(call) = call {
            world.calls.push(Call {
                role,
                other_member: (self.scenario.is_grouped() && ask.is_of_snapshot())
                    .then_some(Role::Copy),
                owner: call.owner,
                work: call.work,
                current: true,
                live: true,
                target: self.target(call.work, ask),
                asks: call.asks,
                progress: Progress::Sent,
            });
        }
        Ok(written)
    }

    /// The executor that must get a call.
    fn target(&self, work: Work, ask: Ask) -> Option<u8> {
        match (work, ask) {
            (Work::ExpandNode | Work::Detach, _) => Some(AGENT),
            (Work::Publish { id } | Work::Unpublish { id }, _) => {
                self.scenario.local.then_some(id.store)
            }
            (_, Ask::Drive { executor, .. }) => executor,
            _ => None,
        }
    }

    fn expire(&mut self, world: &mut World, role: Role) -> Result<(), Breach> {
        // The attempt of a group is on both records.
        if self.scenario.is_grouped() {
            BOTH.into_iter().try_for_each(|role| self.expire_one(world, role))
        } else {
            self.expire_one(world, role)
        }
    }

    fn expire_one(&mut self, world: &mut World, role: Role) -> Result<(), Breach> {
        let at = role.at();
        world.records[at] = self.decider.expire(world.records[at])?;
        if let Some(view) = &mut world.view {
            view.records[at] = self.decider.expire(view.records[at])?;
        }
        for call in world.calls.iter_mut().filter(|call| call.role == role) {
            call.live = false;
        }
        Ok(())
    }

    /// The executor accepts the call, unless it, or another executor that was asked, works on an
    /// earlier one (rule 4).
    fn arrive(&self, world: &mut World, at: usize, executor: u8) -> Result<(), Breach> {
        let call = world.calls[at];
        let is_in_the_way = |(other, working): (u8, &Call)| {
            let asked = call.asks && working.work.kind().is_controller() && other < EXECUTORS;
            let is_known = call.role == working.role || !self.scenario.is(Mutation::LeaderLocked);
            is_known && (other == executor || asked)
        };
        if world.at_work(call).any(is_in_the_way) {
            world.calls[at].progress = Progress::Answered(Outcome::Unasked);
            return Ok(());
        }
        check_arrival(world, call)?;
        world.calls[at].progress = Progress::AtWork(executor);
        Ok(())
    }
}
