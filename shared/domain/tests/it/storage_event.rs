//! What may happen to the storage in a random history.

use std::collections::BTreeMap;

use berth_domain::volume::storage::{
    Operation, Provision, Reclaim, SnapshotWish, StorageLife, Work,
};
use berth_domain::volume::{
    Begin, CallKind, CallOwner, Command, CreatedVolume, CutSnapshot, Outcome, StorageAnswer,
    Volume, VolumeSpec,
};
use berth_domain::{AttemptId, NodeId, SnapshotId, Timestamp};
use proptest::option;
use proptest::prelude::*;

use crate::any_storage::storage_outcome;
use crate::anything::{name, outcome};
use crate::world::{World, alloc, worker};

/// A request, a call or an answer that is about the storage.
#[derive(Debug, Clone)]
pub enum StorageEvent {
    Create {
        first_use: bool,
        for_alloc: bool,
    },
    Delete,
    Expand {
        required_bytes: u64,
        offline: bool,
        when_free: bool,
    },
    Modify {
        value: bool,
    },
    Cut {
        snapshot: SnapshotId,
        grouped: bool,
    },
    DeleteSnapshot {
        snapshot: SnapshotId,
    },
    Drive {
        snapshot: Option<SnapshotId>,
        wanted: bool,
        early: bool,
        executor: Option<NodeId>,
    },
    /// The current call is answered: with this, or as it should be.
    Settle {
        snapshot: Option<SnapshotId>,
        outcome: Option<Outcome>,
        flag: bool,
    },
    /// Any attempt there ever was is answered, by its number.
    Late {
        snapshot: Option<SnapshotId>,
        attempt: usize,
        outcome: Outcome,
    },
}

pub fn storage_event() -> impl Strategy<Value = StorageEvent> {
    use StorageEvent::{Create, Cut, Delete, DeleteSnapshot, Drive, Expand, Late, Modify, Settle};
    let snapshot = || name::<SnapshotId>('s', 2);
    let owner = || option::weighted(0.4, snapshot());
    let any_outcome = || prop_oneof![3 => outcome(), 1 => storage_outcome()];
    let drive = (owner(), any::<bool>(), any::<bool>(), option::of(name('n', 2)));
    prop_oneof![
        3 => (any::<bool>(), prop::bool::weighted(0.3))
            .prop_map(|(first_use, for_alloc)| Create { first_use, for_alloc }),
        2 => Just(Delete),
        2 => (1..40_u64, prop::bool::weighted(0.2), any::<bool>()).prop_map(
            |(required_bytes, offline, when_free)| Expand { required_bytes, offline, when_free }
        ),
        1 => any::<bool>().prop_map(|value| Modify { value }),
        2 => (snapshot(), prop::bool::weighted(0.3))
            .prop_map(|(snapshot, grouped)| Cut { snapshot, grouped }),
        2 => snapshot().prop_map(|snapshot| DeleteSnapshot { snapshot }),
        12 => drive.prop_map(|(snapshot, wanted, early, executor)| {
            Drive { snapshot, wanted, early, executor }
        }),
        12 => (owner(), option::weighted(0.4, any_outcome()), any::<bool>())
            .prop_map(|(snapshot, outcome, flag)| Settle { snapshot, outcome, flag }),
        2 => (owner(), 0..60_usize, any_outcome())
            .prop_map(|(snapshot, attempt, outcome)| Late { snapshot, attempt, outcome }),
    ]
}

/// What is asked for in a creation.
pub fn provision(name: &str) -> Provision {
    Provision {
        name: name.to_owned(),
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
    }
}

/// This spec, to be created as the provision says.
pub fn with_provision(spec: VolumeSpec, provision: Provision) -> VolumeSpec {
    let storage = StorageLife { provision: Some(provision), ..StorageLife::default() };
    VolumeSpec { storage: Some(Box::new(storage)), ..spec }
}

/// What the event asks of the volume as it is.
pub fn storage_command(world: &World, event: &StorageEvent) -> Option<Command> {
    Some(match event.clone() {
        StorageEvent::Create { first_use, for_alloc } => {
            let for_alloc = for_alloc.then(|| alloc("a0"));
            let name = format!("fleet-{}", world.revision);
            let provision = Provision { first_use, for_alloc, ..provision(&name) };
            Command::Create(with_provision(world.offered.clone(), provision))
        }
        StorageEvent::Delete => Command::Delete { reason: "asked".to_owned() },
        StorageEvent::Expand { required_bytes, offline, when_free } => Command::Expand {
            required_bytes,
            limit_bytes: None,
            offline,
            node_only: false,
            when_free,
        },
        StorageEvent::Modify { value } => {
            let parameters = BTreeMap::from([("iops".to_owned(), value.to_string())]);
            Command::Modify { parameters }
        }
        StorageEvent::Cut { snapshot, grouped } => {
            let members = if grouped { vec!["v".parse().unwrap()] } else { Vec::new() };
            let name = format!("cut-{}", world.revision);
            let wish = SnapshotWish { name, members, ..wish() };
            Command::CutSnapshot { snapshot, wish }
        }
        StorageEvent::DeleteSnapshot { snapshot } => {
            Command::DeleteSnapshot { snapshot, as_group: true, forget: false }
        }
        StorageEvent::Drive { snapshot, wanted, early, executor } => Command::Begin(Begin {
            owner: CallOwner::of_storage(snapshot),
            worker: worker(),
            wanted,
            early,
            proven: None,
            executor,
        }),
        StorageEvent::Settle { snapshot, outcome, flag } => {
            let (attempt, call) = current_call(&world.volume, snapshot.as_ref())?;
            let outcome =
                outcome.unwrap_or_else(|| success(&world.volume, snapshot.as_ref(), call, flag));
            Command::Answer {
                owner: CallOwner::of_storage(snapshot),
                attempt,
                outcome,
                worker: None,
            }
        }
        StorageEvent::Late { snapshot, attempt, outcome } => {
            let attempt = AttemptId::new(format!("attempt-{attempt}")).unwrap();
            Command::Answer {
                owner: CallOwner::of_storage(snapshot),
                attempt,
                outcome,
                worker: None,
            }
        }
    })
}

/// A snapshot of the volume, without a name.
pub fn wish() -> SnapshotWish {
    SnapshotWish { source: "vol-1".to_owned(), ..SnapshotWish::default() }
}

fn current_call(volume: &Volume, snapshot: Option<&SnapshotId>) -> Option<(AttemptId, CallKind)> {
    let progress = match snapshot {
        Some(snapshot) => &volume.snapshots.get(snapshot)?.progress,
        None => &volume.spec.as_ref()?.operation()?.progress,
    };
    let attempt = progress.calls.attempt.as_ref()?;
    Some((attempt.id.clone(), attempt.call))
}

/// The answer of a plugin that did what it was asked. `flag` decides what it is free to answer.
pub fn success(
    volume: &Volume,
    snapshot: Option<&SnapshotId>,
    call: CallKind,
    flag: bool,
) -> Outcome {
    let operation = volume.spec.as_ref().and_then(VolumeSpec::operation);
    // A poll answers with the snapshot that was cut.
    let known = snapshot.and_then(|id| volume.snapshots.get(id)?.external_id.clone());
    let cut = |ready| CutSnapshot {
        external_id: known.clone().unwrap_or_else(|| "snap-1".to_owned()),
        ..cut(ready)
    };
    match call {
        CallKind::VolumeCreate => Outcome::Stored(StorageAnswer::Volume(CreatedVolume {
            external_id: "vol-1".to_owned(),
            capacity_bytes: 1,
            ..CreatedVolume::default()
        })),
        CallKind::VolumeExpand => {
            let bytes = match operation.map(|Operation { work, .. }| work) {
                Some(Work::Expand(expansion)) => expansion.required_bytes,
                _ => 1,
            };
            Outcome::Stored(StorageAnswer::Capacity { bytes, node_expansion_required: flag })
        }
        CallKind::SnapshotCreate => Outcome::Stored(StorageAnswer::Snapshot(cut(flag))),
        CallKind::GroupCreate => Outcome::Stored(StorageAnswer::Group {
            external_id: "group-1".to_owned(),
            ready: flag,
            snapshots: vec![cut(flag)],
        }),
        _ => Outcome::Done { publish_context: BTreeMap::new() },
    }
}

/// A snapshot of the volume, as the plugin returns it.
pub fn cut(ready: bool) -> CutSnapshot {
    CutSnapshot {
        external_id: "snap-1".to_owned(),
        source: "vol-1".to_owned(),
        size_bytes: 1,
        cut_at: None,
        ready,
        usable_from: Vec::new(),
    }
}
