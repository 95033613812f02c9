//! `node.host`: which controllers a node may host.
//!
//! **Why.** A controller decides about volumes of all nodes, so hosting one is a right of its own.
//! A report that names a controller proves nothing: every node may send reports. Only an identity
//! with the right may publish to this verb's subject, which names the node and the plugin.
//!
//! **Promises** that a controller gets onto the record only after its node has shown this right. A
//! report without the controller removes the controller and the right from the record.

use std::collections::BTreeSet;

use berth_contract::message::registry::Hosted;
use berth_contract::problem::Problem;
use berth_contract::verb::PluginOnNode;
use berth_domain::plugin::Node;
use berth_service::deadline;
use berth_service::record_table::{StoreError, retry_lost_races};

use crate::caller::Caller;
use crate::store::node_records::Write;
use crate::store::state::State;

pub async fn host(state: &State, on: PluginOnNode, caller: &Caller) -> Result<Hosted, Problem> {
    let attempt = || record(state, &on, caller);
    let recorded = retry_lost_races(attempt).await;
    recorded.map_err(|problem| problem.node(&on.node).plugin(&on.plugin))
}

async fn record(
    state: &State,
    PluginOnNode { plugin, node }: &PluginOnNode,
    caller: &Caller,
) -> Result<Hosted, StoreError> {
    state.catch_up(caller.deadline).await?;
    let is_recorded =
        |record: Option<&Node>| record.is_some_and(|record| record.hosts.contains(plugin));
    if state.nodes.mirror.read(|nodes| is_recorded(nodes.get(node))) {
        return Ok(Hosted {});
    }
    deadline::check(caller.deadline)?;
    let snapshot = state.read_node_records(node, BTreeSet::new()).await?;
    let record = snapshot.records.node.clone();
    if !is_recorded(record.as_ref()) {
        let mut next = if let Some(record) = record {
            record
        } else {
            // An agent shows its rights before its first report, so nothing is known of its mounts.
            let newcomer = Some(state.newest_of_volumes().await?);
            Node { uncompared: true, newcomer, ..Node::unknown(caller.at) }
        };
        next.hosts.insert(plugin.clone());
        state.store(node, &snapshot, &Write::Node(next), caller.trace).await?;
    }
    Ok(Hosted {})
}
