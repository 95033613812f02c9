//! `node.report`: compares an agent's report with the records, and writes the difference.

mod account;
mod decide;
#[cfg(test)]
mod status_tests;

use std::borrow::Cow;
use std::collections::BTreeSet;

use berth_contract::message::registry::{NodeReport, Reported};
use berth_contract::problem::Problem;
use berth_domain::plugin::{Half, Instance, NodeState};
use berth_domain::{NodeId, PluginId};
use berth_service::deadline;
use berth_service::record_table::{StoreError, retry_lost_races};

use crate::caller::Caller;
use crate::store::events;
use crate::store::held_leases::HeldLeases;
use crate::store::node_records::{InstanceKey, NodeRecords, RecordSnapshot, Write};
use crate::store::state::State;
use decide::{ReceivedReport, Verdict, decide, faults, list_unproven};

/// Applies a report that was received `at` this time.
///
/// The same rules decide twice what it changes: first on the mirrors, where most reports change
/// nothing, and then on the leader's records, whose revisions guard the writes. No guard covers the
/// answer that nothing changed, so the mirrors first catch up with the writes of other replicas.
/// After a crash between two writes the next report makes the remaining ones.
pub async fn report(
    state: &State,
    report: NodeReport,
    caller: &Caller,
) -> Result<Reported, Problem> {
    let faults = faults(&report);
    if !faults.is_empty() {
        return Err(Problem::bad_input(faults).node(&report.node));
    }
    let received = ReceivedReport { report, at: caller.at, volumes: None };
    let attempt = || apply(state, &received, caller);
    retry_lost_races(attempt).await.map_err(|problem| problem.node(&received.report.node))
}

async fn apply(
    state: &State,
    received: &ReceivedReport,
    caller: &Caller,
) -> Result<Reported, StoreError> {
    state.catch_up(caller.deadline).await?;
    let node = &received.report.node;
    let mirrored = state.mirrored_records(node);
    let mut received = Cow::Borrowed(received);
    if mirrored.node.is_none() {
        received.to_mut().volumes = Some(state.newest_of_volumes().await?);
    }
    let received =
        &*account::believed(state, &received, mirrored.node.as_ref(), caller.deadline).await?;
    match decide(&mirrored, received) {
        Verdict::Late => return Ok(answer_late(state, received, &mirrored)),
        Verdict::Write(writes) if writes.is_empty() => {
            return Ok(answer(state, received, &mirrored));
        }
        Verdict::Write(_) => {}
    }
    deadline::check(caller.deadline)?;
    let reported =
        received.report.instances.iter().map(|instance| (instance.plugin.clone(), instance.half));
    let instances: BTreeSet<InstanceKey> = reported.chain(mirrored.instances.into_keys()).collect();
    let snapshot = state.read_node_records(node, instances).await?;
    let Verdict::Write(writes) = decide(&snapshot.records, received) else {
        return Ok(answer_late(state, received, &snapshot.records));
    };
    let trace = caller.trace;
    let mut stored = snapshot.records.clone();
    for write in &writes {
        state.store(node, &snapshot, write, trace).await?;
        let faults = match write {
            Write::Put(key, instance) => new_id_faults(state, &snapshot, key, instance, node),
            Write::Node(_) | Write::Delete(_) => Vec::new(),
        };
        // A faulty node half counts as unhealthy, whatever it reports of itself.
        let is_replaced = matches!(write, Write::Put((_, Half::Node), _)) && !faults.is_empty();
        let own = events::write_event(node, &snapshot.records, write, received.at, trace);
        let faults = faults.into_iter().map(|IdFault { node, plugin, why }| {
            events::id_fault(&node, &plugin, why, received.at, trace)
        });
        for event in own.filter(|_| !is_replaced).into_iter().chain(faults) {
            events::publish_in_share(state, node, &event, trace);
        }
        if let Write::Node(next) = write {
            stored.node = Some(next.clone());
        }
    }
    Ok(answer(state, received, &stored))
}

/// A plugin gives a node no id of its own.
struct IdFault {
    node: NodeId,
    plugin: PluginId,
    why: String,
}

/// The node halves that count as unhealthy from this write on although they report themselves
/// healthy: the reported one, or those without an id if the write is of the first controller that
/// attaches volumes.
fn new_id_faults(
    state: &State,
    snapshot: &RecordSnapshot,
    (plugin, half): &InstanceKey,
    next: &Instance,
    node: &NodeId,
) -> Vec<IdFault> {
    let recorded = snapshot.records.instances.get(&(plugin.clone(), *half));
    let is_unchanged = |recorded: &Instance| match half {
        Half::Node => {
            recorded.healthy == next.healthy && recorded.external_node() == next.external_node()
        }
        Half::Controller => recorded.controller == next.controller,
    };
    if recorded.is_some_and(is_unchanged) {
        return Vec::new();
    }
    let faults = state.plugins.mirror.read(|plugins| {
        let plugin_state = plugins.get(plugin)?;
        let nodes = match half {
            Half::Node => vec![node],
            Half::Controller => plugin_state.unnamed_by_controller(node),
        };
        let faults = nodes.into_iter().filter_map(|node| {
            let why = plugin_state.node_id_fault(node)?.to_string();
            Some(IdFault { node: node.clone(), plugin: plugin.clone(), why })
        });
        Some(faults.collect::<Vec<_>>())
    });
    let faults = faults.unwrap_or_default();
    for IdFault { node, plugin, why } in &faults {
        tracing::warn!(%node, %plugin, why, "the instance counts as unhealthy");
    }
    faults
}

/// The reply to the agent, from the node's records.
fn answer(state: &State, received: &ReceivedReport, records: &NodeRecords) -> Reported {
    let record = records.node.as_ref();
    Reported {
        clock_skew_ms: received.skew_ms(record.map_or(0, |node| node.clock_skew_ms)),
        clock: Some(received.at),
        state: record.map_or(NodeState::Down, |node| node.state),
        gone: record.and_then(|node| node.gone.clone()),
        pace_s: state.pace.lease_ttl_s(state.lease_mirror.read(HeldLeases::count)),
        unproven: list_unproven(records, &received.report),
    }
}

fn answer_late(state: &State, received: &ReceivedReport, records: &NodeRecords) -> Reported {
    let NodeReport { node, clock, .. } = &received.report;
    tracing::debug!(%node, sent = %clock, "a report came after a newer one, and changes nothing");
    answer(state, received, records)
}
