//! Thin main of `berth-volumewatcher`.

use std::process::ExitCode;

use berth_contract::role::Role;

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    let name = berth_contract::service::VOLUMEWATCHER;
    berth_service::process::run(name, |_| Role::Volumewatcher, berth_volumewatcher::run)
}
