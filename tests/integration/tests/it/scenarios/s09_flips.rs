//! One alloc leaves a volume while another comes, on the same node, twenty times. At most one call
//! at a time runs for a volume on a node, and other volumes do not wait.

use std::fs;
use std::time::Duration;

use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{drawn, us};

/// For each flip, whether the old alloc stops while the new one waits (true) or before it requests.
const ORDER: [bool; 20] = [
    true, true, false, true, true, true, false, false, true, true, true, false, true, false, true,
    true, true, true, false, true,
];

/// Begin, end and RPC of each call of node n1's driver about a volume, in order.
fn spans(system: &System, volume: &str) -> Vec<(u64, u64, String)> {
    let calls = system.calls();
    let is_ended = |call: &&Value| call["entry"] == "end" && call["volume_id"] == volume;
    let is_node_call =
        |call: &&Value| call["rpc"].as_str().is_some_and(|rpc| rpc.starts_with("Node"));
    let mut spans: Vec<(u64, u64, String)> = calls
        .iter()
        .filter(is_ended)
        .filter(is_node_call)
        .map(|call| (us(call, "begin_us"), us(call, "end_us"), call["rpc"].to_string()))
        .collect();
    spans.sort();
    spans
}

#[tokio::test(flavor = "multi_thread")]
async fn s09_flips_on_one_node_never_interleave() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-multi-writer"]).await;
    system.volume("other", &["single-node-multi-writer"]).await;
    // Calls about `data` are slowed, so that other calls can interleave.
    let slow = |rpc: &str| json!({"rpc": rpc, "volume": "data", "delay_ms": 60});
    let rpcs = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];
    system.plant(0, &Value::Array(rpcs.map(slow).to_vec()));

    let flips = |volume: &'static str, stay: &'static [bool]| {
        let system = &system;
        async move {
            let name = |number: usize| format!("{volume}-{number}");
            system.run(&name(0), 0, volume).await;
            for (number, stay) in stay.iter().enumerate() {
                let (old, new) = (name(number), name(number + 1));
                system.alloc(&new, 0, volume, false).await;
                if *stay {
                    let (mounted, _) =
                        tokio::join!(system.mount_in_turn(&new, 0, volume), system.stop(&old));
                    mounted.unwrap();
                } else {
                    system.stop(&old).await;
                    system.mount_in_turn(&new, 0, volume).await.unwrap();
                }
            }
            system.stop(&name(stay.len())).await;
        }
    };
    tokio::join!(flips("data", &ORDER), flips("other", &ORDER));
    system.freed("other").await;
    system.settle("data").await;

    for volume in ["data", "other"] {
        let spans = spans(&system, volume);
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{volume}: two at once: {pair:?}");
        }
        let count = |rpc: &str| spans.iter().filter(|span| span.2.contains(rpc)).count();
        assert_eq!(count("NodePublishVolume"), 21, "{volume}");
        assert_eq!(count("NodeUnpublishVolume"), 21, "{volume}");
        assert_eq!(count("NodeStageVolume"), count("NodeUnstageVolume"), "{volume}");
    }
    let (data, other) = (spans(&system, "data"), spans(&system, "other"));
    let is_within_data =
        |span: &(u64, u64, String)| data.iter().any(|slow| slow.0 <= span.0 && span.1 <= slow.1);
    assert!(other.iter().any(is_within_data), "no call of `other` ran beside one of `data`");
}

/// Flips while the node's agent or plugin is killed at random moments. Each alloc reads what the
/// previous one wrote.
#[tokio::test(flavor = "multi_thread")]
async fn s09_flips_go_on_whatever_of_the_node_is_killed_meanwhile() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-multi-writer"]).await;
    let slow = |rpc: &str| json!({"rpc": rpc, "delay_ms": 60});
    let rpcs = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];
    system.plant(0, &Value::Array(rpcs.map(slow).to_vec()));
    let name = |number: usize| format!("data-{number}");
    let first = system.run(&name(0), 0, "data").await;
    fs::write(format!("{}/f", first.path), name(0)).unwrap();
    for number in 0..8 {
        let (old, new) = (name(number), name(number + 1));
        let victim = [Part::Agent(0), Part::Driver(0)][drawn(2)];
        let (delay, stays) = (Duration::from_millis(10 * drawn(40) as u64), drawn(3) > 0);
        // Printed to reproduce a failed run.
        eprintln!(
            "flip {number}: {victim:?} is killed after {delay:?}, the old one stays: {stays}"
        );
        system.alloc(&new, 0, "data", false).await;
        let kill = async {
            sleep(delay).await;
            system.kill9_and_restart(victim).await;
        };
        if !stays {
            system.stop(&old).await;
        }
        let stop_old = async {
            if stays {
                system.stop(&old).await;
            }
        };
        let mount_new = system.mount_in_turn(&new, 0, "data");
        let (mounted, (), ()) = tokio::join!(mount_new, stop_old, kill);
        let file = format!("{}/f", mounted.unwrap().path);
        assert_eq!(fs::read_to_string(&file).unwrap(), old, "flip {number}");
        fs::write(&file, &new).unwrap();
    }
    system.stop(&name(8)).await;
    // The judge compares the counts of stagings, call by call.
    system.settle("data").await;
}
