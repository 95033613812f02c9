//! A failed workload's volume is released immediately, without any periodic scan.

use std::time::Duration;

use berth_domain::alloc::AllocState;
use berth_domain::volume::State;
use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};

use super::{changes, claim_is, ended, lines, us};

#[tokio::test(flavor = "multi_thread")]
async fn s01_a_failed_workload_releases_at_once() {
    if !or_skip("real mounts") {
        return;
    }
    // No scan helps: the watcher scans too seldom, and the collector is dead.
    let system = System::start(Options { rescan_ms: 600_000, ..Options::default() }).await;
    system.kill9(Part::Gc);
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    system.alloc("b", 1, "data", false).await;
    let fail = async {
        claim_is(&system, "data", "b", State::Waiting).await;
        ended(&system, "a", AllocState::Failed).await;
    };
    let (mounted, ()) = tokio::join!(system.mount_in_turn("b", 1, "data"), fail);
    mounted.unwrap();

    let detached = lines(&system, "end", "ControllerUnpublishVolume", "data");
    let attached = lines(&system, "begin", "ControllerPublishVolume", "data");
    let waited = us(&attached[1], "begin_us").saturating_sub(us(&detached[0], "end_us"));
    assert!(Duration::from_micros(waited) < Duration::from_secs(2), "{waited} us");
    assert_eq!(attached[1]["args"]["node_id"], "external-n2");
    assert_eq!(
        changes(&system, "data"),
        [
            "ControllerPublishVolume",
            "NodeStageVolume",
            "NodePublishVolume",
            "NodeUnpublishVolume",
            "NodeUnstageVolume",
            "ControllerUnpublishVolume",
            "ControllerPublishVolume",
            "NodeStageVolume",
            "NodePublishVolume",
        ]
    );
    system.stop("b").await;
    system.settle("data").await;
}
