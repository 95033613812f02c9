//! `plugin.delete`: deletes the records of a plugin that no volume uses and no ready node has (D4).
//!
//! A plugin is the fold of its instances and jobs, so it ends with the last of them. After a plugin
//! was uninstalled, two kinds of records may keep it: instances on nodes that are down, and jobs
//! that were not withdrawn.
//!
//! **Never** removes an instance of a ready node, healthy or not: the node's agent hosts the plugin
//! and would report it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::registry::{Delete, Deleted};
use berth_contract::message::volume::ListVolumes;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::{Job, NodeState, Plugin};
use berth_domain::{Namespace, NodeId, PluginId};
use berth_service::deadline;
use berth_service::record_table::{StoreError, retry_lost_races};

use crate::caller::Caller;
use crate::store::events;
use crate::store::node_records::{InstanceKey, Write};
use crate::store::state::State;

/// Volumes or nodes that a refusal names, at most.
const NAMED_MAX: usize = 3;

/// Deletes the plugin's instances and jobs.
pub async fn delete(state: &State, request: Delete, caller: &Caller) -> Result<Deleted, Problem> {
    let id = request.id;
    let with_plugin = |problem: Problem| problem.plugin(&id);
    check_unused(state, &id, caller).await.map_err(with_plugin)?;
    // Counts what all attempts deleted, also those that lost a race between two deletes.
    let deleted = Mutex::default();
    let attempt = || delete_records(state, &id, caller, &deleted);
    retry_lost_races(attempt).await.map_err(with_plugin)?;
    Ok(deleted.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Asks the claim service whether a volume of any namespace uses the plugin.
async fn check_unused(state: &State, id: &PluginId, caller: &Caller) -> Result<(), Problem> {
    let wanted = ListVolumes { plugin: Some(id.clone()), ..ListVolumes::default() };
    let call = Call::until(caller.trace, caller.deadline);
    let reply =
        state.bus.ask_service::<verb::VolumeList>(&Namespace::wildcard(), &wanted, &call).await;
    let listed = reply.map_err(|error| {
        let problem = error.into_problem(verb::VolumeList::STEP);
        let message = format!("whether volumes use the plugin cannot be seen: {}", problem.message);
        Problem { message, ..problem }
    })?;
    // A volume whose spec cannot be read may use it.
    if let Some(record) = listed.unreadable.first() {
        return Err(record.problem());
    }
    if listed.volumes.is_empty() {
        return Ok(());
    }
    let name = |volume: &berth_contract::message::volume::VolumeStub| {
        format!("{}/{}", volume.namespace, volume.id)
    };
    let volumes: Vec<String> = listed.volumes.iter().map(name).collect();
    let message = format!("plugin {id} is used by volumes: {}", name_first(&volumes));
    Err(Problem::new(Code::PluginInUse, message))
}

/// The first [`NAMED_MAX`] by name, and how many more there are.
fn name_first<T: ToString>(all: &[T]) -> String {
    let mut names: Vec<String> = all.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    if all.len() > NAMED_MAX {
        names.push(format!("{} more", all.len() - NAMED_MAX));
    }
    names.join(", ")
}

/// Deletes nothing while a node with the plugin is ready. The refusal names such nodes.
async fn delete_records(
    state: &State,
    id: &PluginId,
    caller: &Caller,
    deleted: &Mutex<Deleted>,
) -> Result<(), StoreError> {
    let (at, trace) = (caller.at, caller.trace);
    state.catch_up(caller.deadline).await?;
    let plugin = state.plugins.mirror.read(|plugins| plugins.get(id).cloned());
    let Some(plugin) = plugin else { return Ok(()) };
    let mut snapshots = BTreeMap::new();
    for (node, instances) in instances_by_node(id, &plugin) {
        let snapshot = state.read_node_records(&node, instances).await?;
        snapshots.insert(node, snapshot);
    }
    let ready = snapshots.iter().filter(|(_, snapshot)| {
        let node = snapshot.records.node.as_ref();
        !snapshot.records.instances.is_empty()
            && node.is_some_and(|node| node.state == NodeState::Ready)
    });
    let ready: Vec<NodeId> = ready.map(|(node, _)| node.clone()).collect();
    if !ready.is_empty() {
        let message = format!("plugin {id} is on nodes that are there: {}", name_first(&ready));
        return Err(Problem::new(Code::PluginInUse, message).into());
    }
    deadline::check(caller.deadline)?;
    let count = |add: fn(&mut Deleted)| {
        add(&mut deleted.lock().unwrap_or_else(PoisonError::into_inner));
    };
    for (node, snapshot) in &snapshots {
        // The node half first, as in a report.
        for instance in snapshot.records.instances.keys().rev() {
            state.store(node, snapshot, &Write::Delete(instance.clone()), trace).await?;
            let event = events::instance_left(node, instance, at, trace);
            events::publish(&state.events, &event, trace);
            count(|deleted| deleted.instances += 1);
        }
    }
    for (namespace, job) in plugin.jobs.keys() {
        let key = key::job(id, namespace, job);
        let (revision, record) = state.plugins.read::<Job>(&key).await?;
        if record.is_some() {
            // The job may have been announced again meanwhile.
            deadline::check(caller.deadline)?;
            state.plugins.delete(&key, revision, trace).await?;
            let event = events::job_changed((id, namespace, job), None, at, trace);
            events::publish(&state.events, &event, trace);
            count(|deleted| deleted.jobs += 1);
        }
    }
    Ok(())
}

fn instances_by_node(id: &PluginId, plugin: &Plugin) -> BTreeMap<NodeId, BTreeSet<InstanceKey>> {
    let mut instances: BTreeMap<NodeId, BTreeSet<InstanceKey>> = BTreeMap::new();
    for (node, half) in plugin.instances.keys() {
        instances.entry(node.clone()).or_default().insert((id.clone(), *half));
    }
    instances
}
