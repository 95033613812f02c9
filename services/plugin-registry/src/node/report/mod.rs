//! `node.report`: compares an agent's report with the records, and writes the difference.

mod account;
mod decide;
#[cfg(test)]
mod status_tests;

use std::borrow::Cow;
use std::collections::BTreeSet;

use berth_contract::message::registry::{NodeReport, Reported};
use berth_contract::problem::Problem;
use berth_domain::NodeId;
use berth_domain::plugin::{Half, Instance, NodeState};
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
        let event = match write {
            Write::Put(key, instance) => new_id_fault(state, &snapshot, key, instance, node)
                .map(|why| events::id_fault(node, key, why, received.at, trace)),
            Write::Node(_) | Write::Delete(_) => None,
        };
        let event = event
            .or_else(|| events::write_event(node, &snapshot.records, write, received.at, trace));
        if let Some(event) = event {
            events::publish_in_share(state, node, &event, trace);
        }
        if let Write::Node(next) = write {
            stored.node = Some(next.clone());
        }
    }
    Ok(answer(state, received, &stored))
}

/// Why the instance counts as unhealthy from this write on although it reports itself healthy: its
/// plugin gives the node no id of its own.
fn new_id_fault(
    state: &State,
    snapshot: &RecordSnapshot,
    (plugin, half): &InstanceKey,
    next: &Instance,
    node: &NodeId,
) -> Option<String> {
    let recorded = snapshot.records.instances.get(&(plugin.clone(), *half));
    let is_unchanged = |recorded: &Instance| {
        recorded.healthy == next.healthy && recorded.external_node() == next.external_node()
    };
    if *half != Half::Node || recorded.is_some_and(is_unchanged) {
        return None;
    }
    let why = state
        .plugins
        .mirror
        .read(|plugins| plugins.get(plugin)?.node_id_fault(node).map(|fault| fault.to_string()))?;
    tracing::warn!(%node, %plugin, why, "the instance counts as unhealthy");
    Some(why)
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
