//! Which of several causes is shown.

use super::*;

#[test]
fn who_waits_is_told_what_keeps_the_holder() {
    let mut facts = well();
    let holder = claim(json!({"state": "unpublishing", "step": "agent.detach", "tries": 1,
        "error": "agent.detach: x", "failure": {"code": Code::StillBusy}}));
    let next = claim(json!({"alloc": "b", "node": "n2", "state": "waiting",
        "waits_for": "its turn, after a on n1 (unpublishing)"}));
    set_volume(&mut facts, &[holder, next.clone()], json!({}));
    let hung = work("agent.detach", "NodeUnpublishVolume", true);
    set_agent(&mut facts, &agent(&[mount(json!({}))], &[hung], &[]));
    let diagnosis = first(&facts);
    assert_eq!(diagnosis.finding.cause, Cause::PluginHangs);
    assert!(
        diagnosis.also[0].starts_with("waiting by b on n2: b waits for a: plugin p"),
        "{diagnosis:#?}"
    );

    // A claim that waits for a healthy holder has no fault.
    set_volume(&mut facts, &[claim(json!({})), next], json!({}));
    set_agent(&mut facts, &agent(&[mount(json!({}))], &[], &[]));
    let diagnosis = first(&facts);
    assert_eq!(
        (diagnosis.finding.cause, diagnosis.finding.who),
        (Cause::HeldByOthers, Actor::NOBODY)
    );
    assert!(diagnosis.finding.sentence.starts_with("a on node n1 has held the volume"));

    // The node is down: neither claim continues by itself.
    set_node(&mut facts, json!({"state": "down"}));
    let diagnosis = first(&facts);
    assert_eq!((diagnosis.finding.cause, &diagnosis.finding.who), (Cause::NodeDown, &Actor::You));
    assert!(diagnosis.also[0].contains("b waits for a: node n1 is down"), "{diagnosis:#?}");
}

#[test]
fn the_earlier_cause_hides_the_later_one() {
    let mut facts = well();
    // A plugin hangs on a node that is down, the server stores no writes, and the clock is wrong.
    let waits = "the server to store the next write to bucket berth-volumes";
    let hung = work("agent.detach", "NodeUnpublishVolume", true);
    let leaving =
        |more| claim(with(json!({"state": "unpublishing", "step": "agent.detach"}), more));
    set_agent(&mut facts, &agent(&[mount(json!({}))], &[hung], &[]));
    set_node(&mut facts, json!({"state": "down", "clock_skew_ms": 9_000}));
    set_volume(&mut facts, &[leaving(json!({"wait": "store", "waits_for": waits}))], json!({}));
    let mut decisive_causes = vec![first(&facts).finding.cause];
    set_volume(&mut facts, &[leaving(json!({}))], json!({}));
    decisive_causes.push(first(&facts).finding.cause);
    set_node(&mut facts, json!({"state": "down"}));
    decisive_causes.push(first(&facts).finding.cause);
    set_node(&mut facts, json!({}));
    decisive_causes.push(first(&facts).finding.cause);
    let causes = [Cause::StoreFault, Cause::ClockWrong, Cause::NodeDown, Cause::PluginHangs];
    assert_eq!(decisive_causes, causes);
    assert!(causes.is_sorted());
}

#[test]
fn nothing_is_told_of_what_nobody_has() {
    let mut facts = well();
    facts.volumes.insert(data(), Err(Problem::new(Code::NoSuchVolume, "none")));
    assert_eq!(diagnose(&facts), []);
}
