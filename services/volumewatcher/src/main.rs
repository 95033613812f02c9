//! Thin main of `berth-volumewatcher`.

use std::process::ExitCode;

use berth_contract::actor::Actor;

fn main() -> ExitCode {
    let name = berth_contract::service::VOLUMEWATCHER;
    berth_service::process::run(name, |_| Actor::service(name), berth_volumewatcher::run)
}
