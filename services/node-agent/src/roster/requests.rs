//! Answers `agent.plugins`, `agent.plugin-stop` and `agent.plugin-start`.

use std::future::{Ready, ready};

use berth_contract::code::Code;
use berth_contract::message::plugin::{
    AgentPlugins, AgentPluginsQuery, LocalInstance, OrderedInstances, StartPlugin, StopPlugin,
};
use berth_contract::problem::Problem;
use berth_domain::NodeId;
use berth_service::deadline;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::journal::Journal;
use crate::plugins::{Plugin, PluginInstance, Plugins};

/// Largest number of orders that wait for the roster.
pub const ORDERS_MAX: usize = 16;

/// An order that waits for the roster, which may be busy for longer than the caller waits.
#[derive(Debug)]
pub struct RosterRequest {
    order: RosterOrder,
    deadline: Instant,
    reply: OrderedReply,
}

#[derive(Debug)]
pub enum RosterOrder {
    Stop(StopPlugin),
    Start(StartPlugin),
}

impl RosterRequest {
    /// Carries the order out if its caller still waits. A caller that has given up may have sent
    /// the opposite order since.
    pub fn answer(self, carry_out: impl FnOnce(RosterOrder) -> Result<OrderedInstances, Problem>) {
        let Self { order, deadline, reply } = self;
        let answer = deadline::check(deadline).and_then(|()| carry_out(order));
        // The caller may no longer wait.
        drop(reply.send(answer));
    }
}

/// Answers for the plugins of this node. The roster carries out orders.
#[derive(Clone)]
pub struct PluginOrders {
    pub plugins: Plugins,
    pub journal: Journal,
    pub orders: mpsc::Sender<RosterRequest>,
}

type OrderedReply = oneshot::Sender<Result<OrderedInstances, Problem>>;

impl PluginOrders {
    /// Every instance here. Answered at once.
    pub fn list(
        self,
        node: NodeId,
        _: AgentPluginsQuery,
        _: Instant,
    ) -> Ready<Result<AgentPlugins, Problem>> {
        ready(Ok(list(node, &self.plugins, &self.journal)))
    }

    pub async fn stop(
        self,
        _: NodeId,
        stop: StopPlugin,
        deadline: Instant,
    ) -> Result<OrderedInstances, Problem> {
        self.order(RosterOrder::Stop(stop), deadline).await
    }

    pub async fn start(
        self,
        _: NodeId,
        start: StartPlugin,
        deadline: Instant,
    ) -> Result<OrderedInstances, Problem> {
        self.order(RosterOrder::Start(start), deadline).await
    }

    /// Answers with what the roster says to the order.
    async fn order(
        &self,
        order: RosterOrder,
        deadline: Instant,
    ) -> Result<OrderedInstances, Problem> {
        let (reply, ordered) = oneshot::channel();
        let ending = || Problem::new(Code::Overloaded, "the agent is stopping").retryable();
        let asked = RosterRequest { order, deadline, reply };
        self.orders.send(asked).await.map_err(|_| ending())?;
        ordered.await.map_err(|_| ending())?
    }
}

fn list(node: NodeId, plugins: &Plugins, journal: &Journal) -> AgentPlugins {
    let uses = journal.uses();
    let mut instances = Vec::new();
    for plugin in plugins.list() {
        let of_it = uses.iter().filter(|(.., entry)| entry.plugin == plugin.id);
        let mounted: Vec<&str> = of_it.map(|(.., entry)| entry.external_id.as_str()).collect();
        let members = plugin.pool.list();
        instances.extend(members.iter().map(|member| instance_shown(&plugin, member, &mounted)));
    }
    AgentPlugins { node, instances, faults: plugins.faults() }
}

fn instance_shown(plugin: &Plugin, member: &PluginInstance, mounted: &[&str]) -> LocalInstance {
    let (record, candidate) = (member.record(), member.candidate());
    let view = candidate.view;
    LocalInstance {
        plugin: plugin.id.clone(),
        instance: member.key.clone(),
        source: record.source.to_string(),
        socket: member.socket.display().to_string(),
        serves: plugin.pool.serves(member),
        healthy: view.healthy,
        description: candidate.down.unwrap_or(view.description),
        version: view.fingerprint.map(|known| known.vendor_version),
        since: member.since,
        supervised: member.declaration.command().is_some(),
        pid: record.process.map(|process| process.pid),
        listener: member.process(),
        restarts: record.restarts,
        leaving: candidate.leaving,
        stopped_by: record.stopped_by,
        mounts: plugin.pool.count_needing_mounts(member, mounted.iter().copied()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use berth_domain::PluginId;

    use super::*;

    #[tokio::test]
    async fn an_order_whose_caller_has_given_up_is_not_carried_out() {
        for (left, expected) in
            [(Duration::from_secs(60), None), (Duration::ZERO, Some(Code::Late))]
        {
            let (reply, ordered) = oneshot::channel();
            let order = RosterOrder::Stop(StopPlugin {
                plugin: PluginId::new("p").unwrap(),
                instance: None,
                even_with_mounts: false,
                by: "ada".to_owned(),
            });
            let mut carried_out = false;
            RosterRequest { order, deadline: Instant::now() + left, reply }.answer(|_| {
                carried_out = true;
                Ok(OrderedInstances { instances: Vec::new() })
            });
            let refused = ordered.await.unwrap().err().map(|problem| problem.code);
            assert_eq!((refused, carried_out), (expected, expected.is_none()));
        }
    }
}
