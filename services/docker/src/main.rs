//! Thin main of `berth-docker`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_service::process::run(berth_contract::service::DOCKER, berth_docker::run)
}
