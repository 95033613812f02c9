//! What is at the storage, and what is done to it.

use berth_domain::Interned;
use berth_domain::volume::storage::{
    CopyGrowth, Expansion, FirstClaim, Operation, OperationKind, Origin, Provision, Reclaim,
    Snapshot, SnapshotGroup, SnapshotState, Stage, StorageFailure, StorageLife, StorageProgress,
    Work,
};

use super::*;

pub fn provision() -> Provision {
    Provision {
        name: "berth-data-019bcb6ac57b-0123456789abcdef".to_owned(),
        requested: at(0),
        by: Some("user.anna".to_owned()),
        required_bytes: 10 << 30,
        limit_bytes: Some(20 << 30),
        class: Some(class_id()),
        reclaim: Reclaim::Retain,
        first_use: true,
        requisite: vec![map("zone", "a")],
        node: Some(node_id()),
        first_claim: Some(Box::new(FirstClaim {
            at: map("zone", "a"),
            within: vec![map("zone", "a"), map("zone", "b")],
            tries: 2,
            next_try: Some(at(9)),
        })),
        growth: Some(CopyGrowth { from_bytes: 5 << 30, by_controller: true, by_nodes: true }),
        origin: Some(origin()),
        for_alloc: Some(alloc_id()),
    }
}

pub fn origin() -> Origin {
    Origin {
        volume: VolumeId::new("orders").unwrap(),
        snapshot: Some(snapshot_id()),
        external_id: "snap-0c1d".to_owned(),
    }
}

/// A call that failed, and the next one, which is under way.
pub fn progress(call: CallKind) -> StorageProgress {
    StorageProgress {
        calls: Progress {
            tries: 1,
            next_try: None,
            failure: Some(Box::new(CallFailure {
                message: format!("{call}: INTERNAL: the backend is away"),
                ..call_failure()
            })),
            attempt: Some(Attempt { call, ..attempt() }),
        },
        uncertain: true,
        executor: Some(node_id()),
        inherited: true,
    }
}

/// A call that failed, and the next one, which is due later.
pub fn waiting_progress(call: CallKind) -> StorageProgress {
    let mut waiting = StorageProgress { inherited: false, ..progress(call) };
    waiting.calls = Progress { next_try: Some(at(4)), attempt: None, ..waiting.calls };
    waiting
}

/// A spec with this operation under way.
pub fn changing_spec(work: Work) -> VolumeSpec {
    let operation =
        Operation { work, since: at(0), progress: StorageProgress::default(), mounted: None };
    let progress = progress(operation.call());
    let is_created = operation.kind() != OperationKind::Create;
    let storage = StorageLife {
        operation: Some(Operation { progress, ..operation }),
        failure: None,
        faults: vec!["it created a volume of 9 bytes, and 10 were requested".to_owned()],
        unusable: false,
        expanded_for: Some(15 << 30),
        provision: Some(provision()),
        mutable: map("iops", "6000"),
        home: Some(node_id()),
    };
    let spec = VolumeSpec { storage: Some(Box::new(storage)), ..spec() };
    if is_created {
        return spec;
    }
    // What the plugin returns is not known yet.
    VolumeSpec {
        external_id: None,
        capacity_bytes: None,
        context: Interned::default(),
        topologies: Interned::default(),
        ..spec
    }
}

/// A spec of a volume at this stage, with nothing under way but creation and deletion.
pub fn staged_spec(stage: Stage) -> VolumeSpec {
    let refused = StorageFailure {
        operation: OperationKind::Create,
        at: at(9),
        failure: "CreateVolume: OUT_OF_RANGE: at most 16 TiB".into(),
    };
    let resting = |spec: VolumeSpec, failure: Option<StorageFailure>| {
        let known = *spec.storage.unwrap();
        // Where a first claim was refused, the volume is unused again.
        let first_claim = |of: Provision| of.first_claim.filter(|_| failure.is_none());
        let provision =
            known.provision.map(|of| Provision { first_claim: first_claim(of.clone()), ..of });
        let storage = StorageLife { operation: None, failure, provision, ..known };
        let storage = Some(Box::new(storage));
        VolumeSpec { storage, ..spec }
    };
    let creating = || changing_spec(Work::Create { doomed: true });
    match stage {
        Stage::Unused => resting(creating(), None),
        Stage::Creating => creating(),
        Stage::Failed => resting(creating(), Some(refused)),
        Stage::Ready => {
            resting(changing_spec(Work::Delete { reason: String::new(), replaced: None }), None)
        }
        Stage::Deleting => {
            changing_spec(Work::Delete { reason: "no longer needed".to_owned(), replaced: None })
        }
    }
}

pub fn expansion() -> Expansion {
    Expansion {
        required_bytes: 20 << 30,
        limit_bytes: Some(25 << 30),
        offline: true,
        at_nodes: true,
        node_only: true,
        replaced: Some(Box::new(Expansion { required_bytes: 15 << 30, ..Expansion::default() })),
        node: Some(node_id()),
        expanded: [NodeId::new("host.other").unwrap()].into(),
        refused: [(node_id(), 41)].into(),
    }
}

pub fn snapshot(state: SnapshotState) -> Snapshot {
    use SnapshotState::{Creating, Cut, Deleting, Failed, Ready};
    let is_cut = matches!(state, Cut | Ready | Deleting);
    Snapshot {
        state,
        since: at(0),
        progress: match state {
            Creating => progress(CallKind::GroupCreate),
            Cut => waiting_progress(CallKind::GroupCreate),
            Ready => StorageProgress::default(),
            Failed => {
                let failure = "CreateVolumeGroupSnapshot: OUT_OF_RANGE: too many".into();
                let failure = Some(Box::new(failure));
                let calls = Progress { failure, ..Progress::default() };
                StorageProgress { calls, ..StorageProgress::default() }
            }
            Deleting => progress(CallKind::GroupDelete),
        },
        doomed: state == Creating,
        was_ready: state == Deleting,
        second_id: (state == Deleting).then(|| "snap-2".to_owned()),
        home: Some(node_id()),
        foreign: false,
        external_id: is_cut.then(|| "snap-0c1d".to_owned()),
        size_bytes: is_cut.then_some(10 << 30),
        growing: is_cut,
        cut_at: is_cut.then(|| at(1)),
        usable_from: vec![map("zone", "a")],
        name: "berth-snapshot-019bcb6ac57b-0123456789abcdef".to_owned(),
        plugin: plugin(),
        source: "vol-0a1b".to_owned(),
        topologies: vec![map("zone", "a")],
        parameters: map("type", "full"),
        secrets: Some(secrets_id()),
        group: Some(SnapshotGroup {
            members: vec![volume(), VolumeId::new("logs").unwrap()],
            external_id: is_cut.then(|| "group-0e2f".to_owned()),
            snapshots: Vec::new(),
        }),
        create_index: 44,
    }
}
