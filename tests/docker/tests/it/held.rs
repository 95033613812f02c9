//! A container without Berth's driver uses an alloc's volume.

use berth_docker_tests::{PATIENCE, Site, engine_or_skip};
use berth_harness::wait;

const WRITE: &str = "while true; do echo x >> /data/written; sleep 1; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_allocs_volume_stays_while_a_container_has_it() {
    if !engine_or_skip() {
        return;
    }
    let site = Site::start(2).await;
    let system = &site.system;
    system.volume("data", &["single-node-writer"]).await;
    let path = system.run("a", 0, "data").await.path;
    // Bound by its path: neither does the engine know Berth's volume, nor Berth the container.
    let engine = site.engine(0).await;
    let volume = format!("{path}:/data");
    let arguments = engine.shell_arguments(&volume, &["-d", "--name", "one"], WRITE);
    engine.ok(&arguments).await;
    let pid = engine.ok(&["inspect", "--format", "{{.State.Pid}}", "one"]).await;
    system.stop("a").await;
    let named = format!("process {pid} (sh)");
    wait::until("the claim names the container's process", PATIENCE, || async {
        let claims = system.claims("data").await.claims;
        let error =
            claims.first().and_then(|claim| claim.error().map(str::to_owned)).unwrap_or_default();
        if error.contains(&named) && error.contains("/data") { Ok(()) } else { Err(error) }
    })
    .await;
    system.alloc("b", 1, "data", false).await;
    assert!(system.try_mount("b", 1, "data").await.is_err(), "the container still writes");
    assert_eq!(site.count("NodeUnpublishVolume"), 0, "nothing is unmounted under the container");

    engine.ok(&["rm", "-f", "one"]).await;
    system.mount_in_turn("b", 1, "data").await.unwrap();
    system.stop("b").await;
    site.settle("data").await;
}
