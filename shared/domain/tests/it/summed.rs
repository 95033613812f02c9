//! What claims come to, against looking at each of them: after any claims came, changed and went,
//! also such as no history leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_domain::access::{AccessMode, Mode};
use berth_domain::volume::{
    CallKind, CallOwner, Claim, Claims, Command, Holders, Refusal, State, Take, Volume, invariant,
    step,
};
use berth_domain::{AllocId, NodeId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::anything::{claim, command, context, name, spec};
use crate::fixture::{self, asks, dead, decide, live, with};
use crate::world::{self, alloc, begin, take};

const SHARED: AccessMode = AccessMode::MultiNodeMultiWriter;

const STATES: [State; 5] =
    [State::Waiting, State::Publishing, State::Taken, State::Unpublishing, State::NodeDetached];

/// Claims that come, or take another's place, or go.
fn changes() -> impl Strategy<Value = Vec<(AllocId, Option<Claim>)>> {
    vec((name('a', 5), option::weighted(0.7, claim())), 0..12)
}

fn changed(changes: &[(AllocId, Option<Claim>)]) -> (Claims, BTreeMap<AllocId, Claim>) {
    let (mut claims, mut plain) = (Claims::default(), BTreeMap::new());
    for (alloc, change) in changes.iter().cloned() {
        let (old, expected) = match change {
            Some(claim) => {
                (claims.insert(alloc.clone(), claim.clone()), plain.insert(alloc, claim))
            }
            None => (claims.remove(&alloc), plain.remove(&alloc)),
        };
        assert_eq!(old, expected);
    }
    (claims, plain)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn they_come_to_what_looking_at_each_says(changes in changes()) {
        let (claims, plain) = changed(&changes);
        prop_assert!(claims.iter().eq(&plain));
        prop_assert_eq!(claims.len(), plain.len());
        prop_assert_eq!(claims.is_empty(), plain.is_empty());
        let those = |wanted: &dyn Fn(&Claim) -> bool| -> BTreeSet<AllocId> {
            let found = plain.iter().filter(|(_, claim)| wanted(claim));
            found.map(|(alloc, _)| alloc.clone()).collect()
        };
        let named = |found: Vec<(&AllocId, &Claim)>| -> BTreeSet<AllocId> {
            found.into_iter().map(|(alloc, _)| alloc.clone()).collect()
        };
        for state in STATES {
            for mode in [Mode::Read, Mode::Write] {
                let counted = those(&|claim| claim.state == state && claim.mode == mode).len();
                prop_assert_eq!(claims.count_of(state, mode), counted);
            }
            prop_assert_eq!(claims.count(state), those(&|claim| claim.state == state).len());
        }
        for alloc in (0..5).map(|at| alloc(&format!("a{at}"))) {
            prop_assert_eq!(claims.contains_key(&alloc), plain.contains_key(&alloc));
        }
        let held = plain.values().filter(|claim| claim.is_held());
        let volume = Volume { spec: None, claims: claims.clone(), ..Volume::default() };
        prop_assert_eq!(volume.in_use(), held.map(Claim::capability).min());
        prop_assert_eq!(named(volume.holders().collect()), those(&Claim::is_held));
        let line: Vec<_> = claims.in_line().collect();
        prop_assert!(line.is_sorted_by_key(|(_, claim)| claim.epoch));
        prop_assert_eq!(named(line), those(&|claim| claim.state == State::Waiting));
        let moving = |claim: &Claim| !matches!(claim.state, State::Waiting | State::Taken);
        let found: Vec<_> = claims.moving().collect();
        prop_assert!(found.is_sorted_by_key(|(_, claim)| claim.epoch));
        prop_assert_eq!(named(found), those(&moving));
        let calling: Vec<_> = claims.calling().collect();
        let deadline = |(_, claim): &(&AllocId, &Claim)| {
            std::cmp::Reverse(claim.progress.attempt.as_ref().map(|attempt| attempt.deadline))
        };
        prop_assert!(calling.is_sorted_by_key(deadline));
        prop_assert_eq!(named(calling), those(&|claim| claim.progress.attempt.is_some()));
        let full = |claim: &Claim| claim.exhausted;
        prop_assert_eq!(named(claims.exhausted().collect()), those(&full));
        for node in ["n0", "n1", "n2"].map(|node| NodeId::new(node).unwrap()) {
            let held = |claim: &Claim| claim.state != State::Waiting && claim.node == node;
            prop_assert_eq!(claims.held_on(&node), !those(&held).is_empty());
            prop_assert_eq!(claims.nodes().any(|on| *on == node), !those(&held).is_empty());
        }
        // Rule 9: whose attachment a claim that leaves would take away.
        for leaving in plain.values() {
            let one_id = |other: &Claim| {
                let external = other.external_node.as_ref();
                external.is_some() && external == leaving.external_node.as_ref()
            };
            let stands = |other: &Claim| {
                other.is_held()
                    && other.state != State::NodeDetached
                    && (other.node == leaving.node || one_id(other))
            };
            let user = plain.iter().find(|(_, other)| stands(other));
            prop_assert_eq!(claims.attachment_user(leaving), user);
        }
    }

    /// However claims came about, decisions are those on the claims that are there. (`step` itself
    /// compares, in debug builds, what is counted with what looking through says.)
    #[test]
    fn how_they_came_about_makes_no_difference(
        changes in changes(), other in changes(), spec in option::of(spec()), command in command(),
        context in context(),
    ) {
        let (claims, plain) = changed(&changes);
        let (other_claims, other_plain) = changed(&other);
        prop_assert_eq!(claims == other_claims, plain == other_plain);
        let grown = Volume { spec: spec.clone(), claims, ..Volume::default() };
        let made = Volume { spec, claims: plain.into_iter().collect(), ..Volume::default() };
        prop_assert_eq!(&grown, &made);
        prop_assert_eq!(invariant::broken(&grown), invariant::broken(&made));
        prop_assert_eq!(step(&grown, &command, &context), step(&made, &command, &context));
    }
}

fn in_state(state: State, node: &str) -> Claim {
    fixture::claim(SHARED, state, node)
}

/// Rule 3, with many calls on the record: any that may still act is seen among all that may not.
#[test]
fn one_live_call_among_many_dead_ones_is_seen() {
    use CallKind::{ControllerUnpublish, NodeDetach};
    let claim = in_state;
    let left = || with(claim(State::NodeDetached, "n2"), dead(ControllerUnpublish));
    let leaving = |node| with(claim(State::Unpublishing, node), dead(NodeDetach));
    let dead = [("a", left()), ("b", leaving("n2")), ("y", left()), ("z", leaving("n3"))];
    let busy = |call: CallKind, node: &str, state| {
        let mut volume = fixture::volume(SHARED, dead.clone());
        volume.claims.insert(alloc("m"), with(claim(state, node), live(call)));
        volume.claims.insert(alloc("new"), claim(State::Unpublishing, "n1"));
        let joins = asks(&volume, take("newcomer", "n4"));
        let refused = match &joins {
            Err(Refusal::Busy { owner, .. }) => *owner == CallOwner::Claim(alloc("m")),
            _ => false,
        };
        (refused, decide(&volume, &begin("new", false)).is_err())
    };
    assert_eq!(busy(NodeDetach, "n1", State::Unpublishing), (true, true));
    assert_eq!(busy(NodeDetach, "n5", State::Unpublishing), (true, false));
    assert_eq!(busy(ControllerUnpublish, "n5", State::NodeDetached), (true, true));
    let volume = fixture::volume(SHARED, dead.clone());
    assert!(asks(&volume, take("newcomer", "n4")).unwrap().call.is_some());
}

/// Thousands in the way are counted, and the first of them named.
#[test]
fn a_refusal_names_a_few_and_counts_the_rest() {
    const HERE: AccessMode = AccessMode::SingleNodeMultiWriter;
    let mut volume = fixture::volume(HERE, []);
    for at in 0..1000 {
        let claim = fixture::claim(HERE, State::Taken, "n1");
        volume.claims.insert(alloc(&format!("a{at:04}")), claim);
    }
    let Err(Refusal::Held { holders, .. }) = asks(&volume, take("newcomer", "n2")) else {
        panic!("it is held on another node")
    };
    let Holders { named, more } = &holders;
    assert_eq!((named.len(), *more), (5, 995));
    assert!(holders.to_string().ends_with(" and 995 more"), "{holders}");
    let waits = Command::Take(Take { wait: true, ..take("newcomer", "n2") });
    let place = world::World::with(&[HERE]);
    assert!(step(&volume, &waits, &place.context()).unwrap().write.is_some());
}

/// Its caller is gone, and the clock that wrote it was an hour ahead.
#[test]
fn a_reservation_of_the_future_is_undone() {
    let now = fixture::context().now;
    for (ahead_s, is_undone) in [(1, false), (3600, true)] {
        let reserved = Claim {
            since: now.after(Duration::from_secs(ahead_s)),
            ..in_state(State::Publishing, "n1")
        };
        let volume = fixture::volume(SHARED, [("a", reserved)]);
        assert_eq!(decide(&volume, &begin("a", true)).is_ok(), is_undone, "{ahead_s} s ahead");
    }
}
