//! Drivers whose reports the kernel contradicts.

use serde_json::{Value, json};

use super::log::*;
use crate::FindingKind;
use Came::{Failed, Killed, Lied, Lost, Refused};

fn nothing(path: &str) -> Value {
    json!({"path": path, "mounts": []})
}

fn mount(path: &str, root: &str, read_only: bool) -> Value {
    json!({"path": path, "mounts": [{"device": "8:1", "root": root, "read_only": read_only}]})
}

/// A target at which the kernel shows a block device.
fn device(read_only: Value) -> Value {
    let mut target = mount("/t", "/loop7", false);
    target["block_device"] = json!({"device": "7:7", "read_only": read_only});
    target
}

fn readonly(args: Value) -> Value {
    with(args, json!({"readonly": true}))
}

fn block(args: Value) -> Value {
    let kind = json!({"access_mode": {"mode": "SINGLE_NODE_WRITER"}, "access_type": {}});
    with(args, json!({"volume_capability": kind}))
}

#[track_caller]
fn is_false(log: &Log, rule: &str) {
    let expected = [(FindingKind::FalseReport, rule.to_owned())];
    let kinds: Vec<_> = log.broken().into_iter().map(|(kind, rule, _)| (kind, rule)).collect();
    assert_eq!(kinds, expected, "{}", log.text());
}

/// One false report for each rule.
pub fn all() -> Vec<(&'static str, Log)> {
    let unpublished = published().ok("n1", UNPUBLISH, target("n1"));
    let readonly = staged().ok("n1", PUBLISH, readonly(target("n1")));
    let stage_and_target =
        |root, read_only| json!([mount("/s", "/v", false), mount("/t", root, read_only)]);
    vec![
        ("not-mounted", staged().kernel(json!([nothing("/s")]))),
        ("still-mounted", unpublished.kernel(json!([mount("/t", "/v", false)]))),
        ("mounted-writable", readonly.kernel(stage_and_target("/v", false))),
        ("other-content", published().kernel(stage_and_target("/other", false))),
        ("not-observed", staged().kernel(Value::Null)),
    ]
}

#[test]
fn each_false_report_is_found() {
    for (rule, log) in all() {
        is_false(&log, rule);
    }
}

#[test]
fn a_stage_that_is_reported_and_not_mounted() {
    let log = staged().kernel(json!([nothing("/s")]));
    is_false(&log, "not-mounted");
    assert_eq!(log.broken()[0].2, [5, 6], "the call proves it");
}

#[test]
fn a_publication_that_is_reported_and_not_mounted() {
    let kernel = json!([mount("/s", "/v", false), nothing("/t")]);
    is_false(&published().kernel(kernel), "not-mounted");
}

#[test]
fn what_is_reported_as_undone_and_still_mounted() {
    let unpublished = || published().ok("n1", UNPUBLISH, target("n1"));
    is_false(&unpublished().kernel(json!([mount("/t", "/v", false)])), "still-mounted");
    let unstaged = unpublished().ok("n1", UNSTAGE, staging("n1"));
    is_false(&unstaged.kernel(json!([mount("/s", "/v", false)])), "still-mounted");
}

#[test]
fn an_answer_that_is_lost_or_wrong_reports_what_was_done_too() {
    for came in [Lost, Lied] {
        let log = published().call("n1", UNPUBLISH, target("n1"), came);
        is_false(&log.kernel(json!([mount("/t", "/v", false)])), "still-mounted");
    }
    // These answers report no success, so the kernel contradicts nothing.
    for came in [Refused, Failed] {
        let log = published().call("n1", UNPUBLISH, target("n1"), came);
        log.kernel(json!([mount("/t", "/v", false)])).proves_nothing();
    }
    published().call("n1", UNPUBLISH, target("n1"), Killed).proves_nothing();
}

#[test]
fn a_volume_that_was_asked_for_read_only_and_can_be_written_to() {
    let stage_and_target =
        |read_only| json!([mount("/s", "/v", false), mount("/t", "/v", read_only)]);
    let log = || staged().ok("n1", PUBLISH, readonly(target("n1")));
    is_false(&log().kernel(stage_and_target(false)), "mounted-writable");
    log().kernel(stage_and_target(true)).proves_nothing();
    // A volume that was requested for writing may be writable.
    published().kernel(stage_and_target(true)).proves_nothing();
    let reader = with(target("n1"), mode("MULTI_NODE_READER_ONLY"));
    let stage = with(staging("n1"), mode("MULTI_NODE_READER_ONLY"));
    let log =
        attached().ok("n1", STAGE, stage).ok("n1", PUBLISH, reader).kernel(stage_and_target(false));
    is_false(&log, "mounted-writable");
}

#[test]
fn a_block_device_says_itself_whether_it_can_be_written_to() {
    let log = |args, device| {
        let stage = attached().ok("n1", STAGE, block(staging("n1"))).kernel(json!([nothing("/s")]));
        stage.ok("n1", PUBLISH, block(args)).kernel(json!([nothing("/s"), device]))
    };
    log(target("n1"), device(json!(false))).proves_nothing();
    log(readonly(target("n1")), device(json!(true))).proves_nothing();
    is_false(&log(readonly(target("n1")), device(json!(false))), "mounted-writable");
    // If the kernel does not show it, nothing is proven.
    log(readonly(target("n1")), device(Value::Null)).proves_nothing();
    is_false(&log(target("n1"), mount("/t", "/v", false)), "not-mounted");
}

#[test]
fn another_content_than_the_staged_one() {
    let kernel = json!([mount("/s", "/v", false), mount("/t", "/other", false)]);
    is_false(&published().kernel(kernel), "other-content");
    is_false(
        &published().kernel(json!([nothing("/s"), mount("/t", "/v", false)])),
        "other-content",
    );
}

#[test]
fn a_line_without_the_kernels_word_is_found() {
    let logs = [
        staged(),
        published(),
        published().ok("n1", UNPUBLISH, target("n1")),
        published().ok("n1", UNPUBLISH, target("n1")).ok("n1", UNSTAGE, staging("n1")),
    ];
    for log in logs {
        is_false(&log.kernel(Value::Null), "not-observed");
    }
    // A line about another path is not an observation either.
    is_false(&staged().kernel(json!([mount("/other", "/v", false)])), "not-observed");
    is_false(&published().kernel(json!([mount("/t", "/v", false)])), "not-observed");
}

#[test]
fn a_deleted_volume_is_known_by_its_whole_id() {
    let deleted = |root: &str| {
        attached()
            .ok("n1", DETACH, v())
            .ok("n2", DELETE, v())
            .kernel(json!([mount("/t", root, false)]))
    };
    assert_eq!(deleted("/backend/v/data//deleted").broken()[0].1, "destroyed-while-mounted");
    for other_root in ["/backend/v10//deleted", "/backend/pvc-v//deleted", "/volumes/w//deleted"] {
        deleted(other_root).proves_nothing();
    }
}
