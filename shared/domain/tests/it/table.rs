//! Every state against every answer, and every neighbour against every call: as tables, so that
//! a change shows everything that changes with it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use berth_domain::access::AccessMode;
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::volume::{
    CallKind, CallOwner, Claim, Command, Handle, HandleUse, OtherClaim, Outcome, Refusal, State,
    Step, Volume, VolumeSpec, Write, name_in,
};
use berth_domain::{Namespace, Timestamp, VolumeKey};

use crate::fixture::{
    answer, asks, claim, dead, decide, decide_beside, failed, live, volume, with,
};
use crate::world::{alloc, begin, spec, take};

use CallKind::{ControllerPublish, ControllerUnpublish, NodeDetach};
use State::{NodeDetached, Publishing, Taken, Unpublishing, Waiting};

const SHARED: AccessMode = AccessMode::MultiNodeMultiWriter;

/// What came of a step, in a few words: the state, `+` the call that is made, `~` one that is kept.
fn words(decided: &Result<Step, Refusal>) -> String {
    match decided {
        Err(Refusal::StaleAttempt) => "stale".to_owned(),
        Err(Refusal::NotDue { .. }) => "not due".to_owned(),
        Err(Refusal::Busy { .. }) => "busy".to_owned(),
        Err(Refusal::Held { .. }) => "held".to_owned(),
        Err(other) => other.to_string(),
        Ok(step) => match &step.write {
            None => "nothing".to_owned(),
            Some(Write::DeleteClaim(_)) => "freed".to_owned(),
            Some(Write::PutClaim(_, claim)) => match (&step.call, &claim.progress.attempt) {
                (Some(attempt), _) => format!("{} + {}", claim.state, attempt.call),
                (None, Some(attempt)) => format!("{} ~ {}", claim.state, attempt.call),
                (None, None) => claim.state.to_string(),
            },
            Some(Write::PutSpec(_) | Write::DeleteSpec) => "spec".to_owned(),
            Some(Write::PutSnapshot(..) | Write::DeleteSnapshot(_)) => "snapshot".to_owned(),
        },
    }
}

fn same(table: &str, expected: &str) {
    assert_eq!(table, expected, "\n{table}");
}

/// Rules 5 and 6, Safety 7: what each answer leads to, of the current attempt and of another.
#[test]
fn rule_5_and_6_what_an_answer_leads_to() {
    let outcomes = [
        ("done", Outcome::Done { publish_context: [].into() }),
        ("failed", Outcome::Failed("no".into())),
        ("refused", Outcome::Refused("never".into())),
        ("unanswered", Outcome::Unanswered("silence".into())),
    ];
    let mut table = String::new();
    for (state, call) in [
        (Publishing, ControllerPublish),
        (Unpublishing, NodeDetach),
        (NodeDetached, ControllerUnpublish),
        (NodeDetached, ControllerPublish),
    ] {
        for attempt in [live(call), dead(call)] {
            let current = attempt.id.clone();
            let claims = [("a1", with(claim(SHARED, state, "n1"), attempt))];
            let volume = volume(SHARED, claims);
            for (name, outcome) in outcomes.clone() {
                let came = answer(&volume, alloc("a1"), current.as_str(), outcome.clone());
                let of = format!("{state} {current} {call} {name}:");
                writeln!(table, "{of:<56}{}", words(&came)).unwrap();
                let late = answer(&volume, alloc("a1"), "another", outcome);
                assert_eq!(late, Err(Refusal::StaleAttempt));
            }
        }
    }
    same(
        &table,
        "\
publishing live controller.publish done:                taken
publishing live controller.publish failed:              publishing
publishing live controller.publish refused:             node-detached
publishing live controller.publish unanswered:          publishing ~ controller.publish
publishing dead controller.publish done:                taken
publishing dead controller.publish failed:              publishing
publishing dead controller.publish refused:             node-detached
publishing dead controller.publish unanswered:          publishing ~ controller.publish
unpublishing live agent.detach done:                    node-detached + controller.unpublish
unpublishing live agent.detach failed:                  unpublishing
unpublishing live agent.detach refused:                 unpublishing
unpublishing live agent.detach unanswered:              unpublishing ~ agent.detach
unpublishing dead agent.detach done:                    node-detached + controller.unpublish
unpublishing dead agent.detach failed:                  unpublishing
unpublishing dead agent.detach refused:                 unpublishing
unpublishing dead agent.detach unanswered:              unpublishing ~ agent.detach
node-detached live controller.unpublish done:           freed
node-detached live controller.unpublish failed:         node-detached
node-detached live controller.unpublish refused:        node-detached
node-detached live controller.unpublish unanswered:     node-detached ~ controller.unpublish
node-detached dead controller.unpublish done:           freed
node-detached dead controller.unpublish failed:         node-detached
node-detached dead controller.unpublish refused:        node-detached
node-detached dead controller.unpublish unanswered:     node-detached ~ controller.unpublish
node-detached live controller.publish done:             node-detached + controller.unpublish
node-detached live controller.publish failed:           node-detached + controller.unpublish
node-detached live controller.publish refused:          node-detached + controller.unpublish
node-detached live controller.publish unanswered:       node-detached ~ controller.publish
node-detached dead controller.publish done:             node-detached + controller.unpublish
node-detached dead controller.publish failed:           node-detached + controller.unpublish
node-detached dead controller.publish refused:          node-detached + controller.unpublish
node-detached dead controller.publish unanswered:       node-detached ~ controller.publish
",
    );
}

/// Rule 3, Safety 4: which call may begin beside one that may still act, and beside one that may
/// not; and that one without a controller needs none to be idle.
#[test]
fn rule_3_what_may_begin_beside_a_call() {
    let mut table = String::new();
    for (state, call) in [
        (Publishing, ControllerPublish),
        (Unpublishing, NodeDetach),
        (NodeDetached, ControllerUnpublish),
    ] {
        for attempt in [live(call), dead(call)] {
            for node in ["n1", "n2"] {
                let age = attempt.id.clone();
                let beside = with(claim(SHARED, state, "n1"), attempt.clone());
                let with_own = |state| {
                    volume(SHARED, [("a1", beside.clone()), ("a2", claim(SHARED, state, node))])
                };
                let asked =
                    words(&asks(&volume(SHARED, [("a1", beside.clone())]), take("a2", node)));
                let publish = words(&asks(&with_own(Publishing), take("a2", node)));
                let detach = words(&decide(&with_own(Unpublishing), &begin("a2", false)));
                let unpublish = words(&decide(&with_own(NodeDetached), &begin("a2", false)));
                writeln!(table, "{age} {call} on n1; on {node}:").unwrap();
                writeln!(table, "  asks: {asked}; asks again: {publish}").unwrap();
                writeln!(table, "  detach: {detach}; leave: {unpublish}").unwrap();
            }
        }
    }
    same(
        &table,
        "\
live controller.publish on n1; on n1:
  asks: busy; asks again: busy
  detach: not due; leave: freed
live controller.publish on n1; on n2:
  asks: busy; asks again: busy
  detach: not due; leave: not due
dead controller.publish on n1; on n1:
  asks: publishing + controller.publish; asks again: publishing + controller.publish
  detach: unpublishing + agent.detach; leave: freed
dead controller.publish on n1; on n2:
  asks: publishing + controller.publish; asks again: publishing + controller.publish
  detach: unpublishing + agent.detach; leave: node-detached + controller.unpublish
live agent.detach on n1; on n1:
  asks: busy; asks again: busy
  detach: not due; leave: freed
live agent.detach on n1; on n2:
  asks: busy; asks again: busy
  detach: unpublishing + agent.detach; leave: not due
dead agent.detach on n1; on n1:
  asks: publishing + controller.publish; asks again: publishing + controller.publish
  detach: unpublishing + agent.detach; leave: freed
dead agent.detach on n1; on n2:
  asks: publishing + controller.publish; asks again: publishing + controller.publish
  detach: unpublishing + agent.detach; leave: node-detached + controller.unpublish
live controller.unpublish on n1; on n1:
  asks: busy; asks again: busy
  detach: not due; leave: not due
live controller.unpublish on n1; on n2:
  asks: busy; asks again: busy
  detach: not due; leave: not due
dead controller.unpublish on n1; on n1:
  asks: publishing + controller.publish; asks again: publishing + controller.publish
  detach: unpublishing + agent.detach; leave: node-detached + controller.unpublish
dead controller.unpublish on n1; on n2:
  asks: publishing + controller.publish; asks again: publishing + controller.publish
  detach: unpublishing + agent.detach; leave: node-detached + controller.unpublish
",
    );
}

/// Rule 9, Safety 3: whom a claim relies on when it leaves its node.
#[test]
fn rule_9_who_is_relied_on() {
    let others = [
        ("nobody", None),
        ("waiting", Some(claim(SHARED, Waiting, "n1"))),
        ("publishing", Some(claim(SHARED, Publishing, "n1"))),
        ("publishing, dead", Some(with(claim(SHARED, Publishing, "n1"), dead(ControllerPublish)))),
        ("taken", Some(claim(SHARED, Taken, "n1"))),
        ("taken, elsewhere", Some(claim(SHARED, Taken, "n2"))),
        ("unpublishing", Some(claim(SHARED, Unpublishing, "n1"))),
        ("unpublishing, dead", Some(with(claim(SHARED, Unpublishing, "n1"), dead(NodeDetach)))),
        ("node-detached", Some(claim(SHARED, NodeDetached, "n1"))),
        ("leaving, dead", Some(with(claim(SHARED, NodeDetached, "n1"), dead(ControllerUnpublish)))),
        ("undone, dead", Some(with(claim(SHARED, NodeDetached, "n1"), dead(ControllerPublish)))),
        ("leaving, live", Some(with(claim(SHARED, NodeDetached, "n1"), live(ControllerUnpublish)))),
    ];
    let mut table = String::new();
    for (name, other) in others {
        let mut beside = volume(SHARED, [("a1", claim(SHARED, NodeDetached, "n1"))]);
        beside.claims.extend(other.map(|other| (alloc("a2"), other)));
        writeln!(table, "{name:<20}{}", words(&decide(&beside, &begin("a1", false)))).unwrap();
    }
    same(
        &table,
        "\
nobody              node-detached + controller.unpublish
waiting             node-detached + controller.unpublish
publishing          freed
publishing, dead    freed
taken               freed
taken, elsewhere    node-detached + controller.unpublish
unpublishing        freed
unpublishing, dead  freed
node-detached       freed
leaving, dead       node-detached + controller.unpublish
undone, dead        node-detached + controller.unpublish
leaving, live       not due
",
    );
}

/// Rule 14: what a worker finds to do, for a claim that is wanted and for one that is not.
#[test]
fn rule_14_work_is_found_by_looking() {
    let mut table = String::new();
    for (name, found) in [
        ("waiting", claim(SHARED, Waiting, "n1")),
        ("publishing", claim(SHARED, Publishing, "n1")),
        ("publishing, live", with(claim(SHARED, Publishing, "n1"), live(ControllerPublish))),
        ("publishing, dead", with(claim(SHARED, Publishing, "n1"), dead(ControllerPublish))),
        ("taken", claim(SHARED, Taken, "n1")),
        ("unpublishing", claim(SHARED, Unpublishing, "n1")),
        ("unpublishing, live", with(claim(SHARED, Unpublishing, "n1"), live(NodeDetach))),
        ("unpublishing, dead", with(claim(SHARED, Unpublishing, "n1"), dead(NodeDetach))),
        ("node-detached", claim(SHARED, NodeDetached, "n1")),
        ("leaving, live", with(claim(SHARED, NodeDetached, "n1"), live(ControllerUnpublish))),
        ("leaving, dead", with(claim(SHARED, NodeDetached, "n1"), dead(ControllerUnpublish))),
    ] {
        let volume = volume(SHARED, [("a1", found)]);
        let (wanted, ended) =
            (decide(&volume, &begin("a1", true)), decide(&volume, &begin("a1", false)));
        writeln!(table, "{name:<20}{} | {}", words(&wanted), words(&ended)).unwrap();
    }
    same(
        &table,
        "\
waiting             not due | freed
publishing          node-detached + controller.unpublish | node-detached + controller.unpublish
publishing, live    not due | node-detached ~ controller.publish
publishing, dead    not due | node-detached + controller.unpublish
taken               not due | unpublishing + agent.detach
unpublishing        unpublishing + agent.detach | unpublishing + agent.detach
unpublishing, live  not due | not due
unpublishing, dead  unpublishing + agent.detach | unpublishing + agent.detach
node-detached       node-detached + controller.unpublish | node-detached + controller.unpublish
leaving, live       not due | not due
leaving, dead       node-detached + controller.unpublish | node-detached + controller.unpublish
",
    );
}

/// Rule 16: when an operator's confirmation replaces the controller's answer.
#[test]
fn rule_16_when_a_word_counts() {
    let left = || claim(SHARED, NodeDetached, "n1");
    let denied = || Claim { denied: true, ..left() };
    let elsewhere = || claim(SHARED, Unpublishing, "n2");
    let mut table = String::new();
    for (name, found, beside) in [
        ("the controller denied it", denied(), None),
        ("the controller was not asked", left(), None),
        ("its call is not answered", with(denied(), dead(ControllerUnpublish)), None),
        ("it has not left its node", Claim { state: Unpublishing, ..denied() }, None),
        ("another's call may act", denied(), Some(with(elsewhere(), live(NodeDetach)))),
        ("another's call is over", denied(), Some(with(elsewhere(), dead(NodeDetach)))),
    ] {
        let mut volume = volume(SHARED, [("a1", found)]);
        volume.claims.extend(beside.map(|beside| (alloc("a2"), beside)));
        let word = |epoch| {
            let (at, by) = (Timestamp::default(), "ada".to_owned());
            let word = Proof { kind: ProofKind::Confirmed, by, at, note: String::new() };
            let call = ControllerUnpublish;
            decide(
                &volume,
                &Command::Confirm { alloc: alloc("a1"), epoch, call, confirmation: word },
            )
        };
        writeln!(table, "{name:<32}{}", words(&word(10))).unwrap();
        assert_eq!(word(9), Err(Refusal::NoSuchClaim(alloc("a1"))), "the claim before it");
    }
    same(
        &table,
        "\
the controller denied it        freed
the controller was not asked    not due
its call is not answered        not due
it has not left its node        not due
another's call may act          not due
another's call is over          freed
",
    );
}

/// Rule 18: when a person's word goes to the node with its next call, and for how long it counts.
#[test]
fn rule_18_when_a_word_for_the_node_counts() {
    let leaving = || claim(SHARED, Unpublishing, "n1");
    let denied = || Claim { denied: true, ..leaving() };
    let word = Proof {
        kind: ProofKind::Confirmed,
        by: "ada".to_owned(),
        at: Timestamp::default(),
        note: String::new(),
    };
    let say = |found: Claim, call, beside: Option<Claim>| {
        let mut volume = volume(SHARED, [("a1", found)]);
        volume.claims.extend(beside.map(|beside| (alloc("a2"), beside)));
        let word = word.clone();
        decide(
            &volume,
            &Command::Confirm { alloc: alloc("a1"), epoch: 10, call, confirmation: word },
        )
    };
    let beside = |node| Some(with(claim(SHARED, Unpublishing, node), live(NodeDetach)));
    let later = Some(Timestamp::from_unix_ms(u64::MAX / 2));
    for (found, call, beside, counts) in [
        (denied(), NodeDetach, None, true),
        (failed(denied(), later), NodeDetach, None, true),
        (denied(), NodeDetach, beside("n2"), true),
        (denied(), NodeDetach, beside("n1"), false),
        (leaving(), NodeDetach, None, false),
        (with(denied(), dead(NodeDetach)), NodeDetach, None, false),
        (denied(), ControllerUnpublish, None, false),
        (Claim { state: NodeDetached, ..denied() }, NodeDetach, None, false),
        (Claim { state: Taken, ..denied() }, NodeDetach, None, false),
    ] {
        let said = say(found.clone(), call, beside);
        let Ok(Step { write: Some(Write::PutClaim(_, noted)), call: None }) = &said else {
            assert!(!counts && matches!(said, Err(Refusal::NotDue { .. })), "{found:?}: {said:?}");
            continue;
        };
        assert!(counts, "{found:?}");
        let mut due = Claim { unstaged_by: Some(word.clone()), ..found };
        due.progress.next_try = None;
        assert_eq!(*noted, due, "it frees nothing");
        assert_eq!(say(noted.clone(), call, None), Ok(Step::nothing()), "again");
        // One answer uses it up; only with success does the claim leave its node.
        let asked = with(noted.clone(), live(NodeDetach));
        let answer = |outcome| {
            let volume = volume(SHARED, [("a1", asked.clone())]);
            let attempt = asked.progress.attempt.as_ref().unwrap().id.clone();
            let command = Command::Answer {
                owner: CallOwner::Claim(alloc("a1")),
                attempt,
                outcome,
                worker: None,
            };
            match decide(&volume, &command).unwrap().write {
                Some(Write::PutClaim(_, claim)) => (claim.state, claim.unstaged_by.is_some()),
                other => panic!("{other:?}"),
            }
        };
        let said = || "no".to_owned();
        assert_eq!(answer(Outcome::Failed(said().into())), (Unpublishing, false));
        assert_eq!(answer(Outcome::Unasked(said().into())), (Unpublishing, false));
        let done = Outcome::Done { publish_context: BTreeMap::new() };
        assert_eq!(answer(done), (NodeDetached, true), "the record says by whose word");
    }
}

/// Rule 17: of a volume that is registered twice, neither registration is granted, and only changes
/// that keep the handle are accepted. A handle in use cannot be registered again.
#[test]
fn rule_17_a_handle_is_of_one_volume() {
    let others = vec!["volume other".to_owned()];
    let twice = || HandleUse { others: others.clone(), ..HandleUse::default() };
    let decide = |volume: &Volume, command: &Command| decide_beside(volume, command, twice());
    let taken = volume(SHARED, [("a1", claim(SHARED, Taken, "n1"))]);
    for volume in [&volume(SHARED, []), &taken] {
        let refused = Err(Refusal::RegisteredTwice { others: others.clone() });
        assert_eq!(decide(volume, &Command::Take(take("a1", "n1"))), refused);
        assert_eq!(decide(volume, &Command::Reserve), refused);
    }
    let refused = Err(Refusal::HandleTaken { others: others.clone() });
    let register = |spec: VolumeSpec| Command::Register(spec);
    assert_eq!(decide(&Volume::default(), &register(spec(&[SHARED]))), refused);
    let moved = VolumeSpec { external_id: Some("another".to_owned()), ..spec(&[SHARED]) };
    assert_eq!(decide(&volume(SHARED, []), &register(moved)), refused);
    let renamed = VolumeSpec { name: "another".to_owned().into(), ..spec(&[SHARED]) };
    assert_eq!(words(&decide(&taken, &register(renamed))), "spec");
}

/// Rule 17: a refusal names no volume that its caller may not know of.
#[test]
fn rule_17_a_volume_of_another_namespace_is_not_named() {
    let in_namespace =
        |namespace: &str| VolumeKey::new(namespace.parse().unwrap(), "other".parse().unwrap());
    let named = |namespace| name_in(&Namespace::default(), &in_namespace(namespace));
    assert_eq!(named("default"), "volume other");
    assert_eq!(named("theirs"), "a volume of another namespace");
}

/// Rule 17, Safety 3: the controller detaches nothing from under a claim of the other registration,
/// by state of that claim.
#[test]
fn rule_17_a_claim_of_the_other_registration_keeps_the_attachment() {
    let mut table = String::new();
    for (node, external) in [
        ("n1", Some("ext-n1")),
        ("n1", Some("another")),
        ("n2", Some("ext-n1")),
        ("n2", None),
        ("n2", Some("ext-n2")),
    ] {
        let came = [Waiting, Publishing, Taken, Unpublishing, NodeDetached].map(|state| {
            let external_node = external.map(ToOwned::to_owned);
            let other = Claim { external_node, ..claim(SHARED, state, node) };
            let key = VolumeKey::new(Namespace::default(), "other".parse().unwrap());
            let handle = handle_of("x");
            let claims = OtherClaim::from_claim(&key, &handle, &alloc("b1"), &other);
            let claims = claims.into_iter().collect();
            let others = vec!["volume other".to_owned()];
            let handle = HandleUse { others, claims, own: Some(handle) };
            let left = volume(SHARED, [("a1", claim(SHARED, NodeDetached, "n1"))]);
            match decide_beside(&left, &begin("a1", false), handle) {
                Ok(step) if step.call.is_some() => "calls",
                Err(Refusal::NotDue { next_try: Some(_), .. }) => "waits",
                other => panic!("nothing says when it is looked at again: {other:?}"),
            }
        });
        writeln!(table, "{node} {:<8}{}", external.unwrap_or("-"), came.join(" ")).unwrap();
    }
    same(
        &table,
        "\
n1 ext-n1  calls waits waits waits calls
n1 another calls waits waits waits calls
n2 ext-n1  calls waits waits waits calls
n2 -       calls waits waits waits calls
n2 ext-n2  calls calls calls calls calls
",
    );
}

/// Rule 17: a claim whose registration was lost goes by the handle that it was granted for, and two
/// controller calls about one volume do not overlap, whatever its names.
#[test]
fn rule_17_a_claim_is_detached_by_its_own_handle() {
    let key = VolumeKey::new(Namespace::default(), "other".parse().unwrap());
    let of = |external: &str, claim: Claim| {
        let Handle { plugin, external_id } = handle_of(external);
        Claim { plugin: Some(plugin), external_id: Some(external_id), ..claim }
    };
    let leaves = of("x", claim(SHARED, NodeDetached, "n1"));
    let left = volume(SHARED, [("a1", leaves)]);
    let leaving = |attempt| with(claim(SHARED, NodeDetached, "n2"), attempt);
    let mut table = String::new();
    for own in [None, Some("x"), Some("y")] {
        let came = [
            ("x", claim(SHARED, Taken, "n1")),
            ("y", claim(SHARED, Taken, "n1")),
            ("x", leaving(live(ControllerUnpublish))),
            ("x", leaving(dead(ControllerUnpublish))),
        ]
        .map(|(external, other)| {
            let claims = OtherClaim::from_claim(&key, &handle_of(external), &alloc("b1"), &other);
            let own = own.map(handle_of);
            let handle =
                HandleUse { own, others: Vec::new(), claims: claims.into_iter().collect() };
            match decide_beside(&left, &begin("a1", false), handle) {
                Ok(step) if step.call.is_some() => "calls",
                Err(Refusal::NotDue { next_try: Some(_), .. }) => "waits",
                other => panic!("nothing says when it is looked at again: {other:?}"),
            }
        });
        writeln!(table, "{:<2}{}", own.unwrap_or("-"), came.join(" ")).unwrap();
    }
    same(
        &table,
        "\
- waits calls waits calls
x waits calls waits calls
y waits calls waits calls
",
    );
}

fn handle_of(external_id: &str) -> Handle {
    Handle { plugin: "p".parse().unwrap(), external_id: external_id.to_owned() }
}
