//! An alloc claims again in another mode: rule 25 of `docs/claims.md`.

use berth_domain::access::{AccessMode, Mode};
use berth_domain::volume::{CallKind, Command, Outcome, Refusal, State, Step, Take, Write};

use crate::rules::{EXCLUSIVE, taken};
use crate::world::{World, alloc, begin, release, take};

/// The alloc asks in this mode. `unmounted` is the claim of which its node has nothing.
fn change(name: &str, node: &str, mode: Mode, unmounted: Option<u64>) -> Command {
    Command::Change { take: Take { mode, ..take(name, node) }, unmounted }
}

fn read(name: &str, node: &str) -> Command {
    Command::Take(Take { mode: Mode::Read, ..take(name, node) })
}

/// Rule 25: what is granted changes only where nothing of it is mounted, by a release and a new
/// claim, which the controller publishes again.
#[test]
fn rule_25_a_granted_claim_changes_its_mode_by_a_release_where_it_is_not_mounted() {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&read("a", "n1")).unwrap();
    world.done("a").unwrap();
    let refused = world.apply(&Command::Take(take("a", "n1"))).unwrap_err();
    assert!(matches!(refused, Refusal::ClaimDiffers { mode: Mode::Read, .. }), "{refused}");
    let refused = world.apply(&change("a", "n1", Mode::Write, None)).unwrap_err();
    assert!(matches!(refused, Refusal::ClaimDiffers { .. }), "{refused}");
    let own = Some(world.claim("a").epoch);
    let another = Some(world.claim("a").epoch + 1);
    for (node, unmounted) in [("n2", own), ("n1", another)] {
        let refused = world.apply(&change("a", node, Mode::Write, unmounted)).unwrap_err();
        assert!(matches!(refused, Refusal::ClaimDiffers { .. }), "{refused}");
    }
    let same = world.apply(&change("a", "n1", Mode::Read, own)).unwrap();
    assert_eq!(same, Step::nothing(), "nothing differs");

    world.apply(&change("a", "n1", Mode::Write, own)).unwrap();
    let claim = world.claim("a");
    assert_eq!((claim.state, claim.mode), (State::Unpublishing, Mode::Read), "it keeps its mode");
    let refused = world.apply(&Command::Take(take("a", "n1"))).unwrap_err();
    assert!(matches!(refused, Refusal::Releasing { .. }), "{refused}");
    world.apply(&begin("a", true)).unwrap();
    world.done("a").unwrap();
    world.done("a").unwrap();
    let step = world.apply(&Command::Take(take("a", "n1"))).unwrap();
    assert_eq!(step.call.map(|attempt| attempt.call), Some(CallKind::ControllerPublish));
    assert_eq!(world.claim("a").mode, Mode::Write);
}

/// Rule 25: never a second writer, and the claim that the alloc has is not lost by asking.
#[test]
fn rule_25_a_claim_is_not_given_up_for_one_that_would_be_refused() {
    const ONE_WRITER: &[AccessMode] = &[AccessMode::MultiNodeSingleWriter];
    let mut world = taken(ONE_WRITER, &[("writer", "n1")]);
    world.apply(&read("a", "n2")).unwrap();
    world.done("a").unwrap();
    for wait in [false, true] {
        let take = Take { wait, ..take("a", "n2") };
        let unmounted = Some(world.claim("a").epoch);
        let refused = world.apply(&Command::Change { take, unmounted }).unwrap_err();
        assert!(matches!(refused, Refusal::Held { .. }), "{refused}");
    }
    assert_eq!(world.claim("a").state, State::Taken);
    // A writer in line comes first.
    world.apply(&release("writer")).unwrap();
    world.apply(&Command::Take(Take { wait: true, ..take("next", "n3") })).unwrap();
    world.apply(&begin("writer", false)).unwrap();
    world.done("writer").unwrap();
    world.done("writer").unwrap();
    let own = Some(world.claim("a").epoch);
    let refused = world.apply(&change("a", "n2", Mode::Write, own)).unwrap_err();
    assert!(matches!(refused, Refusal::Held { .. }), "{refused}");
}

/// Rule 25: what was not granted changes without the node. A publish that may have been made is
/// undone first, and a place in line is lost.
#[test]
fn rule_25_a_claim_that_was_not_granted_changes_after_its_call_and_without_its_node() {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    let refused = world.apply(&change("a", "n1", Mode::Read, None)).unwrap_err();
    assert!(matches!(refused, Refusal::Busy { .. }), "its caller may wait for it: {refused}");
    world.answer("a", Outcome::Failed("no".into())).unwrap();
    world.apply(&change("a", "n1", Mode::Read, None)).unwrap();
    assert_eq!(world.claim("a").state, State::NodeDetached);
    let refused = world.apply(&read("a", "n1")).unwrap_err();
    assert!(matches!(refused, Refusal::Releasing { .. }), "{refused}");

    let mut world = taken(EXCLUSIVE, &[("holder", "n1")]);
    for name in ["a", "b"] {
        world.apply(&Command::Take(Take { wait: true, ..take(name, "n2") })).unwrap();
    }
    let refused = world.apply(&change("a", "n2", Mode::Read, None)).unwrap_err();
    assert!(
        matches!(refused, Refusal::Held { .. }),
        "who does not wait keeps the place: {refused}"
    );
    let read = Take { wait: true, mode: Mode::Read, ..take("a", "n2") };
    let step = world.apply(&Command::Change { take: read, unmounted: None }).unwrap();
    assert_eq!(step.write, Some(Write::DeleteClaim(alloc("a"))));
}

/// Rules 15 and 25: what the alloc has is not given up for a claim that a closing volume refuses,
/// and the volume goes with it. An alloc that gave its claim up before gets none after.
#[test]
fn rule_25_a_closing_volume_refuses_the_other_mode_and_goes_with_its_last_claim() {
    let deregister = |force| Command::Deregister { force, reason: "gone".to_owned() };
    for is_given_up in [false, true] {
        let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
        let granted = world.claim("a").clone();
        let unmounted = Some(granted.epoch);
        if is_given_up {
            world.apply(&change("a", "n1", Mode::Read, unmounted)).unwrap();
        }
        world.apply(&deregister(true)).unwrap();
        if is_given_up {
            let refused = world.apply(&read("a", "n1")).unwrap_err();
            assert!(matches!(refused, Refusal::Releasing { .. }), "{refused}");
        } else {
            for wait in [false, true] {
                let take = Take { mode: Mode::Read, wait, ..take("a", "n1") };
                let refused = world.apply(&Command::Change { take, unmounted }).unwrap_err();
                assert!(matches!(refused, Refusal::Closing { .. }), "{refused}");
            }
            assert_eq!(world.claim("a"), &granted);
            let again = world.apply(&Command::Take(take("a", "n1"))).unwrap();
            assert_eq!(again, Step::nothing(), "it is granted its own claim again");
        }
        world.apply(&begin("a", false)).unwrap();
        world.done("a").unwrap();
        world.done("a").unwrap();
        let refused = world.apply(&read("a", "n1")).unwrap_err();
        assert!(matches!(refused, Refusal::Closing { .. }), "{refused}");
        let step = world.apply(&deregister(false)).unwrap();
        assert_eq!(step.write, Some(Write::DeleteSpec));
    }
}
