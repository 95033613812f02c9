//! Deletion, and what claims, registrations, copies and the end of a run have to do with it.

use super::*;

/// Rule 24.
#[test]
fn no_claim_is_granted_before_the_volume_is_ready() {
    let mut world = World::creating();
    let is_now = |refusal: &Refusal| match refusal {
        Refusal::NotReady { stage, .. } => Some(*stage),
        _ => None,
    };
    let not_ready = |stage| move |refusal: &Refusal| is_now(refusal) == Some(stage);
    let wait = |world: &mut World| {
        let take = Take { wait: true, ..take("a", "n1") };
        world.apply(&Command::Take(take)).unwrap_err()
    };
    assert!(not_ready(Stage::Creating)(&wait(&mut world)));
    world.drive().unwrap();
    world.settle(refused()).unwrap();
    let refusal = wait(&mut world);
    assert!(not_ready(Stage::Failed)(&refusal));
    assert!(refusal.to_string().contains("never"), "{refusal}");
    let mut world = World::created_volume();
    world.delete().unwrap();
    assert!(not_ready(Stage::Deleting)(&wait(&mut world)));
}

#[test]
fn first_claim_begins_the_creation_where_it_is_and_is_granted_afterwards() {
    let asked = Provision { first_use: true, requisite: vec![site("a")], ..provision("fleet-1") };
    let mut world = World::creating_as(asked);
    assert_eq!(world.stage(), Stage::Unused);
    assert!(matches!(world.drive(), Err(Refusal::NotDue { next_try: None })));
    let route = Ok(Route { controller: true, external_node: None, topology: site("b") });
    let step = world.apply(&Command::Take(Take { route, ..take("a", "n1") })).unwrap();
    assert_eq!(step.call, None);
    assert!(world.volume.claims.is_empty());
    assert_eq!(world.stage(), Stage::Creating);
    assert_eq!(world.spec().accessible_from(), [site("b")]);
    world.drive().unwrap();
    world.settle(created(made())).unwrap();
    world.grant("a", "n1");
}

/// The plugin has no room there, or refuses the place: it is where the next claim is.
#[test]
fn volume_whose_place_the_plugin_refuses_is_unused_again() {
    let within = vec![site("a"), site("b")];
    let asked = || Provision { first_use: true, requisite: within.clone(), ..provision("fleet-1") };
    let claim_in = |world: &mut World, name: &str, at: &str| {
        let route = Ok(Route { controller: true, external_node: None, topology: site(at) });
        world.apply(&Command::Take(Take { route, ..take(name, "n1") }))
    };
    for outcome in [exhausted(), refused()] {
        let mut world = World::creating_as(asked());
        claim_in(&mut world, "a", "a").unwrap();
        world.drive().unwrap();
        world.settle(outcome.clone()).unwrap();
        assert_eq!((world.stage(), world.spec().operation()), (Stage::Unused, None));
        assert_eq!(world.spec().accessible_from(), within, "{outcome:?}");
        assert_eq!(world.failure().unwrap().0, OperationKind::Create);
        // The plugin is not asked for the same place at once.
        let refusal = claim_in(&mut world, "a", "a").unwrap_err();
        let words = refusal.to_string();
        assert!(refusal.may_pass() && words.contains("where this node is"), "{words}");
        claim_in(&mut world, "b", "b").unwrap();
        assert_eq!(world.spec().accessible_from(), [site("b")]);
        world.drive().unwrap();
        world.settle(created(CreatedVolume { topologies: vec![site("b")], ..made() })).unwrap();
        assert_eq!((world.stage(), world.failure()), (Stage::Ready, None));
    }
    // The waits for one place grow.
    let mut world = World::creating_as(asked());
    let mut waits = Vec::new();
    for _ in 0..4 {
        claim_in(&mut world, "a", "a").unwrap();
        world.drive().unwrap();
        world.settle(exhausted()).unwrap();
        let until = world.spec().provision().unwrap().refused_until(&site("a")).unwrap();
        let wait = until.since(world.context().now);
        waits.push(wait);
        world.pass(wait);
    }
    assert!(waits.is_sorted() && waits[0] < waits[3], "{waits:?}");
    // Claims in many places do not ask it without an end.
    let asked = Provision { requisite: Vec::new(), ..asked() };
    let mut world = World::creating_as(asked);
    let places = (0..100).take_while(|at| {
        let is_taken = claim_in(&mut world, "a", &format!("s{}", at % 3)).is_ok();
        if is_taken {
            world.drive().unwrap();
            world.settle(refused()).unwrap();
        }
        is_taken
    });
    assert_eq!(places.count(), 8);
}

/// A call that may have created it still decides where it is.
#[test]
fn volume_that_may_have_been_created_stays_where_it_was_requested() {
    let mut world = World::creating_as(Provision { first_use: true, ..provision("fleet-1") });
    world.take_claim("a", "n1").unwrap();
    world.drive().unwrap();
    world.settle(unanswered()).unwrap();
    for outcome in [exhausted(), refused()] {
        world.drive_again().unwrap();
        world.settle(outcome).unwrap();
        assert_eq!(world.stage(), Stage::Creating);
    }
    let mut world = World::creating_as(Provision { first_use: true, ..provision("fleet-1") });
    world.take_claim("a", "n1").unwrap();
    world.drive().unwrap();
    world.settle(created(CreatedVolume { external_id: text(""), ..made() })).unwrap();
    assert_eq!(world.stage(), Stage::Failed, "it may have left one");
}

#[test]
fn volume_that_was_never_used_is_deleted_at_once() {
    let mut world = World::creating_as(Provision { first_use: true, ..provision("fleet-1") });
    assert!(deletes_spec(&world.delete().unwrap()));
}

/// Rule 21.
#[test]
fn deletion_waits_for_the_last_claim() {
    let mut world = World::created_volume();
    world.grant("a", "n1");
    assert!(matches!(world.delete(), Err(Refusal::ClaimsLive { .. })));
    world.apply(&release("a")).unwrap();
    world.apply(&begin("a", false)).unwrap();
    assert!(matches!(world.delete(), Err(Refusal::ClaimsLive { .. })), "it is still attached");
    world.done("a").unwrap();
    world.done("a").unwrap();
    world.delete().unwrap();
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeDelete));
}

/// Rule 21: the copy needs its source until it is ready.
#[test]
fn volume_that_is_being_copied_is_not_deleted() {
    let mut world = World::created_volume();
    world.copies = vec![text("volume copy")];
    let refusal = world.delete().unwrap_err();
    assert_eq!(refusal, Refusal::BeingCopied { copies: world.copies.clone() });
    world.copies.clear();
    assert!(world.delete().is_ok());
}

#[test]
fn volume_that_is_registered_twice_is_not_deleted() {
    let mut world = World::created_volume();
    world.others = vec![text("volume other")];
    assert!(matches!(world.delete(), Err(Refusal::RegisteredTwice { .. })));
}

#[test]
fn refused_deletion_makes_the_volume_ready_again_and_says_why() {
    let mut world = World::created_volume();
    world.delete().unwrap();
    world.drive().unwrap();
    world.settle(refused()).unwrap();
    assert_eq!(world.stage(), Stage::Ready);
    assert_eq!(world.failure(), Some((OperationKind::Delete, text("never"))));
    world.grant("a", "n1");
    world.free("a");
    world.delete().unwrap();
    assert_eq!(world.stage(), Stage::Deleting);
}

/// The earlier call may have deleted it: it is not used again.
#[test]
fn uncertain_deletion_stays_under_way_when_it_is_refused_afterwards() {
    let mut world = World::created_volume();
    world.delete().unwrap();
    world.drive().unwrap();
    world.drive_again().unwrap();
    world.settle(refused()).unwrap();
    assert_eq!(world.stage(), Stage::Deleting);
    world.drive_again().unwrap();
    assert!(deletes_spec(&world.settle(done()).unwrap()));
}

#[test]
fn deletion_replaces_a_change_under_way_and_waits_for_its_call() {
    let mut world = World::created_volume();
    let parameters = BTreeMap::from([(text("iops"), text("9"))]);
    world.apply(&Command::Modify { parameters }).unwrap();
    world.drive().unwrap();
    world.delete().unwrap();
    assert!(matches!(world.drive(), Err(Refusal::NotDue { next_try: Some(_) })));
    world.settle(done()).unwrap();
    assert_eq!(world.stage(), Stage::Deleting, "the answer was of the change");
    assert!(world.operation().progress.calls.is_unsettled());
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeDelete));
}

/// Nothing is known of the change, but the deletion itself was called once.
#[test]
fn deletion_after_an_unanswered_change_can_be_refused() {
    let mut world = World::created_volume();
    let parameters = BTreeMap::from([(text("iops"), text("9"))]);
    world.apply(&Command::Modify { parameters }).unwrap();
    world.drive().unwrap();
    world.delete().unwrap();
    world.settle(unanswered()).unwrap();
    assert_eq!(call_of(&world.drive_again().unwrap()), Some(CallKind::VolumeDelete));
    world.settle(refused()).unwrap();
    assert_eq!(world.stage(), Stage::Ready);
}

#[test]
fn deregistering_by_force_waits_for_a_call_that_may_still_act() {
    let deregister = Command::Deregister { force: true, reason: text("x") };
    let mut world = World::created_volume();
    world.delete().unwrap();
    world.drive().unwrap();
    let refusal = world.apply(&deregister).unwrap_err();
    assert!(matches!(refusal, Refusal::Busy { .. }), "{refusal}");
    world.pass_all_deadlines();
    assert!(deletes_spec(&world.apply(&deregister).unwrap()));
}

/// A closing volume may be deleted, too: its record goes with that, and no earlier.
#[test]
fn volume_that_closes_keeps_its_record_until_its_deletion_is_over() {
    let deregister = |force| Command::Deregister { force, reason: text("x") };
    let mut world = World::created_volume();
    world.grant("a", "n1");
    world.apply(&deregister(true)).unwrap();
    world.free("a");
    world.delete().unwrap();
    let refusal = world.apply(&deregister(false)).unwrap_err();
    assert!(matches!(refusal, Refusal::OperationUnderWay { .. }), "{refusal}");
    world.drive().unwrap();
    world.settle(unanswered()).unwrap();
    let refusal = world.apply(&deregister(false)).unwrap_err();
    assert!(matches!(refusal, Refusal::OperationUnderWay { .. }), "{refusal}");
    world.drive_again().unwrap();
    assert!(deletes_spec(&world.settle(done()).unwrap()));
}

#[test]
fn deregistering_keeps_a_created_volume_at_the_storage() {
    let deregister = |force| Command::Deregister { force, reason: text("x") };
    let mut world = World::creating();
    let under_way = world.apply(&deregister(false)).unwrap_err();
    assert!(matches!(under_way, Refusal::OperationUnderWay { .. }), "{under_way}");
    world.drive().unwrap();
    world.settle(created(made())).unwrap();
    assert!(deletes_spec(&world.apply(&deregister(false)).unwrap()));
    let mut world = World::creating();
    assert!(deletes_spec(&world.apply(&deregister(true)).unwrap()));
}

#[test]
fn registering_a_created_volume_changes_only_what_the_plugin_did_not_say() {
    let mut world = World::created_volume();
    let known = world.spec().clone();
    let named = VolumeSpec { name: text("for people").into(), storage: None, ..known.clone() };
    world.apply(&Command::Register(named)).unwrap();
    assert_eq!(world.spec().name.as_str(), "for people");
    assert_eq!(world.spec().provision(), known.provision());
    let other = VolumeSpec { external_id: Some(text("vol-2")), ..world.spec().clone() };
    let refusal = world.apply(&Command::Register(other)).unwrap_err();
    assert_eq!(refusal, Refusal::Provisioned { fields: vec!["external_id"] });
    let mut world = World::creating();
    let named = VolumeSpec { name: text("for people").into(), ..world.spec().clone() };
    assert!(matches!(world.apply(&Command::Register(named)), Err(Refusal::NotReady { .. })));
}

/// The plugin's answers show at a registration which controller alone knows the volume.
#[test]
fn registering_keeps_the_home_until_the_answers_show_another_or_the_place_changes() {
    let node = |id: &str| NodeId::new(id).unwrap();
    let mut world = World::with(&[AccessMode::MultiNodeMultiWriter]);
    let plain = world.spec().clone();
    let changed = |what: &str| VolumeSpec { name: text(what).into(), ..plain.clone() };
    let moved = VolumeSpec { topologies: vec![site("b")].into(), ..plain.clone() };
    for (update, shown, home) in [
        (changed("1"), None, None),
        (changed("2"), Some("n1"), Some("n1")),
        (changed("3"), None, Some("n1")),
        (changed("4"), Some("n2"), Some("n2")),
        (VolumeSpec { capacity_bytes: Some(5), ..plain.clone() }, None, Some("n2")),
        (moved.clone(), None, None),
        (
            VolumeSpec { topologies: vec![site("c")].into(), ..plain.clone() },
            Some("n3"),
            Some("n3"),
        ),
        (VolumeSpec { external_id: Some(text("vol-2")), ..moved }, None, None),
    ] {
        world.apply(&Command::Register(update.at_home(shown.map(node)))).unwrap();
        assert_eq!(world.spec().home(), home.map(node).as_ref(), "{update:?} {shown:?}");
        let kept = world.spec().storage.is_some();
        assert_eq!(kept, home.is_some(), "older versions can read the rest");
    }
    let mut created = World::created_volume();
    let named =
        VolumeSpec { name: text("for people").into(), storage: None, ..created.spec().clone() };
    created.apply(&Command::Register(named.at_home(Some(node("n9"))))).unwrap();
    assert_eq!(created.spec().home(), None, "its creation showed where it is");
}

/// What was done to one volume of the plugin was not done to another.
#[test]
fn registering_another_handle_begins_another_life() {
    let mut world = World::with(&[AccessMode::MultiNodeMultiWriter]);
    world.expand(10).unwrap();
    world.drive().unwrap();
    world
        .settle(Outcome::Stored(StorageAnswer::Capacity {
            bytes: 10,
            node_expansion_required: false,
        }))
        .unwrap();
    assert_eq!(world.expand(10).unwrap(), Step::nothing());
    let external_id = Some(text("vol-2"));
    let other = VolumeSpec { external_id, capacity_bytes: Some(5), ..world.spec().clone() };
    world.apply(&Command::Register(other)).unwrap();
    assert!(world.expand(10).unwrap().write.is_some());
}

/// A volume that exists for the run of an alloc.
fn ephemeral() -> World {
    let for_alloc = Some(alloc("a"));
    World::creating_as(Provision { for_alloc, ..provision("fleet-1") })
}

#[test]
fn volume_of_a_run_is_deleted_when_the_run_is_over_and_no_claim_is_left() {
    let mut world = ephemeral();
    world.drive().unwrap();
    world.settle(created(made())).unwrap();
    world.grant("a", "n1");
    let over = drive_by(None, false, None);
    assert!(matches!(world.apply(&over), Err(Refusal::NotDue { next_try: None })));
    world.free("a");
    assert!(matches!(world.drive(), Err(Refusal::NotDue { .. })), "it is wanted");
    world.apply(&over).unwrap();
    assert_eq!(world.stage(), Stage::Deleting);
    assert_eq!(call_of(&world.apply(&over).unwrap()), Some(CallKind::VolumeDelete));
    assert!(deletes_spec(&world.settle(done()).unwrap()));
}

#[test]
fn volume_of_a_run_that_was_over_before_it_is_created_is_doomed() {
    let mut world = ephemeral();
    world.drive().unwrap();
    world.apply(&drive_by(None, false, None)).unwrap();
    assert_eq!(world.operation().work, Work::Create { doomed: true });
    let mut world = ephemeral();
    assert!(deletes_spec(&world.apply(&drive_by(None, false, None)).unwrap()));
}

#[test]
fn refused_deletion_of_the_volume_of_a_run_waits_for_an_operator() {
    let mut world = ephemeral();
    world.drive().unwrap();
    world.settle(created(made())).unwrap();
    let over = drive_by(None, false, None);
    world.apply(&over).unwrap();
    world.apply(&over).unwrap();
    world.settle(refused()).unwrap();
    assert!(!world.volume.is_run_over(false));
    assert!(matches!(world.apply(&over), Err(Refusal::NotDue { next_try: None })));
    assert!(world.delete().is_ok());
}

#[test]
fn volume_of_a_run_whose_expansion_was_refused_is_deleted_with_the_run() {
    let mut world = ephemeral();
    world.drive().unwrap();
    world.settle(created(made())).unwrap();
    world.expand(10).unwrap();
    world.drive().unwrap();
    world.settle(refused()).unwrap();
    assert_eq!(world.failure(), Some((OperationKind::Expand, text("never"))));
    world.apply(&drive_by(None, false, None)).unwrap();
    assert_eq!(world.stage(), Stage::Deleting);
}

/// The next call would delete another volume at the storage than the one that was meant.
#[test]
fn volume_that_is_changed_at_its_storage_keeps_its_handle() {
    let mut world = World::empty(EXCLUSIVE);
    let own = VolumeSpec { external_id: Some(text("vol-1")), ..world.offered.clone() };
    let other = VolumeSpec { external_id: Some(text("vol-2")), ..own.clone() };
    world.apply(&Command::Register(own.clone())).unwrap();
    let grow = Command::Expand {
        required_bytes: 10,
        limit_bytes: None,
        offline: false,
        node_only: false,
        when_free: false,
    };
    world.apply(&grow).unwrap();
    let refused = world.apply(&Command::Register(other.clone()));
    assert!(matches!(refused, Err(Refusal::OperationUnderWay { .. })), "{refused:?}");
    world.delete().unwrap();
    // Nor is it said to stay as it is.
    for spec in [other, own] {
        let refused = world.apply(&Command::Register(spec));
        assert!(matches!(refused, Err(Refusal::NotReady { .. })), "{refused:?}");
    }
    assert_eq!(world.spec().external_id.as_deref(), Some("vol-1"));
}

/// Under its other name it could be deleted while it is copied, or while a snapshot is cut.
#[test]
fn source_of_what_is_unfinished_keeps_its_handle() {
    let mut world = World::empty(EXCLUSIVE);
    let own = VolumeSpec { external_id: Some(text("vol-1")), ..world.offered.clone() };
    let other = VolumeSpec { external_id: Some(text("vol-2")), ..own.clone() };
    world.apply(&Command::Register(own.clone())).unwrap();
    world.copies = vec![text("volume copy")];
    let refused = world.apply(&Command::Register(other.clone()));
    assert!(matches!(refused, Err(Refusal::BeingCopied { .. })), "{refused:?}");
    assert_eq!(world.apply(&Command::Register(own)).unwrap(), Step::nothing());
    world.copies.clear();
    world.cut(&[]).unwrap();
    let refused = world.apply(&Command::Register(other));
    assert!(matches!(refused, Err(Refusal::SnapshotUnfinished { .. })), "{refused:?}");
}

/// Under another name it could be deleted while it is copied. So a volume that closes waits for its
/// copies, too.
#[test]
fn source_of_an_unfinished_copy_is_not_deregistered() {
    let deregister = |force| Command::Deregister { force, reason: text("asked") };
    let mut world = World::created_volume();
    let mut closing = world.clone();
    world.copies = vec![text("volume copy")];
    assert!(matches!(world.apply(&deregister(false)), Err(Refusal::BeingCopied { .. })));
    assert!(deletes_spec(&world.apply(&deregister(true)).unwrap()));

    closing.grant("a", "n1");
    closing.apply(&deregister(true)).unwrap();
    closing.free("a");
    closing.copies = vec![text("volume copy")];
    assert!(matches!(closing.apply(&deregister(false)), Err(Refusal::BeingCopied { .. })));
    closing.copies.clear();
    assert!(deletes_spec(&closing.apply(&deregister(false)).unwrap()));
}
