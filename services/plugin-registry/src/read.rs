//! `plugin.status` and `node.status`, page by page.
//!
//! **Promises** that a reply shows plugins and nodes at one moment, with everything that any
//! replica stored before the request. The streams' leaders are asked each time; if one does not
//! answer, the request fails.

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::query::LongPoll;
use berth_contract::message::registry::{
    ListNodes, ListPlugins, NodeStatus, Nodes as Listed, PluginStatus, PluginType, Plugins,
};
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_domain::limits::UNREADABLE_MAX;
use berth_domain::plugin::{Half, Node, Plugin};
use berth_domain::{NodeId, PluginId};
use berth_service::newer::{Until, await_newer};
use berth_service::page::{Page, Room, after, page};
use berth_service::projection::{Instances, Nodes};
use berth_service::registry_status as status;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::store::state::State;

/// Plugins without their instances, or one plugin with its instances.
pub async fn list_plugins(
    state: &State,
    query: ListPlugins,
    caller: &Caller,
) -> Result<Plugins, Problem> {
    let Some(id) = &query.id else {
        let after = after(&query.page, |token| PluginId::new(token).ok())?;
        let listed = |plugins: &Instances, nodes: &Nodes| {
            let matching = plugins
                .iter()
                .filter(|(id, _)| after.as_ref().is_none_or(|after| *id > after))
                .filter(|(id, plugin)| matches(&query, id, plugin));
            let show = |id: &&PluginId| {
                Some(status::plugin_status(id, plugins.get(id)?, nodes, Vec::new()))
            };
            let room = Room::for_page(&query.page);
            let page = page(matching.map(|(id, _)| id), room, show, ToString::to_string);
            (page, first_unreadable(plugins.unreadable()))
        };
        let (index, (page, unreadable)) =
            state.snapshot(query.newer, caller.deadline, listed).await?;
        let plugins = page.entries.into_iter().flatten().collect();
        return Ok(Plugins { index, plugins, next: page.next, unreadable });
    };
    let after = after(&query.page, |token| {
        let (plugin, node, half) = key::parse_instance(token)?;
        (plugin == *id).then_some((node, half))
    })?;
    let with_unreadable = |plugins: &Instances, nodes: &Nodes| {
        let plugin = plugins.get(id);
        let shown = plugin.map(|plugin| with_instances(id, plugin, nodes, &query, after.as_ref()));
        (shown, first_unreadable(plugins.unreadable_of(id)))
    };
    let (index, (shown, unreadable)) =
        state.snapshot(query.newer, caller.deadline, with_unreadable).await?;
    let Some((plugin, next)) = shown else {
        let none =
            || Problem::new(Code::NoSuchPlugin, format!("no agent has reported plugin {id}"));
        return Err(unreadable.first().map_or_else(none, UnreadableRecord::problem).plugin(id));
    };
    Ok(Plugins { index, plugins: vec![plugin], next, unreadable })
}

/// The unreadable records that fit in one reply.
fn first_unreadable<'a>(all: impl Iterator<Item = &'a UnreadableRecord>) -> Vec<UnreadableRecord> {
    all.take(UNREADABLE_MAX).cloned().collect()
}

/// Both halves, in the order of their keys.
const HALVES: [Half; 2] = [Half::Controller, Half::Node];

fn matches(query: &ListPlugins, id: &PluginId, plugin: &Plugin) -> bool {
    let of_type = |key: &_| query.kind.is_none_or(|kind| has_type(plugin, kind, key));
    let is_on = |node: &NodeId| {
        let mut keys = HALVES.into_iter().map(|half| (node.clone(), half));
        keys.any(|key| plugin.instances.contains_key(&key) && of_type(&key))
    };
    let is_matched = match (&query.node, query.kind) {
        (None, None) => true,
        (Some(node), _) => is_on(node),
        (None, Some(kind)) => is_expected(plugin, kind) || plugin.instances.keys().any(of_type),
    };
    id.as_str().starts_with(&query.prefix) && is_matched
}

/// Whether the instance of that node makes the plugin one of this type.
fn has_type(plugin: &Plugin, kind: PluginType, (node, half): &(NodeId, Half)) -> bool {
    let has = |half| plugin.instances.contains_key(&(node.clone(), half));
    match kind {
        PluginType::Controller => *half == Half::Controller,
        PluginType::Node => *half == Half::Node,
        PluginType::Monolith => HALVES.into_iter().all(has),
    }
}

/// Whether a job announces instances of this type. So a query for plugins with a controller also
/// finds a plugin whose last controller is gone. A job names no node, so it makes no monolith.
fn is_expected(plugin: &Plugin, kind: PluginType) -> bool {
    let half = match kind {
        PluginType::Controller => Half::Controller,
        PluginType::Node => Half::Node,
        PluginType::Monolith => return false,
    };
    plugin.jobs.values().any(|job| job.expects(half) > 0)
}

fn with_instances(
    id: &PluginId,
    plugin: &Plugin,
    nodes: &Nodes,
    query: &ListPlugins,
    after: Option<&(NodeId, Half)>,
) -> (PluginStatus, Option<String>) {
    let shown = status::plugin_status(id, plugin, nodes, Vec::new());
    let faults = plugin.node_id_faults();
    let matching = plugin
        .instances
        .keys()
        .filter(|key| after.is_none_or(|after| *key > after))
        .filter(|(node, _)| query.node.as_ref().is_none_or(|wanted| wanted == node))
        .filter(|key| query.kind.is_none_or(|kind| has_type(plugin, kind, key)));
    let show = |key: &&(NodeId, Half)| {
        let (node, half) = *key;
        let instance = plugin.instances.get(*key)?;
        let fault = faults.get(node).copied();
        Some(status::instance_status((id, node, *half), instance, nodes.get(node), fault))
    };
    let room = Room::for_page(&query.page).beside(&shown);
    let page = page(matching, room, show, |(node, half)| key::instance(id, node, *half));
    let instances = page.entries.into_iter().flatten().collect();
    (PluginStatus { instances, ..shown }, page.next)
}

/// All nodes that match, or one.
pub async fn list_nodes(
    state: &State,
    query: ListNodes,
    caller: &Caller,
) -> Result<Listed, Problem> {
    let after = after(&query.page, |token| NodeId::new(token).ok())?;
    let listed = |plugins: &Instances, nodes: &Nodes| -> (Page<Option<NodeStatus>>, _) {
        let on = |node: &NodeId, plugin: &PluginId| {
            let instances = plugins.get(plugin).map(|plugin| &plugin.instances);
            let key_of = |half| (node.clone(), half);
            instances.is_some_and(|instances| {
                instances.contains_key(&key_of(Half::Node))
                    || instances.contains_key(&key_of(Half::Controller))
            })
        };
        let is_matched = |id: &NodeId, node: &Node| {
            query.id.as_ref().is_none_or(|wanted| wanted == id)
                && id.as_str().starts_with(&query.prefix)
                && query.plugin.as_ref().is_none_or(|plugin| on(id, plugin))
                && query.state.is_none_or(|state| state == node.state)
        };
        let matching = nodes
            .iter()
            .filter(|(id, _)| after.as_ref().is_none_or(|after| *id > after))
            .filter(|(id, node)| is_matched(id, node));
        let faults = status::node_id_faults(plugins);
        let show = |id: &&NodeId| {
            let node = nodes.get(id)?;
            let instances = status::instances_on(id, node, plugins, &faults);
            Some(status::node_status(id, (node, nodes.revision(id)), instances))
        };
        let page = page(
            matching.map(|(id, _)| id),
            Room::for_page(&query.page),
            show,
            ToString::to_string,
        );
        let asked_for = |id: &NodeId| {
            query.id.as_ref().is_none_or(|wanted| wanted == id)
                && id.as_str().starts_with(&query.prefix)
        };
        let nodes = nodes.unreadable().iter().filter(|(id, _)| asked_for(id));
        let instances = plugins.unreadable().filter(|record| {
            key::parse_instance(&record.key).is_some_and(|(_, node, _)| asked_for(&node))
        });
        (page, first_unreadable(nodes.map(|(_, record)| record).chain(instances)))
    };
    let (index, (page, unreadable)) = state.snapshot(query.newer, caller.deadline, listed).await?;
    let nodes: Vec<NodeStatus> = page.entries.into_iter().flatten().collect();
    match &query.id {
        Some(id) if nodes.is_empty() => {
            let unknown = || {
                let message = format!("no node {id} has reported, so its record is at revision 0");
                Problem::new(Code::NoSuchNode, message)
            };
            Err(unreadable.first().map_or_else(unknown, UnreadableRecord::problem).node(id))
        }
        _ => Ok(Listed { index, nodes, next: page.next, unreadable }),
    }
}

impl State {
    /// Reads plugins and nodes at one moment, after something has changed or the wait has ended.
    /// The index is the sum of both buckets' revisions, so that it grows with each change.
    async fn snapshot<T>(
        &self,
        newer: LongPoll,
        deadline: Instant,
        show: impl Fn(&Instances, &Nodes) -> T,
    ) -> Result<(u64, T), Problem> {
        let until = Until::for_request(newer, deadline);
        let index = || self.plugins.mirror.applied() + self.nodes.mirror.applied();
        let arrival = |than| self.newer_than(than, until);
        await_newer(newer, until, |than| index() > than, arrival).await?;
        self.catch_up(until.answer).await?;
        loop {
            let read_both =
                |plugins: &Instances| self.nodes.mirror.glance(|nodes| show(plugins, nodes));
            let snapshot = self.plugins.mirror.snapshot(until.answer, read_both).await;
            match snapshot? {
                (of_plugins, Ok((of_nodes, shown))) => return Ok((of_plugins + of_nodes, shown)),
                (_, Err(gap)) => {
                    let mended = self.nodes.mirror.mend(gap, until.answer).await;
                    mended?;
                }
            }
        }
    }

    async fn newer_than(&self, than: u64, until: Until) {
        loop {
            let (plugins, nodes) = (self.plugins.mirror.applied(), self.nodes.mirror.applied());
            if plugins + nodes > than {
                return;
            }
            // One of the two is enough; the end of the wait ends both.
            let ended = tokio::select! {
                reached = self.plugins.mirror.reach(plugins + 1, until.wait) => reached.is_err(),
                reached = self.nodes.mirror.reach(nodes + 1, until.wait) => reached.is_err(),
            };
            if ended {
                return;
            }
        }
    }
}
