//! Rule 12: what a proof that a node is gone does to the claims there, and what it does not.

use std::time::Duration;

use berth_domain::access::AccessMode;
use berth_domain::plugin::Node;
use berth_domain::proof::{Proof, ProofKind, Proven};
use berth_domain::volume::{
    Begin, CallKind, CallOwner, Command, Outcome, Refusal, Route, State, Take,
};
use berth_domain::{NodeId, Timestamp};

use crate::world::{World, alloc, begin, take, worker};

const EXCLUSIVE: &[AccessMode] = &[AccessMode::SingleNodeWriter];
const SHARED: &[AccessMode] = &[AccessMode::MultiNodeMultiWriter];

fn proof() -> Proof {
    Proof {
        kind: ProofKind::PoweredOff,
        by: "ann@desk".to_owned(),
        at: Timestamp::from_unix_ms(1_000_000),
        note: "pulled the plug".to_owned(),
    }
}

/// That `n1` is gone, for the claim of this epoch; the alloc is still thought to live.
fn gone(name: &str, epoch: u64) -> Command {
    let proven = Some(Proven { node: NodeId::new("n1").unwrap(), epoch, proof: proof() });
    Command::Begin(Begin {
        owner: CallOwner::Claim(alloc(name)),
        worker: worker(),
        wanted: true,
        early: false,
        proven,
        executor: None,
    })
}

fn taken(access: &[AccessMode], claims: &[(&str, &str)]) -> World {
    let mut world = World::with(access);
    for (name, node) in claims {
        if world.apply(&Command::Take(take(name, node))).unwrap().call.is_some() {
            world.done(name).unwrap();
        }
    }
    world
}

/// Safety 3: the node is not asked, the proof is on the record, and the next node gets the volume
/// only after the controller has detached it.
#[test]
fn rule_12_a_proof_stands_in_for_the_nodes_answer() {
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    let epoch = world.claim("a").epoch;
    let call = world.apply(&gone("a", epoch)).unwrap().call.unwrap();
    let claim = world.claim("a");
    assert_eq!((call.call, claim.state), (CallKind::ControllerUnpublish, State::NodeDetached));
    assert_eq!(claim.proof, Some(proof()));
    assert_eq!(claim.reason.as_deref(), Some("node n1 is gone"));
    for outcome in [Outcome::Failed("no".into()), Outcome::Unanswered("?".into())] {
        world.answer("a", outcome).unwrap();
        let refused = world.apply(&Command::Take(take("b", "n2"))).unwrap_err();
        assert!(matches!(refused, Refusal::Held { .. }), "{refused}");
        assert_eq!(world.claim("a").proof, Some(proof()), "it is kept");
        world.pass_all_deadlines();
        world.apply(&gone("a", epoch)).unwrap();
    }
    world.done("a").unwrap();
    assert!(world.apply(&Command::Take(take("b", "n2"))).unwrap().call.is_some());
}

/// A claim that was made since the proof was read is another one, of which the proof says nothing.
#[test]
fn rule_12_a_proof_is_for_the_claim_that_was_seen_before_it_was_read() {
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    let seen = world.claim("a").epoch;
    world.apply(&begin("a", false)).unwrap();
    world.done("a").unwrap();
    world.done("a").unwrap();
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.done("a").unwrap();
    let before = world.volume.clone();
    assert!(matches!(world.apply(&gone("a", seen)), Err(Refusal::NotDue { .. })));
    // Nor does one for another node.
    let epoch = world.claim("a").epoch;
    let proven = Some(Proven { node: NodeId::new("n2").unwrap(), epoch, proof: proof() });
    let of_n2 = Command::Begin(Begin {
        owner: CallOwner::Claim(alloc("a")),
        worker: worker(),
        wanted: true,
        early: true,
        proven,
        executor: None,
    });
    assert!(matches!(world.apply(&of_n2), Err(Refusal::NotDue { .. })));
    assert_eq!(world.volume, before);
    // It does not keep from going what goes anyway; but then the node is asked.
    let Command::Begin(Begin { owner: CallOwner::Claim(alloc), worker, proven, .. }) =
        gone("a", seen)
    else {
        unreachable!()
    };
    let ended = Command::Begin(Begin {
        owner: CallOwner::Claim(alloc),
        worker,
        wanted: false,
        early: false,
        proven,
        executor: None,
    });
    assert_eq!(world.apply(&ended).unwrap().call.unwrap().call, CallKind::NodeDetach);
}

/// The node may have been asked already, and the call may be thought to be at work there.
#[test]
fn rule_12_a_proof_ends_a_call_that_the_node_never_answered() {
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    world.apply(&begin("a", false)).unwrap();
    let asked = world.claim("a").progress.attempt.clone().unwrap().id;
    world.answer("a", Outcome::Unanswered("silence".into())).unwrap();
    let epoch = world.claim("a").epoch;
    let call = world.apply(&gone("a", epoch)).unwrap().call.unwrap();
    assert_eq!(call.call, CallKind::ControllerUnpublish);
    assert_eq!(world.claim("a").reason.as_deref(), Some("the alloc has ended"), "it still has");
    let late = Command::Answer {
        owner: CallOwner::Claim(alloc("a")),
        attempt: asked,
        outcome: Outcome::Done { publish_context: [].into() },
        worker: Some(worker()),
    };
    assert_eq!(world.apply(&late), Err(Refusal::StaleAttempt));
}

/// Rule 3 holds for a proof too: no controller call beside another.
#[test]
fn rule_12_a_proof_waits_for_the_calls_of_others() {
    let mut world = taken(SHARED, &[("a", "n1"), ("b", "n2")]);
    world.apply(&begin("b", false)).unwrap();
    let epoch = world.claim("a").epoch;
    assert!(world.apply(&gone("a", epoch)).unwrap().call.is_none());
    assert_eq!(world.claim("a").state, State::NodeDetached);
    assert!(matches!(world.apply(&gone("a", epoch)), Err(Refusal::NotDue { .. })));
    world.pass_all_deadlines();
    let call = world.apply(&gone("a", epoch)).unwrap().call.unwrap();
    assert_eq!(call.call, CallKind::ControllerUnpublish);
}

#[test]
fn rule_12_without_a_controller_nothing_is_left_to_do() {
    let mut world = World::with(EXCLUSIVE);
    let without = Take { route: Ok(Route::default()), ..take("a", "n1") };
    world.apply(&Command::Take(without)).unwrap();
    let epoch = world.claim("a").epoch;
    assert!(world.apply(&gone("a", epoch)).unwrap().call.is_none());
    assert!(world.volume.claims.is_empty());
}

/// Rule 9 on a node that is gone: the last one out detaches it.
#[test]
fn rule_12_the_last_claim_of_a_node_that_is_gone_detaches_it() {
    let mut world = taken(SHARED, &[("a", "n1"), ("b", "n1")]);
    let (a, b) = (world.claim("a").epoch, world.claim("b").epoch);
    assert!(world.apply(&gone("a", a)).unwrap().call.is_none());
    assert!(!world.volume.claims.contains_key(&alloc("a")), "b is sure to do it");
    let call = world.apply(&gone("b", b)).unwrap().call.unwrap();
    assert_eq!(call.call, CallKind::ControllerUnpublish);
}

/// A reservation is undone, when its publish can no longer act; a place in line is given up.
#[test]
fn rule_12_reservations_and_places_in_line_go_too() {
    let mut world = World::with(EXCLUSIVE);
    world.apply(&Command::Take(take("a", "n1"))).unwrap();
    world.apply(&Command::Take(Take { wait: true, ..take("b", "n1") })).unwrap();
    let (a, b) = (world.claim("a").epoch, world.claim("b").epoch);
    world.apply(&gone("b", b)).unwrap();
    assert!(!world.volume.claims.contains_key(&alloc("b")));
    assert!(world.apply(&gone("a", a)).unwrap().call.is_none(), "the publish may still act");
    let claim = world.claim("a");
    assert_eq!(claim.state, State::NodeDetached);
    assert_eq!(claim.progress.attempt.as_ref().unwrap().call, CallKind::ControllerPublish);
    assert_eq!((claim.reason.as_deref(), &claim.proof), (Some("node n1 is gone"), &None));
    world.pass_all_deadlines();
    let call = world.apply(&gone("a", a)).unwrap().call.unwrap();
    assert_eq!(call.call, CallKind::ControllerUnpublish);
}

/// A retry that is not due is made when something changed that may let it succeed, but never beside
/// a call that may still act.
#[test]
fn rule_14_an_early_look_ignores_the_next_try_and_nothing_else() {
    let early = |name| {
        let alloc = alloc(name);
        Command::Begin(Begin {
            owner: CallOwner::Claim(alloc),
            worker: worker(),
            wanted: false,
            early: true,
            proven: None,
            executor: None,
        })
    };
    let mut world = taken(EXCLUSIVE, &[("a", "n1")]);
    world.apply(&begin("a", false)).unwrap();
    assert!(matches!(world.apply(&early("a")), Err(Refusal::NotDue { .. })));
    world.answer("a", Outcome::Failed("no".into())).unwrap();
    assert!(matches!(world.apply(&begin("a", false)), Err(Refusal::NotDue { .. })));
    let call = world.apply(&early("a")).unwrap().call.unwrap();
    assert_eq!(call.call, CallKind::NodeDetach);
    assert_eq!(world.claim("a").progress.tries, 1, "what failed before is not forgotten");
    world.answer("a", Outcome::Unanswered("silence".into())).unwrap();
    assert_eq!(world.claim("a").progress.tries, 2, "and that this one failed is noted");
}

/// Whoever read a proof may use it late: a claim of before the node was back is not granted again.
#[test]
fn rule_12_a_claim_of_before_is_not_granted_again() {
    let margin = Duration::from_secs(2);
    let at = Timestamp::from_unix_ms;
    let node = |gone, back| Node { gone, back, ..Node::unknown(at(0)) };
    for (node, since, void) in [
        (node(None, None), 1_000, false),
        (node(Some(proof()), None), 9_000, true),
        (node(None, Some(at(7_000))), 1_000, true),
        (node(None, Some(at(7_000))), 9_000, true),
        (node(None, Some(at(7_000))), 9_001, false),
    ] {
        assert_eq!(node.may_be_proven(at(since), margin), void, "{node:?} since {since}");
    }
}
