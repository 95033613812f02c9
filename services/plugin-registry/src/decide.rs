//! What a report changes, decided over what stands; pure.
//!
//! **Owns** the rules of a report: what counts as a change, what stays as it was, and which report
//! comes too late.
//!
//! **Promises** that a report decided over what it made is no change at all, and that an older
//! report which comes after a newer one changes nothing, if the newer one changed anything. One
//! that changed nothing leaves no trace, since it is not worth a write: what an older one then
//! makes of the node stands until the next report.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_contract::decode::Fault;
use berth_contract::message::registry::{Report, ReportedInstance};
use berth_domain::plugin::{Half, Instance, Node, NodeState};
use berth_domain::{ClockOffset, PluginId, Timestamp, limits};

/// A clock that differs by less from the one on the record is the same: the time that reports are
/// on their way varies, and each difference would be a write.
const SKEW_STEP_MS: u64 = 50;

/// A report that is older than the newest one by more does not come late (no request lives so
/// long): its node's clock was set back, and it counts.
const LATE_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(LATE_MAX.as_millis() > limits::REQUEST_TIMEOUT.as_millis());

/// Which instance on a node: of which plugin, and which half of it.
pub type InstanceKey = (PluginId, Half);

/// The records of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRecords {
    /// Its record.
    pub node: Option<Node>,
    /// Its plugin instances.
    pub instances: BTreeMap<InstanceKey, Instance>,
}

/// A report, and our clock when it came.
#[derive(Debug, Clone)]
pub struct Arrived {
    /// The report.
    pub report: Report,
    /// When it came, by our clock.
    pub at: Timestamp,
}

/// What a report comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A newer report of the node has been worked in already: this one changes nothing.
    Late,
    /// These writes, in this order; none when the report says nothing new.
    Write(Vec<Write>),
}

/// A write of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The node's record.
    Node(Node),
    /// An instance that is new or not as it was.
    Put(InstanceKey, Instance),
    /// An instance that has left.
    Delete(InstanceKey),
}

impl Arrived {
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

/// What is wrong with a report that could be read: an instance told twice.
pub fn faults(report: &Report) -> Vec<Fault> {
    let mut told: BTreeMap<(&PluginId, Half), usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for (at, ReportedInstance { plugin, half, .. }) in report.instances.iter().enumerate() {
        if let Some(first) = told.get(&(plugin, *half)) {
            let problem = format!("is the {half} of {plugin} again, after instances[{first}]");
            faults.push(Fault { path: format!("instances[{at}]"), problem, line: None });
        } else {
            told.insert((plugin, *half), at);
        }
    }
    faults
}

/// What the report changes.
///
/// The node's record comes first whenever anything changes, and carries the report's clock: a late
/// report that reads the node's record *after* the instances finds it there, or its guards fail.
pub fn decide(standing: &NodeRecords, arrived: &Arrived) -> Verdict {
    let report = &arrived.report;
    if standing.node.as_ref().is_some_and(|node| is_late(node, report)) {
        return Verdict::Late;
    }
    let mut writes = Vec::new();
    for told in &report.instances {
        let place = (told.plugin.clone(), told.half);
        let known = standing.instances.get(&place);
        let next = instance(known, &told.instance, arrived.at);
        if known != Some(&next) {
            writes.push(Write::Put(place, next));
        }
    }
    let told: BTreeSet<(&PluginId, Half)> =
        report.instances.iter().map(|told| (&told.plugin, told.half)).collect();
    let left = standing.instances.keys().filter(|(plugin, half)| !told.contains(&(plugin, *half)));
    writes.extend(left.cloned().map(Write::Delete));

    let next = node(standing.node.as_ref(), arrived);
    let changed = standing.node.as_ref().is_none_or(|known| differs(known, &next));
    if changed || !writes.is_empty() {
        writes.insert(0, Write::Node(next));
    }
    Verdict::Write(writes)
}

fn is_late(known: &Node, report: &Report) -> bool {
    known.boot_id == report.boot_id
        && report.clock < known.reported
        && known.reported.since(report.clock) <= LATE_MAX
}

/// The instance as it is to stand: since when it is healthy, or not, stays while that stays, and so
/// does since when the plugin calls the node so.
fn instance(known: Option<&Instance>, told: &Instance, at: Timestamp) -> Instance {
    let since = match known {
        Some(known) if known.healthy == told.healthy => known.since,
        // A node whose clock is ahead must not have things happen in our future.
        _ => told.since.min(at),
    };
    // An agent that was started while its plugin is down cannot say what the plugin calls the node.
    // What it called the node before stays, or a node with the same id would take it over.
    let before = known.and_then(|known| known.node.clone());
    let abilities = told.node.clone().or_else(|| before.filter(|_| !told.healthy));
    let mut next = Instance { since, node: abilities, ..told.clone() };
    next.id_since = next.external_node().map(|external| {
        let as_before = known.filter(|known| known.external_node() == Some(external));
        as_before.map_or(at, |known| known.id_since.unwrap_or(known.since))
    });
    next
}

/// The node as it is to stand. Its state is no report's to change: that is the lease's.
fn node(known: Option<&Node>, arrived: &Arrived) -> Node {
    let Report { version, boot_id, clock, attributes, unaccounted, .. } = &arrived.report;
    let known_skew_ms = known.map(|known| known.clock_skew_ms);
    let skew_ms = arrived.skew_ms(known_skew_ms.unwrap_or(0));
    let (state, since) =
        known.map_or((NodeState::Down, arrived.at), |known| (known.state, known.since));
    let as_before = known_skew_ms.filter(|before| before.abs_diff(skew_ms) <= SKEW_STEP_MS);
    let was_gone = known.and_then(|known| known.gone.clone());
    // What was undone before the node was told of this proof does not count.
    let gone = was_gone.clone().filter(|proof| arrived.report.undone != Some(proof.at));
    let is_back = was_gone.is_some() && gone.is_none();
    Node {
        state,
        since,
        clock_skew_ms: as_before.unwrap_or(skew_ms),
        version: version.clone(),
        boot_id: boot_id.clone(),
        reported: *clock,
        attributes: attributes.clone(),
        back: if is_back { Some(arrived.at) } else { known.and_then(|known| known.back) },
        gone,
        unaccounted: unaccounted.clone(),
    }
}

/// Whether the node's record is worth a write: not for the clock of a report alone.
fn differs(known: &Node, next: &Node) -> bool {
    *known != Node { reported: known.reported, ..next.clone() }
}

#[cfg(test)]
mod tests;
