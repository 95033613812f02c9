//! Thin main of `berth-node-agent`.

use std::process::ExitCode;

use berth_contract::role::Role;

fn main() -> ExitCode {
    let name = berth_contract::service::NODE_AGENT;
    let role = |own: &berth_node_agent::Config| Role::Node {
        node: own.node.clone(),
        controllers: own.plugins.iter().map(|plugin| plugin.id.clone()).collect(),
    };
    berth_service::process::run(name, role, berth_node_agent::run)
}
