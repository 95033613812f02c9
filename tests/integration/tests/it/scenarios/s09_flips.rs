//! One leaves a volume while another comes, on the same node, twenty times over: at most one call
//! at a time is at work on a volume of a node, and other volumes do not wait.

use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::{Value, json};

use super::{mount_in_turn, us};

/// Which flips go where: to the same node, or away; in no order.
const ORDER: [bool; 20] = [
    true, true, false, true, true, true, false, false, true, true, true, false, true, false, true,
    true, true, true, false, true,
];

/// Calls of node n1's driver about a volume, by when each was at work.
fn spans(system: &System, volume: &str) -> Vec<(u64, u64, String)> {
    let calls = system.calls();
    let of = |call: &&Value| call["entry"] == "end" && call["volume_id"] == volume;
    let node = |call: &&Value| call["rpc"].as_str().is_some_and(|rpc| rpc.starts_with("Node"));
    let mut spans: Vec<(u64, u64, String)> = calls
        .iter()
        .filter(of)
        .filter(node)
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
    // Calls about `data` take a while, so that others have time to come between.
    let slow = |rpc: &str| json!({"rpc": rpc, "volume": "data", "delay_ms": 60});
    let rpcs = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];
    system.plant(0, &Value::Array(rpcs.map(slow).to_vec()));

    let flips = |volume: &'static str, stay: &'static [bool]| {
        let system = &system;
        async move {
            let name = |at: usize| format!("{volume}-{at}");
            system.run(&name(0), 0, volume).await;
            for (at, stay) in stay.iter().enumerate() {
                let (old, new) = (name(at), name(at + 1));
                system.alloc(&new, 0, volume, false).await;
                // Sometimes the old is gone for good before the new comes, mostly not.
                if *stay {
                    let (mounted, _) =
                        tokio::join!(mount_in_turn(system, &new, 0, volume), system.stop(&old));
                    mounted.unwrap();
                } else {
                    system.stop(&old).await;
                    mount_in_turn(system, &new, 0, volume).await.unwrap();
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
    let within = |one: &(u64, u64, String)| data.iter().any(|all| all.0 <= one.0 && one.1 <= all.1);
    assert!(other.iter().any(within), "nothing of `other` was done beside `data`");
}
