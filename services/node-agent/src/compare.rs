//! Holds the journal against the claims of this node.
//!
//! **Owns** a comparison at the start, once the node counts as there, and at intervals after it.
//!
//! **Promises** that a use whose claim is gone for certain is undone when no workload can have its
//! path, and reported when a workload can. The claim protocol leaves no such use: a claim goes with
//! its node's answer, or by a proof, after which the node undoes everything (rules 11 and 12). This
//! is for claims that were lost outside of the protocol, for example with a bus that was set up
//! again without its data.
//!
//! **Never** unmounts what a workload may have. Without a list of claims that is younger than a
//! use, the use counts as claimed.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::Bus;
use berth_domain::NodeId;
use berth_domain::access::AttachmentMode;
use berth_domain::plugin::UnaccountedMount;
use berth_host::MountTable;
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::time::sleep;

use crate::claimed::read_claimed_uses;
use crate::gate::{Gate, NodePresence};
use crate::journal::{Journal, JournalledUse, UseKey, UseState};
use crate::node::Mounter;

/// Interval of the comparisons.
const INTERVAL: Duration = Duration::from_secs(60);
/// Time until the comparison that confirms that a claim is missing.
const CONFIRM_AFTER: Duration = Duration::from_secs(5);
/// Interval at which a closed gate is looked at.
const GATE_INTERVAL: Duration = Duration::from_millis(500);
/// Time for the whole list of claims to arrive.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Compares the journal with the claims.
pub struct ClaimComparison {
    pub mounter: Mounter,
    pub journal: Journal,
    pub gate: Gate,
    pub bus: Bus,
    pub node: NodeId,
}

impl ClaimComparison {
    /// Compares until the shutdown.
    pub async fn run(self, shutdown: Shutdown) {
        let mut missing = BTreeSet::new();
        loop {
            let mut pause = GATE_INTERVAL;
            if self.gate.presence() == NodePresence::There {
                let before = std::mem::take(&mut missing);
                missing = self.compare_once(&before).await;
                let is_new = missing.iter().any(|key| !before.contains(key));
                pause = if is_new { CONFIRM_AFTER } else { INTERVAL };
            }
            tokio::select! {
                () = sleep(pause.mul_f64(0.75 + rand::random::<f64>() / 2.0)) => {}
                () = shutdown.requested() => return,
            }
        }
    }

    /// Returns the mounts whose claim is not in the list. `before` is what the last comparison
    /// returned.
    async fn compare_once(&self, before: &BTreeSet<UseKey>) -> BTreeSet<UseKey> {
        // Read before the claims, so that a newer use is not compared with an older list.
        let uses = self.journal.uses();
        if uses.is_empty() {
            self.mounter.report_unaccounted(Vec::new());
            return BTreeSet::new();
        }
        let here = uses.iter().map(|(volume, alloc, _)| (volume.clone(), alloc.clone()));
        let here: BTreeSet<UseKey> = here.collect();
        let claimed = match read_claimed_uses(&self.bus, &self.node, &here, LIST_TIMEOUT).await {
            Ok(Some(claimed)) => claimed,
            unknown => {
                if let Err(problem) = unknown {
                    tracing::debug!(%problem, "the claims of this node are not known");
                }
                return before.intersection(&here).cloned().collect();
            }
        };
        let mut missing = BTreeSet::new();
        let mut mounts = Vec::new();
        for (volume, alloc, entry) in uses {
            let key = (volume, alloc);
            if claimed.covers(&key) {
                continue;
            }
            let is_certain = claimed.is_younger_than(&entry);
            let is_mounted = entry.state == UseState::Published && may_be_mounted(&entry).await;
            if is_mounted {
                // After an older backup was restored, revisions begin again below those in the
                // journal. So a mount that two lists lack is reported, too. Nothing is undone by
                // that.
                if is_certain || before.contains(&key) {
                    mounts.push(unaccounted_mount(&key, &entry));
                }
                missing.insert(key);
            } else if is_certain {
                let context = clock::begin_trace();
                let (trace, epoch, (volume, alloc)) = (context.trace_id(), entry.epoch, key);
                let message = "begun here, or unmounted by hand, and its claim is gone: undone";
                tracing::warn!(%volume, %alloc, epoch, trace, "{message}");
                if let Err(problem) = self.mounter.undo_use(volume, alloc, entry, context).await {
                    tracing::warn!(trace, %problem, "it is not undone yet");
                }
            }
        }
        self.mounter.report_unaccounted(mounts);
        missing
    }
}

/// The journalled use, as a mount that no claim covers.
fn unaccounted_mount((volume, alloc): &UseKey, entry: &JournalledUse) -> UnaccountedMount {
    UnaccountedMount {
        namespace: volume.namespace.clone(),
        volume: volume.volume.clone(),
        alloc: alloc.clone(),
        path: entry.target.to_string_lossy().into_owned(),
    }
}

/// Whether a workload may have the use. A block device need not be in the mount table.
async fn may_be_mounted(entry: &JournalledUse) -> bool {
    entry.attachment == AttachmentMode::BlockDevice
        || MountTable::read().await.map_or(true, |table| table.has(&entry.target))
}
