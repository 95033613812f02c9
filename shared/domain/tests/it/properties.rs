//! Whatever is asked in whatever order: what must hold, holds.

use std::time::Duration;

use berth_domain::access::{AccessMode, Mode};
use berth_domain::volume::{
    Claim, Command, Outcome, Refusal, Route, State, Take, Volume, Write, step,
};
use berth_domain::{AttemptId, NodeId};
use proptest::prelude::*;

use crate::world::{World, alloc, begin, release, take, worker};

/// Something that happens.
#[derive(Debug, Clone)]
enum Happening {
    Command(Box<Command>),
    /// The answer to the call that is under way, if one is.
    Answer(&'static str, Outcome),
    Pass(Duration),
}

const ALLOCS: [&str; 4] = ["a", "b", "c", "d"];

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => Just(Outcome::Done { publish_context: [("k".to_owned(), "v".to_owned())].into() }),
        1 => Just(Outcome::Refused("no".to_owned())),
        1 => Just(Outcome::Failed("broken".to_owned())),
        1 => Just(Outcome::Unanswered("silence".to_owned())),
    ]
}

fn a_take() -> impl Strategy<Value = Command> {
    let name = prop::sample::select(&ALLOCS[..]);
    (name, 1..3_u8, any::<bool>(), any::<bool>(), 0..8_u8).prop_map(
        |(name, node, read, wait, controller)| {
            let mode = if read { Mode::Read } else { Mode::Write };
            let route = match controller {
                0 => Err("it is unhealthy".to_owned()),
                1 => Ok(Route::default()),
                _ => take(name, "n1").route,
            };
            Command::Take(Take { mode, wait, route, ..take(name, &format!("n{node}")) })
        },
    )
}

fn happening() -> impl Strategy<Value = Happening> {
    let name = || prop::sample::select(&ALLOCS[..]);
    prop_oneof![
        4 => a_take().prop_map(|take| Happening::Command(Box::new(take))),
        1 => name().prop_map(|name| Happening::Command(Box::new(release(name)))),
        4 => (name(), any::<bool>())
            .prop_map(|(name, wanted)| Happening::Command(Box::new(begin(name, wanted)))),
        5 => (name(), outcome()).prop_map(|(name, outcome)| Happening::Answer(name, outcome)),
        1 => name().prop_map(|name| {
            Happening::Command(Box::new(Command::Answer {
                alloc: alloc(name),
                attempt: AttemptId::new("of another life").unwrap(),
                outcome: Outcome::Done { publish_context: [].into() },
                worker: Some(worker()),
            }))
        }),
        2 => prop::sample::select(vec![1, 1_000, 70_000, 200_000])
            .prop_map(|ms| Happening::Pass(Duration::from_millis(ms))),
    ]
}

fn command(world: &World, happening: Happening) -> Option<Command> {
    match happening {
        Happening::Command(command) => Some(*command),
        Happening::Answer(name, outcome) => {
            let attempt = world.volume.claims.get(&alloc(name))?.attempt.clone()?;
            let worker = Some(worker());
            Some(Command::Answer { alloc: alloc(name), attempt: attempt.id, outcome, worker })
        }
        Happening::Pass(_) => None,
    }
}

/// Rule 3, as it can be seen on a record: with a controller call that may act there is no other call
/// that may, and on one node there are never two.
fn calls_exclude_each_other(world: &World) {
    let context = world.context();
    let live: Vec<&Claim> = world
        .volume
        .claims
        .values()
        .filter(|claim| {
            let attempt = claim.attempt.as_ref();
            attempt.is_some_and(|one| one.may_still_act(context.now, context.policy.clock_margin))
        })
        .collect();
    let controllers =
        live.iter().filter(|claim| claim.attempt.as_ref().unwrap().call.is_controller()).count();
    assert!(controllers == 0 || live.len() == 1, "{live:#?}");
    let mut nodes: Vec<&NodeId> = live.iter().map(|claim| &claim.node).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), live.len(), "two calls on one node: {live:#?}");
}

/// What one step may do to the claims that there are.
fn a_step_keeps_faith(before: &Volume, command: &Command, after: &Volume) {
    for (id, was) in &before.claims {
        let Some(is) = after.claims.get(id) else {
            // Freed: one in line, one whose call succeeded, or one nothing is mounted by and whose
            // attachment another will undo (rule 9) or never was.
            let proven = matches!(command, Command::Answer { outcome: Outcome::Done { .. }, .. })
                || was.state == State::Waiting
                || matches!(was.state, State::NodeDetached | State::Publishing);
            let timed_out =
                matches!(command, Command::Answer { outcome: Outcome::Unanswered(_), .. });
            assert!(proven && !timed_out, "{was:?} was freed by {command:?}");
            continue;
        };
        if was.state == State::Waiting {
            assert_eq!(is.epoch, was.epoch, "a ticket is kept");
            continue;
        }
        let kept = |claim: &Claim| {
            let Claim { node, mode, epoch, access, attachment, controller, .. } = claim.clone();
            (node, mode, epoch, access, attachment, controller, claim.external_node.clone())
        };
        assert_eq!(kept(is), kept(was), "by {command:?}");
        let order = |state| match state {
            State::Waiting => 0,
            State::Publishing => 1,
            State::Taken => 2,
            State::Unpublishing => 3,
            State::NodeDetached => 4,
        };
        assert!(order(is.state) >= order(was.state), "a claim never goes back: {was:?} {is:?}");
    }
}

fn access() -> impl Strategy<Value = AccessMode> {
    prop::sample::select(AccessMode::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Invariants hold in every state that can be reached, and doing a thing twice is harmless.
    #[test]
    fn whatever_happens(
        access in access(),
        happenings in prop::collection::vec(happening(), 1..60),
    ) {
        let mut world = World::with(&[access]);
        for happening in happenings {
            if let Happening::Pass(time) = happening {
                world.pass(time);
                continue;
            }
            let Some(command) = command(&world, happening) else { continue };
            let before = world.volume.clone();
            let first = world.apply(&command);
            calls_exclude_each_other(&world);
            a_step_keeps_faith(&before, &command, &world.volume);
            if first.is_ok() {
                let stored = world.volume.clone();
                let again = world.apply(&command);
                let call = again.ok().and_then(|again| again.call);
                prop_assert!(call.is_none(), "{command:?} twice made a second call: {call:?}");
                if !matches!(command, Command::Take(_) | Command::Begin { .. }) {
                    prop_assert_eq!(&world.volume, &stored);
                }
            }
        }
    }

    /// From every state that can be reached, when the allocs have ended and every call succeeds, the
    /// volume comes to rest with nobody on it.
    #[test]
    fn everything_comes_to_rest(
        access in access(),
        happenings in prop::collection::vec(happening(), 1..60),
    ) {
        let mut world = World::with(&[access]);
        for happening in happenings {
            if let Happening::Pass(time) = happening {
                world.pass(time);
            } else if let Some(command) = command(&world, happening) {
                let _ = world.apply(&command);
            }
        }
        for _ in 0..20 {
            world.pass_all_deadlines();
            for name in ALLOCS {
                let mut begun = world.apply(&begin(name, false));
                while begun.as_ref().is_ok_and(|begun| begun.call.is_some()) {
                    begun = world.done(name);
                }
            }
        }
        prop_assert!(world.volume.claims.is_empty(), "{:#?}", world.volume);
    }

    /// Total: also a record that no service of ours would write gives an answer.
    #[test]
    fn any_record_gives_an_answer(
        access in access(),
        claims in prop::collection::vec((any_claim(), 0..4_usize), 0..4),
        command in prop_oneof![
            a_take(),
            (0..4_usize, any::<bool>()).prop_map(|(at, wanted)| begin(ALLOCS[at], wanted)),
            (0..4_usize).prop_map(|at| release(ALLOCS[at])),
            (0..4_usize, outcome()).prop_map(|(at, outcome)| Command::Answer {
                alloc: alloc(ALLOCS[at]),
                attempt: AttemptId::new("current").unwrap(),
                outcome,
                worker: None,
            }),
        ],
    ) {
        let mut world = World::with(&[access]);
        for (claim, at) in claims {
            world.volume.claims.insert(alloc(ALLOCS[at]), claim);
        }
        let decided = step(&world.volume, &command, &world.context());
        // At most one call, and only one that the write names.
        if let Ok(decided) = decided
            && let Some(call) = decided.call
        {
            let Some(Write::PutClaim(_, claim)) = decided.write else { panic!("{command:?}") };
            prop_assert_eq!(claim.attempt, Some(call));
        }
    }
}

fn any_claim() -> impl Strategy<Value = Claim> {
    use berth_domain::volume::{Attempt, CallKind};
    let states = vec![
        State::Waiting,
        State::Publishing,
        State::Taken,
        State::Unpublishing,
        State::NodeDetached,
    ];
    let calls =
        vec![CallKind::ControllerPublish, CallKind::NodeDetach, CallKind::ControllerUnpublish];
    (
        prop::sample::select(states),
        prop::option::of(prop::sample::select(calls)),
        access(),
        any::<bool>(),
        1..3_u8,
    )
        .prop_map(|(state, call, access, controller, node)| {
            let mut world = World::with(&[AccessMode::MultiNodeMultiWriter]);
            world.apply(&Command::Take(take("a", &format!("n{node}")))).unwrap();
            let deadline = world.context().now;
            let attempt = call.map(|call| Attempt {
                id: AttemptId::new("current").unwrap(),
                call,
                worker: worker(),
                deadline,
            });
            Claim { state, attempt, access, controller, ..world.claim("a").clone() }
        })
}

/// A claim of the same alloc, made again, is another claim.
#[test]
fn each_life_of_a_claim_has_a_higher_epoch() {
    let mut world = World::with(&[AccessMode::SingleNodeWriter]);
    let mut last = 0;
    for _ in 0..5 {
        world.apply(&Command::Take(take("a", "n1"))).unwrap();
        world.done("a").unwrap();
        let epoch = world.claim("a").epoch;
        assert!(epoch > last);
        last = epoch;
        world.apply(&begin("a", false)).unwrap();
        world.done("a").unwrap();
        world.done("a").unwrap();
        let refused = world.apply(&release("a")).unwrap_err();
        assert!(matches!(refused, Refusal::NoSuchClaim(_)));
    }
}
