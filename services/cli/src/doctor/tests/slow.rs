//! From when a claim's step counts as slow.

use super::*;

#[test]
fn a_slow_step_without_a_fault_is_not_stuck() {
    let verdict = |more: Value, change: fn(&mut SystemFacts)| {
        let mut facts = well();
        facts.claims = Ok(ClaimList { claims: vec![claim(more)], ..ClaimList::default() });
        change(&mut facts);
        examine(&facts).verdict
    };
    let no_watcher = |facts: &mut SystemFacts| {
        facts.why.services.insert(service::VOLUMEWATCHER.name, Err(away()));
    };
    assert_eq!(verdict(json!({"since": at(98)}), no_watcher), Verdict::Well);
    assert_eq!(verdict(json!({"since": at(98), "tries": 2}), no_watcher), Fault);
    let waits = json!({"state": "waiting", "step": null});
    assert_eq!(verdict(waits, no_watcher), Verdict::Well);
    let slow = json!({"since": at(0), "waits_for": "its turn at the plugin"});
    assert_eq!(verdict(slow.clone(), |_| {}), Verdict::Well);
    assert_eq!(
        verdict(slow, |facts| {
            facts.now = at(700);
            facts.why.now = at(700);
        }),
        Warning
    );
}

/// The claim is old, and what it does now is not.
#[test]
fn an_old_claim_that_has_just_begun_a_step_is_not_slow() {
    let verdict = |work_since: u64, more: Value| {
        let mut facts = well();
        (facts.now, facts.why.now) = (at(7200), at(7200));
        let taken = with(json!({"state": "taken", "step": null}), more);
        facts.claims = Ok(ClaimList { claims: vec![claim(taken)], ..ClaimList::default() });
        let work = json!({"namespace": "default", "volume": "data", "alloc": "a",
            "step": "agent.mount", "since": at(work_since), "rpc": "NodePublishVolume",
            "rpc_since": at(work_since), "hung": false});
        let n1 = read(agent("n1", &[work]));
        facts.why.agents.insert(NodeId::new("n1").unwrap(), Ok(n1));
        examine(&facts).verdict
    };
    assert_eq!(verdict(7198, json!({})), Verdict::Well);
    assert_eq!(verdict(6000, json!({})), Warning);
}

/// The record of an old claim does not say when its alloc ended.
#[test]
fn the_release_of_an_old_claim_is_slow_once_its_alloc_ended_long_ago() {
    let verdict = |alloc: Result<u64, Problem>| {
        let mut facts = well();
        (facts.now, facts.why.now) = (at(7200), at(7200));
        let leaving = claim(json!({"state": "taken", "step": "agent.detach", "wait": "release",
            "waits_for": "its release: the alloc has ended"}));
        let alloc = alloc.map(|ended| {
            read(json!({"id": leaving.alloc, "namespace": leaving.namespace, "state": "complete",
                "node": "n1", "since": at(ended), "volumes": [], "claims": [],
                "modify_index": 4, "status_index": 4}))
        });
        facts.why.allocs.insert((leaving.namespace.clone(), leaving.alloc.clone()), alloc);
        facts.claims = Ok(ClaimList { claims: vec![leaving], ..ClaimList::default() });
        examine(&facts).verdict
    };
    assert_eq!(verdict(Ok(7199)), Verdict::Well);
    assert_eq!(verdict(Ok(6000)), Warning);
    assert_eq!(verdict(Err(away())), Warning);
}
