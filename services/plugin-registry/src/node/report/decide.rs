//! What a report changes in a node's records; pure.
//!
//! **Owns** the rules of a report: what counts as a change, what stays as it was, and which report
//! comes too late.
//!
//! **Promises** that the same report changes nothing the second time, and that an older report
//! changes nothing after a newer one that changed something. A report that changed nothing was not
//! written, so an older report may still be applied after it: its changes stay until the next
//! report.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_contract::decode::Fault;
use berth_contract::message::registry::{NodeReport, ReportedInstance};
use berth_domain::plugin::{Half, Instance, Node, NodeState, UnaccountedMount};
use berth_domain::{ClockOffset, PluginId, Timestamp, limits};
use berth_service::seal::is_public_key;

use crate::store::node_records::{NodeRecords, Write};

/// A clock skew that differs from the recorded one by at most this is not written. The delay of
/// reports varies, and each difference would be a write.
const SKEW_STEP_MS: u64 = 50;

/// A report that is older than the newest one by more than this is not late: no request lives so
/// long, so the node's clock was set back.
const LATE_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(LATE_MAX.as_millis() > limits::REQUEST_TIMEOUT.as_millis());

/// A report, with the registry's clock at its receipt.
#[derive(Debug, Clone)]
pub struct ReceivedReport {
    pub report: NodeReport,
    pub at: Timestamp,
    /// The newest revision of the bucket of volumes, if the node was not on record.
    pub volumes: Option<u64>,
}

/// The decision on a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A newer report of the node was applied already: this one is not applied.
    Late,
    /// Writes in this order; empty for a report without a change.
    Write(Vec<Write>),
}

impl ReceivedReport {
    /// How far the node's clock is ahead of the registry's, in milliseconds; negative if it is
    /// behind. `recorded_ms` is the skew on the node's record, 0 without a record.
    ///
    /// The report alone gives a lower bound: its clock less the registry's at receipt is the true
    /// skew less the report's delay. The agent's own measurement bounds the skew from both sides,
    /// so a delayed report changes nothing. Without a measurement the lower bound counts; the agent
    /// then measures, and reports again at once.
    pub fn skew_ms(&self, recorded_ms: i64) -> i64 {
        let least = self.report.clock.ms_ahead_of(self.at);
        match self.report.clock_offset {
            // Otherwise the node's clock was set after the measurement.
            Some(ClockOffset { min_ms, max_ms }) if least <= max_ms => {
                ClockOffset { min_ms: min_ms.max(least), max_ms }.nearest(recorded_ms)
            }
            _ => least,
        }
    }
}

/// The faults of a report that was decoded: an instance that it lists twice, and an invalid sealing
/// key.
pub fn faults(report: &NodeReport) -> Vec<Fault> {
    let mut first_indices: BTreeMap<(&PluginId, Half), usize> = BTreeMap::new();
    let mut faults = Vec::new();
    if report.sealing_key.as_ref().is_some_and(|key| !is_public_key(key)) {
        let problem = "is no public X25519 key (`X…`)".to_owned();
        faults.push(Fault { path: "sealing_key".to_owned(), problem, line: None });
    }
    for (at, ReportedInstance { plugin, half, .. }) in report.instances.iter().enumerate() {
        if let Some(first_at) = first_indices.get(&(plugin, *half)) {
            let problem = format!("is the {half} of {plugin} again, after instances[{first_at}]");
            faults.push(Fault { path: format!("instances[{at}]"), problem, line: None });
        } else {
            first_indices.insert((plugin, *half), at);
        }
    }
    faults
}

/// What the report changes.
///
/// If anything changes, the node's record is written first, with the report's clock. So a late
/// report that reads the node's record *after* the instances finds that clock, or its guards fail.
pub fn decide(records: &NodeRecords, received: &ReceivedReport) -> Verdict {
    let report = &received.report;
    if records.node.as_ref().is_some_and(|node| is_late(node, report)) {
        return Verdict::Late;
    }
    let mut writes = Vec::new();
    let unknown = unknown_controllers(records, report);
    let counted = report.instances.iter().filter(|reported| may_count(records, reported));
    let instances: Vec<&ReportedInstance> = counted.chain(&unknown).collect();
    for reported in &instances {
        let key = (reported.plugin.clone(), reported.half);
        let recorded = records.instances.get(&key);
        let next = next_instance(recorded, &reported.instance, received.at);
        if recorded != Some(&next) {
            writes.push(Write::Put(key, next));
        }
    }
    let reported: BTreeSet<(&PluginId, Half)> =
        instances.iter().map(|reported| (&reported.plugin, reported.half)).collect();
    let unreported =
        records.instances.keys().filter(|(plugin, half)| !reported.contains(&(plugin, *half)));
    // The node half is deleted before its controller half: alone it would look like a node whose
    // storage is served by another node.
    writes.extend(unreported.rev().cloned().map(Write::Delete));

    let next = next_node(records.node.as_ref(), received);
    let changed = records.node.as_ref().is_none_or(|recorded| differs(recorded, &next));
    if changed || !writes.is_empty() {
        writes.insert(0, Write::Node(next));
    }
    Verdict::Write(writes)
}

/// The node's controller halves whose plugins have not said yet which services they have: the agent
/// was restarted while the plugin is down. They stay, unhealthy. Otherwise another node's
/// controller would be called, which may not know the volumes of this one, and would answer OK to
/// their deletion.
fn unknown_controllers(records: &NodeRecords, report: &NodeReport) -> Vec<ReportedInstance> {
    let is_unknown = |reported: &&ReportedInstance| {
        reported.half == Half::Node
            && !reported.instance.healthy
            && reported.instance.node.is_none()
    };
    let had_controller = |reported: &ReportedInstance| {
        let key = (reported.plugin.clone(), reported.half);
        let mut reported_instances = report.instances.iter();
        records.instances.contains_key(&key)
            && !reported_instances.any(|instance| {
                instance.plugin == reported.plugin && instance.half == reported.half
            })
    };
    let unknown = report.instances.iter().filter(is_unknown);
    unknown
        .map(|node| ReportedInstance { half: Half::Controller, ..node.clone() })
        .filter(had_controller)
        .collect()
}

/// Whether the instance counts. A controller does if the node has shown that it may host it
/// (`node.host`), or if it is on record: an agent of an earlier version shows no rights.
fn may_count(records: &NodeRecords, reported: &ReportedInstance) -> bool {
    let ReportedInstance { plugin, half, .. } = reported;
    let is_shown = || records.node.as_ref().is_some_and(|node| node.hosts.contains(plugin));
    *half == Half::Node || records.instances.contains_key(&(plugin.clone(), *half)) || is_shown()
}

/// The plugins whose controllers the report names, and which do not count.
pub fn list_unproven(records: &NodeRecords, report: &NodeReport) -> Vec<PluginId> {
    let instances = report.instances.iter();
    let unproven = instances.filter(|reported| !may_count(records, reported));
    unproven.map(|reported| reported.plugin.clone()).collect()
}

fn is_late(record: &Node, report: &NodeReport) -> bool {
    record.boot_id == report.boot_id
        && report.clock < record.reported
        && record.reported.since(report.clock) <= LATE_MAX
}

/// The instance's next record. `since` stays while `healthy` does; `id_since` stays while the
/// plugin's id of the node does.
fn next_instance(recorded: Option<&Instance>, reported: &Instance, at: Timestamp) -> Instance {
    let since = match recorded {
        Some(recorded) if recorded.healthy == reported.healthy => recorded.since,
        // A node whose clock is ahead must not report times in the registry's future.
        _ => reported.since.min(at),
    };
    // An agent that starts while its plugin is down does not have the plugin's id of the node. The
    // earlier id stays, or another node with the same id would take it over.
    let recorded_if_down = recorded.filter(|_| !reported.healthy);
    let node = reported.node.clone().or_else(|| recorded_if_down?.node.clone());
    let controller = reported.controller.or_else(|| recorded_if_down?.controller);
    let mut next = Instance { since, node, controller, ..reported.clone() };
    next.id_since = next.external_node().map(|external| {
        let same_id = recorded.filter(|recorded| recorded.external_node() == Some(external));
        same_id.map_or(at, |recorded| recorded.id_since.unwrap_or(recorded.since))
    });
    next
}

/// The node's next record. No report changes its state: the lease does.
fn next_node(record: Option<&Node>, received: &ReceivedReport) -> Node {
    let NodeReport { version, boot_id, clock, attributes, sealing_key, .. } = &received.report;
    let uncompared = received.report.compared == Some(false);
    let known_skew_ms = record.map(|record| record.clock_skew_ms);
    let skew_ms = received.skew_ms(known_skew_ms.unwrap_or(0));
    let (state, since) =
        record.map_or((NodeState::Down, received.at), |record| (record.state, record.since));
    let as_before = known_skew_ms.filter(|before| before.abs_diff(skew_ms) <= SKEW_STEP_MS);
    let earlier_proof = record.and_then(|record| record.gone.clone());
    // Mounts count as undone only if the agent undid them after it was told of this proof.
    let gone = earlier_proof.clone().filter(|proof| received.report.undone != Some(proof.at));
    let is_back = earlier_proof.is_some() && gone.is_none();
    Node {
        state,
        since,
        clock_skew_ms: as_before.unwrap_or(skew_ms),
        version: version.clone(),
        boot_id: boot_id.clone(),
        reported: *clock,
        attributes: attributes.clone(),
        back: if is_back { Some(received.at) } else { record.and_then(|record| record.back) },
        gone,
        unaccounted: next_unaccounted(record, &received.report),
        uncompared,
        sealing_key: sealing_key.clone(),
        hosts: next_hosts(record, &received.report),
        newcomer: record.map_or(received.volumes, |record| record.newcomer).filter(|_| uncompared),
    }
}

/// The mounts without a claim. An agent that has just started has not compared its mounts with the
/// claims; until then the recorded ones stay.
fn next_unaccounted(record: Option<&Node>, report: &NodeReport) -> Vec<UnaccountedMount> {
    let mut mounts: BTreeSet<&UnaccountedMount> = report.unaccounted.iter().collect();
    if let Some(record) = record.filter(|_| report.compared == Some(false)) {
        mounts.extend(&record.unaccounted);
    }
    mounts.into_iter().cloned().collect()
}

/// The controllers that the node may host and reports. An agent shows its right again before each
/// report.
fn next_hosts(record: Option<&Node>, report: &NodeReport) -> BTreeSet<PluginId> {
    let is_named = |plugin: &&PluginId| {
        let mut instances = report.instances.iter();
        instances.any(|instance| instance.half == Half::Controller && instance.plugin == **plugin)
    };
    record.into_iter().flat_map(|record| &record.hosts).filter(is_named).cloned().collect()
}

/// Whether the node's record needs a write. The clock of the report alone needs none.
fn differs(record: &Node, next: &Node) -> bool {
    *record != Node { reported: record.reported, ..next.clone() }
}

#[cfg(test)]
mod tests;
