//! Facts about the nodes and plugins of claims, from the records.

use std::cell::RefCell;
use std::collections::BTreeMap;

use berth_contract::code::Code;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::registry::{NodeStatus, PluginStatus};
use berth_contract::problem::Problem;
use berth_domain::plugin::{Half, Plugin};
use berth_domain::volume::{CallKind, State as ClaimState};
use berth_domain::{NodeId, PluginId};
use berth_explain::{Facts, SourceAnswer};
use berth_service::projection::{Instances, Nodes};
use berth_service::{clock, registry_status as status};

use super::read_node;
use crate::store::state::StateInner;

/// A node with the halves of one plugin.
type NodeOfPlugin = (NodeId, Option<PluginId>);

/// The facts for one reply about the claims of several volumes. Each record is read once, because
/// the health of a plugin is counted over all its nodes.
pub struct ReplyRecords<'a> {
    pub state: &'a StateInner,
    /// What was read so far.
    pub facts: RefCell<Facts>,
    nodes: RefCell<BTreeMap<NodeOfPlugin, SourceAnswer<NodeStatus>>>,
}

impl<'a> ReplyRecords<'a> {
    pub fn new(state: &'a StateInner) -> Self {
        let facts = Facts { now: clock::now(), ..Facts::default() };
        Self { state, facts: RefCell::new(facts), nodes: RefCell::default() }
    }

    /// Adds the claim's node, with the halves of the claim's plugin there, and the plugin for a
    /// call of its controller, and for a claim that is not granted yet.
    pub fn add(&self, shown: &ClaimStatus) {
        let (node, plugin) = (shown.node.clone(), shown.plugin.clone());
        let of_node = (node.clone(), plugin.clone());
        let mut nodes = self.nodes.borrow_mut();
        let read = nodes.entry(of_node).or_insert_with_key(|(node, plugin)| {
            self.read(|nodes, plugins| read_halves(nodes, plugins, node, plugin.as_ref()))
        });
        let mut facts = self.facts.borrow_mut();
        facts.nodes.insert(node, read.clone());
        let needs_controller =
            shown.state == ClaimState::Waiting || shown.step.is_some_and(CallKind::is_controller);
        let Some(plugin) = plugin.filter(|_| needs_controller) else { return };
        let read = |id: &PluginId| self.read(|nodes, plugins| read_plugin(nodes, plugins, id));
        facts.plugins.entry(plugin).or_insert_with_key(read);
    }

    fn read<T>(&self, read: impl FnOnce(&Nodes, &Instances) -> T) -> T {
        let Self { state, .. } = self;
        state.nodes.mirror.read(|nodes| state.plugins.mirror.read(|plugins| read(nodes, plugins)))
    }
}

/// A node with the plugin's halves there.
fn read_halves(
    nodes: &Nodes,
    plugins: &Instances,
    id: &NodeId,
    plugin: Option<&PluginId>,
) -> SourceAnswer<NodeStatus> {
    let plugin_by_id = plugin.and_then(|id| Some((id, plugins.get(id)?)));
    let halves = plugin_by_id.map(|plugin_by_id| {
        status::halves_on(plugin_by_id, id, nodes.get(id), plugin_by_id.1.node_id_fault(id))
    });
    read_node(nodes, id, halves.unwrap_or_default())
}

/// A plugin with its controllers.
fn read_plugin(nodes: &Nodes, plugins: &Instances, id: &PluginId) -> SourceAnswer<PluginStatus> {
    let absent = || Problem::new(Code::NoSuchPlugin, format!("no plugin {id}"));
    let plugin: &Plugin = plugins.get(id).ok_or_else(absent)?;
    let controllers = plugin.instances.iter().filter(|((_, half), _)| *half == Half::Controller);
    let statuses = controllers.map(|((node, half), instance)| {
        status::instance_status((id, node, *half), instance, nodes.get(node), None)
    });
    Ok(status::plugin_status(id, plugin, nodes, statuses.collect()))
}
