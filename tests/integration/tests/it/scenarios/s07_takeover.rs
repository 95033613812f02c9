//! The watcher that drives a release is killed at each of its steps, and not restarted. The other
//! watcher continues, skips no step, and repeats at most the interrupted one. ([`crate::kills`]
//! tests restarts.)

use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};

use super::{begun, changes};

const STEPS: [&str; 3] = ["NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"];

async fn taken_over(part: Part) {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { replicas: 2, call_timeout_ms: 1_500, ..Options::default() };
    let system = System::start(options).await;
    for (index, step) in STEPS.into_iter().enumerate() {
        let (volume, alloc) = (format!("data{index}"), format!("a{index}"));
        system.volume(&volume, &["single-node-writer"]).await;
        system.run(&alloc, 0, &volume).await;
        system.hold(step);
        system.stop(&alloc).await;
        system.under_way(step).await;
        system.kill9(part);
        system.let_go();
        system.settle(&volume).await;

        for other in STEPS {
            let calls = begun(&system, other, &volume);
            // A node's unpublish and unstage are one step of the record: both may be repeated.
            let most = if other == step { 2 } else { 1 };
            assert!((1..=most).contains(&calls), "{other}: {:?}", changes(&system, &volume));
        }
        system.restart(part);
        system.healthy().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_another_watcher_finishes_a_release_at_every_step() {
    taken_over(Part::Watcher).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_another_claim_service_finishes_a_release_at_every_step() {
    taken_over(Part::Claim).await;
}
