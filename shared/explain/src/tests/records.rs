//! The hints of the claim service, which has only the records.

use std::collections::BTreeMap;

use super::*;
use crate::Holders;
use crate::find_claim;

/// The node and the plugin are well, and no agent was asked.
fn records() -> Facts {
    Facts { agents: BTreeMap::new(), services: BTreeMap::new(), ..well() }
}

/// The hint of a claim that is read without its volume.
fn hint(facts: &Facts, more: Value) -> Option<String> {
    let volumes = facts.volumes.iter().filter(|(_, volume)| volume.is_err());
    let volumes = volumes.map(|(key, volume)| (key.clone(), volume.clone())).collect();
    let plugin = json!({"plugin": "p"});
    find_claim(&Facts { volumes, ..facts.clone() }, &read(claim(with(plugin, more)))).hint()
}

fn leaving(more: Value) -> Value {
    with(json!({"state": "unpublishing", "step": "agent.detach", "tries": 3, "error": "no"}), more)
}

fn detached(more: Value) -> Value {
    let failure = json!({"rpc": "ControllerUnpublishVolume", "grpc": "INTERNAL", "node": "n1"});
    let base = json!({"state": "node-detached", "step": "controller.unpublish", "tries": 3,
        "error": "no", "failure": failure});
    with(base, more)
}

fn assert_has(hint: Option<String>, parts: &[&str]) {
    let hint = hint.expect("a hint");
    for part in parts {
        assert!(hint.contains(part), "{part}: {hint}");
    }
}

#[test]
fn a_claim_at_rest_has_no_hint() {
    assert_eq!(hint(&records(), json!({})), None);
    let calling = json!({"state": "publishing", "step": "controller.publish"});
    assert_eq!(hint(&records(), calling), None);
}

/// What blocks a release on the node: one case per cause.
#[test]
fn a_stuck_release_names_the_node_and_the_command() {
    let mut facts = records();
    set_node(&mut facts, json!({"state": "down"}));
    let gone = "`berth node gone n1 --seen 12 --kind powered-off` (with --yes, once";
    let text = hint(&facts, leaving(json!({})));
    let start = "`systemctl restart berth-node-agent` (on node n1)";
    assert_has(text, &["node n1 is down for 100s", start, gone]);
    facts.nodes.insert(n1(), Err(Problem::new(Code::NoSuchNode, "none")));
    let gone = "`berth node gone n1 --seen 0 --kind powered-off`";
    assert_has(hint(&facts, leaving(json!({}))), &["no node n1 is on record", gone]);

    let facts = records();
    let away = json!({"failure": {"code": Code::NoResponder}});
    let parts = ["its lease has not run out yet", "`berth node status n1`"];
    assert_has(hint(&facts, leaving(away)), &parts);
    let advice = json!({"failure": {"code": Code::UnmountFailed, "next": "see with `fuser /x`"}});
    let text = hint(&facts, leaving(advice));
    assert_has(text, &["and no process is seen", "; next: on node n1: see with `fuser /x`; "]);
    let refused = json!({"failure": {"rpc": "NodeUnpublishVolume", "grpc": "INTERNAL"}});
    let way = "`berth volume detach data n1 --unstaged-on-node --yes` (only once";
    assert_has(hint(&facts, leaving(refused)), &["answers NodeUnpublishVolume with INTERNAL", way]);

    let mut facts = records();
    set_node(&mut facts, json!({"instances": [instance("node", false)]}));
    let text = hint(&facts, leaving(json!({})));
    assert_has(text, &["plugin p is unhealthy on node n1", "`berth plugin status p`"]);
    set_node(&mut facts, json!({"instances": []}));
    assert_has(hint(&facts, leaving(json!({}))), &["plugin p does not run on node n1"]);
}

/// The alloc has ended, and it was not asked whether a volumewatcher runs.
#[test]
fn a_release_that_nobody_began_names_its_worker() {
    let text = hint(&records(), json!({"step": "agent.detach", "wait": "release"}));
    let parts = ["its alloc has ended", "`nats micro ping berth-volumewatcher` (whether one runs)"];
    assert_has(text, &parts);
}

#[test]
fn a_stuck_detach_names_the_controller_and_the_ways_out() {
    let mut facts = records();
    let way = "`berth volume detach data n1 --detached-at-storage --yes`";
    assert_has(hint(&facts, detached(json!({}))), &["answers ControllerUnpublishVolume", way]);
    let fence = "fence the host at the storage, or switch it off";
    let proof = |kind: &str| json!({"kind": kind, "by": "ann", "at": at(50), "note": ""});
    let text = hint(&facts, detached(json!({"proof": proof("confirmed")})));
    assert_has(text, &[fence, way]);
    let fenced = hint(&facts, detached(json!({"proof": proof("storage-fenced")}))).unwrap();
    assert!(!fenced.contains(fence), "it is fenced already: {fenced}");
    set_plugin(&mut facts, false);
    assert_has(hint(&facts, detached(json!({}))), &["the controller of plugin p on node n1 is un"]);
    let none = Problem::new(Code::NoSuchPlugin, "none");
    facts.plugins.insert(PluginId::new("p").unwrap(), Err(none));
    assert_has(hint(&facts, detached(json!({}))), &["no agent has reported plugin p"]);
}

#[test]
fn a_full_node_names_what_can_be_released_and_where_else_to_look() {
    let full = json!({"state": "publishing", "step": "controller.publish", "exhausted": true});
    let text = hint(&records(), full);
    let commands =
        ["`berth claim status --plugin p --node n1 -n '*'`", "`berth volume placement data`"];
    assert_has(text, &[&commands[..], &["`berth alloc stop a` (then run it there)"]].concat());
}

/// A waiting claim shows what blocks the holder.
#[test]
fn a_waiting_claim_names_what_keeps_the_holder() {
    let mut facts = records();
    let waiting = || json!({"alloc": "b", "node": "n2", "state": "waiting", "wait": "turn"});
    assert_eq!(hint(&facts, waiting()), None, "its turn has come");
    let hold = |facts: &mut Facts, holders: &[Value]| {
        let claims = holders.iter().cloned().map(|changes| read(claim(changes))).collect();
        facts.holders.insert(data(), Holders { access: None, claims });
    };
    hold(&mut facts, &[json!({})]);
    let parts = ["a on node n1 has held the volume for 100s", "`berth alloc stop a` (once"];
    assert_has(hint(&facts, waiting()), &parts);
    // One alloc gives the volume up, another holds it: only the second must be stopped.
    hold(&mut facts, &[leaving(json!({"alloc": "c"})), json!({"node": "n3"})]);
    assert_has(hint(&facts, waiting()), &["a on node n3 has held the volume"]);
    // The holder's node is down, whether the holder is granted or being released.
    set_node(&mut facts, json!({"state": "down"}));
    let down = ["b waits for a: node n1 is down", "berth node gone n1"];
    for holder in [leaving(json!({})), json!({})] {
        hold(&mut facts, &[holder, json!({"alloc": "c", "node": "n3"})]);
        assert_has(hint(&facts, waiting()), &down);
    }
}

/// The mount is known only from the agent's last report.
#[test]
fn a_mount_that_is_not_well_is_told_by_its_last_report() {
    let report = |state: &str, rpc: Option<&str>| {
        let mount = json!({"state": state, "since": at(60), "rpc": rpc, "error": "it says no"});
        hint(&records(), json!({"wait": "mount", "mount": mount}))
    };
    for state in ["mounted", "staging", "publishing"] {
        assert_eq!(report(state, None), None);
    }
    let call = "plugin p on node n1 has not answered NodeStageVolume for 40s";
    assert_has(report("hung", Some("NodeStageVolume")), &[call, "`berth node status n1`"]);
    assert_has(report("hung", None), &["does not answer for 40s", "`berth node status n1`"]);
    assert_has(report("failing", None), &["could not mount the volume: it says no"]);
    for state in ["missing", "dead"] {
        let again = "`berth volume republish data --node n1 --alloc a` (while";
        assert_has(report(state, None), &[again]);
    }
    // The agent's own answer overrides its last report.
    let mut facts = records();
    set_agent(&mut facts, &agent(&[mount(json!({}))], &[], &[]));
    let missing = json!({"state": "missing", "since": at(60)});
    assert_eq!(hint(&facts, json!({"mount": missing})), None);
}

#[test]
fn a_lost_registration_and_a_record_that_cannot_be_read_are_told_first() {
    let mut facts = records();
    let stray = json!({"stray": true, "external_id": "x-1"});
    let register = "or register the volume again as it was: plugin p, external id \"x-1\"";
    assert_has(hint(&facts, stray), &["`berth alloc stop a` (once", register]);
    let record = UnreadableRecord {
        key: "default.data.spec".to_owned(),
        code: Code::DamagedRecord,
        error: "EOF".to_owned(),
    };
    facts.volumes.insert(data(), Err(record.problem()));
    let look = "`nats kv get berth-volumes default.data.spec --raw`";
    assert_has(hint(&facts, leaving(json!({}))), &["a record is damaged", look]);
}

#[test]
fn a_store_that_is_full_is_told_for_every_claim() {
    for state in [json!({}), leaving(json!({}))] {
        let text = hint(&records(), with(state, json!({"wait": "store", "waits_for": "it"})));
        assert_has(text, &["nats-server stores no writes", "`df -h` (on the host of nats-server"]);
    }
}

/// A volume's own hint, by its status.
#[test]
fn a_volume_names_what_is_wrong_with_it() {
    let volume_hint = |more: Value| {
        let volume = read(volume(&[], more));
        crate::find_volume(at(100), &volume).and_then(|finding| finding.hint())
    };
    assert_eq!(volume_hint(json!({})), None);
    let health = json!({"healthy": false, "description": "no controller is healthy",
        "nodes": {"healthy": 1, "expected": 1}});
    let parts = ["its plugin is not well: no controller is healthy", "`berth plugin status p`"];
    assert_has(volume_hint(json!({"health": health})), &parts);
    let twice = volume_hint(json!({"registered_twice": ["volume copy"]}));
    assert_has(twice, &["`berth volume deregister data`"]);
    let failure = json!({"operation": "create", "at": at(90), "error": "too large"});
    let storage = json!({"stage": "failed", "failure": failure, "class": "fast"});
    let health = json!({"healthy": false, "description": "plugin p refused to create the volume",
        "nodes": {"healthy": 1, "expected": 1}});
    let text = volume_hint(json!({"health": health, "storage": storage, "external_id": null}));
    assert_has(text, &["plugin p refused to create it", "`berth volume delete data`"]);
}
