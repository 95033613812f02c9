//! Thin main of `berth-claim`.

use std::process::ExitCode;

use berth_contract::role::Role;

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    let name = berth_contract::service::CLAIM;
    berth_service::process::run(name, |_| Role::Claim, berth_claim::run)
}
