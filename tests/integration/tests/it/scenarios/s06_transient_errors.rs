//! A controller with a temporary error is retried on a schedule, and delays no other volume.

use std::time::Duration;

use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
use serde_json::json;

use super::{SOON, lines, plant, us};

const RPC: &str = "ControllerUnpublishVolume";

#[tokio::test(flavor = "multi_thread")]
async fn s06_transient_errors_are_retried_and_stop_nobody_else() {
    if !or_skip("real mounts") {
        return;
    }
    // One node, and so one controller: the driver counts each fault's uses by instance.
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    for volume in ["data", "other"] {
        system.volume(volume, &["single-node-writer"]).await;
        system.run(&format!("on-{volume}"), 0, volume).await;
    }
    let failing = |times: Option<u32>| {
        let mut fault = json!([{"rpc": RPC, "volume": "data", "code": "UNAVAILABLE"}]);
        if let Some(times) = times {
            fault[0]["times"] = json!(times);
        }
        fault
    };
    plant(&system, &failing(None));
    system.stop("on-data").await;
    let stuck = wait::until("the claim shows the failure", SOON, || async {
        let claim = system.claims("data").await.claims.pop().ok_or("the volume was freed")?;
        // While a try is running, no next one is scheduled.
        if claim.tries > 0 && claim.next_try.is_some() {
            Ok(claim)
        } else {
            Err(format!("{claim:?}"))
        }
    })
    .await;
    assert!(stuck.error().is_some_and(|error| error.contains("UNAVAILABLE")), "{stuck:?}");
    system.stop("on-other").await;
    system.freed("other").await;
    assert_eq!(
        system.claims("data").await.claims.len(),
        1,
        "the release fails while the fault is planted"
    );

    let before = lines(&system, "begin", RPC, "data").len();
    plant(&system, &failing(Some(3)));
    system.settle("data").await;
    let calls = lines(&system, "begin", RPC, "data");
    // The last call before the count, and the first after it, may have met either fault.
    assert!((before + 3..=before + 5).contains(&calls.len()), "{before}, then {}", calls.len());
    let gaps: Vec<Duration> = calls
        .windows(2)
        .map(|pair| Duration::from_micros(us(&pair[1], "begin_us") - us(&pair[0], "begin_us")))
        .collect();
    assert!(gaps[0] <= Duration::from_secs(2), "the first retry comes soon: {gaps:?}");
    // The longest retry delay is 2 s; jitter and load on the machine add to it.
    assert!(gaps.iter().all(|gap| *gap < Duration::from_secs(10)), "{gaps:?}");
    let sum: Duration = gaps.iter().take(3).sum();
    assert!(sum > Duration::from_millis(300), "the retries are too fast: {gaps:?}");
}
