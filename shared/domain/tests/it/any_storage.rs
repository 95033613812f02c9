//! Any life at the storage, any snapshot, any request for them: also such as no history leads to.

use std::collections::BTreeMap;

use berth_domain::volume::storage::{
    CopyGrowth, Expansion, FirstClaim, Operation, Origin, Provision, Reclaim, Snapshot,
    SnapshotGroup, SnapshotState, SnapshotWish, StorageFailure, StorageLife, StorageProgress, Work,
};
use berth_domain::volume::{
    Attempt, Begin, CallKind, CallOwner, Command, CreatedVolume, CutSnapshot, Outcome, Progress,
    StorageAnswer,
};
use berth_domain::{NodeId, SnapshotId};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::anything::{boxed_failure, failure, map, name, spec, text, time};
use crate::world::worker;

fn storage_call() -> impl Strategy<Value = CallKind> {
    use CallKind::{
        ControllerPublish, GroupCreate, GroupDelete, NodeExpand, SnapshotCreate, SnapshotDelete,
        VolumeCreate, VolumeDelete, VolumeExpand, VolumeModify,
    };
    prop::sample::select(vec![
        VolumeCreate,
        VolumeDelete,
        VolumeExpand,
        NodeExpand,
        VolumeModify,
        SnapshotCreate,
        SnapshotDelete,
        GroupCreate,
        GroupDelete,
        ControllerPublish,
    ])
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (name('t', 3), storage_call(), name('w', 2), time()).prop_map(|(id, call, worker, deadline)| {
        Attempt { id, call, worker, deadline, bound: None }
    })
}

fn progress() -> impl Strategy<Value = StorageProgress> {
    let tried = (any::<u32>(), option::of(time()), boxed_failure(), any::<bool>());
    (tried, option::of(name('n', 2)), option::of(attempt()), any::<bool>()).prop_map(
        |((tries, next_try, failure, uncertain), executor, attempt, inherited)| StorageProgress {
            calls: Progress { tries, next_try, failure, attempt },
            uncertain,
            executor,
            inherited,
        },
    )
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..4_u64, 1 => any::<u64>()]
}

fn expansion() -> impl Strategy<Value = Expansion> {
    let sizes = (bytes(), option::of(bytes()));
    let flags = any::<[bool; 4]>();
    let node = || name::<NodeId>('n', 2);
    let nodes = (option::of(node()), vec(node(), 0..2), btree_map(node(), 0..9_u64, 0..2));
    (sizes, flags, nodes).prop_map(|(sizes, flags, nodes)| Expansion {
        required_bytes: sizes.0,
        limit_bytes: sizes.1,
        offline: flags[0],
        at_nodes: flags[1],
        node_only: flags[3],
        replaced: flags[2]
            .then(|| Box::new(Expansion { at_nodes: flags[0], ..Expansion::default() })),
        node: nodes.0,
        expanded: nodes.1.into_iter().collect(),
        refused: nodes.2,
    })
}

/// Boxed, as the two below are: a strategy of all of it is too large for the stack.
fn work() -> BoxedStrategy<Work> {
    let expansion = || expansion().boxed();
    prop_oneof![
        any::<bool>().prop_map(|doomed| Work::Create { doomed }),
        (text(), option::of(expansion())).prop_map(|(reason, replaced)| Work::Delete {
            reason,
            replaced: replaced.map(Work::Expand).map(Box::new),
        }),
        expansion().prop_map(Work::Expand),
        (map(), option::of(expansion())).prop_map(|(parameters, replaced)| Work::Modify {
            parameters,
            replaced: replaced.map(Box::new),
        }),
    ]
    .boxed()
}

fn provision() -> BoxedStrategy<Provision> {
    let sizes = (bytes(), option::of(bytes()));
    let origin = (name('v', 2), option::of(name('s', 2)), text())
        .prop_map(|(volume, snapshot, external_id)| Origin { volume, snapshot, external_id });
    let flags = (any::<bool>(), any::<bool>());
    let first_claim = (map(), vec(map(), 0..2), any::<u32>(), option::of(time())).prop_map(
        |(at, within, tries, next_try)| Box::new(FirstClaim { at, within, tries, next_try }),
    );
    let growth = (bytes(), any::<bool>(), any::<bool>()).prop_map(
        |(from_bytes, by_controller, by_nodes)| CopyGrowth { from_bytes, by_controller, by_nodes },
    );
    let whose = (option::of(name('c', 2)), option::of(name('a', 4)));
    (
        (text(), time(), option::of(text())),
        sizes,
        flags,
        (vec(map(), 0..3), option::of(first_claim), option::of(name('n', 2))),
        (option::of(origin), option::of(growth)),
        whose,
    )
        .prop_map(|(name, sizes, (retain, first_use), places, source, (class, for_alloc))| {
            Provision {
                name: name.0,
                requested: name.1,
                by: name.2,
                required_bytes: sizes.0,
                limit_bytes: sizes.1,
                class,
                reclaim: if retain { Reclaim::Retain } else { Reclaim::Delete },
                first_use,
                requisite: places.0,
                first_claim: places.1,
                node: places.2,
                growth: source.1,
                origin: source.0,
                for_alloc,
            }
        })
        .boxed()
}

pub fn storage_life() -> BoxedStrategy<StorageLife> {
    let operation = (work(), time(), progress()).prop_map(|(work, since, progress)| Operation {
        work,
        since,
        progress,
        mounted: None,
    });
    let failure = (work(), time(), failure()).prop_map(|(work, at, failure)| {
        let operation =
            Operation { work, since: at, progress: StorageProgress::default(), mounted: None }
                .kind();
        StorageFailure { operation, at, failure }
    });
    let rest = (vec(text(), 0..10), any::<bool>(), option::of(provision()), map());
    (option::of(operation), option::of(failure), rest)
        .prop_map(|(operation, failure, (faults, unusable, provision, mutable))| StorageLife {
            expanded_for: provision.as_ref().map(|provision| provision.required_bytes),
            operation,
            failure,
            faults,
            unusable,
            provision,
            mutable,
            home: None,
        })
        .boxed()
}

/// A snapshot that may never have been.
pub fn snapshot() -> impl Strategy<Value = Snapshot> {
    use SnapshotState::{Creating, Cut, Deleting, Failed, Ready};
    let states = prop::sample::select(vec![Creating, Cut, Ready, Failed, Deleting]);
    let about = (states, time(), progress(), any::<[bool; 2]>());
    let group = (vec(name('v', 3), 0..3), option::of(text()), vec(text(), 0..3)).prop_map(
        |(members, external_id, snapshots)| SnapshotGroup { members, external_id, snapshots },
    );
    let returned =
        (option::of(text()), option::of(text()), option::of(bytes()), option::of(time()));
    let asked = (text(), name('p', 2), text(), vec(map(), 0..2), map(), option::of(name('s', 2)));
    (about, returned, asked, option::of(group), 0..9_u64).prop_map(
        |(about, returned, asked, group, create_index)| Snapshot {
            state: about.0,
            since: about.1,
            progress: about.2,
            doomed: about.3[0],
            was_ready: about.3[1],
            external_id: returned.0,
            second_id: returned.1,
            foreign: about.3[0],
            size_bytes: returned.2,
            growing: about.3[1],
            cut_at: returned.3,
            name: asked.0,
            plugin: asked.1,
            source: asked.2,
            usable_from: asked.3.clone(),
            topologies: asked.3,
            home: None,
            parameters: asked.4,
            secrets: asked.5,
            group,
            create_index,
        },
    )
}

pub fn snapshots() -> impl Strategy<Value = BTreeMap<SnapshotId, Box<Snapshot>>> {
    btree_map(name('s', 2), snapshot().prop_map(Box::new), 0..3)
}

fn cut_snapshot() -> impl Strategy<Value = CutSnapshot> {
    let places = vec(map(), 0..2);
    (text(), text(), bytes(), option::of(time()), any::<bool>(), places).prop_map(
        |(external_id, source, size_bytes, cut_at, ready, usable_from)| CutSnapshot {
            external_id,
            source,
            size_bytes,
            cut_at,
            ready,
            usable_from,
        },
    )
}

fn storage_answer() -> impl Strategy<Value = StorageAnswer> {
    let answered = (any::<bool>(), option::of(text()));
    let made = (text(), bytes(), map(), vec(map(), 0..2), answered).prop_map(
        |(external_id, capacity_bytes, context, topologies, (is_copy, unusable))| CreatedVolume {
            external_id,
            capacity_bytes,
            context,
            topologies,
            is_copy,
            unusable,
        },
    );
    let grown = (bytes(), any::<bool>()).prop_map(|(bytes, node_expansion_required)| {
        StorageAnswer::Capacity { bytes, node_expansion_required }
    });
    let group = (text(), any::<bool>(), vec(cut_snapshot(), 0..3)).prop_map(
        |(external_id, ready, snapshots)| StorageAnswer::Group { external_id, ready, snapshots },
    );
    prop_oneof![
        made.prop_map(StorageAnswer::Volume),
        grown,
        cut_snapshot().prop_map(StorageAnswer::Snapshot),
        group,
    ]
}

pub fn storage_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![storage_answer().prop_map(Outcome::Stored), failure().prop_map(Outcome::NotDone),]
}

fn wish() -> impl Strategy<Value = SnapshotWish> {
    (text(), text(), map(), vec(name('v', 3), 0..3)).prop_map(
        |(name, source, parameters, members)| SnapshotWish { name, source, parameters, members },
    )
}

/// A request that is about the storage.
pub fn storage_command() -> impl Strategy<Value = Command> {
    let snapshot = || name::<SnapshotId>('s', 2);
    let grow = (bytes(), option::of(bytes()), any::<[bool; 3]>());
    let flags = (any::<bool>(), any::<bool>(), option::of(name('n', 2)));
    let outcome = prop_oneof![2 => storage_outcome(), 1 => crate::anything::outcome()];
    prop_oneof![
        1 => spec().prop_map(Command::Create),
        1 => text().prop_map(|reason| Command::Delete { reason }),
        1 => grow.prop_map(|(required_bytes, limit_bytes, [offline, node_only, when_free])| {
            Command::Expand { required_bytes, limit_bytes, offline, node_only, when_free }
        }),
        1 => map().prop_map(|parameters| Command::Modify { parameters }),
        1 => (snapshot(), wish())
            .prop_map(|(snapshot, wish)| Command::CutSnapshot { snapshot, wish }),
        1 => (snapshot(), name('p', 2), cut_snapshot())
            .prop_map(|(snapshot, plugin, cut)| Command::AdoptSnapshot {
                snapshot,
                plugin,
                cut,
                topologies: Vec::new(),
                home: None,
            }),
        1 => (snapshot(), any::<(bool, bool)>()).prop_map(|(snapshot, (as_group, forget))| {
            Command::DeleteSnapshot { snapshot, as_group, forget }
        }),
        3 => (option::of(snapshot()), flags).prop_map(|(snapshot, (wanted, early, executor))| {
            let owner = CallOwner::of_storage(snapshot);
            let (worker, proven) = (worker(), None);
            Command::Begin(Begin { owner, worker, wanted, early, proven, executor })
        }),
        4 => (option::of(snapshot()), name('t', 3), outcome).prop_map(
            |(snapshot, attempt, outcome)| {
                let owner = CallOwner::of_storage(snapshot);
                Command::Answer { owner, attempt, outcome, worker: None }
            }
        ),
    ]
}
