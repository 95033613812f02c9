//! Thin main of `berth-node-agent`.

use std::process::ExitCode;

use berth_contract::actor::Actor;

fn main() -> ExitCode {
    let name = berth_contract::service::NODE_AGENT;
    let actor = |own: &berth_node_agent::Config| Actor::Node(own.node.clone());
    berth_service::process::run(name, actor, berth_node_agent::run)
}
