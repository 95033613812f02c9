//! The records of both volumes, each with a number, and their content.
//!
//! **Promises** that records which lead to the same decisions have one number: texts, counts, past
//! times and the ids of attempts are left out.

use std::collections::HashMap;
use std::fmt::Write as _;

use berth_domain::access::{AccessMode, AttachmentMode, Capability};
use berth_domain::volume::storage::{
    Operation, Origin, Provision, Reclaim, SnapshotState, Stage, StorageLife, StorageProgress,
    Topology, Work as StorageWork,
};
use berth_domain::volume::{
    Attempt, Claim, Policy, Progress, State, Volume, VolumeSpec, invariant,
};
use berth_domain::{AllocId, AttemptId, NodeId, SnapshotId, Timestamp, VolumeId, WorkerId};

use super::Scenario;
use super::world::{CopyOf, Id, Owner, Record};
use crate::fingerprint::Quick;
use crate::safety::Breach;
use crate::translate::NOW;

/// A moment in the past: the deadline of a call that can no longer act.
const PAST: Timestamp = Timestamp::from_unix_ms(NOW.unix_ms() - 1);

/// The part of a record that the world needs.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// `None` if there is no spec.
    pub(super) stage: Option<Stage>,
    /// The name at the plugin.
    pub(super) name: Option<u8>,
    pub(super) id: Option<Id>,
    /// The source of the copy while it is being created.
    pub(super) copies: Option<CopyOf>,
    pub(super) operation: Option<CallFacts>,
    /// Whether an expansion waits until a node has the volume.
    pub(super) awaits_node: bool,
    pub(super) snapshot: Option<SnapshotFacts>,
    /// The state of the claim.
    pub(super) claim: Option<State>,
    /// The owners that have an attempt.
    pub(super) calling: Vec<Owner>,
    /// Whether an attempt may still act.
    pub(super) is_live: bool,
}

/// The progress of the calls of an operation or of a snapshot.
#[derive(Debug, Clone, Default)]
pub(super) struct CallFacts {
    /// Whether the next call must go to the executor of the last one, because the effect of that
    /// call is not known.
    pub(super) sticks: bool,
    pub(super) executor: Option<u8>,
}

/// The record of the snapshot.
#[derive(Debug, Clone)]
pub(super) struct SnapshotFacts {
    pub(super) state: SnapshotState,
    pub(super) name: u8,
    pub(super) id: Option<Id>,
    pub(super) source: Id,
}

impl Facts {
    /// What may be copied: the volume, and its snapshot. The claim service checks that it is ready.
    pub(super) fn origins(&self) -> [Option<CopyOf>; 2] {
        let [volume, snapshot] = self.stored();
        let volume = volume.filter(|_| self.stage == Some(Stage::Ready));
        let is_ready = |it: &SnapshotFacts| it.state == SnapshotState::Ready;
        [volume, snapshot.filter(|_| self.snapshot.as_ref().is_some_and(is_ready))]
    }

    /// What the storage must have by the record: the volume, and its snapshot.
    pub(super) fn stored(&self) -> [Option<CopyOf>; 2] {
        let snapshot = self.snapshot.as_ref().and_then(|snapshot| snapshot.id);
        let of_volume = self.id.map(|id| CopyOf { snapshot: false, id });
        [of_volume, snapshot.map(|id| CopyOf { snapshot: true, id })]
    }
}

/// All records that were stored.
pub(super) struct Records {
    pub(super) alloc: AllocId,
    pub(super) attempt: AttemptId,
    pub(super) node: NodeId,
    pub(super) snapshot: SnapshotId,
    pub(super) worker: WorkerId,
    hosts: [NodeId; 2],
    /// The volumes of a group; empty if snapshots are cut one by one.
    pub(super) members: Vec<VolumeId>,
    source: VolumeId,
    local: bool,
    is_strict: bool,
    volumes: Vec<Volume>,
    facts: Vec<Facts>,
    numbers: HashMap<String, Record>,
    copies: HashMap<Option<CopyOf>, Record, Quick>,
    sources: HashMap<[Option<CopyOf>; 2], Record, Quick>,
}

#[expect(clippy::expect_used, reason = "the ids are written here")]
impl Records {
    /// `is_strict` says whether a record that breaks an invariant is a breach.
    pub(super) fn new(scenario: &Scenario, is_strict: bool) -> Self {
        Self {
            alloc: AllocId::new("a").expect("an id"),
            attempt: AttemptId::new("t").expect("an id"),
            node: NodeId::new("n1").expect("an id"),
            snapshot: SnapshotId::new("s1").expect("an id"),
            worker: WorkerId::new("w").expect("an id"),
            hosts: ["h0", "h1"].map(|id| NodeId::new(id).expect("an id")),
            members: if scenario.is_grouped() {
                ["s", "c"].map(|id| VolumeId::new(id).expect("an id")).to_vec()
            } else {
                Vec::new()
            },
            source: VolumeId::new("s").expect("an id"),
            local: scenario.local,
            is_strict,
            volumes: Vec::new(),
            facts: Vec::new(),
            numbers: HashMap::new(),
            copies: HashMap::default(),
            sources: HashMap::default(),
        }
    }

    pub(super) fn volume(&self, record: Record) -> &Volume {
        &self.volumes[usize::from(record)]
    }

    pub(super) fn facts(&self, record: Record) -> &Facts {
        &self.facts[usize::from(record)]
    }

    /// The number of records.
    pub(super) fn count(&self) -> usize {
        self.volumes.len()
    }

    /// The first record with the same source of a copy.
    pub(super) fn alike_as_copy(&mut self, record: Record) -> Record {
        let of = self.facts(record).copies;
        *self.copies.entry(of).or_insert(record)
    }

    /// The first record that may be copied in the same way.
    pub(super) fn alike_as_source(&mut self, record: Record) -> Record {
        let origins = self.facts(record).origins();
        *self.sources.entry(origins).or_insert(record)
    }

    /// The record as text.
    pub(super) fn picture(&self, record: Record) -> String {
        let volume = self.volume(record);
        let calls = |progress: &StorageProgress| {
            let call = progress.calls.attempt.as_ref().map(|attempt| {
                let live = if attempt.deadline >= NOW { "may act" } else { "unanswered" };
                format!(" {} {live}", attempt.call)
            });
            let uncertain = if progress.uncertain { " uncertain" } else { "" };
            format!("{}{uncertain} tries {}", call.unwrap_or_default(), progress.calls.tries)
        };
        // Writing to a String cannot fail.
        let mut picture = String::from("absent");
        if let Some(spec) = &volume.spec {
            picture = spec.stage().to_string();
            if let Some(operation) = spec.operation() {
                let doomed = StorageWork::Create { doomed: true };
                let doomed = if operation.work == doomed { " doomed" } else { "" };
                let calls = calls(&operation.progress);
                let _ = write!(picture, " {}{doomed}{calls}", operation.kind());
            }
        }
        for snapshot in volume.snapshots.values() {
            let doomed = if snapshot.doomed { " doomed" } else { "" };
            let calls = calls(&snapshot.progress);
            let _ = write!(picture, ", snapshot {}{doomed}{calls}", snapshot.state);
        }
        for claim in volume.claims.values() {
            let call = claim.progress.attempt.as_ref().map(|attempt| format!(" {}", attempt.call));
            let _ = write!(picture, ", claim {}{}", claim.state, call.unwrap_or_default());
        }
        picture
    }

    /// The node of an executor.
    pub(super) fn host(&self, executor: u8) -> &NodeId {
        &self.hosts[usize::from(executor)]
    }

    /// The number of a record. It is new if no equivalent record exists.
    pub(super) fn number(&mut self, mut volume: Volume) -> Result<Record, Breach> {
        if let Some(spec) = &volume.spec
            && let Some(fault) = spec.storage.as_ref().and_then(|storage| storage.faults.first())
        {
            return Err(Breach::new(format!("a fault that is not the plugin's: {fault}")));
        }
        strip(&mut volume);
        let print = format!("{volume:?}");
        if let Some(number) = self.numbers.get(&print) {
            return Ok(*number);
        }
        if self.is_strict {
            let broken = invariant::broken(&volume);
            let policy = Policy { clock_margin: std::time::Duration::ZERO, ..Policy::default() };
            let broken = broken.or_else(|| invariant::overlapping_calls(&volume, NOW, &policy));
            if let Some(broken) = broken {
                return Err(Breach::new(format!("invariant: {broken}")));
            }
        }
        let number = Record::try_from(self.volumes.len()).expect("few records");
        self.facts.push(read_facts(&volume));
        self.volumes.push(volume);
        self.numbers.insert(print, number);
        Ok(number)
    }

    /// The record once none of its calls can act any more.
    pub(super) fn expire(&mut self, record: Record) -> Result<Record, Breach> {
        let mut volume = self.volume(record).clone();
        each_attempt(&mut volume, |attempt| attempt.deadline = PAST);
        self.number(volume)
    }

    /// The spec of a volume with this name.
    pub(super) fn spec(&self, name: u8, of: Option<CopyOf>, first_use: bool) -> VolumeSpec {
        let origin = of.map(|of| Origin {
            volume: self.source.clone(),
            snapshot: of.snapshot.then(|| self.snapshot.clone()),
            external_id: write_id(of.id),
        });
        let provision = Provision {
            name: format!("v{name}"),
            requested: NOW,
            by: None,
            required_bytes: 1,
            limit_bytes: None,
            class: None,
            reclaim: Reclaim::Delete,
            first_use,
            // A copy is where its source is.
            requisite: of.map(|of| self.topologies(of.id.store)).unwrap_or_default(),
            node: None,
            first_claim: None,
            growth: None,
            origin,
            for_alloc: None,
        };
        let access = AccessMode::SingleNodeWriter;
        let storage = StorageLife { provision: Some(provision), ..StorageLife::default() };
        VolumeSpec {
            capabilities: vec![Capability { access, attachment: AttachmentMode::FileSystem }]
                .into(),
            storage: Some(Box::new(storage)),
            create_index: 1,
            ..VolumeSpec::empty(&"plugin".parse().expect("an id"))
        }
    }

    /// The topologies in which a volume of this storage can be reached.
    pub(super) fn topologies(&self, store: u8) -> Vec<Topology> {
        let host = || Topology::from([("host".to_owned(), format!("h{store}"))]);
        if self.local { vec![host()] } else { Vec::new() }
    }
}

/// The plugin's id of a volume or a snapshot, as text.
pub(super) fn write_id(id: Id) -> String {
    format!("{}@{}", id.name, id.store)
}

#[expect(clippy::expect_used, reason = "the text is of `write_id`")]
pub(super) fn read_id(text: &str) -> Id {
    let (name, store) = text.split_once('@').expect("a name and a storage");
    Id { name: name.parse().expect("a number"), store: store.parse().expect("a number") }
}

#[expect(clippy::expect_used, reason = "the text is of `Records::spec`, or of `Ask::Cut`")]
pub(super) fn read_name(text: &str) -> u8 {
    text[1..].parse().expect("a number")
}

pub(super) fn read_copy(origin: &Origin) -> CopyOf {
    CopyOf { snapshot: origin.snapshot.is_some(), id: read_id(&origin.external_id) }
}

fn each_attempt(volume: &mut Volume, mut change: impl FnMut(&mut Attempt)) {
    if let Some(storage) = volume.spec.as_mut().and_then(|spec| spec.storage.as_mut())
        && let Some(operation) = &mut storage.operation
    {
        operation.progress.calls.attempt.iter_mut().for_each(&mut change);
    }
    volume.snapshots.change(|snapshots| {
        for snapshot in snapshots.values_mut() {
            snapshot.progress.calls.attempt.iter_mut().for_each(&mut change);
        }
    });
    let claims = volume.claims.iter().map(|(alloc, claim)| (alloc.clone(), claim.clone()));
    let claims: Vec<_> = claims.collect();
    for (alloc, mut claim) in claims {
        claim.progress.attempt.iter_mut().for_each(&mut change);
        volume.claims.insert(alloc, claim);
    }
}

/// Removes what makes no difference.
fn strip(volume: &mut Volume) {
    if let Some(spec) = &mut volume.spec {
        let is_created = spec.external_id.is_some();
        spec.create_index = 1;
        if let Some(storage) = &mut spec.storage {
            match &mut storage.failure {
                // Only the failure of a creation changes a later decision.
                Some(_) if is_created => storage.failure = None,
                Some(failure) => (failure.at, failure.failure) = (NOW, "".into()),
                None => {}
            }
            let asked = storage.provision.as_mut();
            if let Some(first) = asked.and_then(|asked| asked.first_claim.as_mut()) {
                (first.tries, first.next_try) = (first.tries.min(1), None);
            }
            if let Some(Operation { work, since, progress, .. }) = &mut storage.operation {
                *since = NOW;
                strip_progress(&mut progress.calls);
                if let StorageWork::Delete { reason, .. } = work {
                    reason.clear();
                }
            }
        }
    }
    volume.snapshots.change(|snapshots| {
        for snapshot in snapshots.values_mut() {
            snapshot.since = NOW;
            snapshot.create_index = 1;
            strip_progress(&mut snapshot.progress.calls);
        }
    });
    let claims = volume.claims.iter().map(|(alloc, claim)| {
        let mut claim = Claim { since: NOW, reason: None, denied: false, ..claim.clone() };
        strip_progress(&mut claim.progress);
        (alloc.clone(), claim)
    });
    volume.claims = claims.collect();
}

fn strip_progress(progress: &mut Progress) {
    progress.tries = progress.tries.min(1);
    progress.failure = None;
    progress.next_try = None;
}

#[expect(clippy::expect_used, reason = "the ids of nodes are written here")]
fn read_facts(volume: &Volume) -> Facts {
    let mut facts = Facts::default();
    let host = |node: &NodeId| node.as_str()[1..].parse::<u8>().expect("a number");
    let call_facts = |progress: &StorageProgress| CallFacts {
        sticks: progress.uncertain || progress.calls.attempt.is_some(),
        executor: progress.executor.as_ref().map(host),
    };
    let mut calls = Vec::new();
    if let Some(spec) = &volume.spec {
        let provision = spec.provision();
        facts.stage = Some(spec.stage());
        facts.name = provision.map(|provision| read_name(&provision.name));
        facts.id = spec.external_id.as_deref().map(read_id);
        let is_under_way = matches!(spec.stage(), Stage::Unused | Stage::Creating);
        let origin = provision.and_then(|provision| provision.origin.as_ref());
        facts.copies = origin.filter(|_| is_under_way).map(read_copy);
        if let Some(operation) = spec.operation() {
            facts.operation = Some(call_facts(&operation.progress));
            let at_nodes =
                matches!(&operation.work, StorageWork::Expand(expansion) if expansion.at_nodes);
            let live =
                operation.progress.calls.attempt.as_ref().filter(|call| call.deadline >= NOW);
            facts.awaits_node = at_nodes && live.is_none();
            calls.extend(
                operation.progress.calls.attempt.as_ref().map(|call| (Owner::Operation, call)),
            );
        }
    }
    if let Some(snapshot) = volume.snapshots.values().next() {
        let progress = &snapshot.progress;
        facts.snapshot = Some(SnapshotFacts {
            state: snapshot.state,
            name: read_name(&snapshot.name),
            id: snapshot.external_id.as_deref().map(read_id),
            source: read_id(&snapshot.source),
        });
        calls.extend(progress.calls.attempt.as_ref().map(|call| (Owner::Snapshot, call)));
    }
    if let Some(claim) = volume.claims.values().next() {
        facts.claim = Some(claim.state);
        calls.extend(claim.progress.attempt.as_ref().map(|call| (Owner::Claim, call)));
    }
    facts.is_live = calls.iter().any(|(_, call)| call.deadline >= NOW);
    facts.calling = calls.into_iter().map(|(owner, _)| owner).collect();
    facts
}
