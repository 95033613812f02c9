//! A volume that may be mounted where no claim covers it.

use berth_contract::hint;
use berth_contract::message::storage::StorageWait;
use berth_contract::message::volume::VolumeStatus;

use crate::cause::{Actor, Cause};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::{next, node};

/// Mounts that one finding has commands for, at most.
const NAMED_MAX: usize = 5;

/// A mount that no claim covers; or, while that is waited for, a node that has not said whether it
/// has one.
pub fn find(facts: &Facts, volume: &VolumeStatus) -> Option<Finding> {
    let operation = volume.storage.as_ref().and_then(|storage| storage.operation.as_ref());
    let is_mounted = !volume.unaccounted.is_empty();
    // The record keeps the wait until the next call begins. The mount may be gone by now.
    let is_doubted = is_mounted || !volume.mounts.is_empty();
    let waits = is_doubted
        && operation.is_some_and(|operation| operation.waits_for == Some(StorageWait::Unmounted));
    let sentence = match (is_mounted, waits) {
        (true, false) => {
            "it is mounted where no claim covers it, so no other node is granted it, and it is \
             neither deleted nor deregistered"
        }
        (true, true) => {
            "it is mounted where no claim covers it, so its change at the storage waits: a \
             workload may still write there"
        }
        (false, true) => {
            "a node that may have it mounted has not said what it has mounted, so its change at \
             the storage waits"
        }
        (false, false) => return None,
    };
    if let Some(down) = find_down(facts, volume) {
        return Some(Finding { sentence: format!("{sentence}: {}", down.sentence), ..down });
    }
    let who = if is_mounted { Actor::You } else { Actor::NOBODY };
    let doubts = volume.mounts.iter().map(ToString::to_string);
    // An older service describes the mounts only in words.
    let evidence: Vec<String> =
        if volume.mounts.is_empty() { volume.unaccounted.clone() } else { doubts.collect() };
    let finding = Finding::new(Cause::MountUnaccounted, who, sentence).shown_by(evidence);
    let next = volume.mounts.iter().map(|doubt| match &doubt.mount {
        // By the name that the volume had at the mount.
        Some(mount) => format!(
            "berth node unmount {} {}{}   # once its workload there has ended",
            hint::quoted(doubt.node.as_str()),
            hint::quoted(mount.volume.as_str()),
            hint::namespace_option(&mount.namespace)
        ),
        None => next::node_status(&doubt.node),
    });
    let finding = next.take(NAMED_MAX).fold(finding, Finding::next);
    let status_command = format!(
        "berth volume status {}{}   # names the node",
        hint::quoted(volume.id.as_str()),
        hint::namespace_option(&volume.namespace)
    );
    Some(finding.next_if_known(volume.mounts.is_empty().then_some(status_command)))
}

/// The finding about the first node, if all nodes with a mount or in doubt are down.
fn find_down(facts: &Facts, volume: &VolumeStatus) -> Option<Finding> {
    let findings = volume.mounts.iter().map(|doubt| {
        let node = facts.nodes.get(&doubt.node)?;
        node::keeps_unmount(facts, &doubt.node, node)
    });
    findings.collect::<Option<Vec<_>>>()?.into_iter().next()
}
