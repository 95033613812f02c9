//! Creation: what each answer leads to, and what is wrong with an answer.

use std::time::Duration;

use berth_domain::access::{AttachmentMode, Capability};
use berth_domain::volume::storage::{CopyGrowth, OperationKind, Origin, Provision, Stage, Work};
use berth_domain::volume::{
    CallKind, CallOwner, Closing, Command, CreatedVolume, Refusal, Step, VolumeSpec, Write,
};
use berth_domain::{ClassId, Timestamp, VolumeId};

use super::*;

/// Rule 19: what the plugin is asked for is on the record before the call.
#[test]
fn creation_is_recorded_before_it_is_called() {
    let mut world = World::creating();
    assert_eq!(world.stage(), Stage::Creating);
    assert_eq!(world.spec().handle(&VolumeId::new("v").unwrap()), None);
    let step = world.drive().unwrap();
    assert_eq!(call_of(&step), Some(CallKind::VolumeCreate));
    assert!(matches!(world.drive(), Err(Refusal::NotDue { next_try: Some(_) })));
}

#[test]
fn volume_is_ready_with_what_its_plugin_returned() {
    let world = World::created_volume();
    assert_eq!(world.stage(), Stage::Ready);
    let spec = world.spec();
    assert_eq!(spec.external_id.as_deref(), Some("vol-1"));
    assert_eq!(spec.capacity_bytes, Some(1));
    assert_eq!(*spec.context, made().context);
    assert_eq!(world.faults(), "");
}

#[test]
fn same_request_to_create_changes_nothing() {
    let mut world = World::creating();
    assert_eq!(world.create(provision("another-name")).unwrap(), Step::nothing());
    world.drive().unwrap();
    world.settle(created(made())).unwrap();
    assert_eq!(world.create(provision("another-name")).unwrap(), Step::nothing());
}

#[test]
fn same_request_to_create_is_refused_while_the_volume_is_being_deleted() {
    let mut doomed = World::creating();
    doomed.drive().unwrap();
    doomed.delete().unwrap();
    let mut deleting = World::created_volume();
    deleting.delete().unwrap();
    for world in [&mut doomed, &mut deleting] {
        let refusal = world.create(provision("another-name")).unwrap_err();
        assert!(matches!(refusal, Refusal::NotReady { .. }), "{refusal}");
    }
}

#[test]
fn other_request_to_create_is_refused_with_the_fields_that_differ() {
    let mut world = World::creating();
    let other = Provision { required_bytes: 2, first_use: true, ..provision("fleet-2") };
    let refusal = world.create(other).unwrap_err();
    let fields = vec!["size", "topology_policy"];
    assert_eq!(refusal, Refusal::Exists { stage: Stage::Creating, fields });
    let mut registered = World::with(EXCLUSIVE);
    let refusal = registered.create(provision("fleet-1")).unwrap_err();
    assert_eq!(refusal, Refusal::Exists { stage: Stage::Ready, fields: vec!["external_id"] });
}

/// Rule 20: nothing else shows what the lost call left, so it is repeated before it is deleted.
#[test]
fn creation_whose_answer_was_lost_is_created_again_before_it_is_deleted() {
    let mut world = World::creating();
    world.drive().unwrap();
    world.delete().unwrap();
    assert_eq!(world.operation().work, Work::Create { doomed: true });
    assert_eq!(world.delete().unwrap(), Step::nothing());
    assert_eq!(call_of(&world.drive_again().unwrap()), Some(CallKind::VolumeCreate));
    world.settle(created(made())).unwrap();
    assert_eq!(world.stage(), Stage::Deleting);
    assert_eq!(world.spec().external_id.as_deref(), Some("vol-1"));
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeDelete));
    assert!(deletes_spec(&world.settle(done()).unwrap()));
}

#[test]
fn creation_that_was_never_called_is_deleted_at_once() {
    assert!(deletes_spec(&World::creating().delete().unwrap()));
    let mut world = World::creating();
    world.drive().unwrap();
    world.settle(unasked()).unwrap();
    assert!(deletes_spec(&world.delete().unwrap()));
}

#[test]
fn doomed_creation_goes_when_the_plugin_did_nothing() {
    for outcome in [refused(), not_done(), exhausted()] {
        let mut world = World::creating();
        world.drive().unwrap();
        world.delete().unwrap();
        assert!(deletes_spec(&world.settle(outcome.clone()).unwrap()), "{outcome:?}");
    }
}

#[test]
fn doomed_creation_is_kept_while_an_earlier_call_is_uncertain() {
    for outcome in [refused(), not_done(), exhausted(), unasked(), failed(), unanswered()] {
        let mut world = World::creating();
        world.drive().unwrap();
        world.delete().unwrap();
        world.drive_again().unwrap();
        world.settle(outcome.clone()).unwrap();
        assert_eq!(world.operation().work, Work::Create { doomed: true }, "{outcome:?}");
        assert!(world.operation().progress.uncertain, "{outcome:?}");
    }
}

#[test]
fn definite_refusal_of_the_first_call_fails_the_creation() {
    let mut world = World::creating();
    world.drive().unwrap();
    world.settle(refused()).unwrap();
    assert_eq!(world.stage(), Stage::Failed);
    assert_eq!(world.failure(), Some((OperationKind::Create, text("never"))));
    assert!(matches!(world.drive(), Err(Refusal::NotDue { next_try: None })));
    assert!(deletes_spec(&world.delete().unwrap()));
}

/// Rule 19: a later refusal says nothing of the earlier call.
#[test]
fn uncertain_creation_stays_uncertain_when_it_is_refused_afterwards() {
    for first in [failed(), unanswered()] {
        let mut world = World::creating();
        world.drive().unwrap();
        world.settle(first.clone()).unwrap();
        world.drive_again().unwrap();
        world.settle(refused()).unwrap();
        assert_eq!(world.stage(), Stage::Creating, "{first:?}");
        assert!(world.operation().progress.uncertain, "{first:?}");
        assert_eq!(
            world.operation().progress.calls.failure.as_ref().map(|it| it.message.as_str()),
            Some("never")
        );
        world.drive_again().unwrap();
        world.settle(created(made())).unwrap();
        assert_eq!(world.stage(), Stage::Ready, "{first:?}");
    }
}

#[test]
fn exhausted_storage_is_asked_again_later_and_says_why() {
    let mut world = World::creating();
    world.drive().unwrap();
    world.settle(exhausted()).unwrap();
    assert_eq!(world.stage(), Stage::Creating);
    let progress = world.operation().progress.clone();
    assert_eq!((progress.calls.tries, progress.uncertain), (1, false));
    assert_eq!(progress.calls.failure.clone().unwrap().message, "no room");
    let next_try = progress.calls.next_try.unwrap();
    let not_due = Refusal::NotDue { next_try: Some(next_try) };
    assert_eq!(world.drive().unwrap_err(), not_due);
    assert!(world.drive_again().is_ok());
    world.settle(refused()).unwrap();
    assert_eq!(world.stage(), Stage::Failed, "nothing was ever created");
}

#[test]
fn answer_of_an_earlier_attempt_is_not_taken() {
    let mut world = World::creating();
    let first = world.drive().unwrap().call.unwrap().id;
    world.drive_again().unwrap();
    let late = Command::Answer {
        owner: CallOwner::Volume,
        attempt: first,
        outcome: created(made()),
        worker: None,
    };
    assert_eq!(world.apply(&late), Err(Refusal::StaleAttempt));
}

/// A controller may know the storage of its own host only.
#[test]
fn executor_of_an_uncertain_creation_is_kept() {
    let mut world = World::creating();
    let executor = |world: &World| {
        let progress = &world.operation().progress;
        progress.executor.as_ref().map(ToString::to_string)
    };
    world.apply(&drive_by(None, true, Some("n1"))).unwrap();
    world.settle(not_done()).unwrap();
    world.pass_all_deadlines();
    world.apply(&drive_by(None, true, Some("n2"))).unwrap();
    assert_eq!(executor(&world).as_deref(), Some("n2"), "nothing is on n1");
    world.pass_all_deadlines();
    world.apply(&drive_by(None, true, Some("n1"))).unwrap();
    assert_eq!(executor(&world).as_deref(), Some("n2"), "it was not answered");
}

#[test]
fn plugin_that_returns_less_than_was_asked_is_reported_and_the_volume_can_be_used() {
    let asked = Provision { required_bytes: 10, limit_bytes: Some(20), ..provision("fleet-1") };
    let (less, more) = ((5, "10 were requested"), (30, "more than the limit 20"));
    for (bytes, fault) in [less, more, (10, ""), (20, ""), (0, "")] {
        let mut world = World::creating_as(asked.clone());
        world.drive().unwrap();
        world.settle(created(CreatedVolume { capacity_bytes: bytes, ..made() })).unwrap();
        assert_eq!(world.stage(), Stage::Ready, "{bytes}");
        assert_eq!(world.spec().capacity_bytes, Some(bytes).filter(|bytes| *bytes >= 10));
        assert!(world.faults().contains(fault), "{bytes}: {}", world.faults());
        assert_eq!(world.faults().is_empty(), fault.is_empty(), "{bytes}: {}", world.faults());
        world.grant("a", "n1");
    }
}

#[test]
fn plugin_that_returns_no_id_fails_the_creation_and_names_what_it_may_have_left() {
    let mut world = World::creating();
    world.drive().unwrap();
    world.settle(created(CreatedVolume { external_id: String::new(), ..made() })).unwrap();
    assert_eq!(world.stage(), Stage::Failed);
    let (_, error) = world.failure().unwrap();
    assert!(error.contains("\"fleet-1\""), "{error}");
    assert!(world.faults().contains("gives no id"), "{}", world.faults());
    assert!(deletes_spec(&world.delete().unwrap()));
}

/// What does not fit into a record was left out, and without it the volume would be another one.
#[test]
fn volume_whose_answer_cannot_be_stored_is_not_used_and_can_be_deleted() {
    let beyond = || CreatedVolume { unusable: Some(text("answered too much")), ..made() };
    for doomed in [false, true] {
        let mut world = World::creating();
        world.drive().unwrap();
        if doomed {
            world.delete().unwrap();
        }
        world.settle(created(beyond())).unwrap();
        if !doomed {
            assert_eq!(world.stage(), Stage::Failed);
            assert!(world.failure().unwrap().1.contains("answered too much"));
            let refused = world.take_claim("a", "n1").unwrap_err();
            assert!(refused.to_string().contains("answered too much"), "{refused}");
            assert!(matches!(world.expand(10), Err(Refusal::NotReady { .. })));
            assert!(!deletes_spec(&world.delete().unwrap()), "it is at the storage");
        }
        assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeDelete));
        world.settle(refused()).unwrap();
        assert_eq!(world.stage(), Stage::Failed, "a refused deletion does not make it usable");
        world.delete().unwrap();
        world.drive().unwrap();
        assert!(deletes_spec(&world.settle(done()).unwrap()));
    }
}

#[test]
fn plugin_that_returns_the_id_of_another_volume_fails_the_creation() {
    let mut world = World::creating();
    world.drive().unwrap();
    world.others = vec![text("volume other")];
    world.settle(created(made())).unwrap();
    world.others.clear();
    assert_eq!(world.stage(), Stage::Failed);
    assert_eq!(world.spec().external_id, None);
    let (_, error) = world.failure().unwrap();
    assert!(error.contains("volume other"), "{error}");
    assert!(deletes_spec(&world.delete().unwrap()), "the other volume's storage stays");
}

/// CSI, `TopologyRequirement`: a plugin may choose more places than were requested. Wherever it
/// says that the volume is, it can be claimed.
#[test]
fn volume_is_accessible_where_the_plugin_says() {
    let asked = Provision { requisite: vec![site("a"), site("b")], ..provision("fleet-1") };
    let cases: [(&[&str], bool); 5] = [
        (&["a"], true),
        (&["a", "c"], true),
        (&["c", "b", "d"], true),
        (&["c"], false),
        (&["c", "d"], false),
    ];
    for (at, is_met) in cases {
        let mut world = World::creating_as(asked.clone());
        assert_eq!(world.spec().accessible_from(), asked.requisite, "it will be");
        world.drive().unwrap();
        let topologies: Vec<_> = at.iter().map(|at| site(at)).collect();
        let made = CreatedVolume { topologies: topologies.clone(), ..made() };
        world.settle(created(made)).unwrap();
        assert_eq!(world.spec().accessible_from(), topologies, "as returned");
        assert_eq!(world.faults().is_empty(), is_met, "{at:?}: {}", world.faults());
        assert!(is_met || world.faults().contains("where it was not requested"));
    }
}

#[test]
fn plugin_that_does_not_say_that_a_copy_is_one_is_reported() {
    let origin = Origin {
        volume: VolumeId::new("source").unwrap(),
        snapshot: None,
        external_id: text("vol-0"),
    };
    for is_copy in [true, false] {
        let origin = Some(origin.clone());
        let mut world = World::creating_as(Provision { origin, ..provision("fleet-1") });
        world.drive().unwrap();
        world.settle(created(CreatedVolume { is_copy, ..made() })).unwrap();
        assert_eq!(world.faults().is_empty(), is_copy, "{}", world.faults());
    }
}

/// An older version took all uses of a class for a request that named none.
#[test]
fn same_request_is_recognised_whatever_uses_of_its_class_were_taken() {
    let capability = |access| Capability { access, attachment: AttachmentMode::FileSystem };
    let both = [AccessMode::SingleNodeWriter, AccessMode::MultiNodeReaderOnly].map(capability);
    for (class, is_same) in [(Some(ClassId::new("fast").unwrap()), true), (None, false)] {
        let asked = Provision { class, ..provision("fleet-1") };
        let mut world = World::empty(EXCLUSIVE);
        world.offered.capabilities = both.to_vec().into();
        world.create(asked.clone()).unwrap();
        world.offered.capabilities = vec![both[0]].into();
        assert_eq!(world.create(asked.clone()).is_ok(), is_same);
        world.offered.capabilities = vec![both[1]].into();
        assert!(matches!(world.create(asked), Err(Refusal::Exists { .. })));
    }
}

/// CSI, `CreateVolumeRequest.volume_content_source`: a plugin may leave the growth of a copy to
/// `NodeExpandVolume`, or the whole of it.
#[test]
fn copy_that_is_larger_than_its_source_is_expanded_where_the_plugin_leaves_that() {
    let call = |by_controller, by_nodes, required_bytes, capacity_bytes| {
        let growth = CopyGrowth { from_bytes: 4, by_controller, by_nodes };
        let asked = Provision { required_bytes, growth: Some(growth), ..provision("fleet-1") };
        let mut world = World::creating_as(asked);
        world.drive().unwrap();
        world.settle(created(CreatedVolume { capacity_bytes, ..made() })).unwrap();
        world.spec().operation().map(Operation::call)
    };
    let (at_nodes, whole) = (Some(CallKind::NodeExpand), Some(CallKind::VolumeExpand));
    assert_eq!(call(false, true, 9, 9), at_nodes);
    assert_eq!(call(false, true, 9, 0), at_nodes, "it does not say the size");
    assert_eq!(call(true, true, 9, 12), at_nodes);
    assert_eq!(call(true, false, 9, 9), None, "the plugin expands no file system");
    assert_eq!(call(true, true, 4, 4), None, "it is as large as its source");
    assert_eq!(call(true, true, 9, 4), whole, "it left it as large as its source");
    assert_eq!(call(false, true, 9, 4), at_nodes, "only nodes can expand it");
    assert_eq!(call(false, false, 9, 4), None, "nobody can");
}

#[test]
fn size_of_a_new_volume_that_cannot_be_right_is_not_believed() {
    let cases = [(0, None, ""), (5, None, "9 were"), (u64::MAX, Some(9), "no volume has")];
    for (capacity_bytes, believed, fault) in cases {
        let mut world = World::creating_as(Provision { required_bytes: 9, ..provision("fleet-1") });
        world.drive().unwrap();
        world.settle(created(CreatedVolume { capacity_bytes, ..made() })).unwrap();
        assert_eq!(world.spec().capacity_bytes, believed, "{capacity_bytes}");
        assert!(world.faults().contains(fault), "{}", world.faults());
        assert_eq!(world.faults().is_empty(), fault.is_empty());
    }
}

#[test]
fn answer_that_is_not_of_a_creation_is_no_answer() {
    let mut world = World::creating();
    world.drive().unwrap();
    world.settle(done()).unwrap();
    assert_eq!(world.stage(), Stage::Creating);
    assert!(world.operation().progress.uncertain);
}

/// A caller's document says neither that its volume closes nor when it was made.
#[test]
fn created_volume_begins_as_new() {
    let mut world = World::empty(EXCLUSIVE);
    let closing = Some(Box::new(Closing { since: Timestamp::default(), reason: text("asked") }));
    world.offered = VolumeSpec { closing, create_index: 7, ..world.offered.clone() };
    let step = world.create(provision("fleet-1")).unwrap();
    let Some(Write::PutSpec(spec)) = step.write else { panic!("{:?}", step.write) };
    assert_eq!((spec.closing, spec.create_index), (None, 0));
}

/// The time that a volume's status names as its next try is the time of the next try.
#[test]
fn creation_is_tried_again_when_its_time_has_come_and_not_before() {
    let mut world = World::creating();
    world.drive().unwrap();
    world.settle(not_done()).unwrap();
    let next_try = world.operation().progress.calls.next_try.unwrap();
    let wait = next_try.since(world.context().now);
    world.pass(wait.saturating_sub(Duration::from_millis(1)));
    assert!(matches!(world.drive(), Err(Refusal::NotDue { .. })));
    world.pass(Duration::from_millis(1));
    assert_eq!(world.context().now, next_try);
    assert_eq!(call_of(&world.drive().unwrap()), Some(CallKind::VolumeCreate));
}
