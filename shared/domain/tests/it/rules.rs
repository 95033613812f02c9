//! The rules of `docs/claims.md` that are the step's to keep, one test each.

use std::time::Duration;

use berth_domain::Timestamp;
use berth_domain::access::{AccessMode, Mode};
use berth_domain::volume::{
    CallKind, CallOwner, Closing, Command, Outcome, Refusal, Route, State, Step, Take, Volume,
    VolumeSpec, Write,
};

use crate::fixture::decide;
use crate::world::{World, alloc, begin, release, spec, take, worker};

pub const EXCLUSIVE: &[AccessMode] = &[AccessMode::SingleNodeWriter];
const ON_ONE_NODE: &[AccessMode] = &[AccessMode::SingleNodeMultiWriter];
const SHARED: &[AccessMode] = &[AccessMode::MultiNodeMultiWriter];

fn failed() -> Outcome {
    Outcome::Failed("no".into())
}

fn unanswered() -> Outcome {
    Outcome::Unanswered("nothing".into())
}

pub fn taken(access: &[AccessMode], claims: &[(&str, &str)]) -> World {
    let mut world = World::with(access);
    for (name, node) in claims {
        let decided = world.apply(&Command::Take(take(name, node))).unwrap();
        if decided.call.is_some() {
            world.done(name).unwrap();
        }
        assert_eq!(world.claim(name).state, State::Taken);
    }
    world
}

#[test]
fn a_claim_with_a_controller_takes_two_writes_and_a_release_three() {
    let mut world = World::with(EXCLUSIVE);
    let call = world.apply(&Command::Take(take("a", "n1"))).unwrap().call.unwrap();
    assert_eq!((call.call, world.revision), (CallKind::ControllerPublish, 2));
    world.done("a").unwrap();
    assert_eq!((world.claim("a").state, world.revision), (State::Taken, 3));
    let call = world.apply(&begin("a", false)).unwrap().call.unwrap();
    assert_eq!((call.call, world.claim("a").state), (CallKind::NodeDetach, State::Unpublishing));
    let call = world.done("a").unwrap().call.unwrap();
    assert_eq!(call.call, CallKind::ControllerUnpublish);
    world.done("a").unwrap();
    assert!(world.volume.claims.is_empty());
    assert_eq!(world.revision, 6);
}

#[test]
fn a_claim_without_a_controller_takes_one_write_and_a_release_two() {
    let mut world = World::with(EXCLUSIVE);
    let without = Take { route: Ok(Route::default()), ..take("a", "n1") };
    assert!(world.apply(&Command::Take(without)).unwrap().call.is_none());
    assert_eq!((world.claim("a").state, world.revision), (State::Taken, 2));
    world.apply(&begin("a", false)).unwrap();
    world.done("a").unwrap();
    assert!(world.volume.claims.is_empty());
    assert_eq!(world.revision, 4);
}

/// Rule 3: no controller call while any call of the volume may act; no node call while a
/// controller's may, or one of that node.
#[test]
fn rule_3_a_new_attempt_waits_until_no_other_may_act() {
    let mut world = taken(SHARED, &[("a", "n1"), ("b", "n2")]);
    world.apply(&begin("a", false)).unwrap();
    let refused = world.apply(&Command::Take(take("c", "n3"))).unwrap_err();
    assert!(matches!(refused, Refusal::Busy { .. }), "{refused}");
    // Another node may be asked meanwhile.
    assert!(world.apply(&begin("b", false)).unwrap().call.is_some());
    world.done("a").unwrap();
    assert_eq!(world.claim("a").state, State::NodeDetached);
    assert!(world.claim("a").progress.attempt.is_none(), "b's call may still act");
    world.done("b").unwrap();
    assert_eq!(
        world.claim("b").progress.attempt.as_ref().unwrap().call,
        CallKind::ControllerUnpublish
    );
    let Err(Refusal::NotDue { next_try, .. }) = world.apply(&begin("a", false)) else {
        panic!("b's call may still act")
    };
    let deadline = world.claim("b").progress.attempt.as_ref().unwrap().deadline;
    assert_eq!(next_try, Some(deadline.after(world.context().policy.clock_margin)));
}

/// Rule 5, Safety 7: an answer counts for the attempt on the record only, however late.
#[test]
fn rule_5_an_answer_of_another_attempt_changes_nothing() {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    let old = world.claim("a").progress.attempt.clone().unwrap().id;
    world.pass_all_deadlines();
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    let before = world.volume.clone();
    for outcome in [Outcome::Done { publish_context: [].into() }, failed(), unanswered()] {
        let answer = Command::Answer {
            owner: CallOwner::Claim(alloc("a")),
            attempt: old.clone(),
            outcome,
            worker: Some(worker()),
        };
        assert_eq!(world.apply(&answer), Err(Refusal::StaleAttempt));
    }
    assert_eq!(world.volume, before);
    // Late, and of the attempt that is on the record: that is fine.
    world.pass_all_deadlines();
    world.done("a").unwrap();
    assert_eq!(world.claim("a").state, State::Taken);
}

/// Rule 6, Safety 3: a timeout frees nothing, in no state, however often it comes.
#[test]
fn rule_6_a_timeout_is_not_an_answer() {
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    world.apply(&begin("a", false)).unwrap();
    for tries in 1..=50 {
        world.answer("a", unanswered()).unwrap();
        let claim = world.claim("a");
        assert_eq!((claim.state, claim.progress.tries), (State::Unpublishing, tries));
        assert!(claim.progress.attempt.is_some(), "it may still act");
        assert!(
            claim.progress.failure.is_some() && claim.progress.next_try.is_some(),
            "what is wrong is on it"
        );
        world.pass_all_deadlines();
        world.apply(&begin("a", false)).unwrap();
    }
}

/// Rule 6: tries and errors are those of the state that a claim is in, and so is since when.
#[test]
fn rule_6_a_new_state_begins_with_a_first_try() {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    for state in [State::Publishing, State::Unpublishing, State::NodeDetached] {
        let now = world.context().now;
        let claim = world.claim("a");
        assert_eq!((claim.state, claim.since), (state, now));
        assert_eq!((claim.progress.tries, &claim.progress.failure), (0, &None));
        world.answer("a", failed()).unwrap();
        assert_eq!((world.claim("a").progress.tries, world.claim("a").since), (1, now));
        world.pass_all_deadlines();
        match state {
            State::Publishing => world.apply(&Command::Take(take("a", "n1"))),
            _ => world.apply(&begin("a", false)),
        }
        .unwrap();
        world.done("a").unwrap();
        world.apply(&begin("a", false)).ok();
    }
    assert!(world.volume.claims.is_empty());
}

/// Rule 6: a publish that was refused is undone by an unpublish that succeeds, and by nothing else.
#[test]
fn rule_6_a_refused_publish_is_undone_by_an_unpublish() {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.answer("a", Outcome::Refused("no such volume".into())).unwrap();
    assert_eq!(world.claim("a").state, State::NodeDetached);
    assert_eq!(
        world.claim("a").progress.failure.as_ref().map(|it| it.message.as_str()),
        Some("no such volume"),
        "who looks is told why"
    );
    let call = world.apply(&begin("a", true)).unwrap().call.unwrap();
    assert_eq!(call.call, CallKind::ControllerUnpublish);
    world.answer("a", failed()).unwrap();
    assert_eq!(world.claim("a").state, State::NodeDetached);
    world.pass_all_deadlines();
    world.apply(&begin("a", true)).unwrap();
    world.done("a").unwrap();
    assert!(world.volume.claims.is_empty());
}

/// Rule 7, Safety 1 and Safety 2: a claim in any state but waiting keeps others away.
#[test]
fn rule_7_the_next_node_waits_until_the_last_is_free() {
    let mut world = World::with(EXCLUSIVE);
    let refused = |world: &mut World| {
        let refused = world.apply(&Command::Take(take("b", "n2"))).unwrap_err();
        assert!(matches!(refused, Refusal::Held { .. }), "{refused}");
    };
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    refused(&mut world);
    world.done("a").unwrap();
    refused(&mut world);
    world.apply(&begin("a", false)).unwrap();
    refused(&mut world);
    world.done("a").unwrap();
    assert_eq!(world.claim("a").state, State::NodeDetached);
    refused(&mut world);
    world.done("a").unwrap();
    assert!(world.apply(&Command::Take(take("b", "n2"))).is_ok());
}

#[test]
fn rule_8_a_second_claim_on_the_node_is_taken_at_once() {
    let mut world = World::with(ON_ONE_NODE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    let context = [("device".to_owned(), "x".to_owned())];
    world.answer("a", Outcome::Done { publish_context: context.clone().into() }).unwrap();
    assert!(world.apply(&Command::Take(take("b", "n1"))).unwrap().call.is_none());
    assert_eq!(world.claim("b").publish_context, context.into());
}

/// Rule 8: also beside one that is taken, a claim waits for the calls that may still act.
#[test]
fn rule_8_a_second_claim_waits_for_the_calls_that_may_act() {
    let mut world = taken(SHARED, &[("a", "n1"), ("b", "n2")]);
    let beside = Command::Take(take("c", "n1"));
    world.apply(&begin("b", false)).unwrap();
    for call in [CallKind::NodeDetach, CallKind::ControllerUnpublish] {
        assert_eq!(world.claim("b").progress.attempt.as_ref().unwrap().call, call);
        let refused = world.apply(&beside).unwrap_err();
        assert!(matches!(refused, Refusal::Busy { .. }), "{refused}");
        world.done("b").unwrap();
    }
    assert!(world.apply(&beside).unwrap().call.is_none());
    assert_eq!(world.claim("c").state, State::Taken);
}

/// Rule 9, Safety 3: the node is left by the last claim on it, and by one that is sure to.
#[test]
fn rule_9_who_leaves_a_shared_node_relies_on_a_fresh_unpublish_only() {
    let mut world = taken(ON_ONE_NODE, &[("a", "n1"), ("b", "n1")]);
    world.apply(&begin("a", false)).unwrap();
    assert!(world.done("a").unwrap().call.is_none(), "b has it: nothing is unpublished");
    assert!(!world.volume.claims.contains_key(&alloc("a")));
    world.apply(&begin("b", false)).unwrap();
    world.done("b").unwrap();
    assert_eq!(
        world.claim("b").progress.attempt.as_ref().unwrap().call,
        CallKind::ControllerUnpublish
    );
    // b's own unpublish is uncertain; c comes, is published again, and goes.
    world.answer("b", unanswered()).unwrap();
    world.pass_all_deadlines();
    world.apply(&Command::Take(take("c", "n1"))).unwrap();
    world.done("c").unwrap();
    world.apply(&begin("c", false)).unwrap();
    let call = world.done("c").unwrap().call;
    let kind = call.map(|call| call.call);
    assert_eq!(kind, Some(CallKind::ControllerUnpublish), "b is no one to rely on");
}

/// Rule 13: first come, first served. An alloc that is not in the queue is behind every conflicting
/// waiter.
#[test]
fn rule_13_waiting_claims_are_granted_in_their_turn() {
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    for name in ["b", "c"] {
        let waiting = Take { wait: true, ..take(name, "n2") };
        world.apply(&Command::Take(waiting)).unwrap();
        assert_eq!(world.claim(name).state, State::Waiting);
    }
    assert!(world.claim("b").epoch < world.claim("c").epoch);
    world.apply(&begin("a", false)).unwrap();
    world.done("a").unwrap();
    world.done("a").unwrap();
    // Neither the second in line nor a newcomer overtakes the first.
    world.apply(&Command::Take(take("c", "n2"))).unwrap();
    assert_eq!(world.claim("c").state, State::Waiting);
    let refused = world.apply(&Command::Take(take("d", "n1"))).unwrap_err();
    assert!(matches!(refused, Refusal::Held { .. }), "{refused}");
    let ticket = world.claim("b").epoch;
    world.apply(&Command::Take(take("b", "n2"))).unwrap();
    assert_eq!((world.claim("b").state, world.claim("b").epoch), (State::Publishing, ticket));
    // The first goes; one that waits is freed without a call, and the next is first.
    world.apply(&release("c")).unwrap();
    assert!(!world.volume.claims.contains_key(&alloc("c")));
}

/// Rule 13: waiters without a conflict, and waiters behind, do not hold an alloc up.
#[test]
fn rule_13_a_writer_passes_a_waiting_reader_it_is_not_in_the_way_of() {
    let mut world = taken(&[AccessMode::MultiNodeSingleWriter], &[("w1", "n1")]);
    let waits = |name, node, mode| Command::Take(Take { wait: true, mode, ..take(name, node) });
    let second = waits("w2", "n2", Mode::Write);
    let third = waits("w3", "n3", Mode::Write);
    for command in [&waits("r", "n1", Mode::Read), &second, &third] {
        assert!(world.apply(command).unwrap().call.is_none());
    }
    world.apply(&begin("w1", false)).unwrap();
    world.done("w1").unwrap();
    world.done("w1").unwrap();
    assert!(world.apply(&third).unwrap().call.is_none(), "the second writer is ahead");
    assert!(world.apply(&second).unwrap().call.is_some(), "the reader reads on another node");
}

#[test]
fn rule_13_a_reader_passes_a_waiting_writer_it_is_not_in_the_way_of() {
    let mut world = taken(&[AccessMode::MultiNodeSingleWriter], &[("w1", "n1")]);
    world.apply(&Command::Take(Take { wait: true, ..take("w2", "n2") })).unwrap();
    let reader = Take { mode: Mode::Read, ..take("r", "n3") };
    assert!(world.apply(&Command::Take(reader)).unwrap().call.is_some());
}

#[test]
fn rule_14_a_reservation_nobody_came_back_for_is_undone() {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.answer("a", failed()).unwrap();
    assert!(matches!(world.apply(&begin("a", true)), Err(Refusal::NotDue { .. })));
    world.pass_all_deadlines();
    let call = world.apply(&begin("a", true)).unwrap().call.unwrap();
    assert_eq!(call.call, CallKind::ControllerUnpublish);
}

/// Rule 14: a try is due at the very time that the record names, and not a millisecond before.
#[test]
fn rule_14_a_try_is_due_at_its_time() {
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    world.apply(&begin("a", false)).unwrap();
    world.answer("a", failed()).unwrap();
    let wait = world.claim("a").progress.next_try.unwrap().since(world.context().now);
    let millisecond = Duration::from_millis(1);
    world.pass(wait.checked_sub(millisecond).unwrap());
    assert!(matches!(world.apply(&begin("a", false)), Err(Refusal::NotDue { .. })));
    world.pass(millisecond);
    assert!(world.apply(&begin("a", false)).unwrap().call.is_some());
}

/// Rule 6: until the next try is due, the same call's timeout is said once; from then on it counts
/// again.
#[test]
fn rule_6_a_timeout_counts_once_until_the_next_try_is_due() {
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    world.apply(&begin("a", false)).unwrap();
    world.answer("a", unanswered()).unwrap();
    let wait = world.claim("a").progress.next_try.unwrap().since(world.context().now);
    assert_eq!(world.answer("a", unanswered()).unwrap().write, None);
    world.pass(wait);
    world.answer("a", unanswered()).unwrap();
    assert_eq!(world.claim("a").progress.tries, 2);
}

/// Rule 15: no claim, no volume; by force it closes and goes with its last claim. The claim of a
/// live alloc stays: it is its own, and is granted to it again, until the alloc has ended.
#[test]
fn rule_15_a_volume_goes_when_nobody_claims_it() {
    let deregister = |force| Command::Deregister { force, reason: "gone".to_owned() };
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    let refused = world.apply(&deregister(false)).unwrap_err();
    assert!(matches!(refused, Refusal::ClaimsLive { .. }), "{refused}");
    world.apply(&deregister(true)).unwrap();
    assert_eq!(world.apply(&deregister(true)).unwrap(), Step::nothing(), "it closes once");
    assert_eq!(world.apply(&Command::Take(take("a", "n1"))).unwrap(), Step::nothing());
    assert!(matches!(world.apply(&begin("a", true)), Err(Refusal::NotDue { .. })));
    let refused = world.apply(&Command::Take(take("b", "n1"))).unwrap_err();
    assert!(matches!(refused, Refusal::Closing { .. }), "{refused}");
    let refused = world.apply(&Command::Register(spec(SHARED))).unwrap_err();
    assert!(matches!(refused, Refusal::Closing { .. }), "{refused}");
    world.apply(&begin("a", false)).unwrap();
    world.done("a").unwrap();
    world.done("a").unwrap();
    world.apply(&deregister(false)).unwrap();
    assert!(world.volume.spec.is_none());
}

#[test]
fn an_update_of_a_claimed_volume_changes_only_what_is_safe() {
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    let mut update = spec(EXCLUSIVE);
    update.name = "another name".to_owned().into();
    world.apply(&Command::Register(update.clone())).unwrap();
    update.context.change(|all| all.insert("pool".to_owned(), "p2".to_owned()));
    let refused = world.apply(&Command::Register(update)).unwrap_err();
    let Refusal::UnsafeUpdate { fields, .. } = refused else { panic!("{refused}") };
    assert_eq!(fields, ["context"]);
}

/// Rule 15: an update keeps the registration, and a new registration begins another. Neither closes
/// the volume.
#[test]
fn rule_15_an_update_keeps_the_registration() {
    let registered = VolumeSpec { create_index: 7, ..spec(EXCLUSIVE) };
    let closing =
        Some(Box::new(Closing { since: Timestamp::default(), reason: "force".to_owned() }));
    let name = "another name".to_owned().into();
    let update = VolumeSpec { name, create_index: 9, closing, ..spec(EXCLUSIVE) };
    let written = |spec: Option<VolumeSpec>| {
        let volume = Volume { spec, ..Volume::default() };
        let step = decide(&volume, &Command::Register(update.clone())).unwrap();
        let Some(Write::PutSpec(spec)) = step.write else { panic!("{step:?}") };
        (spec.create_index, spec.closing)
    };
    assert_eq!(written(Some(registered)), (7, None));
    assert_eq!(written(None), (0, None), "its own revision, which the write cannot know");
}

/// A claim in release shows the reason of its release.
#[test]
fn a_release_says_why_until_the_claim_is_gone() {
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    world.apply(&release("a")).unwrap();
    world.apply(&begin("a", true)).unwrap();
    assert_eq!(world.claim("a").reason.as_deref(), Some("asked"));
    world.done("a").unwrap();
    assert_eq!(world.claim("a").reason.as_deref(), Some("asked"));
}

/// Rule 10: a claim of the same alloc, made again, is another claim, and has a higher epoch.
#[test]
fn rule_10_each_life_of_a_claim_has_a_higher_epoch() {
    let mut world = World::with(EXCLUSIVE);
    let mut last = 0;
    for _ in 0..5 {
        world.apply(&Command::Take(take("a", "n1"))).unwrap();
        world.done("a").unwrap();
        let epoch = world.claim("a").epoch;
        assert!(epoch > last);
        // Who means the last life does not end this one.
        let reason = "late".to_owned();
        let late = Command::Release { alloc: alloc("a"), epoch: Some(last), reason };
        assert!(matches!(world.apply(&late), Err(Refusal::NoSuchClaim(_))));
        last = epoch;
        world.apply(&begin("a", false)).unwrap();
        // A claim in release is not granted again, not even to its own alloc.
        let refused = world.apply(&Command::Take(take("a", "n1"))).unwrap_err();
        assert!(matches!(refused, Refusal::Releasing { .. }), "{refused}");
        world.done("a").unwrap();
        world.done("a").unwrap();
        assert!(matches!(world.apply(&release("a")), Err(Refusal::NoSuchClaim(_))));
    }
}

/// Rule 8, Safety 3: on one node all claims are attached alike, whatever the plugin says meanwhile;
/// else the unpublish that ends one would take the volume from under the other.
#[test]
fn rule_8_claims_on_one_node_are_attached_alike() {
    let without = || Take { route: Ok(Route::default()), ..take("b", "n1") };
    let mut world = taken(ON_ONE_NODE, &[("a", "n1")]);
    world.apply(&Command::Take(without())).unwrap();
    assert!(world.claim("b").controller);
    world.apply(&begin("a", false)).unwrap();
    assert!(world.done("a").unwrap().call.is_none(), "b has it");

    let mut world = World::with(ON_ONE_NODE);
    world.apply(&Command::Take(without())).unwrap();
    assert!(world.apply(&Command::Take(take("c", "n1"))).unwrap().call.is_none());
    assert!(!world.claim("c").controller);
}

/// Rule 5: a report that is delivered twice counts once.
#[test]
fn rule_5_a_timeout_is_noted_once() {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.answer("a", unanswered()).unwrap();
    let noted = world.volume.clone();
    world.answer("a", unanswered()).unwrap();
    assert_eq!(world.volume, noted);
}

/// Safety 4: before a controller call, the nodes whose last call did not succeed are asked. A call
/// whose caller died counts among them. Before the first call there is no node to ask.
#[test]
fn a_controller_call_that_did_not_succeed_leaves_its_node_unsettled() {
    let unsettled = |world: &World, calling: &str| -> Vec<String> {
        let calling = alloc(calling);
        world
            .volume
            .unsettled(&CallOwner::Claim(calling.clone()))
            .map(ToString::to_string)
            .collect()
    };
    let mut world = World::with(SHARED);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    assert!(unsettled(&world, "a").is_empty(), "its own first call");
    assert_eq!(unsettled(&world, "b"), ["n1"], "which nobody has answered");
    world.answer("a", unanswered()).unwrap();
    assert_eq!(unsettled(&world, "a"), ["n1"], "its own second call");
    world.pass_all_deadlines();
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.answer("a", Outcome::Unasked("busy".into())).unwrap();
    assert_eq!(unsettled(&world, "b"), ["n1"], "the first may be under way still");
    world.pass_all_deadlines();
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.done("a").unwrap();
    assert!(unsettled(&world, "b").is_empty(), "the plugin has answered");

    world.apply(&begin("a", false)).unwrap();
    world.answer("a", failed()).unwrap();
    assert!(unsettled(&world, "b").is_empty(), "a node's call is no controller's");
}

/// Safety 4: a claim that is given up stays known as one whose publish may be under way (found by
/// the model).
#[test]
fn a_publish_that_was_given_up_leaves_its_node_unsettled() {
    let unasked = || Outcome::Unasked("still busy".into());
    let settled =
        |world: &World| world.volume.unsettled(&CallOwner::Claim(alloc("b"))).next().is_none();
    let give_up = |world: &mut World| world.apply(&release("a")).unwrap();

    let mut noted = World::with(SHARED);
    noted.apply(&Command::Take(take("a", "n1"))).unwrap();
    noted.answer("a", unanswered()).unwrap();
    noted.pass_all_deadlines();
    noted.apply(&Command::Take(take("a", "n1"))).unwrap();
    noted.answer("a", unasked()).unwrap();
    assert_eq!(noted.claim("a").progress.tries, 2);
    give_up(&mut noted);
    assert_eq!(noted.claim("a").progress.tries, 1, "the waits between tries begin anew");
    assert!(!settled(&noted), "its first call was not answered");

    let mut never_noted = World::with(SHARED);
    never_noted.apply(&Command::Take(take("a", "n1"))).unwrap();
    never_noted.pass_all_deadlines();
    never_noted.apply(&Command::Take(take("a", "n1"))).unwrap();
    assert_eq!(never_noted.claim("a").progress.tries, 1, "a call that nobody answered was a try");
    give_up(&mut never_noted);
    assert!(!settled(&never_noted), "nobody has said what came of either");

    let mut beside = World::with(SHARED);
    beside.apply(&Command::Take(take("a", "n1"))).unwrap();
    give_up(&mut beside);
    beside.answer("a", unasked()).unwrap();
    assert_eq!(
        beside.claim("a").progress.tries,
        1,
        "something was under way there before its first"
    );
    assert!(!settled(&beside));
    beside.pass_all_deadlines();
    beside.apply(&begin("a", false)).unwrap();
    beside.done("a").unwrap();
    assert!(settled(&beside), "the plugin has answered");
}

/// Rules 6 and 14: a publish that failed is due again at the time that the record names, and not a
/// millisecond before.
#[test]
fn rule_6_a_publish_is_tried_again_at_its_time() {
    let mut world = World::with(EXCLUSIVE);
    let asks = Command::Take(take("a", "n1"));
    world.apply(&asks).unwrap();
    world.answer("a", failed()).unwrap();
    let wait = world.claim("a").progress.next_try.unwrap().since(world.context().now);
    let millisecond = Duration::from_millis(1);
    world.pass(wait.checked_sub(millisecond).unwrap());
    assert!(matches!(world.apply(&asks), Err(Refusal::Busy { .. })));
    world.pass(millisecond);
    assert!(world.apply(&asks).unwrap().call.is_some());
}

/// Rule 7: a refusal names the claims in the way, and no other that holds the volume.
#[test]
fn rule_7_a_refusal_names_the_claims_in_the_way() {
    let claims = |mode: Mode, names: &[(&'static str, &'static str)]| {
        let claims = names.iter().map(|(name, node)| (*name, *node, mode));
        claims.collect::<Vec<_>>()
    };
    let in_the_way = |access: AccessMode, held: &[(&str, &str, Mode)], mode, node| {
        let mut world = World::with(&[access]);
        for (name, node, mode) in held {
            let held = Take { mode: *mode, ..take(name, node) };
            if world.apply(&Command::Take(held)).unwrap().call.is_some() {
                world.done(name).unwrap();
            }
        }
        let asks = Take { mode, ..take("new", node) };
        let Err(Refusal::Held { holders, .. }) = world.apply(&Command::Take(asks)) else {
            panic!("{:?}", world.volume)
        };
        let named = holders.named.iter().map(|holder| holder.alloc.to_string());
        named.collect::<Vec<_>>().join(" ")
    };
    let one_writes = AccessMode::MultiNodeSingleWriter;
    let readers = claims(Mode::Read, &[("r1", "n1"), ("r2", "n2")]);
    let with_writer = [readers.clone(), claims(Mode::Write, &[("w3", "n3")])].concat();
    assert_eq!(in_the_way(one_writes, &with_writer, Mode::Write, "n4"), "w3", "one writer");
    assert_eq!(in_the_way(one_writes, &with_writer, Mode::Read, "n3"), "w3", "it writes there");
    assert_eq!(in_the_way(one_writes, &readers, Mode::Write, "n1"), "r1", "it reads there");
    let here = claims(Mode::Write, &[("w1", "n1"), ("w2", "n1")]);
    let one_node = AccessMode::SingleNodeMultiWriter;
    assert_eq!(in_the_way(one_node, &here, Mode::Write, "n2"), "w1 w2", "another node");
}
