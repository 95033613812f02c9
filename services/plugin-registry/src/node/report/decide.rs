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

/// A clock skew that differs from the recorded one by at most this is not written. Reports take a
/// varying time to arrive, and each difference would be a write.
const SKEW_STEP_MS: u64 = 50;

/// A report that is older than the newest one by more than this is not late, since no request lives
/// so long: the node's clock was set back. Such a report counts.
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
    /// A newer report of the node was applied already: this one changes nothing.
    Late,
    /// Writes in this order; empty for a report without a change.
    Write(Vec<Write>),
}

impl ReceivedReport {
    /// How far the node's clock is ahead of ours, in milliseconds; negative when it is behind.
    /// `known` is the skew on the node's record, 0 without a record.
    ///
    /// The report alone gives a lower bound: its clock less ours when it came is the true skew less
    /// the report's delay. The agent's own measurement bounds the skew from both sides, so a
    /// delayed report changes nothing. Without a measurement the lower bound counts; the agent
    /// then reports again at once, with one.
    pub fn skew_ms(&self, known: i64) -> i64 {
        let least = self.report.clock.ms_ahead_of(self.at);
        match self.report.clock_offset {
            // Otherwise the clock was set after the measurement.
            Some(ClockOffset { min_ms, max_ms }) if least <= max_ms => {
                ClockOffset { min_ms: min_ms.max(least), max_ms }.nearest(known)
            }
            _ => least,
        }
    }
}

/// The faults of a report that could be decoded: an instance that it names twice, and a sealing key
/// that is none.
pub fn faults(report: &NodeReport) -> Vec<Fault> {
    let mut named: BTreeMap<(&PluginId, Half), usize> = BTreeMap::new();
    let mut faults = Vec::new();
    if report.sealing_key.as_ref().is_some_and(|key| !is_public_key(key)) {
        let problem = "is no public X25519 key (`X…`)".to_owned();
        faults.push(Fault { path: "sealing_key".to_owned(), problem, line: None });
    }
    for (at, ReportedInstance { plugin, half, .. }) in report.instances.iter().enumerate() {
        if let Some(first) = named.get(&(plugin, *half)) {
            let problem = format!("is the {half} of {plugin} again, after instances[{first}]");
            faults.push(Fault { path: format!("instances[{at}]"), problem, line: None });
        } else {
            named.insert((plugin, *half), at);
        }
    }
    faults
}

/// What the report changes.
///
/// The node's record comes first whenever anything changes, and carries the report's clock: a late
/// report that reads the node's record *after* the instances finds it there, or its guards fail.
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
        let known = records.instances.get(&key);
        let next = next_instance(known, &reported.instance, received.at);
        if known != Some(&next) {
            writes.push(Write::Put(key, next));
        }
    }
    let reported: BTreeSet<(&PluginId, Half)> =
        instances.iter().map(|reported| (&reported.plugin, reported.half)).collect();
    let left =
        records.instances.keys().filter(|(plugin, half)| !reported.contains(&(plugin, *half)));
    // A node half without its controller half would look like a node whose storage is served
    // elsewhere: so it goes first.
    writes.extend(left.rev().cloned().map(Write::Delete));

    let next = next_node(records.node.as_ref(), received);
    let changed = records.node.as_ref().is_none_or(|known| differs(known, &next));
    if changed || !writes.is_empty() {
        writes.insert(0, Write::Node(next));
    }
    Verdict::Write(writes)
}

/// The controller halves that the node had, of plugins that have not said yet which services they
/// have: its agent was restarted while the plugin is down. They stay, unhealthy. Without them
/// another node's controller would be called, which may not know the volumes here, and would answer
/// their deletion with OK.
fn unknown_controllers(records: &NodeRecords, report: &NodeReport) -> Vec<ReportedInstance> {
    let is_unknown = |reported: &&ReportedInstance| {
        reported.half == Half::Node
            && !reported.instance.healthy
            && reported.instance.node.is_none()
    };
    let had_controller = |reported: &ReportedInstance| {
        let key = (reported.plugin.clone(), reported.half);
        let mut named = report.instances.iter();
        records.instances.contains_key(&key)
            && !named.any(|it| it.plugin == reported.plugin && it.half == reported.half)
    };
    let unknown = report.instances.iter().filter(is_unknown);
    unknown
        .map(|node| ReportedInstance { half: Half::Controller, ..node.clone() })
        .filter(had_controller)
        .collect()
}

/// Whether the instance counts. A controller does if the node has shown that it may host it
/// (`node.host`), or if it is on record: an agent of an earlier version shows nothing.
fn may_count(records: &NodeRecords, reported: &ReportedInstance) -> bool {
    let ReportedInstance { plugin, half, .. } = reported;
    let is_shown = || records.node.as_ref().is_some_and(|node| node.hosts.contains(plugin));
    *half == Half::Node || records.instances.contains_key(&(plugin.clone(), *half)) || is_shown()
}

/// The plugins whose controllers the report names, and which do not count.
pub fn list_unproven(records: &NodeRecords, report: &NodeReport) -> Vec<PluginId> {
    let all = report.instances.iter();
    let unproven = all.filter(|reported| !may_count(records, reported));
    unproven.map(|reported| reported.plugin.clone()).collect()
}

fn is_late(known: &Node, report: &NodeReport) -> bool {
    known.boot_id == report.boot_id
        && report.clock < known.reported
        && known.reported.since(report.clock) <= LATE_MAX
}

/// The instance's next record. `since` stays while `healthy` does, and `id_since` stays while the
/// plugin's id of the node does.
fn next_instance(known: Option<&Instance>, reported: &Instance, at: Timestamp) -> Instance {
    let since = match known {
        Some(known) if known.healthy == reported.healthy => known.since,
        // A node whose clock is ahead must not report times in the registry's future.
        _ => reported.since.min(at),
    };
    // An agent that starts while its plugin is down does not know the plugin's id of the node. The
    // earlier id stays, or another node with the same id would take it over.
    let before = known.filter(|_| !reported.healthy);
    let node = reported.node.clone().or_else(|| before?.node.clone());
    let controller = reported.controller.or_else(|| before?.controller);
    let mut next = Instance { since, node, controller, ..reported.clone() };
    next.id_since = next.external_node().map(|external| {
        let as_before = known.filter(|known| known.external_node() == Some(external));
        as_before.map_or(at, |known| known.id_since.unwrap_or(known.since))
    });
    next
}

/// The node's next record. No report changes its state: the lease does.
fn next_node(known: Option<&Node>, received: &ReceivedReport) -> Node {
    let NodeReport { version, boot_id, clock, attributes, sealing_key, .. } = &received.report;
    let uncompared = received.report.compared == Some(false);
    let known_skew_ms = known.map(|known| known.clock_skew_ms);
    let skew_ms = received.skew_ms(known_skew_ms.unwrap_or(0));
    let (state, since) =
        known.map_or((NodeState::Down, received.at), |known| (known.state, known.since));
    let as_before = known_skew_ms.filter(|before| before.abs_diff(skew_ms) <= SKEW_STEP_MS);
    let was_gone = known.and_then(|known| known.gone.clone());
    // Only what the agent undid after it was told of this very proof counts.
    let gone = was_gone.clone().filter(|proof| received.report.undone != Some(proof.at));
    let is_back = was_gone.is_some() && gone.is_none();
    Node {
        state,
        since,
        clock_skew_ms: as_before.unwrap_or(skew_ms),
        version: version.clone(),
        boot_id: boot_id.clone(),
        reported: *clock,
        attributes: attributes.clone(),
        back: if is_back { Some(received.at) } else { known.and_then(|known| known.back) },
        gone,
        unaccounted: next_unaccounted(known, &received.report),
        uncompared,
        sealing_key: sealing_key.clone(),
        hosts: next_hosts(known, &received.report),
        newcomer: known.map_or(received.volumes, |known| known.newcomer).filter(|_| uncompared),
    }
}

/// The mounts without a claim. An agent that has just started does not know them yet: what was
/// known before stays until it has compared its mounts with the claims.
fn next_unaccounted(known: Option<&Node>, report: &NodeReport) -> Vec<UnaccountedMount> {
    let mut mounts: BTreeSet<&UnaccountedMount> = report.unaccounted.iter().collect();
    if let Some(known) = known.filter(|_| report.compared == Some(false)) {
        mounts.extend(&known.unaccounted);
    }
    mounts.into_iter().cloned().collect()
}

/// What the node may host and says that it does. An agent shows its right again before each report.
fn next_hosts(known: Option<&Node>, report: &NodeReport) -> BTreeSet<PluginId> {
    let is_named = |plugin: &&PluginId| {
        let mut all = report.instances.iter();
        all.any(|one| one.half == Half::Controller && one.plugin == **plugin)
    };
    known.into_iter().flat_map(|known| &known.hosts).filter(is_named).cloned().collect()
}

/// Whether the node's record needs a write. The clock of the report alone needs none.
fn differs(known: &Node, next: &Node) -> bool {
    *known != Node { reported: known.reported, ..next.clone() }
}

#[cfg(test)]
mod tests;
