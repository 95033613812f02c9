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

/// What the record of the claim says may hold all the same.
#[test]
fn an_alloc_whose_claim_cannot_be_read_has_not_given_its_volumes_up() {
    let record = json!({"key": "default.data.claim.a", "code": Code::DamagedRecord,
        "error": "EOF"});
    for state in ["live", "complete", "failed"] {
        let facts = of_alloc(json!({"state": state, "unreadable": [record]}));
        let diagnosis = first(&facts);
        assert_eq!(diagnosis.finding.cause, Cause::RecordUnreadable, "{diagnosis:#?}");
        assert_eq!(diagnosis.state, format!("{state}; its volumes are not known"));
    }
}

/// The node's other faults are of other plugins and volumes.
#[test]
fn what_an_alloc_lacks_is_not_every_fault_of_its_node() {
    let mut facts = of_alloc(json!({"state": "live"}));
    let other = with(instance("node", false), json!({"plugin": "q"}));
    set_node(&mut facts, json!({"instances": [instance("node", true), other]}));
    set_volume(&mut facts, &[claim(json!({"alloc": "b", "node": "n2"}))], json!({}));
    let refused = |facts: &mut Facts, code: Code| {
        let obstacle = json!({"volume": "data", "code": code, "message": "it says why"});
        let place = json!([{"node": "n1", "fits": false, "obstacles": [obstacle]}]);
        facts.placements.insert((data(), Some(n1())), Ok(read(place)));
        decisive(facts)
    };
    let (cause, _, sentence) = refused(&mut facts, Code::Held);
    assert_eq!(cause, Cause::HeldByOthers);
    assert!(sentence.starts_with("b on node n2 has held the volume"), "{sentence}");
    // Its own plugin is ill there, or the node takes no claim at all.
    set_node(&mut facts, json!({"instances": [instance("node", false)]}));
    let (cause, who, sentence) = refused(&mut facts, Code::PluginUnhealthy);
    assert_eq!((cause, &*who), (Cause::PluginDown, OPERATOR), "{sentence}");
    let clone = with(instance("node", false), json!({"shares_id_with": "n2"}));
    set_node(&mut facts, json!({ "instances": [clone] }));
    let (cause, who, sentence) = refused(&mut facts, Code::SharedNodeId);
    assert_eq!((cause, &*who), (Cause::SharedNodeId, OPERATOR), "{sentence}");
    set_node(&mut facts, json!({"state": "down"}));
    assert_eq!(refused(&mut facts, Code::NodeDown).0, Cause::NodeDown);
}

fn storage_call(hung: bool) -> Value {
    json!({"namespace": "default", "volume": "data", "step": "controller.create",
        "since": at(60), "hung": hung})
}

#[test]
fn a_plugin_and_a_node_with_a_call_that_hangs_are_not_well() {
    // A claim of the plugin waits for a node that is down: an earlier cause, and not the plugin's.
    let mut facts = well();
    facts.names = Names { plugin: Some(p()), ..Names::default() };
    let n2 = NodeId::new("n2").unwrap();
    facts.nodes.insert(n2, Ok(read(node(json!({"id": "n2", "state": "down"})))));
    let leaving =
        |more| claim(with(json!({"state": "unpublishing", "step": "agent.detach"}), more));
    let claims = [leaving(json!({})), leaving(json!({"alloc": "b", "node": "n2"}))];
    set_volume(&mut facts, &claims, json!({}));
    facts.claims_of.insert(p(), Ok(claims.iter().cloned().map(read).collect()));
    let hung = work("agent.detach", "NodeUnpublishVolume", true);
    set_agent(&mut facts, &agent(&[mount(json!({}))], &[hung], &[]));
    let (cause, who, sentence) = decisive(&facts);
    assert_eq!((cause, &*who), (Cause::PluginHangs, OPERATOR), "{sentence}");
    // A change of the storage, for which there is no claim.
    let mut facts = well();
    set_volume(&mut facts, &[], json!({}));
    facts.claims_of.insert(p(), Ok(Vec::new()));
    facts.claims_on.insert(n1(), Ok(Vec::new()));
    for (hung, cause) in [(true, Cause::PluginHangs), (false, Cause::Nothing)] {
        let agent = with(agent(&[], &[], &[]), json!({"storage": [storage_call(hung)]}));
        set_agent(&mut facts, &agent);
        for names in ["plugin/p", "node/n1"] {
            facts.names = crate::names(names);
            assert_eq!(decisive(&facts).0, cause, "{names}: {}", decisive(&facts).2);
        }
    }
}

/// A volume of the same name in another namespace is of another plugin.
#[test]
fn a_call_that_hangs_is_of_the_plugin_of_its_own_volume() {
    let mut facts = well();
    facts.names = crate::names("node/n1");
    facts.claims_on.insert(n1(), Ok(Vec::new()));
    let other = mount(json!({"namespace": "team", "plugin": "q"}));
    let hung = work("agent.detach", "NodeUnpublishVolume", true);
    set_agent(&mut facts, &agent(&[other, mount(json!({}))], &[hung], &[]));
    assert_eq!(decisive(&facts).1, OPERATOR);
}

/// Rule 4: the plugin got no call.
#[test]
fn a_call_that_is_not_made_before_an_agent_answers_is_not_the_plugins() {
    let mut facts = well();
    let n3 = NodeId::new("n3").unwrap();
    let third = with(instance("controller", true), json!({"node": "n3"}));
    let halves = json!({"instances": [instance("controller", true), third]});
    facts.plugins.insert(p(), Ok(read(with(plugin(true), halves))));
    facts.agents.insert(n3.clone(), Err(Problem::new(Code::NoAnswer, "no answer within 2s")));
    // The executor is named, which was not called.
    let failure = json!({"code": Code::StillBusy, "node": "n1"});
    let operation = json!({"operation": "delete", "since": at(0), "call": "controller.delete",
        "tries": 4, "error": "controller.delete: not made yet: …", "failure": failure});
    let storage = json!({"storage": {"stage": "deleting", "operation": operation}});
    set_volume(&mut facts, &[], storage);
    let assert_away = |facts: &Facts| {
        let (cause, who, sentence) = decisive(facts);
        assert_eq!((cause, &*who), (Cause::AgentAway, "you"), "{sentence}");
        assert!(sentence.contains("the agent of node n3 does not say"), "{sentence}");
    };
    assert_away(&facts);
    releasing(&mut facts, "node-detached", "controller.unpublish: not made yet: …", failure);
    assert_away(&facts);
    // All agents answer: then the plugin is at a call.
    facts.agents.remove(&n3);
    assert_eq!(decisive(&facts).0, Cause::PluginHangs);
}

/// The record has the wait until the next call begins.
#[test]
fn a_deletion_whose_mount_is_over_waits_for_its_worker() {
    let mut facts = well();
    let operation = json!({"operation": "delete", "since": at(0), "call": "controller.delete",
        "waits_for": "unmounted"});
    let storage = json!({"stage": "deleting", "operation": operation});
    set_volume(&mut facts, &[], json!({ "storage": storage }));
    assert_eq!(decisive(&facts).2, "deleting: its next call is due");
    facts.services.insert(VOLUMEWATCHER.name, Err(away()));
    assert_eq!(decisive(&facts).0, Cause::NobodyWorks);
}

/// The clock was measured while the node was there.
#[test]
fn the_clock_of_a_node_that_is_not_asked_hides_nothing() {
    let mut facts = well();
    set_node(&mut facts, json!({"clock_skew_ms": 9_000}));
    // The controller that refuses is on n2.
    let failure = json!({"code": Code::PluginFailed, "rpc": "ControllerUnpublishVolume",
        "grpc": "INTERNAL", "node": "n2"});
    releasing(&mut facts, "node-detached", "it failed", failure);
    assert_eq!(decisive(&facts).0, Cause::PluginRefuses);
    let mut facts = well();
    declare_gone(&mut facts);
    let Some(Ok(node)) = facts.nodes.get_mut(&n1()) else { panic!() };
    node.clock_skew_ms = 9_000;
    assert_eq!(decisive(&facts).0, Cause::UnderWay, "{}", decisive(&facts).2);
    facts.names = Names { node: Some(n1()), ..Names::default() };
    assert_eq!(decisive(&facts).0, Cause::NodeGone);
}

#[test]
fn an_expansion_that_no_agent_took_is_no_service_that_is_away() {
    let mut facts = well();
    expanding(&mut facts, json!({"failure": {"code": Code::NoResponder, "node": "n1"}}));
    let finding = find_change(&facts);
    assert_eq!((finding.cause, &finding.who), (Cause::UnderWay, &Actor::NOBODY), "{finding:?}");
    lacks(&mut facts, json!({"subscribe": "berth.v1.agent.n1.expand.*.* q"}));
    let finding = find_change(&facts);
    assert_eq!(finding.cause, Cause::RightMissing, "{finding:?}");
    assert!(finding.sentence.contains("the agent of node n1 may not receive agent.expand"));
}

#[test]
fn a_plugin_whose_record_cannot_be_read_is_told_so() {
    let record = UnreadableRecord {
        key: "p.instance.n1.node".to_owned(),
        code: Code::DamagedRecord,
        error: "EOF".to_owned(),
    };
    let mut facts = well();
    facts.names = crate::names("plugin/p");
    facts.plugins.insert(p(), Err(record.problem()));
    let finding = first(&facts).finding;
    assert_eq!(finding.cause, Cause::RecordUnreadable, "{finding:?}");
    assert_eq!(finding.next[0], "nats kv get berth-plugins p.instance.n1.node --raw");
}

/// Each of these commands is printed for any id and any namespace.
#[test]
fn a_command_names_the_namespace_and_keeps_an_id_whole() {
    let team = Namespace::new("team").unwrap();
    let key = VolumeKey::new(team.clone(), VolumeId::new("a:ro").unwrap());
    let alloc = AllocId::new("a").unwrap();
    let full = crate::no_room(Some(&p()), &key, &n1(), &alloc);
    assert!(full.next[0].starts_with("berth claim status --plugin p --node n1 -n '*' "));
    let place = r"berth volume placement 'a\:ro' --namespace team ";
    assert!(full.next[1].starts_with(place), "{full:?}");
    let failure = json!({"operation": "create", "at": at(90), "error": "too large"});
    let storage = json!({"stage": "failed", "failure": failure, "class": "fast"});
    let failed = json!({"namespace": "team", "external_id": null, "storage": storage});
    let failed = crate::find_volume(at(100), &read(volume(&[], failed))).unwrap();
    let class = "berth class status fast --namespace team ";
    assert!(failed.next.iter().any(|next| next.starts_with(class)), "{failed:?}");
    let mut facts = of_alloc(json!({"state": "complete", "namespace": "team", "owner": "ci 1",
        "unowned_since": at(60)}));
    facts.namespace = team.clone();
    let alloc = facts.allocs.values().next().unwrap().clone();
    facts.allocs.insert((team, AllocId::new("a").unwrap()), alloc);
    let adopt = "`berth alloc adopt 'ci 1' NEW-OWNER --namespace team`";
    assert!(first(&facts).also.iter().any(|line| line.contains(adopt)), "{:?}", first(&facts));
}
