//! One SIGKILL for each process and flow, while a plugin call of a claim or a release is running.
//! The flow ends correctly. Safety 5: nothing acknowledged is lost.

use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};

async fn killed_in_a_claim(part: Part, rpc: &str) {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.hold(rpc);
    system.alloc("a", 0, "data", false).await;
    let kill = async {
        system.under_way(rpc).await;
        system.kill9_and_restart(part).await;
        system.let_go();
    };
    let (mounted, ()) = tokio::join!(system.mount("a", 0, "data"), kill);
    let mounted = mounted.unwrap();
    std::fs::write(format!("{}/f", mounted.path), "x").unwrap();
    system.stop("a").await;
    system.settle("data").await;
}

async fn killed_in_a_release(part: Part, rpc: &str) {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    let mounted = system.run("a", 0, "data").await;
    std::fs::write(format!("{}/f", mounted.path), "kept").unwrap();
    system.hold(rpc);
    system.stop("a").await;
    system.under_way(rpc).await;
    system.kill9_and_restart(part).await;
    system.let_go();
    system.settle("data").await;

    // Another node mounts the volume with all its data.
    system.healthy().await;
    let mounted = system.run("b", 1, "data").await;
    assert_eq!(std::fs::read_to_string(format!("{}/f", mounted.path)).unwrap(), "kept");
    system.stop("b").await;
    system.settle("data").await;
}

macro_rules! kills {
    ($($name:ident: $flow:ident($part:expr, $rpc:literal);)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            $flow($part, $rpc).await;
        }
    )*};
}

kills! {
    claim_killed_in_a_claim: killed_in_a_claim(Part::Claim, "ControllerPublishVolume");
    registry_killed_in_a_claim: killed_in_a_claim(Part::Registry, "ControllerPublishVolume");
    watcher_killed_in_a_claim: killed_in_a_claim(Part::Watcher, "ControllerPublishVolume");
    gc_killed_in_a_claim: killed_in_a_claim(Part::Gc, "ControllerPublishVolume");
    nats_killed_in_a_claim: killed_in_a_claim(Part::Nats, "ControllerPublishVolume");
    agent_killed_while_staging: killed_in_a_claim(Part::Agent(0), "NodeStageVolume");
    agent_killed_while_publishing: killed_in_a_claim(Part::Agent(0), "NodePublishVolume");
    driver_killed_while_publishing: killed_in_a_claim(Part::Driver(0), "NodePublishVolume");
    claim_killed_in_a_release: killed_in_a_release(Part::Claim, "NodeUnpublishVolume");
    registry_killed_in_a_release: killed_in_a_release(Part::Registry, "NodeUnpublishVolume");
    watcher_killed_in_a_release: killed_in_a_release(Part::Watcher, "ControllerUnpublishVolume");
    gc_killed_in_a_release: killed_in_a_release(Part::Gc, "ControllerUnpublishVolume");
    nats_killed_in_a_release: killed_in_a_release(Part::Nats, "NodeUnstageVolume");
    agent_killed_while_unpublishing: killed_in_a_release(Part::Agent(0), "NodeUnpublishVolume");
    driver_killed_while_unstaging: killed_in_a_release(Part::Driver(0), "NodeUnstageVolume");
}

/// The host of the controller dies during the call: the controller of another host continues.
#[tokio::test(flavor = "multi_thread")]
async fn controller_host_killed_while_attaching() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.hold("ControllerPublishVolume");
    system.alloc("a", 0, "data", false).await;
    let kill = async {
        system.under_way("ControllerPublishVolume").await;
        let calls = system.calls();
        let is_publish = |call: &&serde_json::Value| call["rpc"] == "ControllerPublishVolume";
        let host = calls.iter().find(is_publish).unwrap()["node_id"].as_str().unwrap().to_owned();
        let node = usize::from(host != "external-n1");
        system.kill9_and_restart(Part::Agent(node)).await;
        system.let_go();
    };
    let (mounted, ()) = tokio::join!(system.mount("a", 0, "data"), kill);
    mounted.unwrap();
    system.stop("a").await;
    system.settle("data").await;
}
