//! `plugin.delete`: what is left of a plugin that nobody runs and nobody uses (D4).
//!
//! A plugin is the fold of its instances and jobs, and goes by itself with the last of them. What
//! keeps one that nobody runs any more are instances on nodes that are down, and jobs that nobody
//! took back.
//!
//! **Never** removes an instance of a node that is there, healthy or not: its agent hosts the
//! plugin, and would report it again.

use std::collections::{BTreeMap, BTreeSet};

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::registry::{Delete, Deleted};
use berth_contract::message::volume::List;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::{NodeState, Plugin};
use berth_domain::{Namespace, NodeId, PluginId, Timestamp};
use berth_service::deadline;
use tokio::time::Instant;

use crate::decide::{InstanceKey, Write};
use crate::events;
use crate::state::State;
use crate::store::{LostRaces, StoreError};

const STEP: &str = verb::PluginDelete::STEP;
/// How many of those who are in the way a refusal names.
const NAMED: usize = 3;

/// Removes what is left of the plugin.
pub async fn delete(
    state: &State,
    request: Delete,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Deleted, Problem> {
    let id = request.id;
    let place = |problem: Problem| problem.at(STEP).plugin(&id);
    unused(state, &id, trace, deadline).await.map_err(place)?;
    let mut deleted = Deleted::default();
    let mut races = LostRaces::default();
    let removed = loop {
        let attempt = remove(state, &id, at, trace, deadline, &mut deleted).await;
        if let Some(outcome) = races.outcome(STEP, attempt) {
            break outcome;
        }
    };
    removed.map_err(place)?;
    Ok(deleted)
}

/// Asks the claim service whether any volume, of whichever namespace, uses the plugin.
async fn unused(
    state: &State,
    id: &PluginId,
    trace: TraceContext,
    deadline: Instant,
) -> Result<(), Problem> {
    let wanted = List { plugin: Some(id.clone()), ..List::default() };
    let call = Call::until(trace, deadline);
    let asked = state.bus.ask::<verb::VolumeList>(&Namespace::all(), &wanted, &call).await;
    let listed = asked.map_err(|error| {
        let problem = error.into_problem(verb::VolumeList::STEP);
        let said = format!("whether volumes use the plugin cannot be seen: {}", problem.message);
        Problem { message: said, ..problem }
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
    let said = format!("plugin {id} is used by volumes: {}", some(&volumes));
    Err(Problem::new(Code::PluginInUse, said))
}

/// The first of them, and how many more there are.
fn some<T: ToString>(all: &[T]) -> String {
    let mut named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    if all.len() > NAMED {
        named.push(format!("{} more", all.len() - NAMED));
    }
    named.join(", ")
}

/// Nothing is written while any node that has the plugin is there: the answer names them.
async fn remove(
    state: &State,
    id: &PluginId,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
    deleted: &mut Deleted,
) -> Result<(), StoreError> {
    state.catch_up(STEP, deadline).await?;
    let known = state.plugin_mirror.read(|plugins| plugins.get(id).cloned());
    let Some(plugin) = known else { return Ok(()) };
    let mut all = BTreeMap::new();
    for (node, places) in places(id, &plugin) {
        let seen = state.look(&node, places).await?;
        all.insert(node, seen);
    }
    let is_there = |state: NodeState| state == NodeState::Ready;
    let there = all.iter().filter(|(_, seen)| {
        let node = seen.standing.node.as_ref();
        !seen.standing.instances.is_empty() && node.is_some_and(|node| is_there(node.state))
    });
    let there: Vec<NodeId> = there.map(|(node, _)| node.clone()).collect();
    if !there.is_empty() {
        let said = format!("plugin {id} is on nodes that are there: {}", some(&there));
        return Err(Problem::new(Code::PluginInUse, said).into());
    }
    deadline::check(deadline)?;
    for (node, seen) in &all {
        for place in seen.standing.instances.keys() {
            state.store(node, seen, &Write::Delete(place.clone()), trace).await?;
            events::tell(&state.events, &events::instance_left(node, place, at, trace), trace);
            deleted.instances += 1;
        }
    }
    for (namespace, job) in plugin.jobs.keys() {
        let key = key::job(id, namespace, job);
        let (known, seen) = state.look_at_job(&key).await?;
        if known.is_some() {
            state.store_job(&key, &seen, None, trace).await?;
            let event = events::expected(id, namespace, job, None, at, trace);
            events::tell(&state.events, &event, trace);
            deleted.jobs += 1;
        }
    }
    Ok(())
}

/// The plugin's places on each node.
fn places(id: &PluginId, plugin: &Plugin) -> BTreeMap<NodeId, BTreeSet<InstanceKey>> {
    let mut places: BTreeMap<NodeId, BTreeSet<InstanceKey>> = BTreeMap::new();
    for (node, half) in plugin.instances.keys() {
        places.entry(node.clone()).or_default().insert((id.clone(), *half));
    }
    places
}
