//! Questions to a plugin's controllers about what is at their storage.
//!
//! **Promises** that each list ends, whatever the plugin answers: pages, entries and time are
//! bounded, and a repeated token ends the list.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_bus::{Call, RequestError};
use berth_contract::code::Code;
use berth_contract::message::storage_call::{
    Answered, PluginSnapshotStatus, PluginVolumeStatus, Question, StorageQuery,
};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, PluginOnNode};
use berth_domain::limits::{LIST_MAX, PLUGIN_ENTRIES_MAX, PLUGIN_PAGES_MAX};
use berth_domain::volume::storage::Topology;
use berth_domain::{NodeId, PluginId};
use tokio::time::Instant;

use crate::store::state::State;

/// Share of the caller's time after which no further page is requested. The rest is for the answer.
const LISTING_SHARE: f64 = 0.7;
/// Entries of one page: a page fits one message.
const PAGE_ENTRIES: u32 = 500;

/// All that a plugin lists.
#[derive(Debug, Default)]
pub struct Listed {
    pub volumes: Vec<PluginVolumeStatus>,
    pub snapshots: Vec<PluginSnapshotStatus>,
    pub truncated: bool,
    pub not_asked: Vec<String>,
    /// By snapshot, if each controller may have its own storage: the nodes whose controllers listed
    /// it.
    snapshot_hosts: BTreeMap<String, Vec<NodeId>>,
}

impl Listed {
    /// Adds what one host's controller listed. An entry without a topology gets the host's: a
    /// controller elsewhere would answer OK to its deletion.
    fn add(&mut self, mut other: Self, host: &NodeId, topology: Option<Topology>) {
        for volume in other.volumes.iter_mut().filter(|volume| volume.topologies.is_empty()) {
            volume.topologies.extend(topology.clone());
        }
        for snapshot in &mut other.snapshots {
            snapshot.topologies = topology.iter().cloned().collect();
            let hosts = self.snapshot_hosts.entry(snapshot.external_id.clone()).or_default();
            hosts.push(host.clone());
        }
        self.volumes.append(&mut other.volumes);
        self.snapshots.append(&mut other.snapshots);
        self.truncated |= other.truncated;
    }

    /// The node whose controller alone listed the snapshot.
    pub fn home_of_snapshot(&self, external_id: &str) -> Option<NodeId> {
        let mut hosts = self.snapshot_hosts.get(external_id)?.iter();
        let first = hosts.next()?;
        hosts.all(|host| host == first).then(|| first.clone())
    }
}

/// The topology of a controller's node.
fn topology_of(state: &State, plugin: &PluginId, host: &NodeId) -> Option<Topology> {
    let topology = state.with_plugin(plugin, |plugin, _| plugin.topology_of(host).cloned());
    topology.flatten().filter(|topology| !topology.is_empty())
}

/// Asks one controller a question, on this node or any.
pub async fn ask_controller(
    state: &State,
    plugin: &PluginId,
    node: Option<&NodeId>,
    question: Question,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Answered, Problem> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    let call = Call::within(trace, remaining.mul_f64(0.9).max(Duration::from_millis(100)));
    let query = StorageQuery { plugin: plugin.clone(), question };
    let (bus, plugin) = (&state.bus, plugin.clone());
    let answer = match node.cloned() {
        None => bus.ask_service::<verb::ControllerQuery>(&plugin, &query, &call).await,
        Some(node) => {
            let target = PluginOnNode { plugin: plugin.clone(), node };
            bus.ask_service::<verb::ControllerQueryOnNode>(&target, &query, &call).await
        }
    };
    answer.map_err(|error| match error {
        RequestError::NoResponder { .. } => {
            let message = format!("plugin {plugin} has no healthy controller");
            Problem::new(Code::PluginUnhealthy, message).retryable()
        }
        error => error.into_problem("controller.query"),
    })
}

/// Lists everything, at each controller if each may have its own storage.
pub async fn ask_everywhere(
    state: &State,
    plugin: &PluginId,
    question: impl Fn(String) -> Question,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Listed, Problem> {
    let hosts = state.with_plugin(plugin, |plugin, _| plugin.local_hosts()).unwrap_or_default();
    let mut listed = Listed::default();
    if hosts.is_empty() {
        list_at(state, plugin, None, &question, trace, deadline, &mut listed).await?;
        return Ok(listed);
    }
    for (at, host) in hosts.iter().take(LIST_MAX).enumerate() {
        // A controller that hangs leaves the others their share of the time.
        let remaining = deadline.saturating_duration_since(Instant::now());
        let share = u32::try_from(hosts.len().min(LIST_MAX) - at).unwrap_or(u32::MAX);
        let until = Instant::now() + remaining / share;
        let mut of_host = Listed::default();
        let done = list_at(state, plugin, Some(host), &question, trace, until, &mut of_host).await;
        if let Err(problem) = done {
            listed.not_asked.push(format!("node {host}: {problem}"));
        }
        listed.add(of_host, host, topology_of(state, plugin, host));
    }
    listed.truncated |= hosts.len() > LIST_MAX;
    Ok(listed)
}

async fn list_at(
    state: &State,
    plugin: &PluginId,
    node: Option<&NodeId>,
    question: &impl Fn(String) -> Question,
    trace: TraceContext,
    deadline: Instant,
    listed: &mut Listed,
) -> Result<(), Problem> {
    let (mut token, mut tokens) = (String::new(), BTreeSet::new());
    let remaining = deadline.saturating_duration_since(Instant::now());
    let stop_at = Instant::now() + remaining.mul_f64(LISTING_SHARE);
    for _ in 0..PLUGIN_PAGES_MAX {
        let limited = match question(token) {
            Question::Volumes { token, .. } => Question::Volumes { token, limit: PAGE_ENTRIES },
            Question::Snapshots { token, .. } => Question::Snapshots { token, limit: PAGE_ENTRIES },
            other => other,
        };
        let page = ask_controller(state, plugin, node, limited, trace, deadline).await?;
        listed.volumes.extend(page.volumes);
        listed.snapshots.extend(page.snapshots);
        let entries = listed.volumes.len().max(listed.snapshots.len());
        match page.next {
            None => return Ok(()),
            // A plugin that repeats a token would never end its list.
            Some(next) if !tokens.insert(next.clone()) || entries >= PLUGIN_ENTRIES_MAX => break,
            Some(_) if Instant::now() >= stop_at => break,
            Some(next) => token = next,
        }
    }
    listed.truncated = true;
    Ok(())
}
