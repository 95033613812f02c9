//! A node is drained. The new allocs wait in the queue while the old claims are released, and get
//! their volumes in turn. The node's plugin serves until the last unmount.

use std::time::Duration;

use berth_domain::volume::State;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{SOON, claim_is, drawn, lines, plant, us};

/// The plugin's node services that are healthy.
async fn healthy_nodes(system: &System) -> usize {
    system.plugins().await.unwrap().plugins[0].nodes.healthy
}

/// For a volume, the alloc on the drained node and its successor.
fn names(volume: &str) -> (String, String) {
    (format!("old-{volume}"), format!("new-{volume}"))
}

/// Mounts volumes on the first node. Each contains its alloc's name, and has a successor alloc on
/// the second node.
async fn occupy(system: &System) -> [&'static str; 3] {
    let volumes = ["data0", "data1", "data2"];
    for volume in volumes {
        let (old, new) = names(volume);
        system.volume(volume, &["single-node-writer"]).await;
        let mounted = system.run(&old, 0, volume).await;
        std::fs::write(format!("{}/f", mounted.path), &old).unwrap();
        system.alloc(&new, 1, volume, false).await;
    }
    volumes
}

#[tokio::test(flavor = "multi_thread")]
async fn s04_a_drained_node_serves_until_the_last_is_unmounted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    let volumes = occupy(&system).await;
    // Each unmount is slow, so that the new allocs send their requests during the release.
    plant(&system, &json!([{"rpc": "NodeUnpublishVolume", "delay_ms": 700}]));
    let drain = async {
        for volume in volumes {
            let (old, new) = names(volume);
            claim_is(&system, volume, &new, State::Waiting).await;
            system.stop(&old).await;
        }
        wait::until("all volumes are being unmounted", SOON, || async {
            let is_begun =
                |volume: &&str| !lines(&system, "begin", "NodeUnpublishVolume", volume).is_empty();
            if volumes.iter().all(is_begun) { Ok(()) } else { Err("not yet") }
        })
        .await;
        // The host is shut down: its agent gets SIGTERM while it unmounts.
        let pid = system.daemon(Part::Agent(0)).pid().to_string();
        let sent = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        loop {
            let healthy = healthy_nodes(&system).await;
            if all_free_of(&system, "n1", &volumes).await {
                break;
            }
            assert_eq!(healthy, 2, "the node's plugin serves until the last volume has left");
        }
    };
    let mount = |volume: &'static str| {
        let (system, new) = (&system, names(volume).1);
        async move { system.mount_in_turn(&new, 1, volume).await.unwrap() }
    };
    let (a, b, c, ()) =
        tokio::join!(mount(volumes[0]), mount(volumes[1]), mount(volumes[2]), drain);
    for (volume, mounted) in volumes.into_iter().zip([a, b, c]) {
        let read = std::fs::read_to_string(format!("{}/f", mounted.path)).unwrap();
        assert_eq!(read, names(volume).0);
        let detached = us(&lines(&system, "end", "ControllerUnpublishVolume", volume)[0], "end_us");
        let attached: Vec<Value> = lines(&system, "begin", "ControllerPublishVolume", volume);
        assert!(us(&attached[1], "begin_us") > detached, "{attached:#?}");
    }
    plant(&system, &json!([]));
    wait::until("the agent exits with success", SOON, || async {
        match system.daemon(Part::Agent(0)).exit_status() {
            Some(status) if status.success() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    for volume in volumes {
        system.stop(&names(volume).1).await;
        system.freed(volume).await;
    }
    system.settle("data0").await;
}

/// A drain completes although each process in it is killed once, in random order.
#[tokio::test(flavor = "multi_thread")]
async fn s04_a_drain_goes_on_whatever_is_restarted_meanwhile() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    let volumes = occupy(&system).await;
    plant(&system, &json!([{"rpc": "NodeUnpublishVolume", "delay_ms": 300}]));
    let mut parts = vec![
        Part::Agent(0),
        Part::Driver(0),
        Part::Agent(1),
        Part::Driver(1),
        Part::Claim,
        Part::Watcher,
        Part::Registry,
    ];
    let restarts = async {
        while !parts.is_empty() {
            let part = parts.swap_remove(drawn(parts.len()));
            // Printed to reproduce a failed run.
            eprintln!("{part:?} is killed");
            system.kill9_and_restart(part).await;
            sleep(Duration::from_millis(50 * drawn(10) as u64)).await;
        }
    };
    let stops = async {
        for volume in volumes {
            system.stop(&names(volume).0).await;
        }
    };
    let (system, names) = (&system, &names);
    let mount =
        |volume| async move { system.mount_in_turn(&names(volume).1, 1, volume).await.unwrap() };
    let (a, b, c, (), ()) =
        tokio::join!(mount(volumes[0]), mount(volumes[1]), mount(volumes[2]), restarts, stops);
    for (volume, mounted) in volumes.into_iter().zip([a, b, c]) {
        let read = std::fs::read_to_string(format!("{}/f", mounted.path)).unwrap();
        assert_eq!(read, names(volume).0);
    }
    plant(system, &json!([]));
    for volume in volumes {
        system.stop(&names(volume).1).await;
        system.freed(volume).await;
    }
    system.settle("data0").await;
}

/// Whether no volume has a claim of the node.
async fn all_free_of(system: &System, node: &str, volumes: &[&str]) -> bool {
    for volume in volumes {
        let claims = system.claims(volume).await.claims;
        if claims.iter().any(|claim| claim.node.as_str() == node) {
            return false;
        }
    }
    true
}

/// B11: three allocs wait for one volume. They get it in the order of their requests, and each sees
/// who is ahead.
#[tokio::test(flavor = "multi_thread")]
async fn first_come_first_served() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("holder", 0, "data").await;
    // Not in the order of their names, and on both nodes.
    let waiters = [("w2", 1), ("w0", 0), ("w1", 1)];
    for (id, node) in waiters {
        system.alloc(id, node, "data", false).await;
    }
    let wait_in_line = |position: usize| {
        let (id, node) = waiters[position];
        let system = &system;
        async move {
            if position > 0 {
                claim_is(system, "data", waiters[position - 1].0, State::Waiting).await;
            }
            system.mount_in_turn(id, node, "data").await.unwrap();
            // The next alloc gets the volume only when this one has ended.
            let claims = system.claims("data").await.claims;
            let holders = claims.iter().filter(|claim| claim.state != State::Waiting);
            assert_eq!(holders.map(|claim| claim.alloc.as_str()).collect::<Vec<_>>(), [id]);
            system.stop(id).await;
        }
    };
    let go = async {
        claim_is(&system, "data", "w1", State::Waiting).await;
        let claims = system.claims("data").await.claims;
        let last = claims.iter().find(|claim| claim.alloc.as_str() == "w1").unwrap();
        let waits_for = last.waits_for.as_deref().unwrap_or_default();
        for ahead in ["holder", "w0", "w2"] {
            assert!(waits_for.contains(ahead), "{ahead} is ahead of w1: {waits_for}");
        }
        system.stop("holder").await;
    };
    tokio::join!(wait_in_line(0), wait_in_line(1), wait_in_line(2), go);
    system.settle("data").await;
    let attached = lines(&system, "begin", "ControllerPublishVolume", "data");
    let order: Vec<&str> =
        attached.iter().filter_map(|call| call["args"]["node_id"].as_str()).collect();
    assert_eq!(order, ["external-n1", "external-n2", "external-n1", "external-n2"]);
}

/// B11: an alloc loses its position in the queue when it ends, and when its caller is killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_in_line_is_lost_by_whoever_does_not_come_back() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { place_kept_ms: 1_500, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("holder", 0, "data").await;
    let url = system.url();
    let mut killed = system
        .berth()
        .args(["--nats", &url, "run", "--node", "n2", "--alloc", "killed", "--wait", "-v", "data"])
        .args(["--", "true"])
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    claim_is(&system, "data", "killed", State::Waiting).await;
    system.alloc("stopped", 1, "data", false).await;
    system.alloc("patient", 1, "data", false).await;
    let stopped = async {
        claim_is(&system, "data", "stopped", State::Waiting).await;
        claim_is(&system, "data", "patient", State::Waiting).await;
        system.stop("stopped").await;
        killed.kill().await.unwrap();
        wait::until("only the alloc that repeats its request is in line", SOON, || async {
            let claims = system.claims("data").await.claims;
            let allocs: Vec<&str> = claims.iter().map(|claim| claim.alloc.as_str()).collect();
            if allocs == ["holder", "patient"] { Ok(()) } else { Err(format!("{allocs:?}")) }
        })
        .await;
        system.stop("holder").await;
    };
    let refused = system.mount_in_turn("stopped", 1, "data");
    let (refused, mounted, ()) =
        tokio::join!(refused, system.mount_in_turn("patient", 1, "data"), stopped);
    mounted.unwrap();
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, berth_contract::code::Code::AllocTerminal, "{refused}");
    system.stop("patient").await;
    system.stop("killed").await;
    system.settle("data").await;
}
