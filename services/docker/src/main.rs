//! Thin main of `berth-docker`.

use std::process::ExitCode;

use berth_contract::role::Role;

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    let name = berth_contract::service::DOCKER;
    let role = |own: &berth_docker::Config| Role::Docker { node: own.node.clone() };
    berth_service::process::run(name, role, berth_docker::run)
}
