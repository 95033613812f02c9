//! Thin main of `berth-docker`.

use std::process::ExitCode;

use berth_contract::actor::Actor;

fn main() -> ExitCode {
    let name = berth_contract::service::DOCKER;
    let actor = |own: &berth_docker::Config| Actor::Docker(own.node.clone());
    berth_service::process::run(name, actor, berth_docker::run)
}
