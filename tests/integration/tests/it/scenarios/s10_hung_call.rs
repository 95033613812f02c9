//! An unmount that never returns has a deadline, is reported, and does not count as done. It delays
//! no other volume.

use berth_contract::code::Code;
use berth_domain::volume::State;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
use serde_json::json;

use super::{SOON, begun, berth};

#[tokio::test(flavor = "multi_thread")]
async fn s10_a_hung_unmount_frees_nothing_and_stops_nobody_else() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { call_timeout_ms: 1_000, ..Options::default() }).await;
    for volume in ["data", "other"] {
        system.volume(volume, &["single-node-writer"]).await;
        system.run(&format!("on-{volume}"), 0, volume).await;
    }
    system.plant(0, &json!([{"rpc": "NodeUnpublishVolume", "volume": "data", "hang": true}]));
    system.stop("on-data").await;
    let stuck = wait::until("the claim shows two failures", SOON, || async {
        let claim = system.claims("data").await.claims.pop().ok_or("the volume was freed")?;
        // A call that is under way has no next try yet.
        let has_failed_twice = claim.tries >= 2 && claim.next_try.is_some();
        if has_failed_twice { Ok(claim) } else { Err(format!("{claim:?}")) }
    })
    .await;
    assert_eq!(stuck.state, State::Unpublishing);
    assert!(stuck.failure.is_some(), "{stuck:?}");

    // Other work continues: another volume on the node, and that volume's move to another node.
    system.stop("on-other").await;
    system.freed("other").await;
    system.run("next", 1, "other").await;
    system.stop("next").await;
    system.freed("other").await;

    // No alloc gets the volume, and no operator's command frees it: each refusal gives the reason.
    system.alloc("b", 1, "data", false).await;
    let refused = system.mount("b", 1, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::Held, "{refused}");
    let by_hand = berth(&system, &["volume", "detach", "data", "n1", "--timeout", "2s"]).await;
    let stderr = String::from_utf8_lossy(&by_hand.stderr);
    assert_eq!(by_hand.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("unpublishing") && stderr.contains("failed"), "{stderr}");
    let closing = system.deregister("data", true).await.unwrap();
    assert!(!closing.gone, "{closing:?}");
    assert_eq!(begun(&system, "ControllerUnpublishVolume", "data"), 0);

    // When the call returns after all, the release completes.
    system.plant(0, &json!([]));
    system.settle("data").await;
}
