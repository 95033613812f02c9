//! Error answers, as shown to the caller that asked for the volume.

use berth_domain::access::Mode;

use super::*;
use crate::{find_problem, find_unusable};

fn problem(more: Value) -> Problem {
    let base = json!({"code": Code::Busy, "message": "it says so", "retryable": false,
        "next": "try `it`"});
    read(with(base, more))
}

#[test]
fn an_error_answer_names_its_cause_and_who_acts() {
    let rows = [
        (json!({"code": Code::NodeDown}), Cause::NodeDown, "you"),
        (json!({"code": Code::NoResponder}), Cause::ServiceAway, "you"),
        (json!({"code": Code::PluginUnhealthy, "plugin": "p"}), Cause::PluginDown, OPERATOR),
        (json!({"code": Code::PluginFailed, "plugin": "p"}), Cause::PluginRefuses, OPERATOR),
        (
            json!({"code": Code::PluginFailed, "plugin": "p", "grpc": "UNAVAILABLE",
                "retryable": true}),
            Cause::PluginRetries,
            NOBODY,
        ),
        (json!({"code": Code::MountUnaccounted}), Cause::MountUnaccounted, "you"),
        (json!({"code": Code::Busy, "retryable": true}), Cause::UnderWay, NOBODY),
        (json!({"code": Code::Late, "retryable": true}), Cause::UnderWay, NOBODY),
        (json!({"code": Code::ClockSkew}), Cause::ClockWrong, "you"),
        (json!({"code": Code::BadInput}), Cause::Refused, "you"),
    ];
    for (more, cause, who) in rows {
        let finding = find_problem(&problem(more));
        assert_eq!((finding.cause, finding.who.to_string().as_str()), (cause, who), "{finding:?}");
        let line = finding.line();
        assert!(line.contains(&format!("; who acts: {who}; next: try `it`")), "{line}");
    }
    let held_by_process = json!({"code": Code::VolumeHeldByProcess, "node": "n1",
        "processes": [{"pid": 7, "command": "sh"}]});
    let line = find_problem(&problem(held_by_process)).line();
    assert!(line.contains("next: `ps -o pid,user,etime,args -p 7` (on node n1: end"), "{line}");
}

/// Only the command line has `--wait`: the answer's own advice is for it.
#[test]
fn a_volume_in_use_names_its_holder_and_no_option_of_another_program() {
    let held = problem(json!({"code": Code::Held, "next": "or ask with `--wait`"}));
    let line_for = |claims: &[Value]| {
        let mut facts = Facts { now: at(100), ..Facts::default() };
        set_volume(&mut facts, claims, json!({}));
        find_unusable(&facts, &data(), (&n1(), Mode::Write), &held).line()
    };
    let line = line_for(&[claim(json!({}))]);
    let expected = "volume data is in use (BERTH0106): a on node n1 has held it for 100s; who \
                    acts: you; next: `berth alloc stop a` (once its workload has ended";
    assert!(line.starts_with(expected), "{line}");
    // A release is shown first, with what blocks it.
    let hint = "node n1 is down for 9s; next: `berth node gone n1`";
    let leaving = json!({"alloc": "b", "state": "unpublishing", "step": "agent.detach",
        "next_try": at(105), "waits_for": "agent.detach, again", "hint": hint});
    let line = line_for(&[claim(json!({})), claim(leaving)]);
    assert!(line.contains("b on node n1, unpublishing for 100s: it waits for"), "{line}");
    assert!(line.ends_with(hint), "{line}");
    // The holder's alloc is not to blame: its node does not answer.
    let down = json!({"wait": "node", "waits_for": "the agent of node n1, which is down since t"});
    let line = line_for(&[claim(down)]);
    let parts = [
        "a on node n1, taken for 100s: it waits for the agent of node n1, which is down",
        "next: `systemctl restart berth-node-agent` (on node n1)",
    ];
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    // The volume was given back meanwhile, or its claims could not be read.
    let usage = (&n1(), Mode::Write);
    for line in [line_for(&[]), find_unusable(&Facts::default(), &data(), usage, &held).line()] {
        assert_eq!(line, "it says so (BERTH0106); who acts: you; next: `berth why volume/data`");
    }
    // An answer that is not about holders keeps its own advice.
    let other =
        find_unusable(&Facts::default(), &data(), usage, &problem(json!({"code": Code::BadInput})));
    assert!(other.line().ends_with("next: try `it`"), "{other:?}");
}

/// Of many nodes one may write: a reader is in no writer's way.
#[test]
fn only_a_claim_that_is_in_the_way_is_named() {
    let used = json!({"access": "multi-node-single-writer", "attachment": "file-system"});
    let reader = claim(json!({"alloc": "r", "node": "n2", "mode": "read", "wait": "node",
        "waits_for": "the agent of node n2, which is down"}));
    let writer = claim(json!({"alloc": "v", "node": "n3"}));
    let own = claim(json!({"alloc": "docker", "state": "unpublishing", "step": "agent.detach",
        "next_try": at(105), "waits_for": "agent.detach, again"}));
    let mut facts = Facts { now: at(100), ..Facts::default() };
    set_volume(&mut facts, &[reader, writer, own], json!({"in_use": used}));
    let sentence_for = |code| {
        let problem = problem(json!({ "code": code }));
        find_unusable(&facts, &data(), (&n1(), Mode::Write), &problem).sentence
    };
    assert!(
        sentence_for(Code::Held).contains("v on node n3 has held it"),
        "{}",
        sentence_for(Code::Held)
    );
    let releasing = sentence_for(Code::Releasing);
    assert!(releasing.contains("docker on node n1, unpublishing for"), "{releasing}");
}
