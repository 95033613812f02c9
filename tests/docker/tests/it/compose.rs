//! Compose files as in `docs/docker.md`.

use std::fs;

use berth_docker_tests::{Site, compose_or_skip};

/// A project of one service, which runs with the volume at `/data`.
fn project(volume: &str) -> String {
    let command = "echo kept >> /data/file; while true; do sleep 1; done";
    format!(
        "version: '3.8'\n\
         services:\n  web:\n    image: busybox\n    network_mode: none\n    init: true\n    \
         command: ['/bin/sh', '-c', '{command}']\n    volumes: ['data:/data']\n\
         volumes:\n  data:\n{volume}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_has_its_volume_while_it_is_up() {
    if !compose_or_skip() {
        return;
    }
    let site = Site::start_alone(1).await;
    site.system.volume("data", &["single-node-writer"]).await;
    let (engine, driver) = (site.engine(0).await, site.driver(0));
    // By the project's name for the volume, and by the volume's own name, which Docker knows
    // without a create.
    let named = format!("    driver: {driver}\n    driver_opts: {{volume: data}}\n");
    let external = "    external: true\n    name: data\n".to_owned();
    for (volume, name) in [(named, "web_data"), (external, "data")] {
        let file = site.system.dir().join("compose.yaml");
        fs::write(&file, project(&volume)).unwrap();
        let run = |arguments: &'static [&str]| engine.compose(&file, "web", arguments);
        run(&["up", "-d"]).await;
        assert_eq!(site.plugin(0).references(name).await, 1);
        assert_eq!(site.system.claims("data").await.claims.len(), 1);
        let read = run(&["exec", "-T", "web", "/bin/cat", "/data/file"]).await;
        assert!(read.starts_with("kept"), "{read}");
        run(&["restart", "-t", "0"]).await;
        let read = run(&["exec", "-T", "web", "/bin/cat", "/data/file"]).await;
        assert!(read.lines().count() >= 2, "the data from before the restart is there: {read}");
        run(&["stop", "-t", "0"]).await;
        site.settle("data").await;
        run(&["start"]).await;
        assert_eq!(site.system.claims("data").await.claims.len(), 1);
        // `--volumes` removes only the names. The data stays.
        run(&["down", "-t", "0", "--volumes"]).await;
        site.settle("data").await;
        assert_eq!(engine.volumes().await, ["data"]);
    }
}
