//! The process itself: bad configuration, and an end that is asked for.

use std::process::Command;

use crate::site::Site;

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
    let said = String::from_utf8(output.stderr).unwrap();
    for field in ["nats.replicas", "registry.colour", "registry.rescan_ms"] {
        assert!(said.contains(field), "{said}");
    }
}

#[tokio::test]
async fn it_ends_when_it_is_told_to() {
    let site = Site::start(1).await;
    let status = site.replicas[0].terminate().await;
    assert!(status.success(), "{status}\n{}", site.replicas[0].log());
}
