//! Which of several holders is shown to a waiter.

use berth_contract::message::claim::ClaimStatus;
use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};

use super::*;

/// A release that continues by itself: its call is due, or got a temporary error.
fn leaving(more: Value) -> Value {
    let leaving = json!({"alloc": "c", "node": "n3", "state": "unpublishing",
        "step": "agent.detach", "waits_for": "agent.detach"});
    claim(with(leaving, more))
}

/// The sentence for `w`, which waits to write on n9, whatever the order of the claims.
fn sentence_for(access: AccessMode, mode: Mode, holders: &[Value]) -> String {
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
        // Any number may share the volume as it is used: the waiter asks for another access.
        let shared = sentence_for(AccessMode::MultiNodeMultiWriter, Mode::Write, &holders);
        for sentence in [shared, sentence_alone(&holders)] {
            assert!(
                sentence.starts_with("a on node n1 has held the volume"),
                "{going}: {sentence}"
            );
        }
    }
}

/// The same if it is unknown how the volume is shared.
fn sentence_alone(holders: &[Value]) -> String {
    sentence_for(AccessMode::SingleNodeSingleWriter, Mode::Write, holders)
}

#[test]
fn a_hint_on_a_release_of_which_nothing_else_is_known_comes_first() {
    let kept = leaving(json!({"next_try": at(105), "hint": "node n3 is down"}));
    let sentence = sentence_alone(&[claim(json!({})), kept]);
    assert!(sentence.starts_with("w waits for c"), "{sentence}");
}

/// Of many nodes one may write: a writer waits for the writer, and for readers on its own node.
#[test]
fn who_may_share_the_volume_with_the_waiter_is_not_what_it_waits_for() {
    let reader =
        |alloc: &str, node: &str| claim(json!({"alloc": alloc, "node": node, "mode": "read"}));
    let one_writer = AccessMode::MultiNodeSingleWriter;
    let writer = leaving(json!({"alloc": "v"}));
    let gone = reader("r", "n8");
    let sentence = sentence_for(one_writer, Mode::Write, &[gone.clone(), writer.clone()]);
    assert!(sentence.starts_with("w waits for v"), "{sentence}");
    let sentence = sentence_for(one_writer, Mode::Write, &[gone.clone(), reader("s", "n9")]);
    assert!(sentence.starts_with("s on node n9 has held the volume"), "{sentence}");
    // A reader that comes after a writer in line waits for the same.
    let first = claim(json!({"alloc": "f", "node": "n7", "state": "waiting", "epoch": 3}));
    let sentence = sentence_for(one_writer, Mode::Read, &[gone, writer, first]);
    assert!(sentence.starts_with("w waits for v"), "{sentence}");
}

/// Nothing holds the volume, so the turn of the first in line has come.
#[test]
fn who_is_first_in_line_is_told_what_its_own_node_lacks() {
    let explain_first = |change: fn(&mut Facts)| {
        let waiting = |alloc: &str, epoch: u64, node: &str| {
            claim(json!({"alloc": alloc, "state": "waiting", "waits_for": "its turn",
                "epoch": epoch, "node": node}))
        };
        let mut facts = well();
        set_volume(&mut facts, &[waiting("b", 9, "n2"), waiting("c", 8, "n1")], json!({}));
        change(&mut facts);
        let Diagnosis { finding, also, .. } = first(&facts);
        (finding.cause, finding.who.to_string(), also)
    };
    assert_eq!(explain_first(|_| {}).0, Cause::UnderWay);
    let (cause, who, also) = explain_first(|facts| set_node(facts, json!({"state": "down"})));
    assert_eq!((cause, &*who), (Cause::NodeDown, "you"));
    assert!(also[0].contains("b is behind c in line: node n1 is down"), "{also:?}");
    let ill = |facts: &mut Facts| set_node(facts, json!({"instances": [instance("node", false)]}));
    assert_eq!(explain_first(ill).0, Cause::PluginDown);
    let away = |facts: &mut Facts| {
        let storage = json!([{"unreachable": true, "said": "no route"}]);
        let abilities = json!({"external_node": "e", "controller_service": true,
            "stage_unstage_volume": true, "storage": storage});
        let half = with(instance("node", true), json!({"abilities": abilities}));
        set_node(facts, json!({"instances": [half]}));
        let offered = [Capability {
            access: AccessMode::SingleNodeWriter,
            attachment: AttachmentMode::FileSystem,
        }];
        facts.volumes.get_mut(&data()).unwrap().as_mut().unwrap().capabilities = offered.into();
    };
    let (cause, who, _) = explain_first(away);
    assert_eq!((cause, &*who), (Cause::StorageUnreachable, OPERATOR));
    let (cause, who, _) = explain_first(|facts| set_plugin(facts, false));
    assert_eq!((cause, &*who), (Cause::PluginDown, OPERATOR));
    // What holds the volume shares it: its own node is all that keeps the volume from `d`.
    let access = AccessMode::MultiNodeMultiWriter;
    let used = Capability { access, attachment: AttachmentMode::FileSystem };
    let waiting = claim(json!({"alloc": "d", "node": "n8", "state": "waiting"}));
    let mut facts = well();
    set_volume(&mut facts, &[claim(json!({})), waiting], json!({"in_use": used}));
    facts.nodes.insert(NodeId::new("n8").unwrap(), Ok(read(down("n8"))));
    let sentence = first(&facts).finding.sentence;
    assert!(sentence.starts_with("node n8 is down"), "{sentence}");
}
