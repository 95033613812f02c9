//! Cases in which the driver and the judge disagree.

use super::log::*;
use crate::FindingKind;
use Came::{Noticed, Refused};

fn kinds(log: &Log) -> Vec<(FindingKind, String)> {
    log.findings().into_iter().map(|finding| (finding.kind, finding.rule.name)).collect()
}

#[test]
fn what_the_driver_should_have_refused_and_did() {
    let log = attached().ok("n2", ATTACH, on("n2"));
    let rule = || "exclusive-attach".to_owned();
    assert_eq!(
        kinds(&log),
        [(FindingKind::Violation, rule()), (FindingKind::OnlyTheJudge, rule())]
    );
    // The driver refused for another reason, and may never have checked this rule.
    let log = attached().call("n2", ATTACH, on("n2"), Refused);
    assert_eq!(kinds(&log), [(FindingKind::Violation, rule())]);
}

/// It reports that it refuses nothing, so what it did is no mistake of its own.
#[test]
fn what_a_lenient_driver_did_is_the_fault_of_its_caller_alone() {
    let log = attached().ok("n2", ATTACH, on("n2")).lenient();
    assert_eq!(kinds(&log), [(FindingKind::Violation, "exclusive-attach".to_owned())]);
}

#[test]
fn what_the_driver_refused_and_the_logs_do_not_show() {
    let log = staged().call("n1", PUBLISH, target("n1"), Noticed("second-writer"));
    assert_eq!(kinds(&log), [(FindingKind::OnlyTheDriver, "second-writer".to_owned())]);
    assert!(log.findings()[0].to_string().contains("DISAGREEMENT"));
}

#[test]
fn a_rule_of_the_drivers_that_the_judge_does_not_have() {
    let log = staged().call("n1", PUBLISH, target("n1"), Noticed("brand-new"));
    let findings = log.findings();
    assert_eq!((findings[0].kind, findings[0].rule.safety), (FindingKind::OnlyTheDriver, None));
}

#[test]
fn two_calls_at_once_are_agreed_on_whichever_of_them_was_refused() {
    let noticed = Noticed("overlapping-node-calls");
    let log = attached()
        .begin("n1", STAGE, staging("n1"))
        .begin("n1", STAGE, staging("n1"))
        .end(5, noticed)
        .end(6, Came::Ok);
    let rule = "overlapping-node-calls".to_owned();
    assert_eq!(kinds(&log), [(FindingKind::Violation, rule)]);
    assert!(log.findings()[0].noticed);
}

#[test]
fn two_calls_at_once_that_were_both_done() {
    let log = attached()
        .begin("n1", STAGE, staging("n1"))
        .ok("n1", STAGE, staging("n1"))
        .end(5, Came::Ok);
    let rule = || "overlapping-node-calls".to_owned();
    assert_eq!(
        kinds(&log),
        [(FindingKind::Violation, rule()), (FindingKind::OnlyTheJudge, rule())]
    );
}

#[test]
fn a_finding_says_which_rule_where_it_is_written_and_who_noticed() {
    let log = attached().call("n2", ATTACH, on("n2"), Noticed("exclusive-attach"));
    let text = log.findings()[0].to_string();
    let first = "volume \"v\": attached to n1, and not for many nodes; end that before it goes \
                 elsewhere [exclusive-attach, Safety 2, CSI \"ControllerPublishVolume\"] \
                 (refused by the driver)";
    assert_eq!(text.lines().next().unwrap(), first);
    let json = serde_json::to_value(&log.findings()[0]).unwrap();
    assert_eq!(json["kind"], "violation");
    assert_eq!(json["rule"]["safety"], 2);
    assert_eq!(json["proof"][0]["number"], 5);
}
