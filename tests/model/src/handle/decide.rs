//! How a claim replica decides a request by its own projection: `transact` without its waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use berth_claim::handle::{self, Repair, SideWrite};
use berth_domain::VolumeKey;
use berth_domain::retry::Schedule;
use berth_domain::volume::{
    Begin, CallKind, CallOwner, Command, Context, Handle, HandleUse, Outcome, Policy, Refusal,
    State, Step, Write as DomainWrite, step,
};
use berth_service::projection::Volumes;

use super::values::Values;
use super::world::{Ask, Batch, External, Filter, Key, Messages, NAMES, Name, Write};
use super::{Mutation, Scenario, Start};
use crate::fingerprint::Quick;
use crate::translate::{NOW, TICK};

/// The leader's newest revisions, after they were asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Heads {
    pub(super) known: BTreeMap<Filter, u8>,
    /// Whether the replica has caught up with the whole bucket.
    pub(super) all: bool,
}

impl Heads {
    fn asked(&self, all: bool) -> bool {
        self.all || (!self.known.is_empty() && !all)
    }
}

/// The decision on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// The request is refused, or there is nothing to do.
    Nothing,
    /// The present claim is granted again.
    Again,
    /// The replica must ask the leader first.
    Asks { all: bool, filters: BTreeSet<Filter> },
    /// The batch is to be stored.
    Sends(Batch),
}

/// Decides requests, and caches the decisions.
pub(super) struct Decider {
    scenario: Scenario,
    pub(super) values: Values,
    policy: Policy,
    decided: HashMap<(Messages, Ask, Heads), Decision, Quick>,
    asks: HashMap<Messages, Vec<Ask>, Quick>,
}

impl Decider {
    pub(super) fn new(scenario: Scenario) -> Self {
        Self {
            scenario,
            values: Values::new(scenario.controller),
            policy: Policy {
                call_timeout: TICK,
                clock_margin: TICK,
                abandoned_after: Duration::ZERO,
                place_kept: TICK,
                retry: Schedule { first: Duration::ZERO, max: Duration::ZERO },
            },
            decided: HashMap::default(),
            asks: HashMap::default(),
        }
    }

    /// The requests that a replica may get while it sees these messages.
    pub(super) fn asks(&mut self, seen: &Messages) -> Vec<Ask> {
        if let Some(asks) = self.asks.get(seen) {
            return asks.clone();
        }
        let mut asks = Vec::new();
        if self.scenario.start == Start::Empty && !self.scenario.older_service {
            asks.push(Ask::Register(Name::A, External::Own));
        }
        for name in NAMES {
            asks.push(Ask::Register(name, External::Shared));
            asks.extend([Ask::Deregister(name), Ask::Take(name)]);
            if is_there(seen, Key::Claim(name)) {
                asks.extend([Ask::Begin(name), Ask::Answer(name)]);
            }
        }
        let volumes = self.values.project(seen);
        let handles = volumes.handles().iter_disagreeing();
        let due = handles.filter_map(|(handle, entry)| handle::due(handle, entry));
        asks.extend(due.map(|repair| match repair {
            Repair::Reserve(volume) => Ask::Reserve(self.name(&volume)),
            Repair::Release(handle, volume) => {
                Ask::Free(self.external(&handle), self.name(&volume))
            }
        }));
        self.asks.insert(seen.clone(), asks.clone());
        asks
    }

    /// Decides by the messages that the replica sees, and by the leader's answer if it was asked.
    pub(super) fn decide(&mut self, seen: &Messages, ask: Ask, heads: &Heads) -> Decision {
        let question = (seen.clone(), ask, heads.clone());
        if let Some(decision) = self.decided.get(&question) {
            return decision.clone();
        }
        let volumes = self.values.project(seen);
        let decision = match ask {
            Ask::Free(external, name) => self.free(&volumes, external, name, heads),
            _ => self.transact(&volumes, ask, heads),
        };
        self.decided.insert(question, decision.clone());
        decision
    }

    fn transact(&mut self, volumes: &Volumes, ask: Ask, heads: &Heads) -> Decision {
        let name = ask.volume();
        let volume = self.values.volume(name).clone();
        let own = Filter::Volume(name);
        let empty = berth_domain::volume::Volume::default();
        let subtree = volumes.get(&volume);
        let now = subtree.map_or(&empty, |subtree| &subtree.volume);
        let command = self.command(ask);
        let mut known = handle::handle_use(volumes, &volume, &command);
        if self.scenario.is(Mutation::GrantTwice) && matches!(ask, Ask::Take(_)) {
            known = HandleUse { own: known.own, ..HandleUse::default() };
        }
        if self.scenario.is(Mutation::BlindDetach) {
            known.claims.clear();
        }
        let context = Context {
            now: NOW,
            attempt: self.values.attempt.clone(),
            jitter: 0,
            policy: self.policy,
            handle: known,
            copies: Vec::new(),
            mounts: Vec::new(),
        };
        let asks = |all: bool, beside: &[(u64, SideWrite)]| {
            let filters = beside.iter().map(|(_, write)| self.filter(write));
            Decision::Asks { all, filters: filters.chain([own]).collect() }
        };
        let step = match step(now, &command, &context) {
            Ok(step) => step,
            Err(refusal) => {
                let all = matches!(
                    refusal,
                    Refusal::HandleTaken { .. } | Refusal::RegisteredTwice { .. }
                );
                return if heads.asked(all) { Decision::Nothing } else { asks(all, &[]) };
            }
        };
        let Some(write) = &step.write else {
            if !heads.known.contains_key(&own) {
                return asks(false, &[]);
            }
            let claim = now.claims.get(self.values.alloc(name));
            let is_taken = claim.is_some_and(|claim| claim.state == State::Taken);
            let is_again = matches!(ask, Ask::Take(_)) && is_taken;
            return if is_again { Decision::Again } else { Decision::Nothing };
        };
        let Ok(mut beside) = handle::beside(volumes, &volume, &command, write) else {
            return Decision::Nothing;
        };
        self.mistake(volumes, &volume, write, &mut beside);
        let beside: Vec<_> =
            beside.into_iter().map(|write| (write.revision(volumes), write)).collect();
        let takes = beside.iter().any(|(_, write)| matches!(write, SideWrite::Own(_)));
        if takes && !heads.asked(true) && !self.scenario.is(Mutation::NoCatchUp) {
            return asks(true, &beside);
        }
        let head = subtree.map_or(0, |subtree| subtree.head);
        self.sends(name, &step, head, &beside, heads)
    }

    /// The mutations of the writes that accompany a write.
    fn mistake(
        &self,
        volumes: &Volumes,
        volume: &VolumeKey,
        write: &DomainWrite,
        beside: &mut Vec<SideWrite>,
    ) {
        match self.scenario.mutation {
            Some(Mutation::NoKey) => beside.clear(),
            Some(Mutation::NoFence) => {
                beside.retain(|write| !matches!(write, SideWrite::Fence(..)));
            }
            Some(Mutation::FreeOfOthers) if matches!(write, DomainWrite::DeleteSpec) => {
                let spec = volumes.get(volume).and_then(|subtree| subtree.volume.spec.as_ref());
                beside.clear();
                let handle = spec.and_then(|spec| spec.handle(&volume.volume));
                beside.extend(handle.map(SideWrite::Free));
            }
            _ => {}
        }
    }

    /// The batch, with each write under the guard that `transact` gives it.
    fn sends(
        &mut self,
        name: Name,
        step: &Step,
        head: u64,
        beside: &[(u64, SideWrite)],
        heads: &Heads,
    ) -> Decision {
        let (key, value) = match &step.write {
            Some(DomainWrite::PutSpec(spec)) => {
                (Key::Spec(name), Some(self.values.number_spec(spec)))
            }
            Some(DomainWrite::PutClaim(_, claim)) => {
                (Key::Claim(name), Some(self.values.number_claim(claim)))
            }
            Some(DomainWrite::DeleteClaim(_)) => (Key::Claim(name), None),
            Some(DomainWrite::DeleteSpec) | None => (Key::Spec(name), None),
            // No volume has snapshots in this model.
            Some(DomainWrite::PutSnapshot(..) | DomainWrite::DeleteSnapshot(_)) => {
                return Decision::Nothing;
            }
        };
        let mut writes = vec![write(key, value, head, heads)];
        for (revision, beside) in beside {
            writes.push(self.beside(name, beside, *revision, heads));
        }
        let call = step.call.as_ref().map(|attempt| attempt.call);
        let detaches = call == Some(CallKind::ControllerUnpublish);
        Decision::Sends(Batch { writes, detaches })
    }

    fn beside(&mut self, name: Name, beside: &SideWrite, revision: u64, heads: &Heads) -> Write {
        let (key, value) = match beside {
            SideWrite::Fence(other, spec) => {
                let value = spec.as_ref().map(|spec| self.values.number_spec(spec));
                (Key::Spec(self.name(other)), value)
            }
            SideWrite::Free(handle) => (Key::Handle(self.external(handle)), None),
            SideWrite::Own(handle) => {
                (Key::Handle(self.external(handle)), Some(self.values.number_owner(name)))
            }
            SideWrite::Quota(..) => unreachable!("no volume has a class here"),
        };
        let mut write = write(key, value, revision, heads);
        if self.scenario.is(Mutation::NoKeyGuard) && matches!(key, Key::Handle(_)) {
            write.guard = None;
        }
        write
    }

    /// The repair of a key that names a volume which is not registered with it.
    fn free(
        &mut self,
        volumes: &Volumes,
        external: External,
        name: Name,
        heads: &Heads,
    ) -> Decision {
        if self.scenario.is(Mutation::BlindRepair) {
            let key = Key::Handle(external);
            let writes = vec![Write { key, value: None, guard: None }];
            return Decision::Sends(Batch { writes, detaches: false });
        }
        if !heads.asked(true) {
            return Decision::Asks { all: true, filters: BTreeSet::from([Filter::Volume(name)]) };
        }
        let (handle, owner) = (self.values.handle(external), self.values.volume(name).clone());
        let entry = volumes.handles().get(&handle);
        let is_due = entry.and_then(|entry| handle::due(&handle, entry))
            == Some(Repair::Release(handle.clone(), owner.clone()));
        let Some(beside) = is_due.then(|| handle::released(volumes, &handle, &owner)) else {
            return Decision::Nothing;
        };
        let beside = beside.unwrap_or_default();
        let writes = beside.iter().map(|(revision, one)| self.beside(name, one, *revision, heads));
        Decision::Sends(Batch { writes: writes.collect(), detaches: false })
    }

    fn command(&self, ask: Ask) -> Command {
        let worker = self.values.worker.clone();
        let alloc = self.values.alloc(ask.volume()).clone();
        match ask {
            Ask::Register(_, external) => Command::Register(self.values.spec(external)),
            Ask::Deregister(_) => Command::Deregister { force: false, reason: String::new() },
            Ask::Take(name) => Command::Take(self.values.take(name)),
            Ask::Begin(_) => Command::Begin(Begin {
                owner: CallOwner::Claim(alloc),
                worker,
                wanted: false,
                early: true,
                proven: None,
                executor: None,
            }),
            Ask::Answer(_) => Command::Answer {
                owner: CallOwner::Claim(alloc),
                attempt: self.values.attempt.clone(),
                outcome: Outcome::Done { publish_context: BTreeMap::new() },
                worker: Some(worker),
            },
            Ask::Reserve(_) | Ask::Free(..) => Command::Reserve,
        }
    }

    fn filter(&self, write: &SideWrite) -> Filter {
        match write {
            SideWrite::Fence(volume, _) => Filter::Volume(self.name(volume)),
            SideWrite::Free(handle) | SideWrite::Own(handle) => {
                Filter::Handle(self.external(handle))
            }
            SideWrite::Quota(..) => unreachable!("no volume has a class here"),
        }
    }

    fn name(&self, volume: &VolumeKey) -> Name {
        if volume == self.values.volume(Name::A) { Name::A } else { Name::B }
    }

    fn external(&self, handle: &Handle) -> External {
        if *handle == self.values.handle(External::Own) { External::Own } else { External::Shared }
    }
}

/// A write whose guard is the leader's answer, or the replica's own head.
fn write(key: Key, value: Option<u16>, revision: u64, heads: &Heads) -> Write {
    let known = heads.known.get(&key.filter()).copied();
    let revision = known.unwrap_or_else(|| u8::try_from(revision).unwrap_or(u8::MAX));
    Write { key, value, guard: Some(revision) }
}

pub(super) fn is_there(messages: &Messages, key: Key) -> bool {
    messages.get(&key).is_some_and(|message| message.value.is_some())
}
