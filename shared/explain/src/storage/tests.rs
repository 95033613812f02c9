//! Causes that a change of the storage waits for.

use berth_contract::problem::Problem;
use berth_domain::{Namespace, VolumeId};
use serde_json::{Value, json};

use super::*;
use crate::facts::{Names, ServiceInfo};
use crate::finding::Diagnosis;
use crate::subject::diagnose;

fn at(s: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_795_262_400_000 + s * 1000)
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn operation(kind: &str, more: &Value) -> Value {
    let mut operation = json!({"operation": kind, "since": at(0), "call": "controller.create"});
    operation.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    operation
}

/// The volume `data` with this status at the storage; its plugin is healthy.
fn facts(storage: &Value, claims: &[Value]) -> Facts {
    let key = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
    let count = json!({"healthy": 1, "expected": 1});
    let volume = json!({"id": "data", "namespace": "default", "plugin": "p",
        "external_id": "", "capabilities": [], "claims": claims, "create_index": 1,
        "modify_index": 2, "storage": storage,
        "health": {"healthy": true, "description": "", "nodes": count}});
    let plugin = json!({"id": "p", "provider": "p", "versions": [], "controllers": count,
        "nodes": count, "attaches": true, "instances": []});
    let mut facts = Facts {
        now: at(100),
        names: Names { volume: Some(key.volume.clone()), ..Names::default() },
        ..Facts::default()
    };
    facts.volumes.insert(key, Ok(read(volume)));
    facts.plugins.insert(PluginId::new("p").unwrap(), Ok(read(plugin)));
    for name in [CLAIM.name, VOLUMEWATCHER.name] {
        facts.services.insert(name, Ok(ServiceInfo { clock_skew_ms: Some(0), access: None }));
    }
    facts
}

fn diagnosis(facts: &Facts) -> Diagnosis {
    let mut diagnoses = diagnose(facts);
    assert_eq!(diagnoses.len(), 1);
    diagnoses.remove(0)
}

/// A volume that is being created, whose last try failed with this error.
fn failing(error: &str, failure: &Value) -> Facts {
    let tried = json!({"tries": 3, "error": error, "failure": failure, "next_try": at(105)});
    facts(&json!({"stage": "creating", "operation": operation("create", &tried)}), &[])
}

#[test]
fn a_change_that_fails_names_what_the_plugin_said() {
    let answered = |grpc| {
        json!({"code": Code::PluginFailed, "rpc": "CreateVolume", "grpc": grpc,
            "node": "n1"})
    };
    for (failure, cause, sentence) in [
        (
            answered("ABORTED"),
            Cause::PluginRetries,
            "creating: plugin p on node n1 answers CreateVolume with ABORTED, which it calls",
        ),
        (
            answered("INTERNAL"),
            Cause::PluginRefuses,
            "creating: plugin p on node n1 answers CreateVolume with INTERNAL: that is to be",
        ),
        (answered("RESOURCE_EXHAUSTED"), Cause::NoRoom, "creating: plugin p has no room for it"),
        (
            json!({"code": Code::NoAnswer, "node": "n1"}),
            Cause::PluginHangs,
            "creating: plugin p on node n1 has not answered the call for 100s",
        ),
        (json!({}), Cause::PluginRefuses, "the last try failed: ABORTED, it says"),
    ] {
        let error = "ABORTED, it says";
        let diagnosed = diagnosis(&failing(error, &failure));
        let finding = &diagnosed.finding;
        assert_eq!(finding.cause, cause, "{finding:?}");
        assert!(finding.sentence.contains(sentence), "{finding:?}");
        assert_eq!((diagnosed.state.as_str(), diagnosed.since), ("creating", Some(at(0))));
        assert_eq!(finding.evidence, [format!("3 tries; {error}")]);
        assert!(!finding.next.is_empty());
    }
}

#[test]
fn what_is_away_comes_before_what_it_said() {
    let mut no_plugin = failing("no responders", &json!({}));
    let plugins = &mut no_plugin.plugins;
    let Some(Ok(plugin)) = plugins.get_mut(&PluginId::new("p").unwrap()) else { panic!() };
    plugin.controllers = Some(read(json!({"healthy": 0, "expected": 1})));
    assert_eq!(diagnosis(&no_plugin).finding.cause, Cause::PluginDown);
    let mut no_watcher = no_plugin.clone();
    let away = Problem::new(Code::NoResponder, "nobody answers");
    no_watcher.services.insert(VOLUMEWATCHER.name, Err(away));
    assert_eq!(diagnosis(&no_watcher).finding.cause, Cause::NobodyWorks);
    let mut hangs = failing("unanswered", &json!({}));
    let call = json!({"namespace": "default", "volume": "data", "step": "controller.create",
        "since": at(60), "hung": true});
    let agent = json!({"node": "n1", "since": at(0), "mounts": [], "storage": [call],
        "controllers": []});
    hangs.agents.insert(NodeId::new("n1").unwrap(), Ok(read(agent)));
    let finding = diagnosis(&hangs).finding;
    assert_eq!(finding.cause, Cause::PluginHangs);
    assert!(finding.sentence.contains("has not answered controller.create for 40s"));
}

#[test]
fn a_change_that_goes_on_needs_nobody() {
    let calls = json!({"calling": true});
    let grows = operation("expand", &json!({"to_bytes": 20_u64 << 30, "calling": true}));
    for (storage, state) in [
        (json!({"stage": "creating", "operation": operation("create", &calls)}), "creating"),
        (json!({"stage": "deleting", "operation": operation("delete", &calls)}), "deleting"),
        (json!({"stage": "ready", "operation": grows}), "expanding to 20GiB"),
    ] {
        let diagnosed = diagnosis(&facts(&storage, &[]));
        assert_eq!((diagnosed.finding.cause, diagnosed.state.as_str()), (Cause::UnderWay, state));
        assert_eq!(diagnosed.finding.who, Actor::NOBODY);
    }
}

#[test]
fn a_creation_that_was_refused_is_corrected_by_its_requester() {
    let failure = json!({"operation": "create", "at": at(90), "error": "INVALID_ARGUMENT: x"});
    let storage = json!({"stage": "failed", "class": "fast", "failure": failure});
    let diagnosed = diagnosis(&facts(&storage, &[]));
    assert_eq!(
        (diagnosed.finding.cause, &diagnosed.finding.who),
        (Cause::ChangeRefused, &Actor::You)
    );
    assert_eq!((diagnosed.state.as_str(), diagnosed.since), ("not created", Some(at(90))));
    assert_eq!(diagnosed.finding.evidence, ["INVALID_ARGUMENT: x"]);
    let next = diagnosed.finding.next.join("\n");
    assert!(next.contains("berth class status fast") && next.contains("volume delete data"));
    // A change of a volume that stays usable.
    let failure = json!({"operation": "expand", "at": at(90), "error": "OUT_OF_RANGE"});
    let diagnosed = diagnosis(&facts(&json!({"stage": "ready", "failure": failure}), &[]));
    assert_eq!(diagnosed.finding.cause, Cause::ChangeRefused);
    assert!(diagnosed.finding.sentence.contains("refused to expand it 10s ago: OUT_OF_RANGE"));
}

#[test]
fn an_expansion_names_who_has_to_let_go_of_the_volume() {
    let claim = json!({"namespace": "default", "volume": "data", "alloc": "web", "node": "n1",
        "state": "taken", "mode": "write", "since": at(0), "epoch": 7});
    let finding_for = |more: &Value, call: &str| {
        let mut operation = operation("expand", more);
        operation["call"] = json!(call);
        let storage = json!({"stage": "ready", "operation": operation});
        find_change_of(&facts(&storage, std::slice::from_ref(&claim)))
    };
    let free = finding_for(&json!({"waits_for": "volume-free"}), "controller.expand");
    assert_eq!(free.cause, Cause::HeldByOthers);
    assert!(free.next[0].starts_with("berth alloc stop web"), "{free:?}");
    let next = finding_for(&json!({"waits_for": "next-staging"}), "agent.expand");
    assert_eq!((next.cause, next.next.len()), (Cause::Nothing, 0));
    let again = json!({"waits_for": "staged-again", "nodes_left": ["n1"]});
    let again = finding_for(&again, "agent.expand");
    assert_eq!((again.cause, &again.who), (Cause::PluginRefuses, &Actor::You));
    assert!(again.next[0].starts_with("berth alloc stop web"), "{again:?}");
}

/// The volume is used by its size at the storage before that.
#[test]
fn an_expansion_that_waits_for_a_mount_needs_nobody() {
    let waits = json!({"call": "agent.expand", "to_bytes": 20_u64 << 30,
        "waits_for": "next-staging"});
    let facts = facts(&json!({"stage": "ready", "operation": operation("expand", &waits)}), &[]);
    let Diagnosis { finding, state, .. } = diagnosis(&facts);
    assert_eq!((finding.cause, finding.who), (Cause::Nothing, Actor::NOBODY));
    assert_eq!(state, "grows to 20GiB at its next mount");
}

#[test]
fn a_first_use_that_the_plugin_refused_says_that_the_next_claim_decides() {
    let failure = json!({"operation": "create", "at": at(40), "error": "no space in zone n1",
        "failure": {"code": Code::PluginFailed, "grpc": "RESOURCE_EXHAUSTED", "node": "n1"}});
    let facts = facts(&json!({"stage": "unused", "failure": failure}), &[]);
    let Diagnosis { finding, .. } = diagnosis(&facts);
    assert_eq!(finding.cause, Cause::ChangeRefused);
    let sentence = finding.sentence;
    assert!(sentence.contains("60s ago") && sentence.contains("no space in zone n1"), "{sentence}");
    assert!(sentence.ends_with("the next claim says where"), "{sentence}");
    assert!(finding.next[0].starts_with("berth volume placement"), "{:?}", finding.next);
}

/// It could share the volume with the holder.
#[test]
fn a_claim_behind_an_expansion_names_it() {
    let waits = json!({"call": "controller.expand", "to_bytes": 20_u64 << 30,
        "waits_for": "volume-free"});
    let claim = |alloc: &str, more: Value| {
        let mut claim = json!({"namespace": "default", "volume": "data", "alloc": alloc,
            "node": "n1", "mode": "write", "access": "multi-node-multi-writer",
            "attachment": "file-system", "state": "taken", "since": at(1), "epoch": 5});
        claim.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claim
    };
    let waiting = json!({"state": "waiting", "wait": "turn", "waits_for": "its turn", "epoch": 7});
    let claims = [claim("a", json!({})), claim("w", waiting)];
    let mut facts =
        facts(&json!({"stage": "ready", "operation": operation("expand", &waits)}), &claims);
    let key = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
    let volume = facts.volumes.get_mut(&key).unwrap().as_mut().unwrap();
    volume.in_use = Some(read(json!({"access": "multi-node-multi-writer",
        "attachment": "file-system"})));
    let waiter = volume.claims[1].clone();
    let finding = crate::find_claim(&facts, &waiter);
    assert!(finding.sentence.starts_with("expanding to 20GiB"), "{}", finding.sentence);
    assert!(finding.next[0].contains("alloc stop a"), "{:?}", finding.next);
}

fn find_change_of(facts: &Facts) -> Finding {
    let volume = facts.volumes.values().next().unwrap().as_ref().unwrap();
    find_change(facts, volume).unwrap()
}

#[test]
fn a_snapshot_that_is_not_ready_is_told_of_beside_its_volume() {
    let snapshot = |state: &str, more: &Value| {
        let mut snapshot = json!({"namespace": "default", "volume": "data", "snapshot": "s",
            "state": state, "since": at(0), "plugin": "p", "modify_index": 3});
        snapshot.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        read::<SnapshotStub>(snapshot)
    };
    let mut facts = facts(&json!({"stage": "ready"}), &[]);
    let find = |facts: &Facts, snapshot: &SnapshotStub| find_snapshot(facts, snapshot);
    assert_eq!(find(&facts, &snapshot("ready", &json!({}))), None);
    let cut = find(&facts, &snapshot("cut", &json!({"tries": 4}))).unwrap();
    assert_eq!((cut.cause, &cut.who), (Cause::UnderWay, &Actor::NOBODY));
    let failed = snapshot("failed", &json!({"error": "INVALID_ARGUMENT"}));
    let finding = find(&facts, &failed).unwrap();
    assert_eq!(finding.cause, Cause::ChangeRefused);
    assert!(finding.next[0].starts_with("berth snapshot delete data@s "), "{finding:?}");
    let retries = json!({"tries": 2, "error": "no", "failure": {"grpc": "UNAVAILABLE"}});
    let retries = find(&facts, &snapshot("creating", &retries)).unwrap();
    assert_eq!(retries.cause, Cause::PluginRetries);
    let key = facts.volumes.keys().next().unwrap().clone();
    facts.snapshots.insert(key, Ok(vec![failed]));
    let diagnosed = diagnosis(&facts);
    assert!(diagnosed.finding.sentence.contains("refused to cut snapshot data@s"), "{diagnosed:?}");
}
