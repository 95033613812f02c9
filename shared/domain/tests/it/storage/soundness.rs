//! What `invariant` says of records that no history leads to.

use berth_domain::volume::storage::{
    Expansion, Snapshot, SnapshotGroup, SnapshotState, StorageProgress,
};
use berth_domain::volume::{Attempt, CallOwner, Policy, Progress, Volume, invariant};

use super::*;
use crate::fixture::{dead, live};

fn snapshot_id() -> SnapshotId {
    SnapshotId::new("s1").unwrap()
}

/// A volume with a snapshot that its plugin says is ready.
fn cut() -> Volume {
    let mut world = World::created_volume();
    let wish = crate::storage_event::wish();
    world.apply(&Command::CutSnapshot { snapshot: snapshot_id(), wish }).unwrap();
    world.apply(&drive_by(Some("s1"), true, None)).unwrap();
    let attempt = world.volume.snapshots[&snapshot_id()].progress.calls.attempt.clone().unwrap().id;
    let answer = StorageAnswer::Snapshot(crate::storage_event::cut(true));
    let (snapshot, outcome) = (Some(snapshot_id()), Outcome::Stored(answer));
    world
        .apply(&Command::Answer {
            owner: CallOwner::of_storage(snapshot),
            attempt,
            outcome,
            worker: None,
        })
        .unwrap();
    world.volume
}

/// A volume of which this is under way.
fn under_way(volume: Volume, work: Work, progress: StorageProgress) -> Volume {
    let mut spec = volume.spec.unwrap();
    let since = berth_domain::Timestamp::default();
    let operation = Some(Operation { work, since, progress, mounted: None });
    spec.storage.as_mut().unwrap().operation = operation;
    Volume { spec: Some(spec), ..volume }
}

fn of_wrong_group(snapshot: &mut Snapshot, external_id: Option<&str>) {
    let (external_id, snapshots) = (external_id.map(str::to_owned), vec!["snap-1".to_owned()]);
    snapshot.group = Some(SnapshotGroup { external_id, snapshots, ..SnapshotGroup::default() });
    snapshot.state = SnapshotState::Cut;
    snapshot.foreign = true;
    snapshot.external_id = None;
}

fn calling(call: Attempt) -> StorageProgress {
    let calls = Progress { attempt: Some(call), ..Progress::default() };
    StorageProgress { calls, ..StorageProgress::default() }
}

fn deleting() -> Work {
    Work::Delete { reason: String::new(), replaced: None }
}

fn expanding(at_nodes: bool, node: Option<&str>) -> Work {
    let node = node.map(|node| NodeId::new(node).unwrap());
    Work::Expand(Expansion { required_bytes: 9, at_nodes, node, ..Expansion::default() })
}

#[test]
fn each_record_that_is_not_sound_says_why() {
    use CallKind::{NodeExpand, SnapshotCreate, SnapshotDelete, VolumeCreate, VolumeExpand};
    let created = || World::created_volume().volume;
    let creating = || World::creating().volume;
    let held = || {
        let mut world = World::created_volume();
        world.grant("a", "n1");
        world.volume
    };
    let changed = |change: fn(&mut Snapshot)| {
        let mut volume = cut();
        volume.snapshots.change(|all| change(all.get_mut(&snapshot_id()).unwrap()));
        volume
    };
    let idle = StorageProgress::default;
    let create = || Work::Create { doomed: false };
    for (volume, expected) in [
        (under_way(held(), deleting(), idle()), "claims on a volume that is deleting"),
        (under_way(created(), create(), idle()), "create is under way"),
        (under_way(creating(), deleting(), idle()), "delete is under way"),
        (under_way(created(), deleting(), calling(live(VolumeCreate))), "cannot have"),
        (under_way(created(), expanding(true, None), calling(live(NodeExpand))), "cannot have"),
        (
            under_way(created(), expanding(true, Some("n1")), calling(live(VolumeExpand))),
            "cannot have",
        ),
        (
            under_way(created(), deleting(), StorageProgress { uncertain: true, ..idle() }),
            "no call of it failed",
        ),
        (changed(|it| it.progress.calls.attempt = Some(live(SnapshotCreate))), "cannot have"),
        (changed(|it| it.progress.calls.tries = 1), "is at rest"),
        (changed(|it| it.external_id = None), "has an id"),
        (changed(|it| it.state = SnapshotState::Creating), "has an id"),
        (changed(|it| it.doomed = true), "is not being cut"),
        (changed(|it| it.was_ready = true), "is not being deleted"),
        (changed(|it| it.foreign = true), "is of another volume"),
        (
            changed(|it| {
                it.state = SnapshotState::Cut;
                it.foreign = true;
                it.external_id = None;
            }),
            "has an id",
        ),
        (changed(|it| of_wrong_group(it, None)), "cannot be deleted without the group's id"),
        (
            changed(|it| {
                of_wrong_group(it, Some("group-1"));
                it.external_id = Some("snap-1".to_owned());
            }),
            "is not of one",
        ),
        (changed(|it| it.second_id = Some("snap-2".to_owned())), "was not asked for by its name"),
        (
            changed(|it| {
                it.state = SnapshotState::Cut;
                it.progress.calls.attempt = Some(live(SnapshotDelete));
            }),
            "cannot have",
        ),
    ] {
        let broken = invariant::broken(&volume).unwrap_or_default();
        assert!(broken.contains(expected), "{broken:?} is not {expected:?}: {volume:#?}");
    }
    for volume in [
        under_way(created(), deleting(), calling(live(VolumeExpand))),
        under_way(created(), expanding(false, Some("n1")), calling(live(NodeExpand))),
        under_way(created(), expanding(true, Some("n1")), calling(live(NodeExpand))),
        cut(),
        changed(|it| of_wrong_group(it, Some("group-1"))),
        held(),
    ] {
        assert_eq!(invariant::broken(&volume), None, "{volume:#?}");
    }
}

#[test]
fn calls_that_may_act_at_once_are_named() {
    use CallKind::{ControllerUnpublish, NodeDetach, NodeExpand, VolumeExpand};
    let claimed = |state, call: Option<Attempt>| {
        let mut world = World::created_volume();
        world.grant("a", "n1");
        let mut claim = world.claim("a").clone();
        (claim.state, claim.progress.attempt) = (state, call);
        world.volume.claims.insert(alloc("a"), claim);
        world.volume
    };
    let at_node = |node, call| under_way_at(call, expanding(true, Some(node)));
    let now = live(VolumeExpand).deadline;
    let policy = Policy::default();
    let detaching = || claimed(State::Unpublishing, Some(live(NodeDetach)));
    let unpublishing = || claimed(State::NodeDetached, Some(live(ControllerUnpublish)));
    for (volume, overlaps) in [
        (at_node("n1", live(NodeExpand))(detaching()), true),
        (at_node("n2", live(NodeExpand))(detaching()), false),
        (at_node("n2", live(NodeExpand))(unpublishing()), true),
        (under_way_at(live(VolumeExpand), expanding(false, None))(detaching()), true),
        (under_way_at(dead(VolumeExpand), expanding(false, None))(detaching()), false),
        (detaching(), false),
    ] {
        let overlapping = invariant::overlapping_calls(&volume, now, &policy);
        assert_eq!(overlapping.is_some(), overlaps, "{overlapping:?}: {volume:#?}");
    }
}

fn under_way_at(call: Attempt, work: Work) -> impl FnOnce(Volume) -> Volume {
    move |volume| under_way(volume, work, calling(call))
}
