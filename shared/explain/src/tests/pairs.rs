//! States that meet: what one of them says alone would be wrong.

use super::golden::of_alloc;
use super::*;

fn denied() -> Problem {
    Problem::new(Code::NotAllowed, "may not send it")
}

fn p() -> PluginId {
    PluginId::new("p").unwrap()
}

/// The cause, who acts, and the sentence.
fn decisive(facts: &Facts) -> (Cause, String, String) {
    let finding = first(facts).finding;
    (finding.cause, finding.who.to_string(), finding.sentence)
}

/// A user may read neither nodes nor plugins. The claim's record says that its node is down.
#[test]
fn what_may_not_be_read_hides_no_fault_and_is_none() {
    let mut facts = well();
    facts.nodes.insert(n1(), Err(denied()));
    facts.agents.insert(n1(), Err(denied()));
    facts.plugins.insert(p(), Err(denied()));
    let down = json!({"wait": "node", "waits_for": "the agent of node n1, which is down"});
    set_volume(&mut facts, &[claim(down)], json!({}));
    let (cause, who, _) = decisive(&facts);
    assert_eq!((cause, &*who), (Cause::NodeDown, "you"));
    // Nothing is known against the plugin.
    let detach = json!({"state": "node-detached", "step": "controller.unpublish",
        "waits_for": "a volumewatcher"});
    set_volume(&mut facts, &[claim(detach)], json!({}));
    assert_eq!(decisive(&facts).0, Cause::UnderWay);
    let health = json!({"healthy": false, "description": "no controller is healthy",
        "nodes": {"healthy": 1, "expected": 1}});
    set_volume(&mut facts, &[], json!({ "health": health }));
    assert_eq!(decisive(&facts).2, "its plugin is not well: no controller is healthy");
    // Nor are they well.
    let mut facts = well();
    facts.names = Names { node: Some(n1()), ..Names::default() };
    facts.agents.insert(n1(), Err(denied()));
    facts.claims_on.insert(n1(), Err(denied()));
    let sentence = decisive(&facts).2;
    assert!(sentence.starts_with("its agent was not asked, plugins: 1"), "{sentence}");
    assert!(
        sentence.ends_with("claims: not known, mounts: not known; nothing to do"),
        "{sentence}"
    );
    facts.names = Names { plugin: Some(p()), ..Names::default() };
    assert_eq!(decisive(&facts).2, "every instance answers its probe; nothing to do");
}

#[test]
fn a_service_that_gets_requests_too_late_is_there() {
    let mut facts = well();
    facts.volumes.insert(data(), Err(Problem::new(Code::Late, "2 s after its deadline")));
    let (cause, who, sentence) = decisive(&facts);
    assert_eq!((cause, &*who), (Cause::ClockWrong, "you"), "{sentence}");
    let skew = ServiceInfo { clock_skew_ms: Some(9_000), access: None };
    facts.services.insert(CLAIM.name, Ok(skew));
    assert!(decisive(&facts).2.starts_with("the clock of berth-claim is 9.0 s ahead"));
    // A user may not look for the replicas; one of them answered.
    facts.services.insert(CLAIM.name, Err(denied()));
    facts.volumes.insert(data(), Err(Problem::new(Code::Overloaded, "1024 under way")));
    let sentence = decisive(&facts).2;
    assert_eq!(sentence, "berth-claim is there and does not say it: 1024 under way");
}

/// It keeps its place until a volumewatcher takes it away.
#[test]
fn what_an_alloc_that_has_ended_waits_for_is_no_turn() {
    let ended = |state: &str, step: Option<&str>| {
        claim(json!({"alloc": "b", "state": state, "step": step, "wait": "release",
            "waits_for": "its release: the alloc has ended"}))
    };
    let behind = claim(json!({"alloc": "c", "state": "waiting", "epoch": 8, "wait": "turn",
        "waits_for": "its turn, after b"}));
    for claims in [vec![ended("waiting", None), behind], vec![ended("publishing", None)]] {
        let mut facts = well();
        set_volume(&mut facts, &claims, json!({}));
        let (cause, who, sentence) = decisive(&facts);
        assert_eq!((cause, &*who), (Cause::UnderWay, NOBODY), "{sentence}");
        assert_eq!(sentence, "it waits for its release: the alloc has ended");
        facts.services.insert(VOLUMEWATCHER.name, Err(away()));
        let diagnosis = first(&facts);
        assert_eq!(diagnosis.finding.cause, Cause::NobodyWorks);
        assert!(diagnosis.also.iter().all(|line| line.contains("no berth-volumewatcher answers")));
    }
    let mut facts = well();
    set_volume(&mut facts, &[claim(json!({})), ended("waiting", None)], json!({}));
    assert_eq!(decisive(&facts).2, "it waits for its release: the alloc has ended");
}

/// It is no cause of what a claim waits for, and is not forgotten either.
#[test]
fn a_refused_change_of_a_volume_in_use_is_told() {
    let failure = json!({"operation": "expand", "at": at(90), "error": "OUT_OF_RANGE"});
    let refused = json!({"storage": {"stage": "ready", "failure": failure}});
    let mut facts = well();
    set_volume(&mut facts, &[claim(json!({}))], refused.clone());
    let (cause, _, sentence) = decisive(&facts);
    assert_eq!(cause, Cause::ChangeRefused);
    assert!(sentence.contains("refused to expand it 10s ago"), "{sentence}");
    set_node(&mut facts, json!({"state": "down"}));
    let diagnosis = first(&facts);
    assert_eq!(diagnosis.finding.cause, Cause::NodeDown);
    assert!(diagnosis.also.iter().any(|line| line.contains("refused to expand")), "{diagnosis:?}");
}

fn expanding(facts: &mut Facts, more: Value) {
    let base = json!({"operation": "expand", "since": at(0), "call": "agent.expand", "tries": 2,
        "error": "no agent took it", "nodes_left": ["n1"]});
    let storage = json!({"stage": "ready", "operation": with(base, more)});
    set_volume(facts, &[claim(json!({}))], json!({ "storage": storage }));
}

fn find_change(facts: &Facts) -> crate::Finding {
    crate::find_change(facts, facts.volumes[&data()].as_ref().unwrap()).unwrap()
}

#[test]
fn an_expansion_waits_for_a_node_that_is_away_and_not_for_the_plugin() {
    let mut facts = well();
    expanding(&mut facts, json!({"failure": {"code": Code::NoResponder, "node": "n1"}}));
    set_node(&mut facts, json!({"state": "down"}));
    let finding = find_change(&facts);
    assert_eq!((finding.cause, &finding.who), (Cause::NodeDown, &Actor::You), "{finding:?}");
    assert!(finding.sentence.starts_with("expanding: node n1 is down"), "{finding:?}");
    set_node(&mut facts, json!({}));
    no_agent(&mut facts);
    assert_eq!(find_change(&facts).cause, Cause::AgentAway);
    // The hint of the volume knows no node.
    let hint = find_change(&Facts { nodes: [].into(), agents: [].into(), ..facts });
    assert_eq!(hint.who, Actor::You, "{hint:?}");
}

/// The alloc of a claim that is being released has ended.
#[test]
fn an_expansion_tells_nobody_to_stop_what_has_ended() {
    let mut facts = well();
    let operation = json!({"operation": "expand", "since": at(0), "call": "controller.expand",
        "waits_for": "volume-free"});
    let leaving = claim(json!({"alloc": "b", "state": "unpublishing", "step": "agent.detach"}));
    let storage = json!({"stage": "ready", "operation": operation});
    set_volume(&mut facts, &[claim(json!({})), leaving], json!({ "storage": storage }));
    let next = find_change(&facts).next;
    assert_eq!(next, ["berth alloc stop a   # once its workload has ended"]);
}

/// What failed was Berth, or nobody took the call: the plugin answered nothing.
#[test]
fn a_failure_of_berth_is_not_for_the_plugins_operator() {
    let rows = [
        (json!({"code": Code::Overloaded}), Cause::UnderWay, "nobody: it goes on by itself"),
        (json!({"code": Code::SecretsUnavailable}), Cause::CallFails, "you"),
        (json!({"code": Code::NoResponder}), Cause::PluginDown, OPERATOR),
        (json!({}), Cause::PluginRefuses, OPERATOR),
    ];
    for (failure, cause, who) in rows {
        let mut facts = well();
        releasing(&mut facts, "node-detached", "controller.unpublish: x", failure.clone());
        let (found_cause, acts, sentence) = decisive(&facts);
        assert_eq!(found_cause, cause, "{failure}: {sentence}");
        assert!(acts.starts_with(who), "{failure}: {acts}");
        let operation = json!({"operation": "create", "since": at(0), "call": "controller.create",
            "tries": 2, "error": "x", "failure": failure});
        let storage = json!({"stage": "creating", "operation": operation});
        set_volume(&mut facts, &[], json!({ "storage": storage }));
        let (found_cause, acts, sentence) = decisive(&facts);
        assert_eq!(found_cause, cause, "{failure}: {sentence}");
        assert!(acts.starts_with(who), "{failure}: {acts}");
    }
    // What goes by itself, and did not for minutes, is for a person.
    let mut facts = well();
    facts.now = at(500);
    releasing(&mut facts, "node-detached", "x", json!({"code": Code::Overloaded}));
    let (cause, who, _) = decisive(&facts);
    assert_eq!((cause, &*who), (Cause::CallFails, "you"));
}

fn deleting(facts: &mut Facts, doubt: &Value, unaccounted: &[&str]) {
    let operation = json!({"operation": "delete", "since": at(0), "call": "controller.delete",
        "waits_for": "unmounted"});
    let storage = json!({"stage": "deleting", "operation": operation});
    let more = json!({"storage": storage, "mounts": [doubt], "unaccounted": unaccounted});
    set_volume(facts, &[], more);
}

#[test]
fn a_deletion_that_waits_for_a_node_that_is_down_names_the_node() {
    let not_said = json!({"node": "n1", "reason": "not-said"});
    let mount = json!({"namespace": "default", "volume": "data", "alloc": "a",
        "path": "/s/target", "plugin": "p", "external_id": "data"});
    let mounted = json!({"node": "n1", "reason": "mounted", "mount": mount});
    for (doubt, unaccounted, who) in
        [(not_said, &[][..], NOBODY), (mounted, &["on node n1"][..], "you")]
    {
        let mut facts = well();
        deleting(&mut facts, &doubt, unaccounted);
        let (cause, acts, sentence) = decisive(&facts);
        assert_eq!((cause, &*acts), (Cause::MountUnaccounted, who), "{sentence}");
        // `berth doctor` reads the change alone.
        assert_eq!(find_change(&facts).cause, cause);
        set_node(&mut facts, json!({"state": "down"}));
        let diagnosis = first(&facts);
        assert_eq!(
            (diagnosis.finding.cause, &diagnosis.finding.who),
            (Cause::NodeDown, &Actor::You)
        );
        let next = diagnosis.finding.next.join("; ");
        assert!(next.contains("systemctl restart berth-node-agent"), "{next}");
        assert!(!next.contains("node unmount"), "no agent is there to do it: {next}");
    }
}

fn declare_gone(facts: &mut Facts) {
    let proof = json!({"kind": "confirmed", "by": "ada", "at": at(50), "note": ""});
    set_node(facts, json!({"state": "down", "gone": proof}));
    facts.agents.insert(n1(), Err(away()));
}

/// Its alloc is live, and its claim is taken from the node all the same.
#[test]
fn a_claim_of_a_gone_node_is_being_released() {
    let mut facts = well();
    declare_gone(&mut facts);
    let (cause, who, sentence) = decisive(&facts);
    assert_eq!((cause, &*who), (Cause::UnderWay, NOBODY));
    assert!(sentence.contains("was declared gone"), "{sentence}");
    facts.services.insert(VOLUMEWATCHER.name, Err(away()));
    assert_eq!(decisive(&facts).0, Cause::NobodyWorks);
    facts.services.insert(VOLUMEWATCHER.name, Ok(ServiceInfo::default()));
    // Nobody has to stop its alloc for those in line.
    let next = claim(json!({"alloc": "b", "node": "n2", "state": "waiting"}));
    set_volume(&mut facts, &[claim(json!({})), next], json!({}));
    let line = &first(&facts).also[0];
    assert!(line.contains("b waits for a: node n1 was declared gone"), "{line}");
    // The host may never come back.
    facts.names = Names { node: Some(n1()), ..Names::default() };
    let next = first(&facts).finding.next;
    assert!(next.iter().any(|one| one.starts_with("berth node leave n1")), "{next:?}");
    // The same of a plugin that ran nowhere else.
    facts.names = Names { plugin: Some(p()), ..Names::default() };
    set_plugin(&mut facts, false);
    assert_eq!(decisive(&facts).0, Cause::NodeGone);
}

#[test]
fn an_alloc_whose_volume_went_with_it_is_told_with_the_reason() {
    let refusal = json!({"at": at(97), "step": "agent.mount", "code": Code::MountFailed,
        "message": "wrong fs type", "volume": "data"});
    let mut facts = of_alloc(json!({"state": "failed", "last_refusal": refusal}));
    facts.volumes.insert(data(), Err(Problem::new(Code::NoSuchVolume, "none")));
    let (cause, _, sentence) = decisive(&facts);
    assert_eq!(cause, Cause::Refused);
    assert!(sentence.ends_with("was refused 3.0s ago: wrong fs type"), "{sentence}");
}

#[test]
fn an_alloc_whose_volume_cannot_be_judged_does_not_lack_none() {
    let mut facts = of_alloc(json!({"state": "live"}));
    assert!(decisive(&facts).2.starts_with("it has no claim on volume data"));
    facts.placements.insert((data(), Some(n1())), Err(denied()));
    assert_eq!(decisive(&facts).0, Cause::RightMissing);
}

#[test]
fn a_mount_that_nobody_asks_for_again_is_not_asked_again() {
    let outcome_at = |failed: u64| {
        let failure = json!({"namespace": "default", "volume": "data", "alloc": "a",
            "step": "agent.mount", "tries": 2, "at": at(failed), "error": "not now",
            "failure": {"code": Code::PluginFailed, "rpc": "NodeStageVolume",
                "grpc": "UNAVAILABLE", "node": "n1"}});
        let mut facts = well();
        facts.now = at(250);
        set_agent(&mut facts, &agent(&[], &[], &[failure]));
        let (cause, who, _) = decisive(&facts);
        (cause, who)
    };
    assert_eq!(outcome_at(240), (Cause::PluginRetries, NOBODY.to_owned()));
    assert_eq!(outcome_at(100), (Cause::NotAskedFor, "you".to_owned()));
}

/// The claim is 100 s old, and its alloc ended 1 s ago.
#[test]
fn a_release_that_is_due_since_a_moment_is_not_held_back() {
    let ended = |since: u64| {
        let release =
            json!({"step": "agent.detach", "wait": "release", "waits_for": "its release"});
        let mut facts = of_alloc(json!({"state": "complete", "since": at(since)}));
        facts.names = Names { volume: Some(data().volume), ..Names::default() };
        set_volume(&mut facts, &[claim(release)], json!({}));
        decisive(&facts).2
    };
    assert_eq!(ended(99), "it waits for its release");
    assert!(ended(90).contains("its release is not begun"), "{}", ended(90));
}
