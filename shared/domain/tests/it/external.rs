//! The storage knows nodes by the ids that their plugin gives them. Two nodes may share one: a unit
//! file that was copied, a machine that was cloned. Rules 8 and 9.

use std::collections::BTreeMap;

use berth_domain::Timestamp;
use berth_domain::access::AccessMode;
use berth_domain::volume::{
    Attempt, CallKind, CallOwner, Claim, Command, Outcome, Refusal, Route, State, Step, Take,
    Volume, Write,
};

use crate::fixture::{asks, claim, decide, live, volume, with};
use crate::world::{alloc, begin, take, worker};

const SHARED: AccessMode = AccessMode::MultiNodeMultiWriter;

/// A claim on a node that the plugin calls so.
fn on(state: State, node: &str, external: &str) -> Claim {
    Claim { external_node: Some(external.to_owned()), ..claim(SHARED, state, node) }
}

/// A claim asked for on a node that the plugin calls so.
fn take_on(node: &str, external: &str) -> Take {
    let route =
        Route { controller: true, external_node: Some(external.to_owned()), ..Route::default() };
    Take { route: Ok(route), ..take("new", node) }
}

fn calls(step: &Step) -> Option<CallKind> {
    step.call.as_ref().map(|attempt| attempt.call)
}

fn frees(step: &Step) -> bool {
    step.write == Some(Write::DeleteClaim(alloc("leaving")))
}

/// What comes next for the claim `leaving`, which has left its node, beside another.
fn leaves_beside(leaving: Claim, other: Claim) -> Result<Step, Refusal> {
    decide(&volume(SHARED, [("leaving", leaving), ("other", other)]), &begin("leaving", false))
}

#[test]
fn a_controller_detaches_no_node_whose_id_another_node_holds_the_volume_by() {
    use State::{NodeDetached, Publishing, Taken, Unpublishing};
    for state in [Publishing, Taken, Unpublishing] {
        let step = leaves_beside(on(NodeDetached, "h4", "x"), on(state, "h1", "x")).unwrap();
        assert!(step.call.is_none() && frees(&step), "{state}: the other detaches it: {step:?}");
        let unattached = Claim { controller: false, ..on(state, "h1", "x") };
        let waits = leaves_beside(on(NodeDetached, "h4", "x"), unattached);
        assert!(
            matches!(waits, Err(Refusal::NotDue { .. })),
            "{state}: nobody is sure to detach it, so it waits: {waits:?}"
        );
        let step = leaves_beside(on(NodeDetached, "h4", "y"), on(state, "h1", "x")).unwrap();
        assert_eq!(calls(&step), Some(CallKind::ControllerUnpublish), "{state}");
    }
    // Both have left their nodes: the first is freed, because the second makes a fresh call.
    let step = leaves_beside(on(NodeDetached, "h4", "x"), on(NodeDetached, "h1", "x")).unwrap();
    assert!(frees(&step), "{step:?}");
    // A call that was not answered is nothing to rely on; nothing is mounted by either.
    let unheard = Attempt { deadline: Timestamp::default(), ..live(CallKind::ControllerUnpublish) };
    let other = with(on(NodeDetached, "h1", "x"), unheard);
    let step = leaves_beside(on(NodeDetached, "h4", "x"), other).unwrap();
    assert_eq!(calls(&step), Some(CallKind::ControllerUnpublish));
}

/// The node's own answer ends in the same decision.
#[test]
fn a_node_that_says_it_has_detached_is_not_detached_under_another() {
    let leaving = with(on(State::Unpublishing, "h4", "x"), live(CallKind::NodeDetach));
    let volume = volume(SHARED, [("leaving", leaving), ("other", on(State::Taken, "h1", "x"))]);
    let answer = Command::Answer {
        owner: CallOwner::Claim(alloc("leaving")),
        attempt: live(CallKind::NodeDetach).id,
        outcome: Outcome::Done { publish_context: BTreeMap::default() },
        worker: Some(worker()),
    };
    assert!(frees(&decide(&volume, &answer).unwrap()));
}

/// A node that the plugin calls otherwise than it did: what it was called then is still attached.
#[test]
fn a_node_whose_id_changed_is_not_detached_by_the_old_one_while_it_is_in_use() {
    let leaving = on(State::NodeDetached, "h1", "old");
    let waits = leaves_beside(leaving.clone(), on(State::Taken, "h1", "new"));
    assert!(matches!(waits, Err(Refusal::NotDue { .. })), "{waits:?}");
    let step = leaves_beside(leaving, on(State::NodeDetached, "h1", "new")).unwrap();
    assert_eq!(calls(&step), Some(CallKind::ControllerUnpublish), "each has its own id to detach");
}

#[test]
fn a_volume_is_claimed_for_one_node_by_one_id() {
    let held = |state| volume(SHARED, [("holder", on(state, "h1", "x"))]);
    for state in [State::Publishing, State::Taken, State::Unpublishing, State::NodeDetached] {
        let refused = |node: &str, external: &str| {
            let said = asks(&held(state), take_on(node, external)).unwrap_err();
            assert!(matches!(said, Refusal::AttachedAs { .. }), "{state}: {said}");
            said.to_string()
        };
        let said = refused("h4", "x");
        assert!(said.contains("h4") && said.contains("h1") && said.contains("holder"), "{said}");
        let said = refused("h1", "y");
        assert!(said.contains("\"y\"") && said.contains("\"x\""), "{said}");
        for (node, external) in [("h4", "y"), ("h1", "x")] {
            let said = asks(&held(state), take_on(node, external));
            assert!(!matches!(said, Err(Refusal::AttachedAs { .. })), "{state}: {said:?}");
        }
    }
    // Nothing is attached for a claim in line, nor where the plugin does not say.
    let free = |volume: &Volume, take: Take| asks(volume, take).unwrap();
    assert!(free(&held(State::Waiting), take_on("h4", "x")).call.is_some());
    let unnamed = Claim { external_node: None, ..claim(SHARED, State::Taken, "h1") };
    assert!(free(&volume(SHARED, [("holder", unnamed)]), take_on("h4", "x")).call.is_some());
}

/// The rule is about attachments. Where the controller attaches nothing, an id attaches nothing.
#[test]
fn a_volume_that_is_attached_nowhere_is_claimed_by_any_id() {
    let unattached = |state| Claim { controller: false, ..on(state, "h1", "x") };
    let take_unattached = |node: &str, external: &str| {
        let route = Route {
            controller: false,
            external_node: Some(external.to_owned()),
            ..Route::default()
        };
        Take { route: Ok(route), ..take("new", node) }
    };
    for state in [State::Taken, State::Unpublishing] {
        let held = volume(SHARED, [("holder", unattached(state))]);
        for (node, external) in [("h4", "x"), ("h1", "y")] {
            let step = asks(&held, take_unattached(node, external));
            let taken = |step: &Step| match &step.write {
                Some(Write::PutClaim(_, claim)) => claim.state == State::Taken,
                _ => false,
            };
            assert!(step.as_ref().is_ok_and(taken), "{state} {node} {external}: {step:?}");
        }
        // The controller would attach it to the other node's id.
        let said = asks(&held, take_on("h4", "x")).unwrap_err();
        assert!(matches!(said, Refusal::AttachedAs { .. }), "{state}: {said}");
        // The storage has it attached to the other node's id.
        let attached = volume(SHARED, [("holder", on(state, "h1", "x"))]);
        for (node, external) in [("h4", "x"), ("h1", "y")] {
            let said = asks(&attached, take_unattached(node, external)).unwrap_err();
            assert!(matches!(said, Refusal::AttachedAs { .. }), "{state} {node}: {said}");
        }
    }
}

/// A place in line is kept meanwhile: the other claim goes some time.
#[test]
fn a_place_in_line_is_kept_while_the_id_is_anothers() {
    let line = Claim { place_until: None, ..claim(SHARED, State::Waiting, "h4") };
    let held = volume(SHARED, [("holder", on(State::Taken, "h1", "x")), ("new", line)]);
    let step = asks(&held, Take { wait: true, ..take_on("h4", "x") }).unwrap();
    assert!(matches!(step.write, Some(Write::PutClaim(_, claim)) if claim.place_until.is_some()));
}
