//! What a service can tell by its records alone: the hints of the claim service.

use std::collections::BTreeMap;

use super::*;
use crate::Holders;
use crate::find_claim;

/// The node and the plugin are well, and nobody was asked.
fn records() -> Facts {
    Facts { agents: BTreeMap::new(), services: BTreeMap::new(), ..well() }
}

/// The hint of a claim, which is read without its volume.
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

/// What keeps a volume on its node: one row per cause.
#[test]
fn a_stuck_release_names_the_node_and_the_command() {
    let mut facts = records();
    set_node(&mut facts, json!({"state": "down"}));
    let gone = "`berth node gone n1 --seen 12 --kind powered-off` (with --yes, once";
    let told = hint(&facts, leaving(json!({})));
    let start = "`systemctl restart berth-node-agent` (on node n1)";
    assert_has(told, &["node n1 is down for 100s", start, gone]);
    facts.nodes.insert(n1(), Err(Problem::new(Code::NoSuchNode, "none")));
    let gone = "`berth node gone n1 --seen 0 --kind powered-off`";
    assert_has(hint(&facts, leaving(json!({}))), &["no node n1 is on record", gone]);

    let facts = records();
    let away = json!({"failure": {"code": Code::NoResponder}});
    let parts = ["its lease has not run out yet", "`berth node status n1`"];
    assert_has(hint(&facts, leaving(away)), &parts);
    let advice = json!({"failure": {"code": Code::UnmountFailed, "next": "see with `fuser /x`"}});
    let told = hint(&facts, leaving(advice));
    assert_has(told, &["and no process is seen", "; next: on node n1: see with `fuser /x`; "]);
    let refused = json!({"failure": {"rpc": "NodeUnpublishVolume", "grpc": "INTERNAL"}});
    let way = "`berth volume detach data n1 --unstaged-on-node --yes` (only once";
    assert_has(hint(&facts, leaving(refused)), &["answers NodeUnpublishVolume with INTERNAL", way]);

    let mut facts = records();
    set_node(&mut facts, json!({"instances": [instance("node", false)]}));
    let told = hint(&facts, leaving(json!({})));
    assert_has(told, &["plugin p is unhealthy on node n1", "`berth plugin status p`"]);
    set_node(&mut facts, json!({"instances": []}));
    assert_has(hint(&facts, leaving(json!({}))), &["plugin p does not run on node n1"]);
}

/// The alloc has ended, and nobody was asked whether a volumewatcher runs.
#[test]
fn a_release_that_nobody_began_names_its_worker() {
    let told = hint(&records(), json!({"step": "agent.detach", "wait": "release"}));
    let parts = ["its alloc has ended", "`nats micro ping berth-volumewatcher` (whether one runs)"];
    assert_has(told, &parts);
}

#[test]
fn a_stuck_detach_names_the_controller_and_the_ways_out() {
    let mut facts = records();
    let way = "`berth volume detach data n1 --detached-at-storage --yes`";
    assert_has(hint(&facts, detached(json!({}))), &["answers ControllerUnpublishVolume", way]);
    let fence = "fence the host at the storage, or switch it off";
    let proof = |kind: &str| json!({"kind": kind, "by": "ann", "at": at(50), "note": ""});
    let told = hint(&facts, detached(json!({"proof": proof("confirmed")})));
    assert_has(told, &[fence, way]);
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
    let told = hint(&records(), full);
    let commands =
        ["`berth claim status --plugin p --node n1`", "`berth volume placement --volume data`"];
    assert_has(told, &[&commands[..], &["`berth alloc stop a` (then run it there)"]].concat());
}

/// A waiting claim is told what keeps the holder.
#[test]
fn a_waiting_claim_names_what_keeps_the_holder() {
    let mut facts = records();
    let waiting = || json!({"alloc": "b", "node": "n2", "state": "waiting", "wait": "turn"});
    assert_eq!(hint(&facts, waiting()), None, "its turn has come");
    let hold = |facts: &mut Facts, holders: &[Value]| {
        let claims = holders.iter().cloned().map(|it| read(claim(it))).collect();
        facts.holders.insert(data(), Holders { access: None, claims });
    };
    hold(&mut facts, &[json!({})]);
    let parts = ["a on node n1 has held the volume for 100s", "`berth alloc stop a` (once"];
    assert_has(hint(&facts, waiting()), &parts);
    // The volume is given up by one alloc, and held by another: only one of them must be stopped.
    hold(&mut facts, &[leaving(json!({"alloc": "c"})), json!({"node": "n3"})]);
    assert_has(hint(&facts, waiting()), &["a on node n3 has held the volume"]);
    // The node of a holder is down, whether the holder is granted or is being released.
    set_node(&mut facts, json!({"state": "down"}));
    let down = ["b waits for a: node n1 is down", "berth node gone n1"];
    for holder in [leaving(json!({})), json!({})] {
        hold(&mut facts, &[holder, json!({"alloc": "c", "node": "n3"})]);
        assert_has(hint(&facts, waiting()), &down);
    }
}

/// The agent's last report is all that is known of a mount.
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
    // The agent's own answer counts more than its last report.
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
        let told = hint(&records(), with(state, json!({"wait": "store", "waits_for": "it"})));
        assert_has(told, &["nats-server stores no writes", "`df -h` (on the host of nats-server"]);
    }
}

/// A volume's own hint, by its status.
#[test]
fn a_volume_names_what_is_wrong_with_it() {
    let told = |more: Value| {
        let volume = read(volume(&[], more));
        crate::find_volume(at(100), &volume).and_then(|finding| finding.hint())
    };
    assert_eq!(told(json!({})), None);
    let health = json!({"healthy": false, "description": "no controller is healthy",
        "nodes": {"healthy": 1, "expected": 1}});
    let parts = ["its plugin is not well: no controller is healthy", "`berth plugin status p`"];
    assert_has(told(json!({"health": health})), &parts);
    let twice = told(json!({"registered_twice": ["volume copy"]}));
    assert_has(twice, &["`berth volume deregister data`"]);
    let failure = json!({"operation": "create", "at": at(90), "error": "too large"});
    let storage = json!({"stage": "failed", "failure": failure, "class": "fast"});
    let health = json!({"healthy": false, "description": "plugin p refused to create the volume",
        "nodes": {"healthy": 1, "expected": 1}});
    let told = told(json!({"health": health, "storage": storage, "external_id": null}));
    assert_has(told, &["plugin p refused to create it", "`berth volume delete data`"]);
}
