//! Thin main of `berth-node-agent`.

use std::process::ExitCode;

use berth_contract::role::Role;

fn main() -> ExitCode {
    berth_version::declare(berth_version::of_build!());
    // Before any thread is started.
    if let Some(ended) = berth_node_agent::host::unmount_copy::run_if_asked(std::env::args_os()) {
        return ended;
    }
    let name = berth_contract::service::NODE_AGENT;
    let role = |own: &berth_node_agent::Config| Role::Node {
        node: own.node.clone(),
        controllers: own.plugins.iter().map(|plugin| plugin.id.clone()).collect(),
    };
    berth_service::process::run(name, role, berth_node_agent::run)
}
