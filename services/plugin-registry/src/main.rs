//! Thin main of `berth-plugin-registry`.

use std::process::ExitCode;

use berth_contract::role::Role;

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    let name = berth_contract::service::PLUGIN_REGISTRY;
    berth_service::process::run(name, |_| Role::PluginRegistry, berth_plugin_registry::run)
}
