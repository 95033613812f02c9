//! Hand-written logs, each with one kind of violation, and correct ones without any.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;

const ATTACH: &str = "ControllerPublishVolume";
const DETACH: &str = "ControllerUnpublishVolume";
const STAGE: &str = "NodeStageVolume";
const UNSTAGE: &str = "NodeUnstageVolume";
const PUBLISH: &str = "NodePublishVolume";
const UNPUBLISH: &str = "NodeUnpublishVolume";

/// A log that is written call by call. `n1'` is the next instance of node `n1`.
#[derive(Default)]
struct Log {
    lines: Vec<Line>,
    seq: u64,
}

impl Log {
    /// A call at the instance of `node` that began and ended at these times, with this effect.
    fn call(self, node: &str, times: (u64, u64), rpc: &str, args: Value, effect: &str) -> Self {
        let mut log = self.begin(node, times.0, rpc, args);
        let mut end = log.lines[log.lines.len() - 1].clone();
        let mut text: Value = serde_json::from_str(&end.text).unwrap();
        text["entry"] = "end".into();
        text["end_us"] = times.1.into();
        text["code"] = if effect == "done" { "OK" } else { "INTERNAL" }.into();
        text["effect"] = effect.into();
        end.number += 1;
        end.text = text.to_string();
        end.entry = serde_json::from_value(text).unwrap();
        log.lines.push(end);
        log
    }

    /// A call that succeeded.
    fn ok(self, node: &str, times: (u64, u64), rpc: &str, args: Value) -> Self {
        self.call(node, times, rpc, args, "done")
    }

    /// The beginning of a call.
    fn begin(mut self, node: &str, begin_us: u64, rpc: &str, args: Value) -> Self {
        self.seq += 1;
        let seq = self.seq;
        self.push(json!({
            "entry": "begin", "seq": seq, "begin_us": begin_us,
            "node_id": node.trim_end_matches('\''), "instance": node,
            "rpc": rpc, "volume_id": "v", "args": args,
        }))
    }

    /// The caller of the latest call left.
    fn gone(self, node: &str, gone_us: u64) -> Self {
        let seq = self.seq;
        self.push(json!({
            "entry": "gone", "seq": seq, "gone_us": gone_us,
            "node_id": node.trim_end_matches('\''), "instance": node,
        }))
    }

    /// An instance started that wants volumes attached and staged.
    fn start(self, node: &str, start_us: u64, holds: Value) -> Self {
        self.push(json!({
            "entry": "start", "start_us": start_us,
            "node_id": node.trim_end_matches('\''), "instance": node,
            "attach": true, "stage": true, "holds": holds,
        }))
    }

    fn push(mut self, entry: Value) -> Self {
        let (file, number) = (PathBuf::from("hand.log"), self.lines.len() + 1);
        let text = entry.to_string();
        let entry = serde_json::from_value(entry).unwrap();
        self.lines.push(Line { file, number, text, entry });
        self
    }

    /// The names of the rules found broken, and the line numbers of the first finding's proof.
    fn judged(&self) -> (Vec<String>, Vec<usize>) {
        let findings = judge(&self.lines);
        let name = |finding: &Finding| {
            let violation = serde_json::to_value(&finding.violation).unwrap();
            violation["rule"].as_str().unwrap().to_owned()
        };
        let proof = findings.first().map(|finding| &finding.proof[..]).unwrap_or_default();
        (findings.iter().map(name).collect(), proof.iter().map(|line| line.number).collect())
    }

    #[track_caller]
    fn proves(&self, rule: &str, proof: &[usize]) {
        assert_eq!(self.judged(), (vec![rule.to_owned()], proof.to_vec()));
    }

    #[track_caller]
    fn proves_nothing(&self) {
        assert_eq!(self.judged(), (vec![], vec![]));
    }
}

fn on(node: &str) -> Value {
    json!({"node": node, "access_mode": "SINGLE_NODE_WRITER"})
}

fn staging() -> Value {
    json!({"staging": "/s"})
}

fn target() -> Value {
    json!({"staging": "/s", "target": "/t"})
}

/// Attached to n1, staged and published there, and all of it undone; n2 is next.
fn life() -> Log {
    Log::default()
        .start("n1", 1, json!([]))
        .start("n2", 2, json!([]))
        .ok("n1", (10, 19), ATTACH, on("n1"))
        .ok("n1", (20, 29), STAGE, staging())
        .ok("n1", (30, 39), PUBLISH, target())
        .ok("n1", (40, 49), UNPUBLISH, target())
        .ok("n1", (50, 59), UNSTAGE, staging())
        .ok("n2", (60, 69), DETACH, on("n1"))
        .ok("n2", (69, 79), ATTACH, on("n2"))
}

#[test]
fn a_whole_life_breaks_no_rule() {
    life().proves_nothing();
}

#[test]
fn lines_in_any_order_are_judged_alike() {
    let mut log = life();
    log.lines.reverse();
    log.proves_nothing();
}

#[test]
fn exclusive_volume_attached_to_two_nodes() {
    Log::default()
        .ok("n1", (10, 19), ATTACH, on("n1"))
        .call("n2", (20, 29), ATTACH, on("n2"), "none")
        .proves("exclusive-attach", &[3, 4, 1, 2]);
}

#[test]
fn an_attach_that_changed_nothing_holds_nothing() {
    Log::default()
        .call("n1", (10, 19), ATTACH, on("n1"), "none")
        .ok("n2", (20, 29), ATTACH, on("n2"))
        .proves_nothing();
}

#[test]
fn an_attach_without_an_end_may_hold_the_volume() {
    let killed = Log::default().begin("n1", 10, ATTACH, on("n1"));
    killed.ok("n2", (20, 29), ATTACH, on("n2")).proves("exclusive-attach", &[2, 3, 1]);
    let undone =
        Log::default().begin("n1", 10, ATTACH, on("n1")).ok("n2", (15, 19), DETACH, on("n1"));
    undone.ok("n2", (20, 29), ATTACH, on("n2")).proves_nothing();
}

#[test]
fn an_attach_that_failed_half_way_may_hold_the_volume() {
    Log::default()
        .call("n1", (10, 19), ATTACH, on("n1"), "unknown")
        .ok("n2", (20, 29), ATTACH, on("n2"))
        .proves("exclusive-attach", &[3, 4, 1, 2]);
}

#[test]
fn shared_volumes_may_be_on_many_nodes_but_one_may_write() {
    let mode = |node: &str, mode: &str| json!({"node": node, "access_mode": mode});
    Log::default()
        .ok("n1", (10, 19), ATTACH, mode("n1", "MULTI_NODE_MULTI_WRITER"))
        .ok("n2", (20, 29), ATTACH, mode("n2", "MULTI_NODE_MULTI_WRITER"))
        .proves_nothing();
    Log::default()
        .ok("n1", (10, 19), ATTACH, mode("n1", "MULTI_NODE_SINGLE_WRITER"))
        .ok("n2", (20, 29), ATTACH, mode("n2", "MULTI_NODE_SINGLE_WRITER"))
        .proves("second-writer", &[3, 4, 1, 2]);
}

#[test]
fn exclusive_volume_used_on_two_nodes_without_attach() {
    let args = || json!({"target": "/t", "access_mode": "SINGLE_NODE_WRITER"});
    let used = || Log::default().ok("n1", (10, 19), PUBLISH, args());
    used().call("n2", (20, 29), PUBLISH, args(), "none").proves("exclusive-use", &[3, 4, 1, 2]);
    used()
        .ok("n1", (20, 29), UNPUBLISH, args())
        .ok("n2", (30, 39), PUBLISH, args())
        .proves_nothing();
}

#[test]
fn detach_while_staged_or_published() {
    let staged =
        Log::default().ok("n1", (10, 19), ATTACH, on("n1")).ok("n1", (20, 29), STAGE, staging());
    staged.ok("n2", (30, 39), DETACH, on("n1")).proves("detach-before-unstage", &[5, 6, 3, 4]);
    let published =
        Log::default().ok("n1", (10, 19), ATTACH, on("n1")).ok("n1", (20, 29), PUBLISH, target());
    published.ok("n2", (30, 39), DETACH, json!({})).proves("detach-before-unstage", &[5, 6, 3, 4]);
}

#[test]
fn detach_while_a_node_call_is_in_flight() {
    Log::default()
        .ok("n1", (10, 19), ATTACH, on("n1"))
        .ok("n1", (20, 40), UNPUBLISH, target())
        .ok("n2", (30, 35), DETACH, on("n1"))
        .proves("detach-before-unstage", &[5, 6, 3, 4]);
}

#[test]
fn a_stage_that_was_killed_may_be_there_until_it_is_undone() {
    let killed = || Log::default().begin("n1", 20, STAGE, staging());
    killed().ok("n2", (30, 39), DETACH, on("n1")).proves("detach-before-unstage", &[2, 3, 1]);
    killed()
        .ok("n1'", (25, 29), UNSTAGE, staging())
        .ok("n2", (30, 39), DETACH, on("n1"))
        .proves_nothing();
    // Or until its node starts again, and holds nothing.
    killed().start("n1'", 25, json!([])).ok("n2", (30, 39), DETACH, on("n1")).proves_nothing();
    killed()
        .start("n1'", 25, json!([{"volume_id": "v", "staging": "/s"}]))
        .ok("n2", (30, 39), DETACH, on("n1"))
        .proves("detach-before-unstage", &[3, 4, 1]);
}

#[test]
fn unstage_before_unpublish() {
    Log::default()
        .ok("n1", (10, 19), STAGE, staging())
        .ok("n1", (20, 29), PUBLISH, target())
        .call("n1", (30, 39), UNSTAGE, staging(), "none")
        .proves("unstage-before-unpublish", &[5, 6, 3, 4]);
}

#[test]
fn publish_before_stage_and_node_call_before_attach() {
    let attached = || Log::default().start("n1", 1, json!([])).ok("n1", (10, 19), ATTACH, on("n1"));
    attached()
        .call("n1", (20, 29), PUBLISH, target(), "none")
        .proves("publish-before-stage", &[4, 5]);
    attached()
        .ok("n1", (20, 29), DETACH, on("n1"))
        .call("n1", (30, 39), STAGE, staging(), "none")
        .proves("node-call-before-attach", &[6, 7]);
}

#[test]
fn second_staging_path() {
    Log::default()
        .ok("n1", (10, 19), STAGE, staging())
        .call("n1", (20, 29), STAGE, json!({"staging": "/other"}), "none")
        .ok("n1", (30, 39), UNSTAGE, staging())
        .ok("n1", (40, 49), STAGE, json!({"staging": "/other"}))
        .proves("second-staging-path", &[3, 4, 1, 2]);
}

#[test]
fn overlapping_controller_calls_at_two_instances() {
    Log::default()
        .ok("n1", (10, 30), ATTACH, on("n1"))
        .call("n2", (20, 25), ATTACH, on("n1"), "none")
        .proves("overlapping-controller-calls", &[3, 4, 1, 2]);
}

#[test]
fn overlapping_node_calls_on_one_node_only() {
    let first = || Log::default().ok("n1", (10, 30), STAGE, staging());
    first()
        .call("n1", (20, 25), STAGE, staging(), "none")
        .proves("overlapping-node-calls", &[3, 4, 1, 2]);
    first().ok("n2", (20, 25), STAGE, staging()).proves_nothing();
}

#[test]
fn a_call_whose_caller_left_may_be_followed_by_another() {
    let call = || Log::default().ok("n1", (10, 40), STAGE, staging()).gone("n1", 20);
    call().call("n1", (21, 25), STAGE, staging(), "none").proves_nothing();
    call()
        .call("n1", (19, 25), STAGE, staging(), "none")
        .proves("overlapping-node-calls", &[4, 5, 1, 2, 3]);
}

#[test]
fn a_hanging_call_overlaps_as_long_as_its_process_lives() {
    let hanging = || Log::default().begin("n1", 10, STAGE, staging());
    // The same process answers another call meanwhile.
    hanging()
        .call("n1", (20, 25), STAGE, staging(), "none")
        .proves("overlapping-node-calls", &[2, 3, 1]);
    // It shows no more sign of life: it may have been killed at once.
    let controller = Log::default().begin("n1", 10, ATTACH, on("n1"));
    controller.ok("n2", (20, 25), ATTACH, on("n1")).proves_nothing();
}

#[test]
fn what_only_the_driver_noticed_is_reported_too() {
    let mut log = Log::default().call("n1", (10, 19), PUBLISH, target(), "none");
    let mut end: Value = serde_json::from_str(&log.lines[1].text).unwrap();
    end["violation"] = json!({"rule": "publish-before-stage", "node": "n1"});
    log.lines[1].entry = serde_json::from_value(end).unwrap();
    log.proves("publish-before-stage", &[1, 2]);
    assert!(judge(&log.lines)[0].noticed);
}
