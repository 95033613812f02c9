//! Registration: all faults at once, nothing that the plugin does not confirm, and the plugin
//! receives what the volume's owner wrote (A3, A4, A7, A8, A10, A11, B4).

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::agent::{Mount, Mounted};
use berth_contract::message::alloc::{AllocStatus, RegisterAlloc};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::VolumeRequest;
use berth_domain::volume::{MountOptions, State};
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};

use crate::why::{YOU, tells};

const SOON: Duration = Duration::from_secs(20);

fn document(fields: Value) -> Value {
    let mut document = json!({
        "id": "data", "plugin": "dev.berth", "capability": [{"access": "single-node-writer"}],
    });
    for (name, value) in fields.as_object().unwrap() {
        document[name] = value.clone();
    }
    document
}

/// Without a retry: a retryable error is an answer here.
async fn register(system: &System, fields: Value) -> Result<Value, Problem> {
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    system.ask(&subject, &document(fields)).await
}

fn paths(problem: &Problem) -> Vec<&str> {
    problem.faults.iter().map(|fault| fault.path.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_that_only_a_running_system_knows_are_told_with_the_others() {
    let system = System::start(Options { nodes: 0, ..Options::default() }).await;
    let bad = json!({"capability": [], "colour": "red", "namespace": "elsewhere"});
    let problem = register(&system, bad).await.unwrap_err();
    assert_eq!(problem.code, Code::BadInput, "{problem}");
    assert_eq!(paths(&problem), ["colour", "capability", "namespace", "plugin"]);
    assert_eq!(problem.faults[3].problem, "no agent has reported plugin dev.berth");

    let problem = register(&system, json!({"namespace": "elsewhere"})).await.unwrap_err();
    assert_eq!(paths(&problem), ["namespace", "plugin"], "{problem}");
    let problem = register(&system, json!({})).await.unwrap_err();
    assert_eq!(problem.code, Code::NoSuchPlugin, "{problem}");
    assert!(system.volumes().await.unwrap().volumes.is_empty(), "nothing was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_confirms_or_nothing_is_written() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let refused = register(&system, json!({})).await.unwrap_err();
    assert!(refused.message.contains("NOT_FOUND"), "the plugin's own error: {refused}");
    assert!(system.volumes().await.unwrap().volumes.is_empty(), "nothing was written");

    system.provision("data");
    let topology = json!([{"zone": "a"}, {"zone": "b"}]);
    register(&system, json!({"topology": topology.clone()})).await.unwrap();
    // A4: an identical registration, with topologies in another order, changes nothing and calls no
    // plugin.
    let validations = |system: &System| {
        let calls = system.calls();
        calls.iter().filter(|call| call["rpc"] == "ValidateVolumeCapabilities").count()
    };
    let before = validations(&system);
    let reordered = json!({"topology": [{"zone": "b"}, {"zone": "a"}, {"zone": "b"}]});
    assert_eq!(register(&system, reordered).await.unwrap()["changed"], false);
    assert_eq!(validations(&system), before);

    system.kill9(Part::Driver(0));
    wait::until("no instance is healthy", SOON, || async {
        match register(&system, json!({"context": {"k": "v"}})).await {
            Err(problem) if problem.code == Code::PluginUnhealthy => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let status = system.volume_status("data").await.unwrap();
    assert!(status.context.is_empty(), "nothing was written: {status:?}");
    // A name is for people: a change of it calls no plugin.
    let renamed = json!({"topology": topology, "name": "anew"});
    assert_eq!(register(&system, renamed).await.unwrap()["changed"], true);
}

/// A registration stops calling the plugin when its caller has given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_given_up_with_its_caller() {
    if !or_skip("real mounts") {
        return;
    }
    let system =
        System::start(Options { nodes: 1, patience_ms: 2_000, ..Options::default() }).await;
    system.provision("data");
    let hangs = json!({"rpc": "ValidateVolumeCapabilities", "hang": true, "times": 1});
    system.plant(0, &json!([hangs]));
    let unanswered = register(&system, json!({})).await.unwrap_err();
    assert_eq!(unanswered.code, Code::NoAnswer, "{unanswered}");
    wait::until("the call is given up", SOON, || async {
        let calls = system.calls();
        let is_abandoned = calls.iter().any(|call| call["entry"] == "gone");
        if is_abandoned { Ok(()) } else { Err(format!("{calls:?}")) }
    })
    .await;
    // The plugin is still working on the call, and says so.
    let refused = register(&system, json!({})).await.unwrap_err();
    assert!(refused.message.contains("ABORTED"), "{refused}");
    system.plant(0, &json!([]));
    system.kill9_and_restart(Part::Driver(0)).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    system.stop("a").await;
    system.settle("data").await;
}

/// A4: fields that may not change while the volume is claimed are named, and the plugin is not
/// called.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_of_a_claimed_volume_says_which_field_it_refused() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    let calls_before = system.calls().len();
    let unsafe_update = json!({
        "name": "anew", "external_id": "other", "context": {"k": "v"},
        "capability": [{"access": "multi-node-multi-writer"}],
    });
    let refused = register(&system, unsafe_update).await.unwrap_err();
    assert_eq!(refused.code, Code::UnsafeUpdate, "{refused}");
    let sentence = "cannot change external_id, capability, context of a volume that is claimed by";
    assert!(refused.message.starts_with(sentence), "{refused}");
    assert!(refused.message.contains("alloc a on node n1"), "{refused}");
    let is_validation = |call: &Value| call["rpc"] == "ValidateVolumeCapabilities";
    assert!(!system.calls()[calls_before..].iter().any(is_validation), "the plugin was not called");

    let renamed = register(&system, json!({"name": "anew"})).await.unwrap();
    assert_eq!(renamed["changed"], true, "a name is for people");
    system.stop("a").await;
    system.settle("data").await;
}

/// A8, A10, A11, B4: each call contains what the volume's owner wrote, with the plugin's own id of
/// the volume. The request's mount options replace the volume's, field by field. A repeated request
/// gets the same answer and calls no plugin.
#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_is_told_what_the_owner_wrote() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let provisioned = std::process::Command::new(berth_harness::process::binary("berth-csi-dev"))
        .args(["provision", "--volume", "ext/7", "--context", "pool=fast", "--backend"])
        .arg(system.backend())
        .output()
        .unwrap();
    assert!(provisioned.status.success(), "{provisioned:?}");
    let fields = json!({
        "external_id": "ext/7", "context": {"pool": "fast"}, "mount": {"flags": ["noexec"]},
    });
    let mut wrong_fields = fields.clone();
    wrong_fields["parameters"] = json!({"tier": "gold"});
    let refused = register(&system, wrong_fields).await.unwrap_err();
    assert_eq!(refused.code, Code::PluginRefused, "{refused}");
    assert!(refused.message.contains("parameters"), "A8: the plugin got the parameters: {refused}");
    register(&system, fields).await.unwrap();
    let volume = VolumeId::new("data").unwrap();
    let mount = MountOptions { flags: vec!["noatime".to_owned()], ..MountOptions::default() };
    let volumes = vec![VolumeRequest { mount, ..VolumeRequest::for_volume(volume) }];
    let alloc = RegisterAlloc::new(AllocId::new("a").unwrap(), NodeId::new("n1").unwrap(), volumes);
    let subject = verb::AllocRegister::subject(&Namespace::default());
    let _: AllocStatus = system.persist(&subject, &alloc).await.unwrap();
    let mounted = system.mount("a", 0, "data").await.unwrap();
    let again = system.mount("a", 0, "data").await.unwrap();
    assert_eq!(again, mounted, "B4");
    assert_eq!(mount_flags(&mounted), ["noatime"], "A11: the request's flags, not the volume's");
    lists_show_the_use(&system).await;
    system.stop("a").await;
    // The claim uses the volume's own name, and the storage the external id.
    system.freed("data").await;
    system.settle("ext/7").await;

    let calls = system.calls();
    let calls_of = |rpc: &str| {
        let is_of_rpc = |call: &&Value| call["entry"] == "end" && call["rpc"] == rpc;
        let calls: Vec<&Value> = calls.iter().filter(is_of_rpc).collect();
        assert!(!calls.is_empty(), "{rpc} was not called");
        assert!(calls.iter().all(|call| call["volume_id"] == "ext/7"), "A10, {rpc}: {calls:#?}");
        calls
    };
    let validated = calls_of("ValidateVolumeCapabilities");
    assert_eq!(validated.len(), 2);
    assert_eq!(validated[0]["args"]["parameters"], json!({"tier": "gold"}), "A8");
    assert_eq!(validated[1]["args"]["volume_context"], json!({"pool": "fast"}), "A8");
    for rpc in ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"] {
        let calls = calls_of(rpc);
        assert_eq!(calls.len(), 1, "B4: a repetition calls no plugin: {calls:#?}");
        assert_eq!(calls[0]["args"]["volume_context"], json!({"pool": "fast"}), "A8: {rpc}");
    }
    for rpc in ["NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"] {
        assert_eq!(calls_of(rpc).len(), 1);
    }
}

/// Lists show of mount flags their number (A11), of a volume what serves it (A1), and of a plugin
/// the processes behind it (D10).
async fn lists_show_the_use(system: &System) {
    let all = json!({"healthy": 1, "expected": 1});
    for (args, pointer, expected) in [
        (&["volume", "list"][..], "/volumes/0/mount_flags", json!(1)),
        (&["volume", "list"], "/volumes/0/provider", json!("dev.berth")),
        (&["volume", "list"], "/volumes/0/controllers", all.clone()),
        (&["volume", "list"], "/volumes/0/nodes", all),
        (&["volume", "list"], "/volumes/0/capabilities/0/access", json!("single-node-writer")),
        (&["alloc", "list"], "/allocs/0/mounts/0/mount_flags", json!(1)),
        (&["node", "status", "n1"], "/agent/mounts/0/mount_flags", json!(1)),
        (&["node", "status", "n1"], "/instances/0/process/command", json!("berth-csi-dev")),
        (
            &["plugin", "status", "dev.berth"],
            "/instances/0/process/command",
            json!("berth-csi-dev"),
        ),
    ] {
        let ran = system.berth().arg("--json").args(args).output().await.unwrap();
        let shown: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(shown.pointer(pointer), Some(&expected), "{args:?}: {shown}");
        assert!(!shown.to_string().contains("noatime"), "{args:?}: {shown}");
    }
}

/// The flags under test, as the kernel shows them.
fn mount_flags(mounted: &Mounted) -> Vec<&'static str> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(mounted.path.as_str()));
    let options = line.unwrap().split(' ').nth(5).unwrap();
    let tested = ["noexec", "noatime"];
    tested.into_iter().filter(|flag| options.split(',').any(|option| option == *flag)).collect()
}

/// A7: the claim shows that a plugin has no room. The plugin gets no other publish meanwhile, and
/// this one is retried until there is room.
#[tokio::test(flavor = "multi_thread")]
async fn no_room_at_the_plugin_is_shown_stands_in_the_way_and_clears() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["multi-node-multi-writer"]).await;
    let full = json!([{"rpc": "ControllerPublishVolume", "code": "RESOURCE_EXHAUSTED"}]);
    for node in 0..2 {
        system.plant(node, &full);
    }
    for (alloc, node) in [("a", 0), ("b", 1)] {
        system.alloc(alloc, node, "data", false).await;
    }
    let mount_on = |alloc: &'static str, node: &'static str| {
        let mount = Mount {
            namespace: Namespace::default(),
            alloc: AllocId::new(alloc).unwrap(),
            volume: VolumeId::new("data").unwrap(),
            wait: false,
            alias: None,
            path: None,
        };
        let subject =
            verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(NodeId::new(node).unwrap()));
        let system = &system;
        async move { system.persist::<Mounted>(&subject, &mount).await }
    };
    let check = async {
        let claim = wait::until("a's claim shows the failure", SOON, || async {
            let claims = system.claims("data").await.claims;
            let failed = claims.into_iter().find(|claim| claim.failure.is_some());
            failed.ok_or("nothing yet")
        })
        .await;
        assert_eq!((claim.alloc.as_str(), claim.state), ("a", State::Publishing));
        let error = claim.error().unwrap_or_default();
        assert!(error.contains("RESOURCE_EXHAUSTED"), "{claim:?}");
        let sentence = "plugin dev.berth has no room for one more volume on node n1";
        tells(&system, "data", "no-room", YOU, sentence).await;
        let take = json!({"alloc": "b", "volume": "data", "node": "n2"});
        let subject = verb::ClaimTake::subject(&Namespace::default());
        let refused = system.ask::<Value>(&subject, &take).await.unwrap_err();
        assert_eq!(refused.code, Code::PluginExhausted, "{refused}");
        assert!(refused.message.contains("alloc a on node n1"), "{refused}");
        for node in 0..2 {
            system.plant(node, &json!([]));
        }
    };
    let (a, ()) = tokio::join!(mount_on("a", "n1"), check);
    a.unwrap();
    mount_on("b", "n2").await.unwrap();
    let is_publish_on_n2 = |call: &&Value| {
        call["entry"] == "begin"
            && call["rpc"] == "ControllerPublishVolume"
            && call["args"]["node_id"] == "external-n2"
    };
    assert_eq!(
        system.calls().iter().filter(is_publish_on_n2).count(),
        1,
        "not while there was no room"
    );
    for alloc in ["a", "b"] {
        system.stop(alloc).await;
    }
    system.settle("data").await;
}
