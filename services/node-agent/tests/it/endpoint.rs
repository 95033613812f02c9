//! How a driver that the agent runs learns where to listen, and what is said of one that does not.

use crate::plugins::{Plant, well};
use crate::world::PLUGIN;

/// Neither csi-driver-host-path nor csi-driver-nfs reads `CSI_ENDPOINT`: they take an argument.
#[tokio::test]
async fn a_driver_that_reads_only_its_arguments_is_told_its_endpoint_there() {
    let plant = Plant::start().await;
    let with_argument = |more: &str| {
        let said = plant.command(PLUGIN, "1.0", "");
        let deaf = said.replacen("command = [", "command = ['/usr/bin/env', '-uCSI_ENDPOINT', ", 1);
        deaf.replacen("\"serve\"", &format!("\"serve\"{more}"), 1)
    };
    plant.write("dev", &with_argument(", '--endpoint=${CSI_ENDPOINT}'"));
    plant.one("dev", well).await;
    plant.remove("dev");
    plant.gone("dev").await;
}

#[tokio::test]
async fn a_process_that_serves_no_socket_is_told_with_its_likely_cause() {
    let plant = Plant::start().await;
    plant.write("deaf", "id = 'deaf'\ncommand = ['/bin/sleep', '1000']\nstop_timeout_ms = 500");
    let silent = "id = 'silent'\ncommand = ['/bin/sh', '-c', 'sleep 1000 # ${CSI_ENDPOINT}']";
    plant.write("silent", &format!("{silent}\nstop_timeout_ms = 500"));
    let says = "its process runs and has not made its socket";
    let deaf = plant.one("deaf", |one| one.description.contains(says)).await;
    for part in ["may not read CSI_ENDPOINT", "--endpoint=${CSI_ENDPOINT}"] {
        assert!(deaf.description.contains(part), "{deaf:?}");
    }
    let silent = plant.one("silent", |one| one.description.contains(says)).await;
    assert!(silent.description.contains("its output is in the agent's log"), "{silent:?}");
    assert!(!silent.description.contains("may not read CSI_ENDPOINT"), "{silent:?}");
    for name in ["deaf", "silent"] {
        plant.remove(name);
        plant.gone(name).await;
    }
}
