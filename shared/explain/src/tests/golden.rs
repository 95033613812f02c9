//! Answers that were once wrong: the facts of a real system, and who must act.

use super::*;
use crate::find_snapshot;

/// What the answer must contain.
struct Expected {
    cause: Cause,
    who: &'static str,
    sentence: &'static str,
    /// A part of one of the next commands.
    next: &'static str,
}

/// The release failed on node n1 with this failure.
fn refused_by_node(failure: Value) -> Facts {
    let mut facts = well();
    releasing(&mut facts, "unpublishing", "agent.detach: the words of the agent", failure);
    facts
}

fn assert_told(diagnosis: &Diagnosis, expected: &Expected) {
    let Expected { cause, who, sentence, next } = expected;
    let finding = &diagnosis.finding;
    assert_eq!(finding.cause, *cause, "{diagnosis:#?}");
    assert_eq!(finding.who.to_string(), *who, "{diagnosis:#?}");
    assert!(finding.sentence.contains(sentence), "{diagnosis:#?}");
    assert!(finding.next.iter().any(|command| command.contains(next)), "{diagnosis:#?}");
}

/// What keeps a mount, if a person has to end it: processes (a shell with its working directory
/// there), another mount, or a mount that the plugin left.
#[test]
fn what_keeps_a_mount_is_yours_to_end() {
    let busy = |more: Value| with(json!({"rpc": "NodeUnpublishVolume", "grpc": "INTERNAL"}), more);
    let processes = json!([{"pid": 7, "command": "sh"}, {"pid": 8, "command": "cat"}]);
    let fuser = json!("see with `fuser -vm /s/target` which processes use it");
    let rows = [
        (
            busy(json!({"code": Code::VolumeHeldByProcess, "processes": processes})),
            Cause::HeldByProcess,
            "still in use on node n1, by process 7 (sh), process 8 (cat)",
            "ps -o pid,user,etime,args -p 7,8",
        ),
        (
            busy(json!({"code": Code::UnmountFailed, "next": fuser})),
            Cause::MountLeft,
            "node n1 has not unmounted it, for 100s",
            "# on node n1: see with `fuser -vm /s/target`",
        ),
        (
            json!({"code": Code::ForeignMount, "next": "`umount /s/target` once you know it"}),
            Cause::ForeignMount,
            "something else is mounted on node n1 where the volume was",
            "# on node n1: `umount /s/target`",
        ),
    ];
    for (failure, cause, sentence, next) in rows {
        let facts = refused_by_node(with(failure, json!({"node": "n1"})));
        assert_told(&first(&facts), &Expected { cause, who: "you", sentence, next });
    }
    // The plugin calls the error temporary, and is asked again.
    let temporary = json!({"code": Code::UnmountFailed, "grpc": "UNAVAILABLE", "next": fuser});
    assert_eq!(first(&refused_by_node(busy(temporary))).finding.cause, Cause::PluginRetries);
}

/// The node counts as gone, its agent answers, and has these failures.
fn gone(failures: &[Value]) -> Facts {
    let mut facts = well();
    facts.names = Names { node: Some(n1()), ..Names::default() };
    let proof = json!({"kind": "confirmed", "by": "ada", "at": at(50), "note": ""});
    let returning = json!({"returning": "volume data is still held on node n1"});
    set_node(&mut facts, json!({"state": "down", "gone": proof, "attributes": returning}));
    set_agent(&mut facts, &agent(&[mount(json!({}))], &[], failures));
    facts.claims_on.insert(n1(), Ok(Vec::new()));
    facts
}

#[test]
fn a_gone_node_that_a_process_keeps_back_is_yours() {
    let failure = json!({"namespace": "default", "volume": "data", "alloc": "a",
        "step": "agent.detach", "tries": 9, "at": at(90), "error": "it is held",
        "failure": {"code": Code::VolumeHeldByProcess, "node": "n1",
            "processes": [{"pid": 4711, "command": "bash"}]}});
    let expected = Expected {
        cause: Cause::NodeGone,
        who: "you",
        sentence: "and volume data is still in use there, by process 4711 (bash)",
        next: "ps -o pid,user,etime,args -p 4711",
    };
    let diagnosis = first(&gone(&[failure]));
    assert_told(&diagnosis, &expected);
    assert!(
        !diagnosis.finding.next.iter().any(|command| command.contains("systemctl")),
        "{diagnosis:#?}"
    );
    // It undoes its mounts, and nothing blocks it.
    let diagnosis = first(&gone(&[]));
    assert_eq!((diagnosis.finding.cause, diagnosis.finding.who), (Cause::NodeGone, Actor::NOBODY));
    assert!(diagnosis.finding.sentence.ends_with(": volume data is still held on node n1"));
    assert!(
        !diagnosis.finding.next.iter().any(|command| command.contains("systemctl")),
        "nothing to start"
    );
}

/// The claim is 100 s old; the agent's silence is younger.
#[test]
fn an_agent_that_is_frozen_for_a_moment_is_not_silent_for_the_claims_age() {
    let mut facts = well();
    facts.agents.insert(n1(), Err(Problem::new(Code::NoAnswer, "no answer within 2s")));
    let diagnosis = first(&facts);
    assert_eq!((diagnosis.state.as_str(), diagnosis.since), ("taken by a on n1", Some(at(0))));
    assert_eq!(diagnosis.not_known, ["what node n1 has mounted: no answer within 2s"]);
    assert_eq!(diagnosis.finding.cause, Cause::AgentAway);
    // The same, asked by its alloc.
    let mut facts = of_alloc(json!({"state": "live", "claims": [claim(json!({}))]}));
    facts.agents.insert(n1(), Err(Problem::new(Code::NoAnswer, "no answer within 2s")));
    let of_alloc = first(&facts);
    assert_eq!(of_alloc.not_known, diagnosis.not_known);
    assert_eq!(of_alloc.finding.cause, Cause::AgentAway);
}

pub fn of_alloc(alloc: Value) -> Facts {
    let mut facts = well();
    let id = AllocId::new("a").unwrap();
    facts.names = Names { alloc: Some(id.clone()), ..Names::default() };
    let base = json!({"id": "a", "namespace": "default", "state": "failed", "node": "n1",
        "since": at(98), "volumes": [{"source": "data"}]});
    facts.allocs.insert((Namespace::default(), id), Ok(read(with(base, alloc))));
    facts
}

#[test]
fn an_alloc_that_failed_to_start_is_told_with_the_reason() {
    let refusal = json!({"at": at(97), "step": "agent.mount", "code": Code::PluginFailed,
        "message": "NodeStageVolume: INTERNAL: wrong fs type", "volume": "data"});
    let diagnosis = first(&of_alloc(json!({"last_refusal": refusal})));
    let expected = Expected {
        cause: Cause::Refused,
        who: OPERATOR,
        sentence: "it failed, and the last request of it was refused 3.0s ago: NodeStageVolume: \
                   INTERNAL: wrong fs type",
        next: "berth explain",
    };
    assert_told(&diagnosis, &expected);
    let diagnosis = first(&of_alloc(json!({"note": "its command could not be started"})));
    assert_eq!(diagnosis.finding.cause, Cause::Nothing);
    assert!(
        diagnosis.finding.sentence.contains("its command could not be started"),
        "{diagnosis:#?}"
    );
}

#[test]
fn a_snapshot_is_explained_by_its_own_name() {
    let mut facts = well();
    facts.names = crate::names("data@monday");
    let key = (data(), SnapshotId::new("monday").unwrap());
    let mut set = |more: Value| {
        let snapshot = json!({"namespace": "default", "volume": "data", "snapshot": "monday",
            "state": "ready", "since": at(40), "plugin": "p", "modify_index": 3});
        facts.named_snapshots.insert(key.clone(), Ok(read(with(snapshot, more))));
        first(&facts)
    };
    let diagnosis = set(json!({}));
    assert_eq!(
        (diagnosis.subject.as_str(), diagnosis.since),
        ("snapshot data@monday", Some(at(40)))
    );
    assert_eq!((diagnosis.state.as_str(), diagnosis.finding.cause), ("ready", Cause::Nothing));
    let expected = Expected {
        cause: Cause::ChangeRefused,
        who: "you",
        sentence: "refused to cut snapshot data@monday: INVALID_ARGUMENT",
        next: "berth snapshot delete data@monday",
    };
    assert_told(&set(json!({"state": "failed", "error": "INVALID_ARGUMENT"})), &expected);
    facts.named_snapshots.insert(key, Err(Problem::new(Code::NoSuchSnapshot, "none")));
    assert_eq!(diagnose(&facts), []);
}

/// The credentials of a user may read volumes and allocs, and neither nodes nor plugins.
#[test]
fn what_the_caller_may_not_read_is_no_service_that_is_away() {
    let denied = || Problem::new(Code::NotAllowed, "may not send to berth.v1.node.status");
    let mut facts = Facts { names: crate::names("typo"), ..Facts::default() };
    let typo = VolumeKey::new(Namespace::default(), VolumeId::new("typo").unwrap());
    facts.volumes.insert(typo.clone(), Err(Problem::new(Code::NoSuchVolume, "none")));
    facts.nodes.insert(NodeId::new("typo").unwrap(), Err(denied()));
    facts.services.insert(PLUGIN_REGISTRY.name, Ok(ServiceInfo::default()));
    let expected = Expected {
        cause: Cause::RightMissing,
        who: "you",
        sentence: "these credentials may not read it from berth-plugin-registry",
        next: "berth doctor",
    };
    assert_told(&first(&facts), &expected);
    // A service that does not answer hides the volume itself.
    facts.volumes.insert(typo, Err(away()));
    assert_eq!(first(&facts).finding.cause, Cause::ServiceAway);
}

/// The driver made the volume too late, and does not recognise the retry.
#[test]
fn a_creation_in_doubt_that_is_refused_names_the_way_out() {
    let mut facts = well();
    let failure = json!({"code": Code::PluginFailed, "rpc": "CreateVolume",
        "grpc": "ALREADY_EXISTS", "node": "n1"});
    let operation = json!({"operation": "create", "since": at(0), "call": "controller.create",
        "tries": 3, "uncertain": true, "error": "it is there", "failure": failure});
    let storage = json!({"stage": "creating", "operation": operation});
    set_volume(&mut facts, &[], json!({"storage": storage}));
    let diagnosis = first(&facts);
    for next in ["berth volume list --external p", "berth volume deregister data --force"] {
        let expected = Expected {
            cause: Cause::CreationInDoubt,
            who: "you",
            sentence: "with ALREADY_EXISTS, and an earlier call, which it did not answer, may have \
                       made the volume",
            next,
        };
        assert_told(&diagnosis, &expected);
    }
    assert!(
        diagnosis.finding.next[1].contains("what was made is left at the storage"),
        "{diagnosis:#?}"
    );
    assert!(
        !diagnosis.finding.next.iter().any(|command| command.contains("restart")),
        "{diagnosis:#?}"
    );
}

/// The driver of the node is down between the tries, and it is this call that takes it down.
#[test]
fn a_call_that_ends_the_plugin_each_time_is_named_before_the_plugin_that_is_down() {
    let mut facts = well();
    let failure = json!({"code": Code::PluginFailed, "rpc": "CreateVolume", "node": "n1",
        "crashes": 4});
    let operation = json!({"operation": "create", "since": at(0), "call": "controller.create",
        "tries": 4, "uncertain": true, "error": "the connection broke", "failure": failure});
    set_volume(&mut facts, &[], json!({"storage": {"stage": "creating", "operation": operation}}));
    let expected = Expected {
        cause: Cause::PluginCrashes,
        who: OPERATOR,
        sentence: "its process ended 4 times while it worked on CreateVolume for this volume",
        next: "berth plugin instances n1 --plugin p",
    };
    assert_told(&first(&facts), &expected);
}

/// The driver cut the snapshot too late, and does not recognise the retry.
#[test]
fn a_snapshot_in_doubt_that_is_refused_names_the_way_out() {
    let explain = |change: Value| {
        let failure = json!({"code": Code::PluginFailed, "rpc": "CreateSnapshot",
            "grpc": "ALREADY_EXISTS", "node": "n1"});
        let stub = json!({"namespace": "default", "volume": "data", "snapshot": "monday",
            "state": "creating", "since": at(0), "plugin": "p", "tries": 3, "uncertain": true,
            "error": "it is there", "failure": failure, "modify_index": 1});
        let stub = serde_json::from_value(with(stub, change)).unwrap();
        find_snapshot(&well(), &stub).unwrap()
    };
    let finding = explain(json!({}));
    assert_eq!((finding.cause, &finding.who), (Cause::CreationInDoubt, &Actor::You), "{finding:?}");
    assert!(finding.sentence.contains("may have made the snapshot"), "{finding:?}");
    let [list, give_up] = &finding.next[..] else { panic!("{finding:?}") };
    assert!(list.starts_with("berth snapshot list --external p "), "{list}");
    assert!(give_up.starts_with("berth snapshot delete data@monday --forget --yes "), "{give_up}");
    assert!(give_up.contains("left at the storage"), "{give_up}");
    let of_group = explain(json!({"group": ["data", "logs"]}));
    let give_up = "berth snapshot group delete data@monday --forget --yes ";
    assert!(of_group.next[1].starts_with(give_up), "{of_group:?}");
    // Nothing may be at the storage, or a deletion is refused.
    for change in [json!({"uncertain": false}), json!({"state": "deleting"})] {
        assert_eq!(explain(change).cause, Cause::PluginRefuses);
    }
}
