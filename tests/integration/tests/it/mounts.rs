//! E6, E7, E8 and A13 in a whole system: requests for volumes, and their replies.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use berth_contract::code::Code;
use berth_contract::message::agent::{AgentStatus, Mounted};
use berth_contract::message::alloc::AllocStatus;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::volume::State;
use berth_domain::{Namespace, NodeId};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::{Value, json};

async fn register(system: &System, alloc: Value) -> Result<AllocStatus, Problem> {
    system.persist(&verb::AllocRegister::subject(&Namespace::default()), &alloc).await
}

async fn mount(system: &System, request: Value) -> Result<Mounted, Problem> {
    let subject =
        verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(NodeId::new("n1").unwrap()));
    system.persist(&subject, &request).await
}

/// The request to an agent for an alloc's volume, under a name.
fn mount_request(alloc: &str, volume: &str, alias: Option<&str>) -> Value {
    json!({"namespace": "default", "alloc": alloc, "volume": volume, "alias": alias})
}

fn count_calls(system: &System, rpc: &str) -> usize {
    let is_call = |call: &&Value| call["entry"] == "end" && call["rpc"] == rpc;
    system.calls().iter().filter(is_call).count()
}

/// E6: one claim and one publication, even if the access mode allows no second, and a path for each
/// name.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_under_two_names_is_claimed_once_and_seen_in_two_ways() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let alloc = json!({"id": "a", "node": "n1", "volumes": [
        {"source": "data", "alias": "look", "read_only": true, "mount": {"flags": ["noexec"]}},
        {"source": "data", "alias": "work"},
    ]});
    let shown = register(&system, alloc).await.unwrap();
    assert_eq!(shown.volumes[0].mount.flags, ["***"], "A11: flags may hold secrets");
    let mount_request = |alias| mount_request("a", "data", Some(alias));
    let read_only = mount(&system, mount_request("look")).await.unwrap();
    let writable = mount(&system, mount_request("work")).await.unwrap();
    assert!(read_only.read_only && !writable.read_only && read_only.path != writable.path);
    assert_eq!(read_only.epoch, writable.epoch, "both names have one claim");
    let claims = system.claims("data").await.claims;
    assert_eq!((claims.len(), claims[0].state), (1, State::Taken));
    fs::write(Path::new(&writable.path).join("file"), "kept").unwrap();
    assert_eq!(fs::read_to_string(Path::new(&read_only.path).join("file")).unwrap(), "kept");
    let refused = fs::write(Path::new(&read_only.path).join("file"), "lost").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let subject =
        verb::AgentStatus::subject(&verb::NodeAndNamespace::any_of("n1".parse().unwrap()));
    let agent: AgentStatus = system.persist(&subject, &json!({})).await.unwrap();
    assert!(agent.strays.is_empty(), "each name belongs to the claim: {:?}", agent.strays);
    let refused = mount(&system, mount_request("other")).await.unwrap_err();
    assert_eq!(refused.code, Code::VolumeNotRequested, "{refused}");

    system.kill9_and_restart(berth_integration::Part::Agent(0)).await;
    system.stop("a").await;
    system.settle("data").await;
    for rpc in ["NodeStageVolume", "NodePublishVolume", "NodeUnstageVolume"] {
        assert_eq!(count_calls(&system, rpc), 1, "{rpc}");
    }
}

/// E7: refused before anything is claimed or attached.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_mounts_no_volumes_is_told_so_before_anything_is_done() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::shared();
    system.volume("carried", &["single-node-writer"]).await;
    let alloc = |id: &str, mounts: &str, volumes: Value| {
        let runner = mounts.to_owned();
        json!({"id": id, "node": "n1", "task_driver_mounts": runner, "volumes": volumes})
    };
    let carried = || json!([{"source": "carried"}]);
    for (mounts, word) in [("none", "no volumes"), ("host", "its host only")] {
        let refused = register(system, alloc("idle", mounts, carried())).await.unwrap_err();
        assert_eq!(refused.code, Code::RunnerCannotMount, "{refused}");
        assert!(refused.message.contains("volume carried") && refused.message.contains(word));
    }
    let refused = register(system, alloc("idle", "some", carried())).await.unwrap_err();
    assert_eq!(refused.code, Code::BadInput, "{refused}");
    // Nothing was written: the id is free, and nothing was attached.
    register(system, alloc("idle", "none", json!([]))).await.unwrap();
    register(system, alloc("able", "all", carried())).await.unwrap();
    assert_eq!(count_calls(system, "ControllerPublishVolume"), 0);
    assert_eq!(system.claims("carried").await.claims.len(), 0);
}

/// E8: all faults of a request are reported at once.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_do_not_go_together_are_refused_with_every_fault() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::shared();
    let alloc = json!({"id": "torn", "node": "n1", "volumes": [
        {"source": "data", "alias": "one", "access": "single-node-writer",
         "attachment": "file-system"},
        {"source": "data", "alias": "two", "access": "multi-node-multi-writer",
         "attachment": "block-device", "mount": {"fs_type": "xfs", "group": "7"}},
        {"source": "shard", "per_alloc": true},
        {"source": "more", "alias": "one"},
        {"source": "last", "alias": ""},
    ]});
    let refused = register(system, alloc).await.unwrap_err();
    assert_eq!(refused.code, Code::BadInput, "{refused}");
    let paths: Vec<&str> = refused.faults.iter().map(|fault| fault.path.as_str()).collect();
    let expected = [
        "volumes[1].access",
        "volumes[1].attachment",
        "volumes[1].mount.fs_type",
        "volumes[1].mount.group",
        "volumes[1].mount",
        "volumes[2].per_alloc",
        "volumes[3].alias",
        "volumes[4].alias",
    ];
    assert_eq!(paths, expected);
}

/// A13: `shard` of the alloc with index 2 is `shard[2]` in every request.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_each_allocs_own_goes_all_the_way() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("shard[2]", &["single-node-writer"]).await;
    let alloc = |id: &str, index: u32| {
        json!({"id": id, "node": "n1", "index": index, "allow_missing": index == 3,
               "volumes": [{"source": "shard", "per_alloc": true, "alias": "own"}]})
    };
    let registered = register(&system, alloc("w-2", 2)).await.unwrap();
    assert_eq!((registered.index, registered.volumes[0].name()), (Some(2), "own"));
    register(&system, alloc("w-3", 3)).await.unwrap();
    let mount_request = |alloc, volume| mount_request(alloc, volume, Some("own"));
    let mounted = mount(&system, mount_request("w-2", "shard[2]")).await.unwrap();
    fs::write(Path::new(&mounted.path).join("file"), "kept").unwrap();
    let missing = mount(&system, mount_request("w-3", "shard[3]")).await.unwrap_err();
    assert_eq!(missing.code, Code::NoSuchVolume, "{missing}");
    let foreign = mount(&system, mount_request("w-3", "shard[2]")).await.unwrap_err();
    assert_eq!(foreign.code, Code::VolumeNotRequested, "{foreign}");
    assert_eq!(system.volume_status("shard[2]").await.unwrap().id.as_str(), "shard[2]");
    assert_eq!(system.claims("shard[2]").await.claims[0].alloc.as_str(), "w-2");
    system.stop("w-2").await;
    system.settle("shard[2]").await;
    system.deregister("shard[2]", false).await.unwrap();
}

/// A group that the plugin cannot mount for is refused before the controller is called.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_the_plugin_cannot_mount_for_is_refused_before_anything_is_attached() {
    if !or_skip("real mounts") {
        return;
    }
    let driver = |_| ["--without", "mount-group"].map(str::to_owned).to_vec();
    let system = System::start(Options { nodes: 1, driver, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let volumes = json!([{"source": "data", "mount": {"group": "4711"}}]);
    register(&system, json!({"id": "a", "node": "n1", "volumes": volumes})).await.unwrap();
    let refused = mount(&system, mount_request("a", "data", None)).await.unwrap_err();
    assert_eq!(refused.code, Code::MountOptionsRefused, "{refused}");
    assert!(refused.message.contains("VOLUME_MOUNT_GROUP"), "{refused}");
    assert_eq!(count_calls(&system, "ControllerPublishVolume"), 0);
    assert_eq!(system.claims("data").await.claims.len(), 0);
}
