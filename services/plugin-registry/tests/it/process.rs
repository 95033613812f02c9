//! The process itself: bad configuration, and an end that is asked for.

use std::process::Command;

use crate::site::Site;
use berth_harness::nats::raw;

#[test]
fn bad_configuration_is_answered_with_every_fault_and_64() {
    let output = Command::new(env!("CARGO_BIN_EXE_berth-plugin-registry"))
        .arg("--check-config")
        .env("BERTH__REGISTRY__RESCAN_MS", "1")
        .env("BERTH__REGISTRY__COLOUR", "red")
        .env("BERTH__NATS__REPLICAS", "2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let stderr = String::from_utf8(output.stderr).unwrap();
    for field in ["nats.replicas", "registry.colour", "registry.rescan_ms"] {
        assert!(stderr.contains(field), "{stderr}");
    }
}

#[tokio::test]
async fn it_ends_when_it_is_told_to() {
    let site = Site::start(1).await;
    let status = site.replicas[0].terminate().await;
    assert!(status.success(), "{status}\n{}", site.replicas[0].log());
}

#[tokio::test]
async fn every_endpoint_is_described_to_whoever_looks() {
    let site = Site::start(1).await;
    let info = raw::ask(site.server(), "$SRV.INFO.berth-plugin-registry", &[], b"").await;
    let endpoints = info["endpoints"].as_array().unwrap();
    let mut names: Vec<&str> =
        endpoints.iter().map(|endpoint| endpoint["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let nodes = ["gone", "hold", "host", "leave", "report", "status", "tell", "yield"];
    let nodes = nodes.map(|verb| format!("node-{verb}"));
    let plugins = ["delete", "expect", "status"].map(|verb| format!("plugin-{verb}"));
    assert_eq!(names, [&nodes[..], &plugins[..]].concat());
    for endpoint in endpoints {
        let description = endpoint["metadata"]["description"].as_str().unwrap();
        assert!(!description.is_empty(), "{endpoint}");
    }
}
