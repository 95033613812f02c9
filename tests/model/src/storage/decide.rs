//! Decisions made by the real `step`, and cached.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use berth_domain::Interned;
use berth_domain::access::{CapabilityFilter, Mode};
use berth_domain::retry::Schedule;
use berth_domain::volume::storage::{
    Operation, Snapshot, SnapshotState, SnapshotWish, Stage, StorageProgress, Work as StorageWork,
};
use berth_domain::volume::{
    Attempt, Begin, CallOwner, Claims, Command, Context, CreatedVolume, CutSnapshot, HandleUse,
    Outcome as Came, Policy, Route, State, Step, StorageAnswer, Take, Volume, VolumeSpec, Write,
    step,
};

use super::records::{Records, read_copy, read_id, read_name, write_id};
use super::world::{CopyOf, Id, Outcome, Owner, Record, Work};
use super::{Mutation, Scenario};
use crate::fingerprint::Quick;
use crate::safety::Breach;
use crate::translate::NOW;

/// The requests to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    Create {
        name: u8,
        of: Option<CopyOf>,
        first_use: bool,
    },
    Delete {
        copied: bool,
    },
    Expand {
        size: u8,
    },
    Modify,
    Cut {
        name: u8,
    },
    DeleteSnapshot {
        copied: bool,
    },
    Take,
    /// The alloc has ended: the next step of its claim's release.
    Release,
    /// The next call, of this executor.
    Drive {
        owner: Owner,
        executor: Option<u8>,
    },
    Answer {
        owner: Owner,
        outcome: Outcome,
    },
}

impl Ask {
    /// Whether it changes the snapshot, and therefore its whole group.
    pub(super) const fn is_of_snapshot(self) -> bool {
        match self {
            Self::Cut { .. }
            | Self::DeleteSnapshot { .. }
            | Self::Drive { owner: Owner::Snapshot, .. }
            | Self::Answer { owner: Owner::Snapshot, .. } => true,
            Self::Create { .. }
            | Self::Delete { .. }
            | Self::Expand { .. }
            | Self::Modify
            | Self::Take
            | Self::Release
            | Self::Drive { .. }
            | Self::Answer { .. } => false,
        }
    }
}

/// A call to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallToMake {
    pub(super) owner: Owner,
    pub(super) work: Work,
    /// Whether other executors are asked first (rule 4).
    pub(super) asks: bool,
}

/// The decision on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// The request is refused, or there is nothing to do.
    Nothing,
    /// The record to store, and the call to make.
    Writes { after: Record, call: Option<CallToMake> },
}

/// Calls `step`, and caches its decisions.
pub(super) struct Decider {
    scenario: Scenario,
    pub(super) records: Records,
    decided: HashMap<(Record, Ask), Result<Decision, Breach>, Quick>,
    expired: HashMap<Record, Record, Quick>,
}

impl Decider {
    pub(super) fn new(scenario: Scenario) -> Self {
        // For these mutations, the damage at the storage is looked for.
        let on_record =
            [Mutation::DeleteIgnoresClaims, Mutation::GrantWhileCreating, Mutation::ForgetCalls];
        let is_strict = !on_record.iter().any(|mutation| scenario.is(*mutation));
        Self {
            scenario,
            records: Records::new(&scenario, is_strict),
            decided: HashMap::default(),
            expired: HashMap::default(),
        }
    }

    pub(super) fn expire(&mut self, record: Record) -> Result<Record, Breach> {
        if let Some(expired) = self.expired.get(&record) {
            return Ok(*expired);
        }
        let expired = self.records.expire(record)?;
        self.expired.insert(record, expired);
        Ok(expired)
    }

    /// The decision of `step`, or the rule that it breaks.
    pub(super) fn decide(&mut self, record: Record, ask: Ask) -> Result<Decision, Breach> {
        if let Some(decided) = self.decided.get(&(record, ask)) {
            return decided.clone();
        }
        let decided = self.ask_step(record, ask);
        self.decided.insert((record, ask), decided.clone());
        decided
    }

    fn ask_step(&mut self, record: Record, ask: Ask) -> Result<Decision, Breach> {
        let before = self.records.volume(record).clone();
        let Some(command) = self.command(&before, ask) else { return Ok(Decision::Nothing) };
        let tries_again =
            matches!(ask, Ask::Drive { .. } if before.is_storage_unsettled(&CallOwner::Volume));
        if tries_again && self.scenario.is(Mutation::NoSecondTry) {
            return Ok(Decision::Nothing);
        }
        let mut seen = before.clone();
        self.mistake(&mut seen, ask);
        let copied = match ask {
            Ask::Delete { copied } | Ask::DeleteSnapshot { copied } => {
                copied && !self.scenario.is(Mutation::CopiesIgnored)
            }
            _ => false,
        };
        let Ok(mut step) = step(&seen, &command, &context(copied)) else {
            return Ok(Decision::Nothing);
        };
        self.miswrite(&before, ask, &mut step);
        let Step { write: Some(write), call } = step else { return Ok(Decision::Nothing) };
        check_expansion(&before, ask, &write)?;
        let mut after = before;
        apply(&mut after, write);
        let call = call.map(|call| self.call_to_make(&after, &call));
        let after = self.records.number(after)?;
        Ok(Decision::Writes { after, call })
    }

    fn command(&self, volume: &Volume, ask: Ask) -> Option<Command> {
        let records = &self.records;
        let worker = || records.worker.clone();
        let owner_of = |owner| match owner {
            Owner::Claim => CallOwner::Claim(records.alloc.clone()),
            Owner::Operation => CallOwner::Volume,
            Owner::Snapshot => CallOwner::Snapshot(records.snapshot.clone()),
        };
        Some(match ask {
            Ask::Create { name, of, first_use } => {
                Command::Create(records.spec(name, of, first_use))
            }
            Ask::Delete { .. } => Command::Delete { reason: String::new() },
            Ask::Expand { size } => Command::Expand {
                required_bytes: size.into(),
                limit_bytes: None,
                offline: false,
                node_only: false,
                when_free: false,
            },
            Ask::Modify => {
                let parameters = BTreeMap::from([("tier".to_owned(), "fast".to_owned())]);
                Command::Modify { parameters }
            }
            Ask::Cut { name } => {
                let source = volume.spec.as_ref()?.external_id.clone()?;
                let wish = SnapshotWish {
                    name: format!("c{name}"),
                    source,
                    parameters: BTreeMap::new(),
                    members: records.members.clone(),
                };
                Command::CutSnapshot { snapshot: records.snapshot.clone(), wish }
            }
            Ask::DeleteSnapshot { .. } => Command::DeleteSnapshot {
                snapshot: records.snapshot.clone(),
                as_group: self.scenario.is_grouped(),
                forget: false,
            },
            Ask::Take => Command::Take(Take {
                alloc: records.alloc.clone(),
                node: records.node.clone(),
                mode: Mode::Write,
                capability: CapabilityFilter::default(),
                wait: false,
                route: Ok(Route { controller: true, ..Route::default() }),
                worker: worker(),
            }),
            Ask::Release => Command::Begin(Begin {
                owner: CallOwner::Claim(records.alloc.clone()),
                worker: worker(),
                wanted: false,
                early: false,
                proven: None,
                executor: None,
            }),
            Ask::Drive { owner, executor } => Command::Begin(Begin {
                owner: owner_of(owner),
                worker: worker(),
                wanted: true,
                early: false,
                proven: None,
                executor: executor.map(|executor| records.host(executor).clone()),
            }),
            Ask::Answer { owner, outcome } => {
                let worker = match owner {
                    // The claim service records the result of a publish, and releases nothing.
                    Owner::Claim => {
                        let claim = volume.claims.get(&records.alloc)?;
                        (claim.state != State::Publishing).then(worker)
                    }
                    Owner::Operation | Owner::Snapshot => None,
                };
                Command::Answer {
                    owner: owner_of(owner),
                    attempt: records.attempt.clone(),
                    outcome: self.outcome(volume, outcome),
                    worker,
                }
            }
        })
    }

    fn outcome(&self, volume: &Volume, outcome: Outcome) -> Came {
        let error = || String::new().into();
        match outcome {
            Outcome::Created { id } => {
                let provision = volume.spec.as_ref().and_then(VolumeSpec::provision);
                Came::Stored(StorageAnswer::Volume(CreatedVolume {
                    external_id: write_id(id),
                    capacity_bytes: 1,
                    context: BTreeMap::new(),
                    topologies: self.records.topologies(id.store),
                    is_copy: provision.is_some_and(|provision| provision.origin.is_some()),
                    unusable: None,
                }))
            }
            Outcome::Expanded { size, nodes } => Came::Stored(StorageAnswer::Capacity {
                bytes: size.into(),
                node_expansion_required: nodes,
            }),
            Outcome::Cut { id, ready } => Came::Stored(self.cut(volume, id, ready)),
            Outcome::Done => Came::Done { publish_context: BTreeMap::new() },
            Outcome::Refused => Came::Refused(error()),
            Outcome::NotDone => Came::NotDone(error()),
            Outcome::Failed if self.scenario.is(Mutation::FailureIsRefusal) => {
                Came::NotDone(error())
            }
            Outcome::Failed => Came::Failed(error()),
            Outcome::Unasked => Came::Unasked(error()),
            Outcome::Unanswered => Came::Unanswered(error()),
        }
    }

    fn cut(&self, volume: &Volume, id: Id, ready: bool) -> StorageAnswer {
        let ready = ready || self.scenario.is(Mutation::CutIsReady);
        let of = |source: &str| CutSnapshot {
            external_id: write_id(id),
            source: source.to_owned(),
            size_bytes: 0,
            cut_at: None,
            ready,
            usable_from: Vec::new(),
        };
        let source = volume.snapshots.values().next().map_or("", |known| &known.source);
        if !self.scenario.is_grouped() {
            return StorageAnswer::Snapshot(of(source));
        }
        let snapshots = vec![of(source), of("the other volume")];
        StorageAnswer::Group { external_id: write_id(id), ready, snapshots }
    }

    /// The mutations that give `step` a changed record.
    fn mistake(&self, volume: &mut Volume, ask: Ask) {
        match (self.scenario.mutation, ask) {
            (Some(Mutation::RefusalEndsDoubt), Ask::Answer { outcome: Outcome::Refused, .. }) => {
                each_progress(volume, |progress| progress.uncertain = false);
            }
            (Some(Mutation::DeleteIgnoresClaims), Ask::Delete { .. }) => {
                volume.claims = Claims::default();
            }
            // The call of a deletion is a second guard, so it is removed as well.
            (
                Some(Mutation::DeleteIgnoresClaims | Mutation::GrantWhileCreating),
                Ask::Drive { owner: Owner::Operation, .. },
            ) if volume.spec.as_ref().map(VolumeSpec::stage) == Some(Stage::Deleting) => {
                volume.claims = Claims::default();
            }
            (Some(Mutation::DeleteIgnoresSnapshots), Ask::Delete { .. }) => {
                volume.snapshots = Interned::default();
            }
            (Some(Mutation::GrantWhileCreating), Ask::Take) => {
                // The record looks like that of a registered volume with a call under way.
                let storage = volume.spec.as_mut().and_then(|spec| spec.storage.as_mut());
                if let Some(storage) = storage
                    && let Some(Operation { work, .. }) = &mut storage.operation
                    && matches!(work, StorageWork::Create { .. })
                {
                    *work = StorageWork::Modify { parameters: BTreeMap::new(), replaced: None };
                    storage.provision = None;
                }
            }
            (Some(Mutation::NewNames), Ask::Drive { owner: Owner::Operation, .. }) => {
                let storage = volume.spec.as_mut().and_then(|spec| spec.storage.as_mut());
                if let Some(provision) = storage.and_then(|it| it.provision.as_mut()) {
                    let name = read_name(&provision.name) ^ 1;
                    provision.name = format!("v{name}");
                }
            }
            (Some(Mutation::ForgetCalls), Ask::Drive { .. } | Ask::Take | Ask::Release) => {
                each_progress(volume, |progress| progress.calls.attempt = None);
            }
            (Some(Mutation::TakeInherited), Ask::Answer { .. }) => {
                each_progress(volume, |progress| progress.inherited = false);
            }
            _ => {}
        }
    }

    /// The mutations that write another record.
    fn miswrite(&self, before: &Volume, ask: Ask, step: &mut Step) {
        let stage = before.spec.as_ref().map(VolumeSpec::stage);
        match (self.scenario.mutation, ask) {
            (Some(Mutation::DoomedDeleted), Ask::Delete { .. })
                if stage == Some(Stage::Creating) =>
            {
                step.write = Some(Write::DeleteSpec);
            }
            (
                Some(Mutation::ForgetReplaced),
                Ask::Delete { .. } | Ask::DeleteSnapshot { .. } | Ask::Expand { .. },
            ) => match &mut step.write {
                Some(Write::PutSpec(VolumeSpec { storage: Some(storage), .. })) => {
                    let operation = storage.operation.as_mut();
                    let operation = operation.filter(|operation| operation.progress.inherited);
                    if let Some(operation) = operation {
                        operation.progress = StorageProgress::default();
                    }
                }
                Some(Write::PutSnapshot(_, snapshot)) if snapshot.progress.inherited => {
                    snapshot.progress = StorageProgress::default();
                }
                _ => {}
            },
            (Some(Mutation::ForgetFailures), Ask::DeleteSnapshot { .. }) => {
                if let Some(Write::PutSnapshot(_, snapshot)) = &mut step.write
                    && snapshot.progress.calls.attempt.is_none()
                    && snapshot.state == SnapshotState::Deleting
                {
                    snapshot.progress.calls.tries = 0;
                }
            }
            _ => {}
        }
    }

    fn call_to_make(&self, after: &Volume, call: &Attempt) -> CallToMake {
        let records = &self.records;
        let is_of_claim =
            after.claims.values().any(|it| it.progress.attempt.as_ref() == Some(call));
        let of_snapshot = after.snapshots.values().next();
        let of_snapshot = of_snapshot.filter(|it| it.progress.calls.attempt.as_ref() == Some(call));
        let (owner, caller) = match of_snapshot {
            Some(_) => (Owner::Snapshot, CallOwner::Snapshot(records.snapshot.clone())),
            None if is_of_claim => (Owner::Claim, CallOwner::Claim(records.alloc.clone())),
            None => (Owner::Operation, CallOwner::Volume),
        };
        let work = match (owner, of_snapshot) {
            (_, Some(snapshot)) => {
                let id = snapshot.external_id.as_deref().map(read_id);
                match (snapshot.state, id) {
                    (SnapshotState::Deleting, Some(id)) => Work::DeleteSnapshot { id },
                    _ => {
                        Work::Cut { name: read_name(&snapshot.name), of: read_id(&snapshot.source) }
                    }
                }
            }
            (Owner::Claim, None) => {
                let id = volume_id(after);
                match after.claims.values().next().map(|claim| claim.state) {
                    Some(State::Publishing) => Work::Publish { id },
                    Some(State::Unpublishing) => Work::Detach,
                    _ => Work::Unpublish { id },
                }
            }
            _ => operation_work(after),
        };
        let mut asked = after.clone();
        if self.scenario.is(Mutation::AskTheUnheard) {
            each_progress(&mut asked, |progress| progress.calls.tries = 0);
        }
        let is_unsettled =
            asked.unsettled(&caller).next().is_some() || asked.is_storage_unsettled(&caller);
        let asks =
            is_unsettled && work.kind().is_controller() && !self.scenario.is(Mutation::NoAsking);
        CallToMake { owner, work, asks }
    }
}

/// The id of a claimed volume. A volume that is claimed before its creation has none, which happens
/// only in mutations.
fn volume_id(volume: &Volume) -> Id {
    let id = volume.spec.as_ref().and_then(|spec| spec.external_id.as_deref()).map(read_id);
    id.unwrap_or(Id { name: u8::MAX, store: 0 })
}

fn operation_work(volume: &Volume) -> Work {
    let operation = volume.spec.as_ref().and_then(VolumeSpec::operation);
    let provision = volume.spec.as_ref().and_then(VolumeSpec::provision);
    match operation.map(|Operation { work, .. }| work) {
        Some(StorageWork::Expand(expansion)) if expansion.at_nodes => Work::ExpandNode,
        Some(StorageWork::Expand(expansion)) => {
            let size = u8::try_from(expansion.required_bytes).unwrap_or(u8::MAX);
            Work::Expand { id: volume_id(volume), size }
        }
        Some(StorageWork::Modify { .. }) => Work::Modify { id: volume_id(volume) },
        Some(StorageWork::Create { .. }) => Work::Create {
            name: provision.map_or(u8::MAX, |it| read_name(&it.name)),
            of: provision.and_then(|it| it.origin.as_ref()).map(read_copy),
        },
        Some(StorageWork::Delete { .. }) | None => Work::Delete { id: volume_id(volume) },
    }
}

fn each_progress(volume: &mut Volume, mut change: impl FnMut(&mut StorageProgress)) {
    if let Some(storage) = volume.spec.as_mut().and_then(|spec| spec.storage.as_mut())
        && let Some(operation) = &mut storage.operation
    {
        change(&mut operation.progress);
    }
    let each = |snapshot: &mut Box<Snapshot>| change(&mut snapshot.progress);
    volume.snapshots.change(|all| all.values_mut().for_each(each));
}

/// Rule 22: an expansion that succeeded is at least as large as requested.
fn check_expansion(before: &Volume, ask: Ask, write: &Write) -> Result<(), Breach> {
    let (Ask::Answer { owner: Owner::Operation, .. }, Write::PutSpec(spec)) = (ask, write) else {
        return Ok(());
    };
    let operation = before.spec.as_ref().and_then(VolumeSpec::operation);
    let Some(StorageWork::Expand(expansion)) = operation.map(|it| &it.work) else { return Ok(()) };
    let is_over = spec.operation().is_none() && spec.failure().is_none();
    let is_short = spec.capacity_bytes.is_none_or(|bytes| bytes < expansion.required_bytes);
    if is_over && is_short {
        return Err(Breach::new("an expansion ended before the volume was as large as asked"));
    }
    Ok(())
}

/// Stores a write.
fn apply(volume: &mut Volume, write: Write) {
    match write {
        Write::PutSpec(spec) => volume.spec = Some(spec),
        Write::DeleteSpec => volume.spec = None,
        Write::PutClaim(alloc, mut claim) => {
            if claim.epoch == 0 {
                claim.epoch = 1;
                // Its epoch is higher than that of any claim whose node refused the expansion.
                let storage = volume.spec.as_mut().and_then(|spec| spec.storage.as_mut());
                if let Some(Operation { work: StorageWork::Expand(expansion), .. }) =
                    storage.and_then(|storage| storage.operation.as_mut())
                {
                    expansion.refused.clear();
                }
            }
            volume.claims.insert(alloc, claim);
        }
        Write::DeleteClaim(alloc) => drop(volume.claims.remove(&alloc)),
        Write::PutSnapshot(id, snapshot) => {
            volume.snapshots.change(|all| all.insert(id, Box::new(snapshot)));
        }
        Write::DeleteSnapshot(id) => drop(volume.snapshots.change(|all| all.remove(&id))),
    }
}

#[expect(clippy::expect_used, reason = "the id is written here")]
fn context(copied: bool) -> Context {
    Context {
        now: NOW,
        attempt: "t".parse().expect("an id"),
        jitter: 0,
        policy: Policy {
            call_timeout: Duration::ZERO,
            clock_margin: Duration::ZERO,
            abandoned_after: Duration::ZERO,
            place_kept: Duration::ZERO,
            retry: Schedule { first: Duration::ZERO, max: Duration::ZERO },
        },
        handle: HandleUse::default(),
        copies: if copied { vec!["volume c".to_owned()] } else { Vec::new() },
        mounts: Vec::new(),
    }
}
