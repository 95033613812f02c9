//! Snapshots of several volumes, which are cut and deleted together.

use super::*;

fn group_cut(ready: bool, sources: &[&str]) -> Outcome {
    let snapshot = |source: &&str| CutSnapshot {
        external_id: format!("snap-of-{source}"),
        source: text(source),
        ..storage_event::cut(ready)
    };
    let snapshots = sources.iter().map(snapshot).collect();
    Outcome::Stored(StorageAnswer::Group { external_id: text("group-1"), ready, snapshots })
}

/// A volume of which a snapshot is cut together with one of volume `w`.
fn grouped() -> World {
    let mut world = World::created_volume();
    world.cut(&["v", "w"]).unwrap();
    world
}

/// The rest of its group could not go on.
#[test]
fn member_of_a_group_is_not_forgotten_alone() {
    let mut world = grouped();
    let forget =
        |as_group| Command::DeleteSnapshot { snapshot: snapshot_id(), as_group, forget: true };
    assert!(matches!(world.apply(&forget(false)), Err(Refusal::InGroup { .. })));
    world.apply(&forget(true)).unwrap();
    assert!(world.volume.snapshots.is_empty());
}

#[test]
fn group_is_ready_as_a_whole() {
    let mut world = grouped();
    assert_eq!(call_of(&world.drive_snapshot().unwrap()), Some(CallKind::GroupCreate));
    world.settle_snapshot(group_cut(false, &["vol-1", "vol-2"])).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Cut);
    world.drive_snapshot_again().unwrap();
    world.settle_snapshot(group_cut(true, &["vol-1", "vol-2"])).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Ready);
    assert_eq!(world.snapshot().external_id.as_deref(), Some("snap-of-vol-1"));
    let group = world.snapshot().group.clone().unwrap();
    assert_eq!(group.external_id.as_deref(), Some("group-1"));
}

#[test]
fn group_is_led_by_its_first_volume() {
    let world = grouped();
    let is_led_by = |id: &str| world.snapshot().is_led_by(&VolumeId::new(id).unwrap());
    assert_eq!([is_led_by("v"), is_led_by("w")], [true, false]);
    let world = World::cutting();
    assert!(world.snapshot().is_led_by(&VolumeId::new("v").unwrap()));
}

#[test]
fn member_of_a_group_is_deleted_with_the_group_only() {
    let mut world = grouped();
    world.drive_snapshot().unwrap();
    world.settle_snapshot(group_cut(true, &["vol-1", "vol-2"])).unwrap();
    let refusal = world.delete_snapshot(false).unwrap_err();
    assert!(matches!(refusal, Refusal::InGroup { .. }), "{refusal}");
    world.delete_snapshot(true).unwrap();
    assert_eq!(call_of(&world.drive_snapshot().unwrap()), Some(CallKind::GroupDelete));
    assert!(deletes_snapshot(&world.settle_snapshot(done()).unwrap()));
}

/// A group as the agent hands it on: it leaves the source out of each snapshot of a member, if the
/// group is not one snapshot of each.
fn wrong_group(snapshots: &[(&str, &str)]) -> Outcome {
    let snapshot = |(id, source): &(&str, &str)| CutSnapshot {
        external_id: text(id),
        source: text(source),
        ..storage_event::cut(true)
    };
    let snapshots = snapshots.iter().map(snapshot).collect();
    Outcome::Stored(StorageAnswer::Group { external_id: text("group-1"), ready: true, snapshots })
}

fn ids(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.ids().map(String::as_str).collect()
}

#[test]
fn wrong_group_is_kept_with_all_its_ids_and_can_only_be_deleted() {
    for (answered, told) in [
        (&[("s1", ""), ("s2", "vol-9")][..], &["s1", "s2"][..]),
        (&[("s1", "")], &["s1"]),
        (&[("s2", ""), ("s1", ""), ("s3", "")], &["s1", "s2", "s3"]),
        (&[("s1", ""), ("s1", "")], &["s1"]),
        (&[("s1", ""), ("", "")], &["s1"]),
        (&[], &[]),
    ] {
        // Each member sees the same answer, and comes to the same.
        for leads in [true, false] {
            let mut world = World::created_volume();
            world.cut(if leads { &["v", "w"] } else { &["a", "v"] }).unwrap();
            world.drive_snapshot().unwrap();
            world.settle_snapshot(wrong_group(answered)).unwrap();
            let known = world.snapshot();
            assert!(known.foreign && known.state == SnapshotState::Cut, "{known:?}");
            assert_eq!(ids(known), told);
            let group = known.group.as_ref().unwrap();
            assert_eq!(group.external_id.as_deref(), Some("group-1"));
            let error = known.progress.calls.failure.clone().unwrap().message;
            assert_eq!(error.contains("vol-9"), answered.contains(&("s2", "vol-9")), "{error}");
            let again = world.drive_snapshot_again();
            assert!(matches!(again, Err(Refusal::NotDue { next_try: None })));
            world.delete_snapshot(true).unwrap();
            world.drive_snapshot().unwrap();
            // Refused, it is what it was.
            world.settle_snapshot(refused()).unwrap();
            let known = world.snapshot();
            assert!(known.foreign && known.state == SnapshotState::Cut && known.call().is_none());
            world.delete_snapshot(true).unwrap();
            assert_eq!(call_of(&world.drive_snapshot().unwrap()), Some(CallKind::GroupDelete));
            assert_eq!(ids(world.snapshot()), told);
            assert!(deletes_snapshot(&world.settle_snapshot(done()).unwrap()));
        }
    }
}

/// It was right when it was cut, and keeps the ids that it had then.
#[test]
fn group_that_is_said_to_be_of_others_when_it_is_polled_can_only_be_deleted() {
    let mut world = grouped();
    world.drive_snapshot().unwrap();
    world.settle_snapshot(group_cut(false, &["vol-1", "vol-2"])).unwrap();
    world.drive_snapshot_again().unwrap();
    world.settle_snapshot(wrong_group(&[("snap-of-vol-1", ""), ("snap-of-vol-2", "x")])).unwrap();
    let known = world.snapshot();
    assert!(known.foreign && known.state == SnapshotState::Cut && known.call().is_none());
    assert_eq!(ids(known), ["snap-of-vol-1"]);
    world.delete_snapshot(true).unwrap();
    assert_eq!(call_of(&world.drive_snapshot().unwrap()), Some(CallKind::GroupDelete));
}

#[test]
fn wrong_group_that_is_to_be_deleted_is_deleted_once_its_ids_are_known() {
    let mut world = grouped();
    world.drive_snapshot().unwrap();
    world.delete_snapshot(true).unwrap();
    world.settle_snapshot(wrong_group(&[("s1", "")])).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Deleting);
    assert_eq!(call_of(&world.drive_snapshot().unwrap()), Some(CallKind::GroupDelete));
    assert_eq!(ids(world.snapshot()), ["s1"]);
}

/// Nothing could be deleted by it.
#[test]
fn group_without_an_id_is_cut_again() {
    let mut world = grouped();
    world.drive_snapshot().unwrap();
    let nameless = StorageAnswer::Group { external_id: text(""), ready: true, snapshots: vec![] };
    world.settle_snapshot(Outcome::Stored(nameless)).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Creating);
    assert!(world.snapshot().progress.uncertain);
}
