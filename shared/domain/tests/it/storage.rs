//! The rules of volumes at their storage (19 to 24), one test for each behaviour.

use std::collections::BTreeMap;

use berth_domain::access::AccessMode;
use berth_domain::volume::storage::{Operation, OperationKind, Provision, Stage, Topology, Work};
use berth_domain::volume::{
    Begin, CallKind, CallOwner, Command, CreatedVolume, Outcome, Refusal, Route, State, Step,
    StorageAnswer, Take, VolumeSpec, Write,
};
use berth_domain::{NodeId, SnapshotId, VolumeId};

use crate::storage_event::{provision, with_provision};
use crate::world::{World, alloc, begin, release, take, worker};

mod creation;
mod deletion;
mod growth;
mod mounted;
mod sizes;
mod snapshots;
mod soundness;

const EXCLUSIVE: &[AccessMode] = &[AccessMode::SingleNodeWriter];

fn text(text: &str) -> String {
    text.to_owned()
}

fn done() -> Outcome {
    Outcome::Done { publish_context: BTreeMap::new() }
}

fn refused() -> Outcome {
    Outcome::Refused("never".into())
}

fn failed() -> Outcome {
    Outcome::Failed("something broke".into())
}

fn not_done() -> Outcome {
    Outcome::NotDone("not now".into())
}

fn exhausted() -> Outcome {
    Outcome::Exhausted("no room".into())
}

fn unasked() -> Outcome {
    Outcome::Unasked("an earlier call is still at work".into())
}

fn unanswered() -> Outcome {
    Outcome::Unanswered("silence".into())
}

fn made() -> CreatedVolume {
    CreatedVolume {
        external_id: text("vol-1"),
        capacity_bytes: 1,
        context: BTreeMap::from([(text("shard"), text("7"))]),
        ..CreatedVolume::default()
    }
}

fn created(made: CreatedVolume) -> Outcome {
    Outcome::Stored(StorageAnswer::Volume(made))
}

fn site(name: &str) -> Topology {
    Topology::from([(text("site"), text(name))])
}

impl World {
    /// A volume whose creation was requested.
    fn creating() -> Self {
        Self::creating_as(provision("fleet-1"))
    }

    fn creating_as(provision: Provision) -> Self {
        let mut world = Self::empty(EXCLUSIVE);
        world.create(provision).unwrap();
        world
    }

    /// A volume that was created.
    fn created_volume() -> Self {
        let mut world = Self::creating();
        world.drive().unwrap();
        world.settle(created(made())).unwrap();
        world
    }

    fn create(&mut self, provision: Provision) -> Result<Step, Refusal> {
        self.apply(&Command::Create(with_provision(self.offered.clone(), provision)))
    }

    fn delete(&mut self) -> Result<Step, Refusal> {
        self.apply(&Command::Delete { reason: text("asked") })
    }

    fn drive(&mut self) -> Result<Step, Refusal> {
        self.apply(&drive_by(None, true, None))
    }

    /// Lets the call that is under way pass its deadline, and starts the next one.
    fn drive_again(&mut self) -> Result<Step, Refusal> {
        self.pass_all_deadlines();
        self.drive()
    }

    fn settle(&mut self, outcome: Outcome) -> Result<Step, Refusal> {
        let attempt = self.operation().progress.calls.attempt.clone().unwrap().id;
        self.apply(&Command::Answer { owner: CallOwner::Volume, attempt, outcome, worker: None })
    }

    fn spec(&self) -> &VolumeSpec {
        self.volume.spec.as_ref().unwrap()
    }

    fn operation(&self) -> &Operation {
        self.spec().operation().unwrap()
    }

    fn stage(&self) -> Stage {
        self.spec().stage()
    }

    fn faults(&self) -> String {
        self.spec().faults().join("; ")
    }

    fn failure(&self) -> Option<(OperationKind, String)> {
        self.spec().failure().map(|failure| (failure.operation, failure.failure.message.clone()))
    }

    fn take_claim(&mut self, name: &str, node: &str) -> Result<Step, Refusal> {
        self.apply(&Command::Take(take(name, node)))
    }

    /// A claim that is granted.
    fn grant(&mut self, name: &str, node: &str) {
        self.take_claim(name, node).unwrap();
        self.done(name).unwrap();
        assert_eq!(self.claim(name).state, State::Taken);
    }

    /// Releases a claim, with all calls answered.
    fn free(&mut self, name: &str) {
        self.apply(&release(name)).unwrap();
        self.apply(&begin(name, false)).unwrap();
        self.done(name).unwrap();
        self.done(name).unwrap();
    }
}

fn drive_by(snapshot: Option<&str>, wanted: bool, executor: Option<&str>) -> Command {
    let snapshot = snapshot.map(|id| SnapshotId::new(id).unwrap());
    let executor = executor.map(|node| NodeId::new(node).unwrap());
    Command::Begin(Begin {
        owner: CallOwner::of_storage(snapshot),
        worker: worker(),
        wanted,
        early: false,
        proven: None,
        executor,
    })
}

fn call_of(step: &Step) -> Option<CallKind> {
    step.call.as_ref().map(|attempt| attempt.call)
}

fn deletes_spec(step: &Step) -> bool {
    step.write == Some(Write::DeleteSpec)
}
