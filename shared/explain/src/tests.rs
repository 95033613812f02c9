//! Each cause from its own facts.

mod golden;
mod holders;
mod order;
mod page;
mod pairs;
mod problems;
mod records;

use std::collections::BTreeSet;

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::service::{CLAIM, PLUGIN_REGISTRY, VOLUMEWATCHER};
use berth_domain::{
    AllocId, Namespace, NodeId, PluginId, SnapshotId, Timestamp, VolumeId, VolumeKey,
};
use serde_json::{Value, json};

use super::{Actor, Cause, Diagnosis, Facts, Names, ServiceInfo, diagnose};

fn at(s: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_795_262_400_000 + s * 1000)
}

fn n1() -> NodeId {
    NodeId::new("n1").unwrap()
}

fn data() -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap())
}

fn with(mut base: Value, more: Value) -> Value {
    let (Some(fields), Value::Object(more)) = (base.as_object_mut(), more) else {
        panic!("objects")
    };
    fields.extend(more);
    base
}

fn claim(more: Value) -> Value {
    let claim = json!({"namespace": "default", "volume": "data", "alloc": "a", "state": "taken",
        "node": "n1", "mode": "write", "since": at(0), "epoch": 7});
    with(claim, more)
}

fn volume(claims: &[Value], more: Value) -> Value {
    let volume = json!({"id": "data", "namespace": "default", "plugin": "p", "external_id": "data",
        "capabilities": [], "claims": claims, "create_index": 1, "modify_index": 2,
        "health": {"healthy": true, "description": "", "nodes": {"healthy": 1, "expected": 1}}});
    with(volume, more)
}

fn mount(more: Value) -> Value {
    let mount = json!({"namespace": "default", "volume": "data", "alloc": "a", "epoch": 7,
        "plugin": "p", "path": "/s/target", "mounted": true, "state": "published",
        "since": at(0), "health": "well"});
    with(mount, more)
}

fn agent(mounts: &[Value], work: &[Value], failures: &[Value]) -> Value {
    json!({"node": "n1", "since": at(0), "mounts": mounts, "work": work, "failures": failures,
        "controllers": []})
}

fn work(step: &str, rpc: &str, hung: bool) -> Value {
    json!({"namespace": "default", "volume": "data", "alloc": "a", "step": step, "since": at(50),
        "rpc": rpc, "rpc_since": at(60), "hung": hung})
}

fn instance(half: &str, healthy: bool) -> Value {
    json!({"plugin": "p", "node": "n1", "half": half, "healthy": healthy,
        "description": "it says why", "version": "1", "since": at(0)})
}

fn node(more: Value) -> Value {
    let node = json!({"id": "n1", "state": "ready", "since": at(0), "revision": 12,
        "clock_skew_ms": 3, "version": "0", "boot_id": "b", "instances":
        [instance("node", true)]});
    with(node, more)
}

fn plugin(healthy: bool) -> Value {
    let count = json!({"healthy": u32::from(healthy), "expected": 1});
    json!({"id": "p", "provider": "p", "versions": [], "controllers": count, "nodes": count,
        "attaches": true, "instances": [instance("controller", healthy), instance("node", true)]})
}

fn away() -> Problem {
    Problem::new(Code::NoResponder, "nobody answers")
}

/// Everything is healthy, and `a` has the volume mounted.
fn well() -> Facts {
    let mut facts = Facts {
        now: at(100),
        names: Names { volume: Some(data().volume), ..Names::default() },
        ..Facts::default()
    };
    set_volume(&mut facts, &[claim(json!({}))], json!({}));
    set_agent(&mut facts, &agent(&[mount(json!({}))], &[], &[]));
    set_node(&mut facts, json!({}));
    set_plugin(&mut facts, true);
    for service in [CLAIM, PLUGIN_REGISTRY, VOLUMEWATCHER] {
        facts
            .services
            .insert(service.name, Ok(ServiceInfo { clock_skew_ms: Some(2), access: None }));
    }
    facts
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn set_volume(facts: &mut Facts, claims: &[Value], more: Value) {
    facts.volumes.insert(data(), Ok(read(volume(claims, more))));
}

fn set_agent(facts: &mut Facts, agent: &Value) {
    facts.agents.insert(n1(), Ok(read(agent.clone())));
}

fn set_node(facts: &mut Facts, more: Value) {
    facts.nodes.insert(n1(), Ok(read(node(more))));
}

fn set_plugin(facts: &mut Facts, healthy: bool) {
    facts.plugins.insert(PluginId::new("p").unwrap(), Ok(read(plugin(healthy))));
}

/// The claim is being released, and its last call failed with this error.
fn releasing(facts: &mut Facts, state: &str, error: &str, failure: Value) {
    let step = if state == "node-detached" { "controller.unpublish" } else { "agent.detach" };
    let failed = claim(json!({"state": state, "step": step, "tries": 3, "error": error,
        "failure": failure, "next_try": at(105), "waits_for": format!("{step}, again")}));
    set_volume(facts, &[failed], json!({}));
}

/// The same, where the plugin answered with this code.
fn answered(facts: &mut Facts, state: &str, error: &str, grpc: &str) {
    let of_controller = state == "node-detached";
    let rpc = if of_controller { "ControllerUnpublishVolume" } else { "NodeUnpublishVolume" };
    let failure = json!({"code": Code::PluginFailed, "rpc": rpc, "grpc": grpc, "node": "n1"});
    releasing(facts, state, error, failure);
}

fn leaves(facts: &mut Facts) {
    let error = "agent.detach: the agent of node n1 did not answer";
    releasing(facts, "unpublishing", error, json!({"code": Code::NoAnswer, "node": "n1"}));
}

/// The agent has no mount, and its identity lacks this right.
fn lacks(facts: &mut Facts, right: Value) {
    let access = json!({"identity": "node/n1", "missing": [right],
        "remedy": "berth access node n1 --replace"});
    set_agent(facts, &with(agent(&[], &[], &[]), json!({"access": access})));
}

fn no_agent(facts: &mut Facts) {
    facts.agents.insert(n1(), Err(away()));
}

type Alteration = fn(&mut Facts);

const OPERATOR: &str = "the operator of plugin p";
const NOBODY: &str = "nobody: it goes on by itself";

/// An alteration of the healthy facts, and the expected diagnosis.
const CASES: &[(Alteration, Cause, &str, &str)] = &[
    (|_| {}, Cause::Nothing, NOBODY, "nothing to do"),
    (no_agent, Cause::AgentAway, "you", "its lease has not run out yet"),
    (
        |facts| {
            no_agent(facts);
            set_node(facts, json!({"state": "down"}));
        },
        Cause::NodeDown,
        "you",
        "node n1 is down for 100s",
    ),
    (
        |facts| set_agent(facts, &agent(&[], &[work("agent.mount", "NodeStageVolume", true)], &[])),
        Cause::PluginHangs,
        OPERATOR,
        "plugin p on node n1 has not answered NodeStageVolume for 40s",
    ),
    (
        |facts| {
            set_agent(facts, &agent(&[], &[work("agent.mount", "NodeStageVolume", false)], &[]));
        },
        Cause::UnderWay,
        NOBODY,
        "node n1 is at NodeStageVolume for 40s",
    ),
    (
        |facts| {
            let failure = json!({"namespace": "default", "volume": "data", "alloc": "a",
                "step": "agent.mount", "tries": 2, "at": at(90),
                "error": "no such export", "failure": {"code": Code::PluginFailed,
                    "rpc": "NodeStageVolume", "grpc": "INTERNAL", "node": "n1"}});
            set_agent(facts, &agent(&[mount(json!({"state": "begun"}))], &[], &[failure]));
        },
        Cause::PluginRefuses,
        OPERATOR,
        "plugin p on node n1 answers NodeStageVolume with INTERNAL",
    ),
    (
        |facts| set_agent(facts, &agent(&[], &[], &[])),
        Cause::NotAskedFor,
        "you",
        "no request to mount it reaches node n1",
    ),
    (
        |facts| set_agent(facts, &agent(&[mount(json!({"health": "missing"}))], &[], &[])),
        Cause::MountMissing,
        "you",
        "the mount of a on node n1 is gone",
    ),
    (
        |facts| {
            let dead = json!({"health": "dead", "health_since": at(70), "trouble": "ENOTCONN"});
            set_agent(facts, &agent(&[mount(dead)], &[], &[]));
        },
        Cause::MountDead,
        "you",
        "the mount on node n1 is dead for 30s: ENOTCONN",
    ),
    (
        |facts| set_agent(facts, &agent(&[mount(json!({"health": "hung"}))], &[], &[])),
        Cause::MountHangs,
        OPERATOR,
        "does not answer",
    ),
    (
        |facts| {
            leaves(facts);
            set_node(facts, json!({"attributes": {"journal": "No space left on device"}}));
        },
        Cause::JournalFault,
        "you",
        "can write nothing to its journal",
    ),
    (
        |facts| {
            releasing(
                facts,
                "unpublishing",
                "agent.detach: it is not known whether lock x runs alloc a",
                json!({"code": Code::RunUnknown}),
            );
        },
        Cause::RunUnknown,
        "you",
        "so its volumes stay",
    ),
    (
        |facts| {
            leaves(facts);
            lacks(facts, json!({"subscribe": "berth.v1.agent.n1.detach.*.* q"}));
        },
        Cause::RightMissing,
        "you",
        "the agent of node n1 may not receive agent.detach",
    ),
    (
        |facts| {
            lacks(facts, json!({"publish": "berth.v1.claim.take.*.node.n1"}));
        },
        Cause::RightMissing,
        "you",
        "the agent of node n1 may not send claim.take",
    ),
    (
        |facts| {
            leaves(facts);
            facts.nodes.insert(n1(), Err(Problem::new(Code::NoSuchNode, "n1")));
        },
        Cause::NodeUnknown,
        "you",
        "no node n1 is on record",
    ),
    (
        |facts| {
            leaves(facts);
            set_node(facts, json!({"instances": [instance("node", false)]}));
        },
        Cause::PluginDown,
        OPERATOR,
        "plugin p is unhealthy on node n1",
    ),
    (
        |facts| {
            leaves(facts);
            let hung = work("agent.detach", "NodeUnpublishVolume", true);
            set_agent(facts, &agent(&[mount(json!({}))], &[hung], &[]));
        },
        Cause::PluginHangs,
        OPERATOR,
        "has not answered NodeUnpublishVolume for 40s",
    ),
    (
        |facts| {
            let failed = claim(json!({"state": "node-detached", "step": "controller.unpublish",
                "tries": 3, "error": "controller.unpublish: plugin p did not answer within 4s",
                "failure": {"code": Code::NoAnswer, "node": "n1"}, "attempt": {"id": "wrong-clock",
                "call": "controller.unpublish", "worker": "w", "deadline": at(160)}}));
            set_volume(facts, &[failed], json!({}));
        },
        Cause::UnderWay,
        NOBODY,
        "the agent of node n1 makes none now: the next one may be made after",
    ),
    // The driver's text is not interpreted: no process on the node is blamed.
    (
        |facts| {
            let error = "on /run/ABORTED.sock: INTERNAL: cannot process 12 (BERTH0224)";
            answered(facts, "unpublishing", error, "INTERNAL");
        },
        Cause::PluginRefuses,
        OPERATOR,
        "plugin p on node n1 answers NodeUnpublishVolume with INTERNAL",
    ),
    // A record of an older version has words only.
    (
        |facts| {
            let error = "agent.detach: process 7 (sh) has it mounted (BERTH0224)";
            releasing(facts, "unpublishing", error, json!({}));
        },
        Cause::MountFails,
        OPERATOR,
        "node n1 could not unmount it",
    ),
    (
        |facts| answered(facts, "node-detached", "it failed", "NOT_FOUND"),
        Cause::PluginRefuses,
        OPERATOR,
        "answers ControllerUnpublishVolume with NOT_FOUND",
    ),
    (
        |facts| {
            releasing(
                facts,
                "node-detached",
                "controller.unpublish: revision 22 asks, and 159 was seen already",
                json!({"code": Code::OldCall, "node": "n1"}),
            );
        },
        Cause::RequestOutdated,
        "nobody: it goes on by itself",
        "the agent of n1 refused the request, because it knows of a newer one for the volume",
    ),
    (
        |facts| answered(facts, "node-detached", "it failed", "ABORTED"),
        Cause::PluginRetries,
        "at the latest at 2026-11-21T12:01:45",
        "which it calls temporary",
    ),
    (
        |facts| {
            let failure = json!({"code": Code::NoResponder});
            releasing(facts, "node-detached", "controller.unpublish: not there", failure);
            set_plugin(facts, false);
        },
        Cause::PluginDown,
        OPERATOR,
        "the controller of plugin p on node n1 is unhealthy",
    ),
    (
        |facts| {
            let full = claim(json!({"state": "publishing", "step": "controller.publish",
                "exhausted": true, "tries": 1, "error": "RESOURCE_EXHAUSTED: 16 volumes"}));
            set_volume(facts, &[full], json!({}));
        },
        Cause::NoRoom,
        "you",
        "no room for one more volume on node n1",
    ),
    (
        |facts| {
            let next = claim(json!({"alloc": "b", "node": "n2", "state": "waiting"}));
            set_volume(facts, &[next], json!({}));
        },
        Cause::UnderWay,
        NOBODY,
        "it waits for its turn",
    ),
    (
        |facts| {
            let ended = json!({"step": "agent.detach", "waits_for": "its release: …"});
            set_volume(facts, &[claim(ended)], json!({}));
            facts.services.insert(VOLUMEWATCHER.name, Err(away()));
        },
        Cause::NobodyWorks,
        "you",
        "no berth-volumewatcher answers",
    ),
    (
        |facts| {
            leaves(facts);
            let skew = ServiceInfo { clock_skew_ms: Some(-600_000), access: None };
            facts.services.insert(CLAIM.name, Ok(skew));
        },
        Cause::ClockWrong,
        "you",
        "the clock of berth-claim is 600.0 s behind",
    ),
    (
        |facts| {
            let waits = "the server to store the next write to bucket berth-volumes; since …";
            let step = json!({"step": "agent.detach", "state": "unpublishing",
                "wait": "store", "waits_for": waits});
            set_volume(facts, &[claim(step)], json!({}));
        },
        Cause::StoreFault,
        "you",
        "nats-server stores no writes",
    ),
    (
        |facts| {
            let key = (Namespace::default(), AllocId::new("a").unwrap());
            let record = UnreadableRecord {
                key: "default.a".to_owned(),
                code: Code::DamagedRecord,
                error: "EOF".to_owned(),
            };
            facts.allocs.insert(key, Err(record.problem()));
        },
        Cause::RecordUnreadable,
        "you",
        "a record is damaged",
    ),
    (
        |facts| {
            facts.volumes.insert(data(), Err(away()));
            facts.services.insert(CLAIM.name, Err(away()));
        },
        Cause::ServiceAway,
        "you",
        "no berth-claim answers",
    ),
    (
        |facts| {
            let lost = "the bucket cannot be read now";
            facts.volumes.insert(data(), Err(Problem::new(Code::BusUnavailable, lost)));
        },
        Cause::BusAway,
        "you",
        "it has no leader",
    ),
    (
        |facts| set_volume(facts, &[], json!({"registered_twice": ["volume copy"]})),
        Cause::RegisteredTwice,
        "you",
        "the same volume of its plugin as volume copy",
    ),
    (
        // The node has the mount under the volume's name at that time.
        |facts| {
            let mount = json!({"namespace": "default", "volume": "before", "alloc": "a",
                "path": "/s/target", "plugin": "p", "external_id": "x"});
            let mounts = json!([{"node": "n1", "reason": "mounted", "mount": mount}]);
            set_volume(facts, &[], json!({"unaccounted": ["on node n1"], "mounts": mounts}));
        },
        Cause::MountUnaccounted,
        "you",
        "no claim covers it",
    ),
    (
        |facts| {
            let refusal = json!({"at": at(90), "step": "controller.publish", "code": "BERTH0206",
                "message": "ControllerPublishVolume on /s: NOT_FOUND: no such volume"});
            set_volume(facts, &[], json!({"last_refusal": refusal}));
            let fits = json!([{"node": "n1", "fits": true}]);
            facts.placements.insert((data(), None), Ok(read(fits)));
        },
        Cause::Refused,
        OPERATOR,
        "the last request for it was refused 10s ago: ControllerPublishVolume",
    ),
    (
        |facts| {
            let mount = json!({"state": "failing", "since": at(80), "tries": 4,
                "error": "no such device"});
            set_volume(facts, &[claim(json!({"mount": mount}))], json!({}));
            set_agent(facts, &agent(&[], &[], &[]));
        },
        Cause::MountFails,
        "you",
        "node n1 could not mount the volume: no such device",
    ),
    (
        |facts| {
            set_volume(facts, &[], json!({}));
            let far = json!([{"node": "n1", "fits": false, "obstacles": [{"volume": "data",
                "code": "BERTH0218", "message": "out of reach"}]}]);
            facts.placements.insert((data(), None), Ok(read(far)));
        },
        Cause::PlacementRefuses,
        "you",
        "each of 1 nodes refuses it",
    ),
];

fn first(facts: &Facts) -> Diagnosis {
    diagnose(facts).into_iter().next().unwrap()
}

#[test]
fn each_cause_is_told_with_who_must_act() {
    for (change, cause, who, part) in CASES {
        let mut facts = well();
        change(&mut facts);
        let diagnosis = first(&facts);
        assert_eq!(diagnosis.finding.cause, *cause, "{part}: {diagnosis:#?}");
        assert!(diagnosis.finding.who.to_string().contains(who), "{part}: {diagnosis:#?}");
        assert!(diagnosis.finding.sentence.contains(part), "{part}: {diagnosis:#?}");
        let is_well = *cause == Cause::Nothing;
        assert!(
            is_well || diagnosis.finding.who != Actor::You || !diagnosis.finding.next.is_empty()
        );
    }
}

/// The commands of all cases; a test of the CLI gives them to its parser.
#[test]
fn every_command_is_listed_and_leaves_nothing_open() {
    let commands = CASES.iter().flat_map(|(change, ..)| {
        let mut facts = well();
        change(&mut facts);
        first(&facts).finding.next
    });
    let lines = commands.map(|command| command.split("   #").next().unwrap_or_default().to_owned());
    let lines: BTreeSet<String> = lines.filter(|line| line.starts_with("berth ")).collect();
    for line in &lines {
        for left_open in ["VOLUME", "ALLOC", "NODE", "PLUGIN"] {
            assert!(!line.contains(left_open), "{line}");
        }
    }
    let lines: Vec<String> = lines.into_iter().collect();
    let lines = lines.join("\n") + "\n";
    if std::env::var_os("BERTH_WRITE_DOCS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/commands.txt"), &lines)
            .unwrap();
    }
    assert_eq!(lines, include_str!("tests/commands.txt"), "BERTH_WRITE_DOCS=1 writes it");
}
