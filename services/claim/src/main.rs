//! Thin main of `berth-claim`.

use std::process::ExitCode;

use berth_contract::actor::Actor;

fn main() -> ExitCode {
    let name = berth_contract::service::CLAIM;
    berth_service::process::run(name, |_| Actor::service(name), berth_claim::run)
}
