//! The records, each with a number, and the services' decisions on them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode, Capability, CapabilityFilter, Mode};
use berth_domain::in_doubt::mounts_in_doubt;
use berth_domain::placement::check_mounts_elsewhere;
use berth_domain::retry::Schedule;
use berth_domain::volume::storage::{Provision, Reclaim, StorageLife};
use berth_domain::volume::{
    Begin, CallOwner, Claim, Command, Context, HandleUse, MountDoubt, NoRoute, Outcome, Policy,
    Route, State, Step, Take, UnaccountedMount, Volume, VolumeSpec, Write, invariant, step,
};
use berth_domain::{AllocId, AttemptId, Namespace, NodeId, Timestamp, VolumeId, WorkerId};

use super::world::{ALLOCS, Ask, Record};
use crate::fingerprint::Quick;
use crate::safety::Breach;
use crate::translate::NOW;

/// What a service knows of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Reports {
    /// Whether the node has a mount without a claim.
    pub(super) mounted: [bool; ALLOCS],
    /// Whether the node has not compared its mounts.
    pub(super) unreported: [bool; ALLOCS],
}

/// A request with everything that its decision depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) record: Record,
    pub(super) ask: Ask,
    pub(super) reports: Reports,
    /// Whether the alloc is registered and has not ended.
    pub(super) is_wanted: bool,
    /// The attempt that the step may start.
    pub(super) attempt: u8,
}

/// Decides requests, and caches the decisions.
pub(super) struct Decider {
    volumes: Vec<Volume>,
    numbers: HashMap<String, Record>,
    steps: Vec<Step>,
    decided: HashMap<Question, Option<u16>, Quick>,
    stored: HashMap<(Record, u16, u8), Record, Quick>,
}

#[expect(clippy::expect_used, reason = "the ids are written here")]
mod names {
    use super::{AllocId, AttemptId, NodeId, WorkerId};

    pub(super) fn alloc(at: u8) -> AllocId {
        AllocId::new(["a", "b"][usize::from(at)]).expect("an id")
    }

    pub(super) fn node(at: u8) -> NodeId {
        NodeId::new(["n1", "n2"][usize::from(at)]).expect("an id")
    }

    pub(super) fn attempt(number: u8) -> AttemptId {
        AttemptId::new(format!("t{number}")).expect("an id")
    }

    pub(super) fn worker() -> WorkerId {
        WorkerId::new("w").expect("an id")
    }
}
use names::{alloc, attempt, node, worker};

impl Decider {
    pub(super) fn new() -> Self {
        Self {
            volumes: Vec::new(),
            numbers: HashMap::new(),
            steps: Vec::new(),
            decided: HashMap::default(),
            stored: HashMap::default(),
        }
    }

    /// The record of the volume before anything has happened.
    pub(super) fn first(&mut self) -> Record {
        self.number(Volume { spec: Some(spec()), ..Volume::default() })
    }

    fn number(&mut self, volume: Volume) -> Record {
        let print = format!("{volume:?}");
        *self.numbers.entry(print).or_insert_with(|| {
            self.volumes.push(volume);
            Record::try_from(self.volumes.len() - 1).unwrap_or(Record::MAX)
        })
    }

    fn volume(&self, record: Record) -> &Volume {
        &self.volumes[usize::from(record)]
    }

    pub(super) fn claim(&self, record: Record, at: u8) -> Option<&Claim> {
        self.volume(record).claims.get(&alloc(at))
    }

    /// The epoch of the alloc's claim.
    pub(super) fn epoch(&self, record: Record, at: u8) -> Option<u8> {
        self.claim(record, at).and_then(|claim| u8::try_from(claim.epoch).ok())
    }

    pub(super) fn is_taken(&self, record: Record, at: u8) -> bool {
        self.claim(record, at).is_some_and(|claim| claim.state == State::Taken)
    }

    pub(super) fn is_deleting(&self, record: Record) -> bool {
        let spec = self.volume(record).spec.as_ref();
        spec.is_some_and(|spec| spec.operation().is_some())
    }

    /// Whether a call of this attempt is under way.
    pub(super) fn awaits(&self, record: Record, number: u8) -> bool {
        let volume = self.volume(record);
        let operation = volume.spec.as_ref().and_then(|spec| spec.operation());
        let of_operation =
            operation.and_then(|operation| operation.progress.calls.attempt.as_ref());
        let of_claims = volume.claims.values().filter_map(|claim| claim.progress.attempt.as_ref());
        of_claims.chain(of_operation).any(|call| call.id == attempt(number))
    }

    pub(super) fn step(&self, decision: u16) -> &Step {
        &self.steps[usize::from(decision)]
    }

    pub(super) fn check(&self, record: Record) -> Result<(), Breach> {
        let broken = invariant::broken(self.volume(record));
        broken.map_or(Ok(()), |what| Err(Breach::new(format!("invariant: {what}"))))
    }

    /// The decision; `None` if the request is refused.
    pub(super) fn decide(&mut self, question: Question) -> Option<u16> {
        if let Some(known) = self.decided.get(&question) {
            return *known;
        }
        let volume = self.volume(question.record);
        let command = command(volume, question);
        let decided = command.and_then(|command| step(volume, &command, &context(question)).ok());
        let decided = decided.map(|step| {
            self.steps.push(step);
            u16::try_from(self.steps.len() - 1).unwrap_or(u16::MAX)
        });
        self.decided.insert(question, decided);
        decided
    }

    /// Whether the claim of the alloc may be granted again.
    pub(super) fn may_grant_again(&self, record: Record, at: u8, reports: Reports) -> bool {
        let spec = self.volume(record).spec.as_ref();
        spec.is_some_and(|spec| check_elsewhere(spec, at, reports).is_ok())
    }

    /// The record after the write of a decision at this revision.
    pub(super) fn store(&mut self, record: Record, decision: u16, revision: u8) -> Record {
        if let Some(stored) = self.stored.get(&(record, decision, revision)) {
            return *stored;
        }
        let mut volume = self.volume(record).clone();
        match self.step(decision).write.clone() {
            Some(Write::PutClaim(alloc, mut claim)) => {
                claim.epoch = if claim.epoch == 0 { revision.into() } else { claim.epoch };
                volume.claims.insert(alloc, claim);
            }
            Some(Write::DeleteClaim(alloc)) => drop(volume.claims.remove(&alloc)),
            Some(Write::PutSpec(spec)) => volume.spec = Some(spec),
            Some(Write::DeleteSpec) => volume.spec = None,
            Some(Write::PutSnapshot(..) | Write::DeleteSnapshot(_)) | None => {}
        }
        let stored = self.number(volume);
        self.stored.insert((record, decision, revision), stored);
        stored
    }
}

/// The mount on a node, as its agent reports it.
fn unaccounted(at: usize) -> UnaccountedMount {
    UnaccountedMount {
        namespace: Namespace::default(),
        volume: volume_id(),
        alloc: alloc(u8::try_from(at).unwrap_or(0)),
        path: "/p".to_owned(),
        plugin: None,
        external_id: None,
        used: None,
    }
}

/// The nodes whose flag is set.
fn nodes_of(of: [bool; ALLOCS]) -> impl Iterator<Item = (usize, NodeId)> {
    (0..ALLOCS).filter(move |at| of[*at]).map(|at| (at, node(u8::try_from(at).unwrap_or(0))))
}

/// The places where the volume may be mounted without a claim.
fn doubts(reports: Reports) -> Vec<MountDoubt> {
    let mounts: Vec<_> =
        nodes_of(reports.mounted).map(|(at, node)| (node, unaccounted(at))).collect();
    let silent: Vec<_> = nodes_of(reports.unreported).map(|(_, node)| node).collect();
    let reported = mounts.iter().map(|(node, mount)| (node, mount));
    mounts_in_doubt(reported, [], &silent, None)
}

/// The check of a claim's route.
fn check_elsewhere(spec: &VolumeSpec, at: u8, reports: Reports) -> Result<(), NoRoute> {
    let others =
        |of: [bool; ALLOCS]| nodes_of(of).filter(move |(other, _)| *other != usize::from(at));
    let mounted = others(reports.mounted).next();
    let mounted = mounted.map(|(other, node)| MountDoubt::mounted(&node, &unaccounted(other)));
    let unreported: Vec<_> = others(reports.unreported).map(|(_, node)| node).collect();
    check_mounts_elsewhere(spec, mounted.as_ref(), &unreported)
}

fn command(volume: &Volume, question: Question) -> Option<Command> {
    let Question { ask, reports, is_wanted, .. } = question;
    let done = || Outcome::Done { publish_context: BTreeMap::new() };
    Some(match ask {
        Ask::Take(at) => {
            let spec = volume.spec.as_ref()?;
            Command::Take(Take {
                alloc: alloc(at),
                node: node(at),
                mode: Mode::Write,
                capability: CapabilityFilter::default(),
                wait: false,
                route: check_elsewhere(spec, at, reports).map(|()| Route::default()),
                worker: worker(),
            })
        }
        Ask::Begin(at) => Command::Begin(Begin {
            owner: CallOwner::Claim(alloc(at)),
            worker: worker(),
            wanted: is_wanted,
            early: false,
            proven: None,
            executor: None,
        }),
        Ask::Answer(at, of) => Command::Answer {
            owner: CallOwner::Claim(alloc(at)),
            attempt: attempt(of),
            outcome: done(),
            worker: Some(worker()),
        },
        Ask::Delete => Command::Delete { reason: String::new() },
        Ask::Drive => Command::Begin(Begin {
            owner: CallOwner::Volume,
            worker: worker(),
            wanted: true,
            early: false,
            proven: None,
            executor: None,
        }),
        Ask::Settle(of) => Command::Answer {
            owner: CallOwner::Volume,
            attempt: attempt(of),
            outcome: done(),
            worker: None,
        },
    })
}

fn context(question: Question) -> Context {
    Context {
        now: NOW,
        attempt: attempt(question.attempt),
        jitter: 0,
        policy: Policy {
            call_timeout: Duration::from_secs(60),
            clock_margin: Duration::ZERO,
            abandoned_after: Duration::from_secs(600),
            place_kept: Duration::from_secs(20),
            retry: Schedule { first: Duration::ZERO, max: Duration::ZERO },
        },
        handle: HandleUse::default(),
        copies: Vec::new(),
        mounts: doubts(question.reports),
    }
}

#[expect(clippy::expect_used, reason = "the id is written here")]
fn volume_id() -> VolumeId {
    VolumeId::new("data").expect("an id")
}

/// The spec of a created volume, so that it can be deleted.
#[expect(clippy::expect_used, reason = "the ids are written here")]
fn spec() -> VolumeSpec {
    let access = AccessMode::SingleNodeWriter;
    let provision = Provision {
        name: "data".to_owned(),
        requested: Timestamp::default(),
        by: None,
        required_bytes: 1,
        limit_bytes: None,
        class: None,
        reclaim: Reclaim::Delete,
        first_use: false,
        requisite: Vec::new(),
        node: None,
        first_claim: None,
        growth: None,
        origin: None,
        for_alloc: None,
    };
    let storage = StorageLife { provision: Some(provision), ..StorageLife::default() };
    VolumeSpec {
        external_id: Some("at-the-storage".to_owned()),
        capabilities: vec![Capability { access, attachment: AttachmentMode::FileSystem }].into(),
        storage: Some(Box::new(storage)),
        create_index: 1,
        ..VolumeSpec::empty(&"plugin".parse().expect("an id"))
    }
}
