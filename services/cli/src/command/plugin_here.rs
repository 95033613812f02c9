//! The `berth plugin` commands that a node's agent answers.

use berth_contract::message::plugin::{
    AgentPluginsQuery, OrderedInstances, StartPlugin, StopPlugin,
};
use berth_contract::verb;
use berth_domain::NodeId;
use berth_service::clock;

use super::node::user_and_host;
use crate::args::{PluginInstances, PluginStart, PluginStop};
use crate::failure::Failure;
use crate::session::Session;
use crate::show;

/// Shows the instances on a node.
pub async fn instances(args: &PluginInstances, session: &Session) -> Result<(), Failure> {
    let mut instances =
        session.ask_service::<verb::AgentPlugins>(&args.node, &AgentPluginsQuery {}).await?;
    if let Some(id) = &args.plugin {
        instances.instances.retain(|instance| instance.plugin == *id);
    }
    session.output.reply(&instances, |instances| show::plugins_here(instances, clock::now()));
    Ok(())
}

/// Stops a plugin's process.
pub async fn stop(args: &PluginStop, session: &Session) -> Result<(), Failure> {
    let body = StopPlugin {
        plugin: args.id.clone(),
        instance: args.instance.clone(),
        even_with_mounts: args.even_with_mounts,
        by: args.by.clone().unwrap_or_else(user_and_host),
    };
    let ordered = session.ask_service::<verb::AgentPluginStop>(&args.node, &body).await?;
    session.output.reply(&ordered, |ordered| ordered_text(ordered, "stopped", &args.node));
    Ok(())
}

/// Starts it again.
pub async fn start(args: &PluginStart, session: &Session) -> Result<(), Failure> {
    let body = StartPlugin { plugin: args.id.clone(), instance: args.instance.clone() };
    let ordered = session.ask_service::<verb::AgentPluginStart>(&args.node, &body).await?;
    session.output.reply(&ordered, |ordered| ordered_text(ordered, "started", &args.node));
    Ok(())
}

fn ordered_text(ordered: &OrderedInstances, outcome: &str, node: &NodeId) -> String {
    match &ordered.instances[..] {
        [] => format!("nothing is to be {outcome}: it was before\n"),
        some => format!("{} on {node}: being {outcome}\n", some.join(", ")),
    }
}
