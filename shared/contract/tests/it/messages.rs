//! What is sent.

use std::fmt::Debug;

use berth_contract::code::Code;
use berth_contract::decode::{self, Decode, Fault, Unknown};
use berth_contract::document::{Format, read};
use berth_contract::event::{Event, EventName};
use berth_contract::message::secret::{self, Envelope, Sealed, Secrets};
use berth_contract::message::{
    agent, alloc, claim, class, collect, node, registry, storage, volume,
};
use berth_contract::problem::Problem;
use berth_contract::service::NODE_AGENT;
use berth_domain::ClockOffset;
use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::alloc::{AllocState, TaskDriverMounts};
use berth_domain::plugin::{Half, NodeState};
use berth_domain::proof::ProofKind;
use berth_domain::volume::{CallKind, State, VolumeSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::reference::hold::hold;
use crate::{sample, widened};

/// A request is what its golden file says, and is read back whole. An unknown field, at any level,
/// is ignored or a fault with its path, as the endpoint's kind says.
pub fn request<T: Serialize + Decode + PartialEq + Debug>(name: &str, message: &T) {
    let bytes = serde_json::to_vec(message).unwrap();
    let known: Value = serde_json::from_slice(&bytes).unwrap();
    for unknown in [Unknown::Fault, Unknown::Ignore] {
        assert_eq!(decode::message::<T>(&bytes, unknown).as_ref(), Ok(message));
        hold::<T>(&known, |value| decode::decode::<T>(value.clone(), unknown).is_ok());
    }
    for (path, newer) in widened::widened(&known) {
        let read = decode::decode::<T>(newer.clone(), Unknown::Ignore);
        assert_eq!(read.as_ref(), Ok(message), "{path}");
        let faults = decode::decode::<T>(newer, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, [path]);
    }
    insta::assert_snapshot!(name, serde_json::to_string_pretty(message).unwrap());
}

/// A reply is what its golden file says, is read back whole, and an unknown field is ignored.
pub fn reply<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, message: &T) {
    let mut newer = serde_json::to_value(message).unwrap();
    assert_eq!(serde_json::from_value::<T>(newer.clone()).unwrap(), *message);
    hold::<T>(&newer, |value| serde_json::from_value::<T>(value.clone()).is_ok());
    newer["of_a_newer_version"] = json!({"deep": [1]});
    assert_eq!(serde_json::from_value::<T>(newer).unwrap(), *message);
    insta::assert_snapshot!(name, serde_json::to_string_pretty(message).unwrap());
}

pub fn claim_status() -> claim::ClaimStatus {
    claim::ClaimStatus {
        namespace: sample::namespace(),
        volume: sample::volume(),
        alloc: sample::alloc_id(),
        state: State::Unpublishing,
        node: sample::node_id(),
        mode: Mode::Write,
        since: sample::at(0),
        step: Some(CallKind::NodeDetach),
        wait: Some(claim::ClaimWait::NextTry),
        waits_for: Some("agent.detach, again at 2026-01-01T00:00:04.000Z".to_owned()),
        position: Some(1),
        ahead: vec![sample::alloc_id()],
        exhausted: true,
        proof: Some(sample::proof()),
        unstaged_by: Some(sample::proof()),
        hint: Some("start the agent of node host.example".to_owned()),
        tries: 3,
        failure: Some(sample::call_failure()),
        next_try: Some(sample::at(4)),
        reason: Some("the alloc has ended".to_owned()),
        attempt: Some(sample::attempt()),
        plugin: Some(sample::plugin()),
        external_id: Some("vol-0abc".to_owned()),
        stray: false,
        mount: Some(sample::node_mount()),
        epoch: 41,
        trace: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
    }
}

#[test]
fn volumes() {
    request(
        "request-volume-deregister",
        &volume::Deregister {
            id: sample::volume(),
            force: true,
            reason: "no longer needed".to_owned(),
            create_index: Some(3),
        },
    );
    request(
        "request-volume-detach",
        &volume::Detach {
            id: sample::volume(),
            node: sample::node_id(),
            reason: "the host was scrapped".to_owned(),
            confirmed_by: Some("ann".to_owned()),
            unstaged_by: Some("ann".to_owned()),
        },
    );
    reply(
        "reply-volume-detach",
        &volume::Detached {
            id: sample::volume(),
            node: sample::node_id(),
            gone: false,
            left: 1,
            claims: vec![claim_status()],
            hint: Some("the agent of node n1 does not answer: start it there".to_owned()),
            unaccounted: vec![sample::unaccounted().to_string()],
        },
    );
    request(
        "request-volume-status",
        &volume::VolumeQuery { id: sample::volume(), newer: sample::newer(42) },
    );
    request(
        "request-volume-list",
        &volume::ListVolumes {
            prefix: "da".to_owned(),
            plugin: Some(sample::plugin()),
            node: Some(sample::node_id()),
            state: Some(State::Unpublishing),
            closing: true,
            page: sample::page("team=20a.dat.spec"),
            newer: sample::newer(56),
        },
    );
    reply(
        "reply-volume-register",
        &volume::Registered {
            id: sample::volume(),
            namespace: sample::namespace(),
            changed: true,
            index: 3,
        },
    );
    reply(
        "reply-volume-deregister",
        &volume::Deregistered {
            id: sample::volume(),
            gone: false,
            claims: 1,
            releasing: vec![sample::alloc_id()],
            mounts: vec![sample::mount_doubt()],
        },
    );
}

/// The document is the same from TOML and JSON, and is what the spec becomes.
#[test]
fn a_volume_document() {
    let json = include_str!("volume.json");
    let register: volume::RegisterVolume = read(json, Format::Json).unwrap();
    assert_eq!(register.id, sample::volume());
    assert_eq!(register.namespace, Some(sample::namespace()));
    assert_eq!(register.spec, VolumeSpec { create_index: 0, secrets: None, ..sample::spec() });
    let secrets = Secrets(sample::map("password", "hunter2"));
    assert_eq!(register.secrets, Some(volume::GivenSecrets::Plain(secrets)));
    let document: Value = serde_json::from_str(json).unwrap();
    let mut fields: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    let mut known = volume::DOCUMENT_FIELDS.to_vec();
    fields.sort_unstable();
    known.sort_unstable();
    assert_eq!(fields, known, "every field of the document is in the sample");
    // A program that registers a volume writes the same document.
    let written: volume::RegisterVolume =
        read(&serde_json::to_string(&register).unwrap(), Format::Json).unwrap();
    assert_eq!(written, register);
}

#[test]
fn claims() {
    request(
        "request-claim-take",
        &claim::Take {
            alloc: sample::alloc_id(),
            volume: sample::volume(),
            node: sample::node_id(),
            mode: Some(Mode::Read),
            wait: true,
            alias: Some("models".to_owned()),
        },
    );
    request(
        "request-claim-release",
        &claim::Release {
            alloc: sample::alloc_id(),
            volume: sample::volume(),
            epoch: Some(41),
            reason: "moved".to_owned(),
        },
    );
    request("request-claim-recover", &sample::recover());
    request(
        "request-claim-observe",
        &claim::Observe {
            alloc: sample::alloc_id(),
            volume: sample::volume(),
            epoch: 41,
            mount: sample::node_mount(),
        },
    );
    request(
        "request-claim-checkpoint",
        &claim::Checkpoint {
            alloc: sample::alloc_id(),
            volume: sample::volume(),
            worker: sample::worker(),
            report: Some(claim::CallReport {
                attempt: sample::attempt_id(),
                outcome: claim::ReportedOutcome::Unanswered,
                asked: false,
                error: Some("no answer within 60s".to_owned()),
            }),
            early: true,
            report_only: false,
        },
    );
    request(
        "request-claim-status",
        &claim::ListClaims {
            prefix: "da".to_owned(),
            volume: Some(sample::volume()),
            alloc: Some(sample::alloc_id()),
            node: Some(sample::node_id()),
            plugin: Some(sample::plugin()),
            state: Some(State::Unpublishing),
            leaving: true,
            page: sample::page("team=20a.data.claim.web-0"),
            newer: sample::newer(56),
        },
    );
    reply(
        "reply-claim-take",
        &claim::Grant {
            epoch: 41,
            namespace: sample::namespace(),
            volume: sample::volume(),
            external_id: "vol-0a1b".to_owned(),
            plugin: sample::plugin(),
            alloc: sample::alloc_id(),
            mode: Mode::Write,
            access: AccessMode::SingleNodeWriter,
            attachment: AttachmentMode::FileSystem,
            mount: sample::mount(),
            context: sample::map("pool", "p1"),
            publish_context: sample::map("device", "/dev/xvdba"),
            secrets: Some(sample::secrets_id()),
            claims_beside: Some([sample::alloc_id()].into()),
            claims_beside_digest: Some(sample::allocs_digest()),
            expand_to: Some(20 << 30),
            view: Some(claim::View { place: 1, mode: Mode::Read, mount: sample::mount() }),
            by: Some("user.anna".to_owned()),
        },
    );
    reply("reply-claim-release", &claim::Released { state: Some(State::Unpublishing) });
    reply("reply-claim-recover", &claim::Recovered { state: State::Unpublishing });
    reply("reply-claim-observe", &claim::Observed { recorded: true });
    reply(
        "reply-claim-checkpoint",
        &claim::Checkpointed {
            state: Some(State::NodeDetached),
            call: Some(crate::calls::claim_call(CallKind::ControllerUnpublish)),
            next_try: Some(sample::at(4)),
        },
    );
    let next = Some("team=20a.data.claim.web-1".to_owned());
    reply(
        "reply-claim-status",
        &claim::Claims {
            index: 57,
            incarnation: 0,
            claims: vec![claim_status()],
            next,
            unreadable: vec![sample::unreadable()],
        },
    );
}

#[test]
fn secrets() {
    let sealed = || Sealed { from: "XDV7".to_owned(), sealed: "eGt2MQ==".to_owned() };
    request("request-secret-open", &{
        let (namespace, volume) = (sample::namespace(), sample::volume());
        let secrets = sample::secrets_id();
        secret::Open { namespace, volume, secrets, to: sample::SEALING_KEY.to_owned() }
    });
    request("request-secret-key", &secret::Key {});
    reply("reply-secret-key", &secret::PublicKey { key: "XCLA".to_owned() });
    reply("reply-secret-open", &sealed());
    let secrets = Secrets(sample::map("password", "hunter2"));
    let (namespace, volume) = (sample::namespace(), sample::volume());
    let envelope = Envelope { namespace, volume, secrets };
    insta::assert_snapshot!("sealed-envelope", serde_json::to_string_pretty(&envelope).unwrap());
    // The secrets of a class are sealed for a namespace without volumes.
    let key = sample::class_id().to_secrets_key();
    let secrets = Secrets(sample::map("create/password", "hunter2"));
    let of_class = Envelope { namespace: key.namespace, volume: key.volume, secrets };
    let pretty = serde_json::to_string_pretty(&of_class).unwrap();
    insta::assert_snapshot!("sealed-envelope-of-class", pretty);
    assert!(!format!("{envelope:?}{:?}", sealed()).contains("hunter2"));
}

/// Of secrets in a bad document their names are told, never what they are.
#[test]
fn a_fault_of_secrets_tells_nothing_of_them() {
    for text in [
        r#"{"id":"a","secrets":{"pass word":"hunter2"}}"#,
        r#"{"id":"a","secrets":{"n":{"deep":"hunter2"}}}"#,
        r#"{"id":"a","secrets":["hunter2"]}"#,
        r#"{"id":"a","secrets":{"n":"hunter2"},"sealed_secrets":{"from":"X","sealed":"hunter2"}}"#,
        "id = 'a'\n[secrets]\nn = 'hunter2\n",
        "id = 'a'\n[secrets]\nn = hunter2\n",
    ] {
        let format = Format::guess(text);
        for faults in [
            read::<volume::RegisterVolume>(text, format).unwrap_err(),
            read::<storage::Create>(text, format).unwrap_err(),
            read::<class::PutClass>(text, format).unwrap_err(),
        ] {
            let said = faults.iter().map(|fault| format!("{fault} {fault:?}"));
            let said = said.collect::<String>();
            assert!(!said.contains("hunter2"), "{text}: {said}");
        }
    }
}

#[test]
fn allocs() {
    request(
        "request-alloc-register",
        &alloc::RegisterAlloc {
            id: sample::alloc_id(),
            node: sample::node_id(),
            index: Some(0),
            volumes: vec![sample::request()],
            note: Some("web".to_owned()),
            task_driver_mounts: TaskDriverMounts::Host,
            allow_missing: true,
            owner: Some(sample::owner_id()),
            meta: sample::meta(),
            revision: Some(42),
        },
    );
    request(
        "request-alloc-stop",
        &alloc::StopAlloc {
            id: sample::alloc_id(),
            state: AllocState::Failed,
            note: Some("exit code 1".to_owned()),
            owner: Some(sample::owner_id()),
            revision: Some(42),
        },
    );
    let until = alloc::WaitUntil::Mounted;
    request(
        "request-alloc-wait",
        &alloc::Wait { id: sample::alloc_id(), until, wait_ms: Some(500) },
    );
    reply("reply-alloc-wait", &alloc::Waited { reached: false, alloc: Some(alloc_status()) });
    request(
        "request-alloc-forget",
        &alloc::Forget { id: sample::alloc_id(), before: sample::at(0) },
    );
    reply("reply-alloc-forget", &alloc::Forgotten { known: true });
    request(
        "request-alloc-status",
        &alloc::AllocQuery { id: sample::alloc_id(), newer: sample::newer(42) },
    );
    request(
        "request-alloc-list",
        &alloc::ListAllocs {
            prefix: "web".to_owned(),
            node: Some(sample::node_id()),
            state: Some(AllocState::Live),
            owner: Some(sample::owner_id()),
            meta: sample::meta(),
            unowned: true,
            forgettable_before: Some(sample::at(9)),
            page: sample::page("team=20a.web-0"),
            newer: sample::newer(56),
        },
    );
    reply("reply-alloc-status", &alloc_status());
}

pub fn alloc_status() -> alloc::AllocStatus {
    alloc::AllocStatus {
        id: sample::alloc_id(),
        namespace: sample::namespace(),
        state: AllocState::Live,
        node: sample::node_id(),
        index: Some(0),
        since: sample::at(0),
        note: None,
        owner: Some(sample::owner_id()),
        unowned_since: Some(sample::at(9)),
        by: Some("user.anna".to_owned()),
        meta: sample::meta(),
        volumes: vec![sample::request()],
        claims: vec![claim_status()],
        last_refusal: Some(sample::refusal()),
        modify_index: 42,
        status_index: 99,
        unreadable: vec![sample::unreadable()],
    }
}

/// An event of the kind that an agent tells, with all that may be known of it.
fn event_of_agent() -> Event {
    let service = NODE_AGENT.name.to_owned();
    Event { event: EventName::CallDone, service, ..sample::event() }
}

#[test]
fn registry_agents_and_collection() {
    request(
        "request-node-report",
        &registry::NodeReport {
            node: sample::node_id(),
            version: "0.1.0".to_owned(),
            boot_id: "aaae2d42".to_owned(),
            clock: sample::at(0),
            attributes: sample::map("hostname", "host"),
            unaccounted: vec![sample::unaccounted()],
            compared: Some(true),
            clock_offset: Some(ClockOffset { min_ms: -4, max_ms: 1 }),
            sealing_key: Some(sample::SEALING_KEY.to_owned()),
            instances: vec![registry::ReportedInstance {
                plugin: sample::plugin(),
                half: Half::Node,
                instance: sample::instance(),
            }],
            undone: Some(sample::at(0)),
        },
    );
    request(
        "request-node-gone",
        &registry::Gone {
            node: sample::node_id(),
            kind: ProofKind::StorageFenced,
            by: "ada@console".to_owned(),
            note: "rack 4 burnt down".to_owned(),
            seen: 57,
        },
    );
    let holder = sample::holder();
    request(
        "request-node-hold",
        &node::Hold { holder, ttl_s: 10, over: Some(56), renewal: Some(4) },
    );
    request("request-node-yield", &node::Yield { node: sample::node_id(), revision: 57 });
    request("request-node-host", &registry::Host {});
    request("request-node-tell", &{
        let (event, traceparent) = (event_of_agent(), sample::trace());
        node::TellEvents { events: vec![node::ToldEvent { event, traceparent }] }
    });
    request("request-node-leave", &{
        let (node, revision) = (sample::node_id(), Some(57));
        registry::Leave { node, revision }
    });
    request("request-plugin-delete", &registry::Delete { id: sample::plugin() });
    request("request-plugin-expect", &{
        let (plugin, namespace, job) = (sample::plugin(), sample::namespace(), sample::job_id());
        registry::ExpectInstances { plugin, namespace, job, controllers: 2, nodes: 5 }
    });
    request(
        "request-node-status",
        &registry::ListNodes {
            id: Some(sample::node_id()),
            prefix: "host".to_owned(),
            plugin: Some(sample::plugin()),
            state: Some(NodeState::Ready),
            page: sample::page("host.a"),
            newer: sample::newer(56),
        },
    );
    request(
        "request-agent-mount",
        &agent::Mount {
            namespace: sample::namespace(),
            alloc: sample::alloc_id(),
            volume: sample::volume(),
            wait: true,
            alias: Some("models".to_owned()),
            path: Some("/srv/models".to_owned()),
        },
    );
    request("request-gc-force", &{
        let kinds = vec![collect::Kind::Claims, collect::Kind::Nodes];
        collect::Force { kinds, grace_ms: Some(86_400_000) }
    });
    reply(
        "reply-agent-mount",
        &agent::Mounted {
            path: "/var/lib/berth/csi/0a/target".to_owned(),
            read_only: false,
            epoch: 41,
        },
    );
    reply(
        "reply-gc-force",
        &collect::Sweep {
            collected: vec!["a claim: its alloc has ended".to_owned()],
            kept: Vec::new(),
        },
    );
}

#[test]
fn problems_and_events() {
    // A wait for other allocs is not retryable: an operator must end their workload.
    let problem = Problem::new(Code::Held, "the volume is held by others")
        .at_step("claim.take")
        .volume(sample::key())
        .plugin(sample::plugin())
        .node(sample::node_id())
        .trace("0af7651916cd43dd8448eb211c80319c");
    reply("reply-problem", &problem);
    let fault = Fault { path: "id".to_owned(), problem: "is missing".to_owned(), line: Some(1) };
    reply("reply-problem-of-input", &Problem::bad_input(vec![fault]).at_step("volume.register"));
    let event = sample::event();
    assert_eq!(event.subject(), "berth.v1.event.team=20a.claim.data.web-1._._");
    reply("event", &event);
    let refused = Event {
        step: Some("claim.take".to_owned()),
        code: Some(Code::Held),
        event: EventName::RequestRefused,
        ..event
    };
    assert_eq!(refused.subject(), "berth.v1.event.team=20a.request.data.web-1._._");
    reply("event-refused", &refused);
    let cut = Event {
        event: EventName::SnapshotCut,
        snapshot: Some(sample::snapshot_id()),
        alloc: None,
        detail: Some("the plugin still works on it".to_owned()),
        claim_trace: None,
        calls: Vec::new(),
        ..sample::event()
    };
    assert_eq!(cut.subject(), "berth.v1.event.team=20a.snapshot.data._._._");
    reply("event-snapshot", &cut);
}
