//! Places in line (B11), and plugins without room (A7).

use std::time::Duration;

use berth_domain::access::AccessMode;
use berth_domain::limits::PLACE_KEPT;
use berth_domain::volume::{CallKind, Command, NoRoute, Outcome, Refusal, State, Take};

use crate::world::{World, alloc, begin, release, take};

const EXCLUSIVE: &[AccessMode] = &[AccessMode::SingleNodeWriter];
const SHARED: &[AccessMode] = &[AccessMode::MultiNodeMultiWriter];

fn waits(name: &str, node: &str) -> Command {
    Command::Take(Take { wait: true, ..take(name, node) })
}

fn full() -> Outcome {
    Outcome::Exhausted("controller.publish: RESOURCE_EXHAUSTED: 16 volumes".into())
}

/// Held by one, with another in line.
fn in_line() -> World {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.done("a").unwrap();
    world.apply(&waits("b", "n2")).unwrap();
    world
}

/// Whoever was killed in line is not waited for.
#[test]
fn b11_a_place_is_lost_when_nobody_asks_again() {
    let mut world = in_line();
    world.pass(PLACE_KEPT);
    let Err(Refusal::NotDue { next_try, .. }) = world.apply(&begin("b", true)) else {
        panic!("{:?}", world.volume)
    };
    assert_eq!(next_try, world.claim("b").place_until, "when to look again is said");
    world.pass(Duration::from_millis(1));
    world.apply(&waits("c", "n2")).unwrap();
    world.apply(&begin("b", true)).unwrap();
    assert!(!world.volume.claims.contains_key(&alloc("b")));
    world.apply(&begin("a", false)).unwrap();
    world.done("a").unwrap();
    world.done("a").unwrap();
    assert!(world.apply(&waits("c", "n2")).unwrap().call.is_some());
}

/// A place is kept while its alloc retries, with the same ticket. It is written at most once in
/// half of the time that it is kept for.
#[test]
fn b11_a_place_is_kept_by_asking_again() {
    let mut world = in_line();
    let (ticket, mut written) = (world.claim("b").epoch, world.revision);
    let mut asked = Duration::ZERO;
    for _ in 0..100 {
        world.pass(PLACE_KEPT / 10);
        asked += PLACE_KEPT / 10;
        world.apply(&waits("b", "n2")).unwrap();
        assert!(matches!(world.apply(&begin("b", true)), Err(Refusal::NotDue { .. })));
        if world.revision > written {
            assert!(asked >= PLACE_KEPT / 2, "written again after {asked:?}");
            (asked, written) = (Duration::ZERO, world.revision);
        }
        assert!(asked < PLACE_KEPT / 2, "not written for {asked:?}");
    }
    assert_eq!((world.claim("b").epoch, world.claim("b").state), (ticket, State::Waiting));
}

/// Many places are renewed together, each as its own caller's request would do it.
#[test]
fn b11_a_renewal_is_what_a_repeated_request_would_write() {
    let mut world = in_line();
    let renewal = |world: &World, name| world.volume.renew_place(&alloc(name), &world.context());
    assert_eq!(renewal(&world, "b"), None, "most of its time is left");
    world.pass(PLACE_KEPT / 2);
    let renewed = renewal(&world, "b").unwrap();
    assert!(world.volume.is_early_renewal(&renewed, &world.context()));
    assert_eq!([renewal(&world, "a"), renewal(&world, "c")], [None, None], "they are not in line");
    let mut late = in_line();
    late.pass(PLACE_KEPT * 3 / 4);
    let renewed_late = renewal(&late, "b").unwrap();
    let context = late.context();
    assert!(!late.volume.is_early_renewal(&renewed_late, &context), "nobody else has renewed it");
    let before = world.volume.clone();
    assert_eq!(world.apply(&waits("b", "n2")).unwrap().write, Some(renewed));
    let joins = world.apply(&waits("c", "n2")).unwrap().write.unwrap();
    assert!(!before.is_early_renewal(&joins, &world.context()), "it gets in line");
    world.apply(&begin("a", false)).unwrap();
    world.done("a").unwrap();
    world.done("a").unwrap();
    let before = world.volume.clone();
    let granted = world.apply(&waits("b", "n2")).unwrap().write.unwrap();
    assert!(!before.is_early_renewal(&granted, &world.context()), "it has its turn");
}

/// A place goes with its alloc, and by hand; and what is granted is no place any more.
#[test]
fn b11_a_place_goes_with_its_alloc() {
    let mut world = in_line();
    world.apply(&begin("b", false)).unwrap();
    assert!(!world.volume.claims.contains_key(&alloc("b")));
    world.apply(&waits("b", "n2")).unwrap();
    world.apply(&release("b")).unwrap();
    assert!(!world.volume.claims.contains_key(&alloc("b")));
    world.apply(&waits("b", "n2")).unwrap();
    for _ in 0..2 {
        world.apply(&begin("a", false)).ok();
        world.done("a").unwrap();
    }
    world.apply(&waits("b", "n2")).unwrap();
    assert_eq!((world.claim("b").state, world.claim("b").place_until), (State::Publishing, None));
}

/// A7: said once, it is remembered, shown to others, and in their way, until a call succeeds.
#[test]
fn a7_no_room_is_remembered_and_in_the_way_of_others() {
    let mut world = World::with(SHARED);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.answer("a", full()).unwrap();
    assert!(world.claim("a").exhausted);
    let refused = world.apply(&Command::Take(take("b", "n2"))).unwrap_err();
    let Refusal::Exhausted { holder, failure, next_try } = &refused else { panic!("{refused}") };
    assert_eq!((holder.alloc.as_str(), *next_try), ("a", world.claim("a").progress.next_try));
    assert!(failure.as_ref().unwrap().message.contains("16 volumes"));
    // In line one may get all the same.
    world.apply(&waits("c", "n2")).unwrap();
    assert_eq!(world.claim("c").state, State::Waiting);
    // During a retry, and without an answer, it is unchanged.
    world.pass_all_deadlines();
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    assert!(world.claim("a").exhausted);
    world.answer("a", Outcome::Unanswered("silence".into())).unwrap();
    world.pass_all_deadlines();
    assert!(matches!(world.apply(&Command::Take(take("b", "n2"))), Err(Refusal::Exhausted { .. })));
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.done("a").unwrap();
    assert!(!world.claim("a").exhausted);
    assert!(world.apply(&waits("c", "n2")).unwrap().call.is_some());
}

/// A7: another error is another thing, and so is a claim that gave up.
#[test]
fn a7_room_is_assumed_again_after_another_error_or_when_the_claim_gives_up() {
    let mut world = World::with(SHARED);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.answer("a", full()).unwrap();
    world.pass_all_deadlines();
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.answer("a", Outcome::Failed("no".into())).unwrap();
    assert!(!world.claim("a").exhausted);
    world.pass_all_deadlines();
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.answer("a", full()).unwrap();
    world.apply(&begin("a", false)).unwrap();
    assert_eq!((world.claim("a").state, world.claim("a").exhausted), (State::NodeDetached, false));
    world.done("a").unwrap();
    assert!(world.apply(&Command::Take(take("b", "n2"))).unwrap().call.is_some());
}

/// A7: beside a claim that has the volume on its node, nothing is asked of the plugin.
#[test]
fn a7_who_asks_nothing_of_the_plugin_needs_no_room() {
    let mut world = World::with(SHARED);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.done("a").unwrap();
    world.apply(&Command::Take(take("b", "n2"))).unwrap();
    world.answer("b", full()).unwrap();
    assert!(world.apply(&Command::Take(take("c", "n1"))).unwrap().call.is_none());
    assert_eq!(world.claim("c").state, State::Taken);
}

/// Out of room is said of publishing; elsewhere it is an error like any other.
#[test]
fn a7_a_release_that_finds_no_room_is_retried() {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.done("a").unwrap();
    world.apply(&begin("a", false)).unwrap();
    for call in [CallKind::NodeDetach, CallKind::ControllerUnpublish] {
        world.answer("a", full()).unwrap();
        assert!(world.claim("a").progress.failure.is_some() && !world.claim("a").exhausted);
        world.pass_all_deadlines();
        assert_eq!(world.apply(&begin("a", false)).unwrap().call.unwrap().call, call);
        world.done("a").unwrap();
    }
    assert!(world.volume.claims.is_empty());
}

/// A temporary obstacle does not cost an alloc the place whose turn has come.
#[test]
fn b11_a_place_is_kept_while_the_plugin_or_its_storage_is_away() {
    let unhealthy = NoRoute::Plugin("it is unhealthy".to_owned());
    let unreachable = NoRoute::Storage("no path to the storage".to_owned());
    for away in [unhealthy, unreachable] {
        let mut world = in_line();
        world.apply(&begin("a", false)).unwrap();
        world.done("a").unwrap();
        world.done("a").unwrap();
        let asks = Take { wait: true, route: Err(away.clone()), ..take("b", "n2") };
        let asks = Command::Take(asks);
        let (ticket, until) = (world.claim("b").epoch, world.claim("b").place_until);
        world.pass(PLACE_KEPT * 3 / 4);
        world.apply(&asks).unwrap();
        assert!(world.claim("b").place_until > until, "{away:?}");
        assert_eq!(world.claim("b").state, State::Waiting);
        assert_eq!(world.apply(&asks), Err(Refusal::from(away)));
        // An alloc that comes later is behind it also where its own node has a way.
        world.apply(&waits("c", "n3")).unwrap();
        assert_eq!(world.claim("c").state, State::Waiting);
        assert!(world.apply(&waits("b", "n2")).unwrap().call.is_some());
        assert_eq!((world.claim("b").state, world.claim("b").epoch), (State::Publishing, ticket));
    }
}
