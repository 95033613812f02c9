//! Thin main of `berth-plugin-registry`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_service::process::run(
        berth_contract::service::PLUGIN_REGISTRY,
        berth_plugin_registry::run,
    )
}
