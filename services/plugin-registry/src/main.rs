//! Thin main of `berth-plugin-registry`.

use std::process::ExitCode;

use berth_contract::actor::Actor;

fn main() -> ExitCode {
    let name = berth_contract::service::PLUGIN_REGISTRY;
    berth_service::process::run(name, |_| Actor::service(name), berth_plugin_registry::run)
}
