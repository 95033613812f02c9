//! Ids from users, with arbitrary characters, through every subject, key and path.

use berth_harness::root::or_skip;
use berth_integration::{Options, System};

#[tokio::test(flavor = "multi_thread")]
async fn strange_ids_go_the_whole_way() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let long = "x".repeat(256);
    for id in ["a.b/c d", "データ*>", "=2E..", "-", &long] {
        system.volume(id, &["single-node-writer"]).await;
        let mounted = system.run(id, 0, id).await;
        assert!(mounted.path.len() <= 128, "{} has {} bytes", mounted.path, mounted.path.len());
        std::fs::write(format!("{}/f", mounted.path), id).unwrap();
        let status = system.volume_status(id).await.unwrap();
        assert_eq!(status.claims[0].alloc.as_str(), id);
        system.stop(id).await;
        system.settle(id).await;
    }
}
