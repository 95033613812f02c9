//! Thin main of `berth-node-agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth_service::process::run(berth_contract::service::NODE_AGENT, berth_node_agent::run)
}
