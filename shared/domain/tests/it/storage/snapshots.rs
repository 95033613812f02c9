//! Snapshots (rule 23).

use berth_domain::volume::storage::{Snapshot, SnapshotState, SnapshotWish};
use berth_domain::volume::{CallOwner, CutSnapshot};

use super::*;
use crate::storage_event;

mod groups;

const SNAPSHOT: &str = "s1";

fn snapshot_id() -> SnapshotId {
    SnapshotId::new(SNAPSHOT).unwrap()
}

fn cut(ready: bool) -> Outcome {
    Outcome::Stored(StorageAnswer::Snapshot(storage_event::cut(ready)))
}

fn deletes_snapshot(step: &Step) -> bool {
    step.write == Some(Write::DeleteSnapshot(snapshot_id()))
}

impl World {
    /// A volume of which a snapshot was requested.
    fn cutting() -> Self {
        let mut world = Self::created_volume();
        world.cut(&[]).unwrap();
        world
    }

    /// A volume with a snapshot that its plugin says is ready.
    fn cut_and_ready() -> Self {
        let mut world = Self::cutting();
        world.drive_snapshot().unwrap();
        world.settle_snapshot(cut(true)).unwrap();
        world
    }

    /// A volume with a snapshot that its plugin still works on.
    fn cut_and_polled() -> Self {
        let mut world = Self::cutting();
        world.drive_snapshot().unwrap();
        world.settle_snapshot(cut(false)).unwrap();
        world
    }

    pub(super) fn cut(&mut self, members: &[&str]) -> Result<Step, Refusal> {
        let members = members.iter().map(|id| VolumeId::new(*id).unwrap()).collect();
        let name = format!("cut-{}", self.revision);
        let wish = SnapshotWish { name, members, ..storage_event::wish() };
        self.apply(&Command::CutSnapshot { snapshot: snapshot_id(), wish })
    }

    fn delete_snapshot(&mut self, as_group: bool) -> Result<Step, Refusal> {
        let (snapshot, forget) = (snapshot_id(), false);
        self.apply(&Command::DeleteSnapshot { snapshot, as_group, forget })
    }

    fn drive_snapshot(&mut self) -> Result<Step, Refusal> {
        self.apply(&drive_by(Some(SNAPSHOT), true, None))
    }

    fn drive_snapshot_again(&mut self) -> Result<Step, Refusal> {
        self.pass_all_deadlines();
        self.drive_snapshot()
    }

    fn settle_snapshot(&mut self, outcome: Outcome) -> Result<Step, Refusal> {
        let attempt = self.snapshot().progress.calls.attempt.clone().unwrap().id;
        self.apply(&Command::Answer {
            owner: CallOwner::Snapshot(snapshot_id()),
            attempt,
            outcome,
            worker: None,
        })
    }

    fn snapshot(&self) -> &Snapshot {
        self.volume.snapshots.get(&snapshot_id()).unwrap()
    }
}

#[test]
fn snapshot_is_recorded_before_it_is_cut_and_ready_when_its_plugin_says_so() {
    let mut world = World::cutting();
    assert_eq!(world.snapshot().state, SnapshotState::Creating);
    assert_eq!(call_of(&world.drive_snapshot().unwrap()), Some(CallKind::SnapshotCreate));
    world.settle_snapshot(cut(true)).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Ready);
    assert_eq!(world.snapshot().external_id.as_deref(), Some("snap-1"));
    assert!(matches!(world.drive_snapshot(), Err(Refusal::NotDue { next_try: None })));
}

/// The way out of a snapshot whose plugin refuses for ever, after a call that was not answered.
#[test]
fn snapshot_is_forgotten_once_no_call_of_it_may_act() {
    let forget = Command::DeleteSnapshot { snapshot: snapshot_id(), as_group: false, forget: true };
    let mut world = World::cutting();
    world.drive_snapshot().unwrap();
    assert!(matches!(world.apply(&forget), Err(Refusal::Busy { .. })));
    world.drive_snapshot_again().unwrap();
    world.settle_snapshot(refused()).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Creating, "it may have been cut");
    world.apply(&forget).unwrap();
    assert!(world.volume.snapshots.is_empty());
}

#[test]
fn snapshot_that_is_not_ready_is_polled_with_backoff() {
    let mut world = World::cut_and_polled();
    let mut waits = Vec::new();
    for _ in 0..3 {
        assert_eq!(world.snapshot().state, SnapshotState::Cut);
        let next_try = world.snapshot().progress.calls.next_try.unwrap();
        waits.push(next_try.since(world.context().now));
        assert!(matches!(world.drive_snapshot(), Err(Refusal::NotDue { .. })));
        let step = world.drive_snapshot_again().unwrap();
        assert_eq!(call_of(&step), Some(CallKind::SnapshotCreate));
        world.settle_snapshot(cut(false)).unwrap();
    }
    assert!(waits.is_sorted_by(|one, next| one < next), "{waits:?}");
    world.drive_snapshot_again().unwrap();
    world.settle_snapshot(cut(true)).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Ready);
}

/// Rule 4: the next worker asks who polled last, whether it is still at it.
#[test]
fn poll_names_its_executor_and_the_size_that_it_heard() {
    let mut world = World::cut_and_polled();
    assert_eq!(world.snapshot().size_bytes, Some(1));
    world.pass_all_deadlines();
    world.apply(&drive_by(Some(SNAPSHOT), true, Some("n1"))).unwrap();
    let silent = CutSnapshot { size_bytes: 0, ..storage_event::cut(false) };
    world.settle_snapshot(Outcome::Stored(StorageAnswer::Snapshot(silent))).unwrap();
    assert_eq!(world.snapshot().size_bytes, None);
    let executor = world.snapshot().progress.executor.as_ref().map(ToString::to_string);
    assert_eq!(executor.as_deref(), Some("n1"));
}

#[test]
fn poll_that_fails_leaves_the_snapshot_cut() {
    for outcome in [refused(), failed(), not_done(), exhausted(), unasked(), unanswered()] {
        let mut world = World::cut_and_polled();
        world.drive_snapshot_again().unwrap();
        world.settle_snapshot(outcome.clone()).unwrap();
        assert_eq!(world.snapshot().state, SnapshotState::Cut, "{outcome:?}");
    }
}

#[test]
fn same_snapshot_again_changes_nothing_and_another_is_refused() {
    let mut world = World::cutting();
    assert_eq!(world.cut(&[]).unwrap(), Step::nothing());
    let refusal = world.cut(&["v", "w"]).unwrap_err();
    assert!(matches!(refusal, Refusal::SnapshotExists { .. }), "{refusal}");
    let mut world = World::cut_and_ready();
    world.delete_snapshot(false).unwrap();
    assert!(matches!(world.cut(&[]), Err(Refusal::SnapshotExists { .. })), "it is deleted");
}

/// The snapshot outlives its volume: what it is of is not what the caller wants to keep.
#[test]
fn snapshot_of_an_earlier_volume_of_the_name_is_not_the_one_that_is_requested() {
    let mut world = World::cut_and_ready();
    world.delete().unwrap();
    world.drive().unwrap();
    world.settle(done()).unwrap();
    assert_eq!(world.cut(&[]).unwrap(), Step::nothing(), "a late repetition");
    world.create(provision("fleet-2")).unwrap();
    world.drive().unwrap();
    let other = CreatedVolume { external_id: text("vol-2"), ..made() };
    world.settle(created(other)).unwrap();
    let wish = SnapshotWish { source: text("vol-2"), ..storage_event::wish() };
    let refusal = world.apply(&Command::CutSnapshot { snapshot: snapshot_id(), wish });
    assert!(matches!(refusal, Err(Refusal::SnapshotExists { .. })), "{refusal:?}");
}

#[test]
fn snapshot_that_is_refused_for_certain_fails_and_can_be_deleted() {
    let mut world = World::cutting();
    world.drive_snapshot().unwrap();
    world.settle_snapshot(refused()).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Failed);
    assert_eq!(
        world.snapshot().progress.calls.failure.as_ref().map(|it| it.message.as_str()),
        Some("never")
    );
    assert!(deletes_snapshot(&world.delete_snapshot(false).unwrap()));
}

#[test]
fn uncertain_snapshot_stays_uncertain_when_it_is_refused_afterwards() {
    let mut world = World::cutting();
    world.drive_snapshot().unwrap();
    world.drive_snapshot_again().unwrap();
    world.settle_snapshot(refused()).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Creating);
    assert!(world.snapshot().progress.uncertain);
}

#[test]
fn snapshot_whose_answer_was_lost_is_cut_again_before_it_is_deleted() {
    let mut world = World::cutting();
    world.drive_snapshot().unwrap();
    world.delete_snapshot(false).unwrap();
    assert!(world.snapshot().doomed);
    assert_eq!(world.delete_snapshot(false).unwrap(), Step::nothing());
    assert!(matches!(world.cut(&[]), Err(Refusal::SnapshotExists { .. })));
    let step = world.drive_snapshot_again().unwrap();
    assert_eq!(call_of(&step), Some(CallKind::SnapshotCreate));
    world.settle_snapshot(cut(false)).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Deleting);
    let step = world.drive_snapshot().unwrap();
    assert_eq!(call_of(&step), Some(CallKind::SnapshotDelete));
    assert!(deletes_snapshot(&world.settle_snapshot(done()).unwrap()));
}

#[test]
fn doomed_snapshot_goes_when_the_plugin_did_nothing() {
    for outcome in [refused(), not_done(), exhausted()] {
        let mut world = World::cutting();
        world.drive_snapshot().unwrap();
        world.delete_snapshot(false).unwrap();
        let step = world.settle_snapshot(outcome.clone()).unwrap();
        assert!(deletes_snapshot(&step), "{outcome:?}");
    }
}

#[test]
fn doomed_snapshot_is_kept_while_an_earlier_call_is_uncertain() {
    for outcome in [refused(), not_done(), exhausted(), unasked(), failed(), unanswered()] {
        let mut world = World::cutting();
        world.drive_snapshot().unwrap();
        world.delete_snapshot(false).unwrap();
        world.drive_snapshot_again().unwrap();
        world.settle_snapshot(outcome.clone()).unwrap();
        assert!(world.snapshot().doomed, "{outcome:?}");
    }
}

#[test]
fn snapshot_that_was_never_cut_is_deleted_at_once() {
    assert!(deletes_snapshot(&World::cutting().delete_snapshot(false).unwrap()));
}

#[test]
fn refused_deletion_of_a_snapshot_leaves_it_as_it_was() {
    for (mut world, state) in [
        (World::cut_and_ready(), SnapshotState::Ready),
        (World::cut_and_polled(), SnapshotState::Cut),
    ] {
        world.delete_snapshot(false).unwrap();
        world.drive_snapshot().unwrap();
        world.settle_snapshot(refused()).unwrap();
        assert_eq!(world.snapshot().state, state);
        assert_eq!(
            world.snapshot().progress.calls.failure.as_ref().map(|it| it.message.as_str()),
            Some("never")
        );
    }
}

#[test]
fn uncertain_deletion_of_a_snapshot_stays_under_way_when_it_is_refused_afterwards() {
    let mut world = World::cut_and_ready();
    world.delete_snapshot(false).unwrap();
    world.drive_snapshot().unwrap();
    world.drive_snapshot_again().unwrap();
    world.settle_snapshot(refused()).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Deleting);
}

/// Rule 4: the poll may be at work at its executor.
#[test]
fn deletion_of_a_snapshot_remembers_the_poll_before_it() {
    let deleting = CallOwner::Snapshot(snapshot_id());
    for outcome in [unasked(), failed(), unanswered()] {
        let mut world = World::cut_and_polled();
        world.drive_snapshot_again().unwrap();
        world.settle_snapshot(outcome.clone()).unwrap();
        world.delete_snapshot(false).unwrap();
        let step = world.drive_snapshot_again().unwrap();
        assert_eq!(call_of(&step), Some(CallKind::SnapshotDelete), "{outcome:?}");
        assert!(world.volume.is_storage_unsettled(&deleting), "{outcome:?}");
        world.settle_snapshot(refused()).unwrap();
        assert_eq!(world.snapshot().state, SnapshotState::Cut, "{outcome:?}");
    }
}

#[test]
fn deletion_of_a_snapshot_does_not_take_the_answer_of_the_poll_before_it() {
    for answer in [cut(true), refused(), failed(), unanswered()] {
        let mut world = World::cut_and_polled();
        world.drive_snapshot_again().unwrap();
        world.delete_snapshot(false).unwrap();
        world.settle_snapshot(answer.clone()).unwrap();
        assert_eq!(world.snapshot().state, SnapshotState::Deleting, "{answer:?}");
        let step = world.drive_snapshot_again().unwrap();
        assert_eq!(call_of(&step), Some(CallKind::SnapshotDelete), "{answer:?}");
    }
}

/// Found by the model: the deletion of an unfinished snapshot may be refused.
#[test]
fn volume_is_not_deleted_while_a_snapshot_of_it_is_not_finished() {
    let mut deleting = World::cut_and_polled();
    deleting.delete_snapshot(false).unwrap();
    for mut world in [World::cutting(), World::cut_and_polled(), deleting] {
        let refusal = world.delete().unwrap_err();
        assert!(matches!(refusal, Refusal::SnapshotUnfinished { .. }), "{refusal}");
    }
}

/// Rule 21: registered under another name, the source could be deleted meanwhile. So a volume that
/// closes waits for its snapshots, too, and goes by itself once they are ready.
#[test]
fn volume_is_deregistered_only_by_force_while_a_snapshot_of_it_is_not_finished() {
    let deregister = |force| Command::Deregister { force, reason: text("asked") };
    let unfinished = |it: Result<Step, Refusal>| match it {
        Err(Refusal::SnapshotUnfinished { snapshot, .. }) => snapshot == snapshot_id(),
        _ => false,
    };
    let mut deleting = World::cut_and_polled();
    deleting.delete_snapshot(false).unwrap();
    for mut world in [World::cutting(), World::cut_and_polled(), deleting] {
        assert!(unfinished(world.apply(&deregister(false))), "{:?}", world.snapshot());
        let mut closing = world.clone();
        assert!(deletes_spec(&world.apply(&deregister(true)).unwrap()));
        assert!(world.volume.snapshots.contains_key(&snapshot_id()), "it is on the record still");

        closing.grant("a", "n1");
        closing.apply(&deregister(true)).unwrap();
        closing.free("a");
        assert!(unfinished(closing.apply(&deregister(false))), "{:?}", closing.snapshot());
        assert!(deletes_spec(&closing.apply(&deregister(true)).unwrap()));
    }
    let mut world = World::cut_and_polled();
    world.grant("a", "n1");
    world.apply(&deregister(true)).unwrap();
    world.free("a");
    world.drive_snapshot_again().unwrap();
    world.settle_snapshot(cut(true)).unwrap();
    assert!(deletes_spec(&world.apply(&deregister(false)).unwrap()));
}

#[test]
fn snapshot_outlives_its_volume() {
    let mut world = World::cut_and_ready();
    world.delete().unwrap();
    world.drive().unwrap();
    assert!(deletes_spec(&world.settle(done()).unwrap()));
    assert_eq!(world.snapshot().state, SnapshotState::Ready);
    world.delete_snapshot(false).unwrap();
    let step = world.drive_snapshot().unwrap();
    assert_eq!(call_of(&step), Some(CallKind::SnapshotDelete));
    assert!(deletes_snapshot(&world.settle_snapshot(done()).unwrap()));
}

/// Rule 21: the copy needs its source until it is ready.
#[test]
fn snapshot_that_is_being_copied_is_not_deleted() {
    let mut world = World::cut_and_ready();
    world.copies = vec![text("volume copy")];
    let refusal = world.delete_snapshot(false).unwrap_err();
    assert_eq!(refusal, Refusal::BeingCopied { copies: world.copies.clone() });
}

#[test]
fn no_snapshot_is_cut_of_a_volume_that_is_not_ready() {
    let mut creating = World::creating();
    let mut deleting = World::created_volume();
    deleting.delete().unwrap();
    for world in [&mut creating, &mut deleting] {
        assert!(matches!(world.cut(&[]), Err(Refusal::NotReady { .. })));
    }
}

#[test]
fn calls_of_a_volume_and_of_its_snapshots_wait_for_each_other() {
    let mut world = World::cutting();
    world.expand(10).unwrap();
    world.drive_snapshot().unwrap();
    assert!(matches!(world.drive(), Err(Refusal::NotDue { next_try: Some(_) })));
    assert!(matches!(world.take_claim("a", "n1"), Err(Refusal::Busy { .. })));
    world.settle_snapshot(cut(true)).unwrap();
    world.drive().unwrap();
    world.delete_snapshot(false).unwrap();
    let refusal = world.drive_snapshot().unwrap_err();
    assert!(matches!(refusal, Refusal::NotDue { next_try: Some(_) }), "{refusal}");
}

#[test]
fn answer_without_an_id_cuts_nothing() {
    let mut world = World::cutting();
    world.drive_snapshot().unwrap();
    let made = CutSnapshot { external_id: String::new(), ..storage_event::cut(true) };
    world.settle_snapshot(Outcome::Stored(StorageAnswer::Snapshot(made))).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Creating);
    assert!(world.snapshot().progress.uncertain);
}

fn cut_as(external_id: &str) -> Outcome {
    let made = CutSnapshot { external_id: text(external_id), ..storage_event::cut(true) };
    Outcome::Stored(StorageAnswer::Snapshot(made))
}

/// A poll by name of a snapshot that has disappeared cuts another one. Both ids stay on the record
/// until they are deleted, one after the other.
#[test]
fn snapshot_that_was_cut_twice_is_at_rest_and_both_are_deleted() {
    let mut world = World::cut_and_polled();
    world.drive_snapshot_again().unwrap();
    world.settle_snapshot(cut_as("snap-2")).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Cut);
    assert_eq!(world.snapshot().external_id.as_deref(), Some("snap-1"));
    let error = world.snapshot().progress.calls.failure.clone().unwrap().message;
    assert!(error.contains("snap-2"), "{error}");
    assert!(matches!(world.drive_snapshot_again(), Err(Refusal::NotDue { next_try: None })));
    assert!(matches!(world.delete(), Err(Refusal::SnapshotUnfinished { .. })));

    world.delete_snapshot(false).unwrap();
    for id in ["snap-1", "snap-2"] {
        assert_eq!(world.snapshot().external_id.as_deref(), Some(id));
        assert_eq!(call_of(&world.drive_snapshot().unwrap()), Some(CallKind::SnapshotDelete));
        world.settle_snapshot(Outcome::Done { publish_context: BTreeMap::new() }).unwrap();
    }
    assert!(world.volume.snapshots.is_empty());
}

/// The plugin says that what it cut is a snapshot of another volume.
#[test]
fn snapshot_of_another_volume_is_kept_with_its_id_and_can_only_be_deleted() {
    let of_another = || {
        let made = CutSnapshot { source: text("vol-2"), ..storage_event::cut(true) };
        Outcome::Stored(StorageAnswer::Snapshot(made))
    };
    for polled in [false, true] {
        let mut world = if polled { World::cut_and_polled() } else { World::cutting() };
        if polled {
            world.drive_snapshot_again().unwrap();
        } else {
            world.drive_snapshot().unwrap();
        }
        world.settle_snapshot(of_another()).unwrap();
        let known = world.snapshot();
        assert!(known.foreign && known.state == SnapshotState::Cut, "{known:?}");
        assert_eq!(known.external_id.as_deref(), Some("snap-1"));
        assert!(
            known.progress.calls.failure.as_ref().is_some_and(|it| it.message.contains("vol-2"))
        );
        assert!(matches!(world.drive_snapshot_again(), Err(Refusal::NotDue { next_try: None })));
        world.delete_snapshot(false).unwrap();
        world.drive_snapshot().unwrap();
        // Refused, it is what it was.
        world.settle_snapshot(Outcome::Refused("no".into())).unwrap();
        let known = world.snapshot();
        assert!(known.foreign && known.state == SnapshotState::Cut && known.call().is_none());
        world.delete_snapshot(false).unwrap();
        world.drive_snapshot().unwrap();
        world.settle_snapshot(Outcome::Done { publish_context: BTreeMap::new() }).unwrap();
        assert!(world.volume.snapshots.is_empty());
    }
    // A plugin that leaves the source out says nothing of it.
    let mut world = World::cutting();
    world.drive_snapshot().unwrap();
    let made = CutSnapshot { source: String::new(), ..storage_event::cut(true) };
    world.settle_snapshot(Outcome::Stored(StorageAnswer::Snapshot(made))).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Ready);
}

/// The poll was under way when the deletion was requested.
#[test]
fn second_snapshot_of_a_poll_before_the_deletion_is_deleted_too() {
    let mut world = World::cut_and_polled();
    world.drive_snapshot_again().unwrap();
    world.delete_snapshot(false).unwrap();
    world.settle_snapshot(cut_as("snap-2")).unwrap();
    assert_eq!(world.snapshot().state, SnapshotState::Deleting);
    assert_eq!(world.snapshot().second_id.as_deref(), Some("snap-2"));
    world.drive_snapshot().unwrap();
    world.settle_snapshot(Outcome::Done { publish_context: BTreeMap::new() }).unwrap();
    assert_eq!(world.snapshot().external_id.as_deref(), Some("snap-2"));
}

/// Of two requests to register what the plugin lists, the second finds the first; and what is being
/// cut may be what is listed.
#[test]
fn adoption_of_what_the_record_may_know_is_refused() {
    let adopt = |world: &mut World, external_id: &str| {
        let cut = CutSnapshot { external_id: text(external_id), ..storage_event::cut(true) };
        let plugin = world.offered.plugin.clone();
        let snapshot = SnapshotId::new("adopted").unwrap();
        let (topologies, home) = (Vec::new(), None);
        world.apply(&Command::AdoptSnapshot { snapshot, plugin, cut, topologies, home })
    };
    let exists = |it: Result<Step, Refusal>| match it {
        Err(Refusal::SnapshotExists { snapshot, .. }) => snapshot == snapshot_id(),
        _ => false,
    };
    let mut world = World::cutting();
    assert!(exists(adopt(&mut world, "snap-1")), "it may be the one that is being cut");
    world.drive_snapshot().unwrap();
    world.settle_snapshot(cut(true)).unwrap();
    assert!(exists(adopt(&mut world, "snap-1")));
    adopt(&mut world, "snap-2").unwrap();
}

#[test]
fn adopted_snapshot_is_registered_once_and_polled_until_it_is_ready() {
    let adopt_at = |world: &mut World, external_id: &str, ready, topologies: &[Topology]| {
        let home = topologies.first().map(|_| NodeId::new("n2").unwrap());
        let cut = CutSnapshot { external_id: text(external_id), ..storage_event::cut(ready) };
        let (snapshot, plugin) = (snapshot_id(), world.offered.plugin.clone());
        let topologies = topologies.to_vec();
        world.apply(&Command::AdoptSnapshot { snapshot, plugin, cut, topologies, home })
    };
    let adopt =
        |world: &mut World, external_id: &str, ready| adopt_at(world, external_id, ready, &[]);
    for (ready, state) in [(true, SnapshotState::Ready), (false, SnapshotState::Cut)] {
        let mut world = World::created_volume();
        adopt(&mut world, "snap-1", ready).unwrap();
        assert_eq!(world.snapshot().state, state);
        assert_eq!(world.drive_snapshot().is_ok(), !ready);
        assert_eq!(adopt(&mut world, "snap-1", ready).unwrap(), Step::nothing());
        let other = adopt(&mut world, "snap-2", ready);
        assert!(matches!(other, Err(Refusal::SnapshotExists { .. })), "{other:?}");
    }
    let mut absent = World::empty(EXCLUSIVE);
    adopt(&mut absent, "snap-1", true).unwrap();
    assert_eq!(absent.snapshot().source, "vol-1", "its volume is gone");
    let mut elsewhere = World::created_volume();
    adopt_at(&mut elsewhere, "snap-1", true, &[site("b")]).unwrap();
    assert_eq!(elsewhere.snapshot().topologies, [site("b")], "where it is listed");
    assert_eq!(elsewhere.snapshot().home.as_ref().map(NodeId::as_str), Some("n2"));
}

/// The volume of that name may be one of another plugin.
#[test]
fn adopted_snapshot_is_where_its_own_volume_is() {
    let known = berth_domain::PluginId::new("other").unwrap();
    for (plugin, at) in [(None, vec![site("a")]), (Some(known), vec![])] {
        let mut world = World::creating();
        world.drive().unwrap();
        let there = CreatedVolume { topologies: vec![site("a")], ..made() };
        world.settle(created(there)).unwrap();
        let plugin = plugin.unwrap_or_else(|| world.offered.plugin.clone());
        let cut = CutSnapshot { size_bytes: 7, ..storage_event::cut(true) };
        let (snapshot, topologies, home) = (snapshot_id(), Vec::new(), None);
        world.apply(&Command::AdoptSnapshot { snapshot, plugin, cut, topologies, home }).unwrap();
        assert_eq!(world.snapshot().topologies, at);
        assert_eq!(world.snapshot().size_bytes, Some(7));
    }
    let mut world = World::created_volume();
    let (snapshot, plugin, topologies) = (snapshot_id(), world.offered.plugin.clone(), vec![]);
    let cut = CutSnapshot { size_bytes: 0, ..storage_event::cut(true) };
    let home = None;
    world.apply(&Command::AdoptSnapshot { snapshot, plugin, cut, topologies, home }).unwrap();
    assert_eq!(world.snapshot().size_bytes, None, "the plugin does not say");
}

/// What a copy of it depends on. The plugin may have cut it while the volume grew, and says where a
/// copy can be. A poll that leaves that out takes nothing back.
#[test]
fn adopted_snapshot_keeps_where_it_can_be_used_and_counts_as_cut_while_its_volume_grew() {
    let cut = |ready, usable_from: &[Topology]| CutSnapshot {
        usable_from: usable_from.to_vec(),
        ..storage_event::cut(ready)
    };
    let mut world = World::created_volume();
    let (snapshot, plugin) = (snapshot_id(), world.offered.plugin.clone());
    let (cut_there, topologies, home) = (cut(false, &[site("b")]), vec![site("a")], None);
    let adopt = Command::AdoptSnapshot { snapshot, plugin, cut: cut_there, topologies, home };
    world.apply(&adopt).unwrap();
    let assert_kept = |world: &World, usable: &str| {
        assert!(world.snapshot().growing);
        assert_eq!(world.snapshot().usable_from, [site(usable)]);
        assert_eq!(world.snapshot().topologies, [site("a")], "where its deletion is called");
    };
    assert_kept(&world, "b");
    for (ready, said, usable) in [(false, vec![], "b"), (true, vec![site("c")], "c")] {
        world.drive_snapshot_again().unwrap();
        let polled = StorageAnswer::Snapshot(cut(ready, &said));
        world.settle_snapshot(Outcome::Stored(polled)).unwrap();
        assert_kept(&world, usable);
    }
    assert_eq!(world.snapshot().state, SnapshotState::Ready);
}
