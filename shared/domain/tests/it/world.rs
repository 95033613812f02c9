//! A volume that commands are applied to, as a service would: load, step, store.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_domain::access::{AccessMode, AttachmentMode, Capability, CapabilityFilter, Mode};
use berth_domain::volume::{
    Begin, CallOwner, Claim, Command, Context, HandleUse, MountDoubt, Outcome, Policy, Refusal,
    Route, Step, Take, Volume, VolumeSpec, Write, invariant, step,
};
use berth_domain::{AllocId, AttemptId, NodeId, PluginId, Timestamp, WorkerId};

use crate::ledger::Ledger;

/// A volume, its revision, its clock, and all its calls.
#[derive(Debug, Clone)]
pub struct World {
    pub volume: Volume,
    pub revision: u64,
    pub now_ms: u64,
    /// The spec that it was registered with.
    pub offered: VolumeSpec,
    /// Volumes that are being created as copies of what the next command is about.
    pub copies: Vec<String>,
    /// Mounts of the volume that no claim covers.
    pub mounts: Vec<MountDoubt>,
    /// Other registrations of the handle that the next command is about.
    pub others: Vec<String>,
    attempts: u64,
    ledger: Ledger,
}

pub fn alloc(name: &str) -> AllocId {
    AllocId::new(name).unwrap()
}

pub fn worker() -> WorkerId {
    WorkerId::new("worker").unwrap()
}

pub fn spec(access: &[AccessMode]) -> VolumeSpec {
    let attachment = AttachmentMode::FileSystem;
    VolumeSpec {
        capabilities: access
            .iter()
            .map(|access| Capability { access: *access, attachment })
            .collect::<Vec<_>>()
            .into(),
        ..VolumeSpec::empty(&PluginId::new("p").unwrap())
    }
}

/// A claim asked for, to write, with a controller that attaches.
pub fn take(name: &str, node: &str) -> Take {
    Take {
        alloc: alloc(name),
        node: NodeId::new(node).unwrap(),
        mode: Mode::Write,
        capability: CapabilityFilter::default(),
        wait: false,
        route: Ok(Route {
            controller: true,
            external_node: Some(format!("ext-{node}")),
            ..Route::default()
        }),
        worker: worker(),
    }
}

pub fn begin(name: &str, wanted: bool) -> Command {
    Command::Begin(Begin {
        owner: CallOwner::Claim(alloc(name)),
        worker: worker(),
        wanted,
        early: false,
        proven: None,
        executor: None,
    })
}

pub fn release(name: &str) -> Command {
    Command::Release { alloc: alloc(name), epoch: None, reason: "asked".to_owned() }
}

impl World {
    /// A volume that is registered with these access modes.
    pub fn with(access: &[AccessMode]) -> Self {
        let mut world = Self::empty(access);
        world.apply(&Command::Register(spec(access))).unwrap();
        world
    }

    /// No volume yet. One with these access modes is created or registered later.
    pub fn empty(access: &[AccessMode]) -> Self {
        Self {
            volume: Volume::default(),
            revision: 0,
            now_ms: 1_000_000,
            offered: spec(access),
            copies: Vec::new(),
            mounts: Vec::new(),
            others: Vec::new(),
            attempts: 0,
            ledger: Ledger::default(),
        }
    }

    pub fn context(&self) -> Context {
        Context {
            now: Timestamp::from_unix_ms(self.now_ms),
            attempt: AttemptId::new(format!("attempt-{}", self.attempts)).unwrap(),
            jitter: u32::MAX / 2,
            policy: Policy::default(),
            handle: HandleUse { others: self.others.clone(), ..HandleUse::default() },
            copies: self.copies.clone(),
            mounts: self.mounts.clone(),
        }
    }

    /// Decides, stores, and checks what must always hold.
    pub fn apply(&mut self, command: &Command) -> Result<Step, Refusal> {
        self.attempts += 1;
        let decided = step(&self.volume, command, &self.context())?;
        self.ledger.record(&self.volume, command, &decided, &self.context());
        if let Some(write) = &decided.write {
            self.revision += 1;
            self.store(write.clone());
        }
        let broken = invariant::broken(&self.volume).or(invariant::ids_broken(&self.volume));
        assert_eq!(broken, None, "after {command:?}: {:#?}", self.volume);
        let Context { now, policy, .. } = self.context();
        let overlapping = invariant::overlapping_calls(&self.volume, now, &policy);
        assert_eq!(overlapping, None, "after {command:?}: {:#?}", self.volume);
        Ok(decided)
    }

    fn store(&mut self, write: Write) {
        match write {
            Write::PutSpec(mut spec) => {
                if spec.create_index == 0 {
                    spec.create_index = self.revision;
                }
                self.volume.spec = Some(spec);
            }
            Write::DeleteSpec => self.volume.spec = None,
            Write::PutClaim(alloc, mut claim) => {
                // A write cannot know its own revision: the reader fills it in.
                if claim.epoch == 0 {
                    claim.epoch = self.revision;
                }
                self.volume.claims.insert(alloc, claim);
            }
            Write::DeleteClaim(alloc) => {
                self.volume.claims.remove(&alloc);
            }
            Write::PutSnapshot(id, mut snapshot) => {
                if snapshot.create_index == 0 {
                    snapshot.create_index = self.revision;
                }
                self.volume.snapshots.change(|all| all.insert(id, Box::new(snapshot)));
            }
            Write::DeleteSnapshot(id) => {
                self.volume.snapshots.change(|all| all.remove(&id));
            }
        }
    }

    pub fn claim(&self, name: &str) -> &Claim {
        self.volume.claims.get(&alloc(name)).unwrap()
    }

    /// The answer to the call that is under way for a claim.
    pub fn answer(&mut self, name: &str, outcome: Outcome) -> Result<Step, Refusal> {
        let attempt = self.claim(name).progress.attempt.clone().unwrap().id;
        self.apply(&Command::Answer {
            owner: CallOwner::Claim(alloc(name)),
            attempt,
            outcome,
            worker: Some(worker()),
        })
    }

    pub fn done(&mut self, name: &str) -> Result<Step, Refusal> {
        self.answer(name, Outcome::Done { publish_context: BTreeMap::new() })
    }

    pub fn pass(&mut self, time: Duration) {
        self.now_ms += u64::try_from(time.as_millis()).unwrap();
    }

    /// Long enough that no call can act any more and every retry is due.
    pub fn pass_all_deadlines(&mut self) {
        self.pass(Duration::from_secs(3600));
    }
}
