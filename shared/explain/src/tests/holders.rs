//! Which of several holders a waiter is told of.

use berth_contract::message::claim::ClaimStatus;
use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};

use super::*;

/// A release that goes on by itself: its call is due, or was answered with a temporary error.
fn leaving(more: Value) -> Value {
    let leaving = json!({"alloc": "c", "node": "n3", "state": "unpublishing",
        "step": "agent.detach", "waits_for": "agent.detach"});
    claim(with(leaving, more))
}

/// The sentence for `w`, which waits to write on n9, whatever the order of the claims.
fn told(access: AccessMode, mode: Mode, holders: &[Value]) -> String {
    let waiter = json!({"alloc": "w", "node": "n9", "mode": mode, "state": "waiting",
        "wait": "turn", "waits_for": "its turn"});
    let waiter: ClaimStatus = read(claim(waiter));
    let used = Capability { access, attachment: AttachmentMode::FileSystem };
    let sentence = |holders: &[Value]| {
        let mut facts = well();
        set_volume(&mut facts, holders, json!({"in_use": used}));
        facts.nodes.insert(NodeId::new("n8").unwrap(), Ok(read(down("n8"))));
        crate::find_claim(&facts, &waiter).sentence
    };
    let reversed: Vec<Value> = holders.iter().rev().cloned().collect();
    assert_eq!(sentence(holders), sentence(&reversed));
    sentence(holders)
}

fn down(node_id: &str) -> Value {
    node(json!({"id": node_id, "state": "down"}))
}

#[test]
fn a_release_that_goes_on_by_itself_hides_no_holder() {
    let hint = "its next call is due and not begun, for 100s";
    let temporary = json!({"code": Code::PluginFailed, "rpc": "NodeUnpublishVolume",
        "grpc": "UNAVAILABLE", "node": "n3"});
    for going in [
        json!({}),
        json!({"hint": hint}),
        json!({"tries": 2, "error": "x", "failure": temporary, "next_try": at(105)}),
        json!({"state": "node-detached", "step": "controller.unpublish", "wait": "attachment",
            "waits_for": "a, which uses its attachment"}),
    ] {
        let holders = [claim(json!({})), leaving(going.clone())];
        let told = told(AccessMode::MultiNodeMultiWriter, Mode::Write, &holders);
        // Any number may share the volume, so nothing but its turn is left to wait for.
        assert_eq!(told, "it waits for its turn", "{going}");
        let told = told_alone(&holders);
        assert!(told.starts_with("a on node n1 has held the volume"), "{going}: {told}");
    }
}

/// The same where nothing is known of how the volume is shared.
fn told_alone(holders: &[Value]) -> String {
    told(AccessMode::SingleNodeSingleWriter, Mode::Write, holders)
}

#[test]
fn a_hint_on_a_release_of_which_nothing_else_is_known_comes_first() {
    let kept = leaving(json!({"next_try": at(105), "hint": "node n3 is down"}));
    let told = told_alone(&[claim(json!({})), kept]);
    assert!(told.starts_with("w waits for c"), "{told}");
}

/// Of many nodes one may write: a writer waits for the writer, and for readers on its own node.
#[test]
fn who_may_share_the_volume_with_the_waiter_is_not_what_it_waits_for() {
    let reader =
        |alloc: &str, node: &str| claim(json!({"alloc": alloc, "node": node, "mode": "read"}));
    let one_writer = AccessMode::MultiNodeSingleWriter;
    let writer = leaving(json!({"alloc": "v"}));
    let gone = reader("r", "n8");
    let told_of = told(one_writer, Mode::Write, &[gone.clone(), writer.clone()]);
    assert!(told_of.starts_with("w waits for v"), "{told_of}");
    let told_of = told(one_writer, Mode::Write, &[gone.clone(), reader("s", "n9")]);
    assert!(told_of.starts_with("s on node n9 has held the volume"), "{told_of}");
    let told_of = told(one_writer, Mode::Read, &[gone, writer]);
    assert_eq!(told_of, "it waits for its turn");
}
