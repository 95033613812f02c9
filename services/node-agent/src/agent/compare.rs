//! Holds the journal against the claims of this node.
//!
//! **Owns** a comparison at the start, once the node counts as there, at intervals after it, and at
//! once when the registry tells of a new incarnation of the volumes bucket.
//!
//! **Promises** that a use whose claim is gone for certain is undone when no workload can have its
//! path, and reported when a workload can. The claim protocol leaves no such use: a claim goes with
//! its node's answer, or by a proof, after which the node undoes everything (rules 11 and 12). This
//! is for claims that were lost outside of the protocol, for example with a bus that was set up
//! again without its data.
//!
//! **Promises** that nothing is mounted by a grant that was requested before the node has compared
//! with a new incarnation: the claim may be lost, and another node is granted the volume then.
//!
//! **Never** unmounts what a workload may have. Without a list of claims that is younger than a
//! use, the use counts as claimed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use berth_bus::Bus;
use berth_contract::hint;
use berth_domain::access::AttachmentMode;
use berth_domain::plugin::UnaccountedMount;
use berth_domain::retry::Schedule;
use berth_domain::volume::MountUse;
use berth_domain::{NodeId, VolumeKey};
use berth_host::MountTable;
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::fleet::claimed::read_claimed_uses;
use crate::fleet::events::EventPublisher;
use crate::fleet::gate::Gate;
use crate::fleet::unaccounted::UnaccountedMounts;
use crate::journal::{Journal, JournalledUse, UseKey, UseState};
use crate::mounts::Unmounting;

/// Interval of the comparisons.
pub const INTERVAL: Duration = Duration::from_secs(60);
/// Pauses after a first comparison that could not be made.
const FIRST_RETRY: Schedule =
    Schedule { first: Duration::from_millis(500), max: Duration::from_secs(30) };
/// Time until the comparison that confirms that a claim is missing.
const CONFIRM_AFTER: Duration = Duration::from_secs(5);
/// Interval of comparisons with a new incarnation of the bucket, until one is complete.
const DUE_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the whole list of claims to arrive.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Compares the journal with the claims.
pub struct ClaimComparison {
    /// Undoes a use that no workload can have.
    pub unmounting: Arc<Unmounting>,
    pub journal: Journal,
    pub unaccounted: UnaccountedMounts,
    pub events: EventPublisher,
    pub gate: Gate,
    pub bus: Bus,
    pub node: NodeId,
    /// The incarnation of the volumes bucket, as the registry tells it; 0 while unknown.
    pub volumes: watch::Receiver<u64>,
    /// The incarnation with which everything that is mounted was compared.
    pub compared: watch::Sender<u64>,
}

impl ClaimComparison {
    /// Compares until the shutdown.
    pub async fn run(mut self, shutdown: Shutdown) {
        let (mut missing, mut tries) = (BTreeSet::new(), 0);
        let mut ended_for = 0;
        loop {
            tokio::select! {
                () = self.gate.wait_until_there() => {}
                () = shutdown.requested() => return,
            }
            let volumes = *self.volumes.borrow_and_update();
            if volumes > ended_for {
                // Before the journal is read: what enters later is of this incarnation.
                self.gate.end_passes().await;
                ended_for = volumes;
            }
            let before = std::mem::take(&mut missing);
            missing = self.compare_once(&before, ended_for).await;
            let is_new = missing.iter().any(|key| !before.contains(key));
            let mut pause = if is_new {
                CONFIRM_AFTER
            } else if self.unaccounted.read_known().is_compared {
                INTERVAL
            } else {
                // Deletions wait for the first comparison.
                tries += 1;
                FIRST_RETRY.wait(tries, clock::jitter())
            };
            if volumes > *self.compared.borrow() {
                // No volume is granted elsewhere before this node has compared.
                pause = pause.min(DUE_INTERVAL);
            }
            tokio::select! {
                () = sleep(pause.mul_f64(0.75 + rand::random::<f64>() / 2.0)) => {}
                Ok(()) = self.volumes.changed() => {}
                () = shutdown.requested() => return,
            }
        }
    }

    /// Returns the uses whose claim is not in the list. `before` is what the last comparison
    /// returned. `ended_for` is the incarnation for which earlier passes of the gate were ended.
    async fn compare_once(&self, before: &BTreeSet<UseKey>, ended_for: u64) -> BTreeSet<UseKey> {
        // Read before the claims, so that a newer use is not compared with an older list.
        let uses = self.journal.uses();
        if uses.is_empty() && *self.volumes.borrow() <= *self.compared.borrow() {
            self.report_unaccounted(Vec::new(), true);
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
        // A service that has not noticed the restore lists what was there before.
        if claimed.incarnation().is_some_and(|of| of < *self.compared.borrow()) {
            return before.intersection(&here).cloned().collect();
        }
        let mut missing = BTreeSet::new();
        let mut mounts = Vec::new();
        let mut is_whole = true;
        for (volume, alloc, entry) in uses {
            let key = (volume, alloc);
            if claimed.covers(&key, &entry) {
                continue;
            }
            let is_certain = claimed.is_younger_than(&entry);
            let is_mounted = entry.state == UseState::Published && may_be_mounted(&entry).await;
            if is_certain && !is_mounted && self.undo(&key, &entry).await {
                continue;
            }
            // What is half mounted may write, too. After an older backup was restored, revisions
            // begin again below those in the journal. So a use that two lists lack is reported, and
            // not undone.
            if is_certain || before.contains(&key) {
                mounts.push(unaccounted_mount(&key, &entry));
            } else {
                is_whole = false;
            }
            missing.insert(key);
        }
        self.report_unaccounted(mounts, is_whole);
        let is_due = |incarnation: &u64| is_whole && *incarnation <= ended_for;
        if let Some(incarnation) = claimed.incarnation().filter(is_due) {
            // After the mounts, so that no report names one without the other.
            let is_new = |known: &mut u64| std::mem::replace(known, incarnation) != incarnation;
            self.compared.send_if_modified(is_new);
        }
        missing
    }

    /// Stores the mounts of the node that no claim covers. Each new one becomes an event.
    /// `is_whole` says whether each mount was compared.
    fn report_unaccounted(&self, all: Vec<UnaccountedMount>, is_whole: bool) {
        for mount in self.unaccounted.replace(all, is_whole) {
            let volume = VolumeKey::new(mount.namespace.clone(), mount.volume.clone());
            self.events.publish_unaccounted(&mount);
            tracing::warn!(
                namespace = %mount.namespace,
                volume = %mount.volume,
                alloc = %mount.alloc,
                path = mount.path,
                next = hint::unmount(&volume, &self.node),
                "mounted here, and its claim is gone: its workload must not write any more"
            );
        }
    }

    /// Undoes a use that no workload can have. Returns whether nothing of it is left.
    async fn undo(&self, (volume, alloc): &UseKey, entry: &JournalledUse) -> bool {
        let context = clock::begin_trace();
        let (trace, epoch) = (context.trace_id(), entry.epoch);
        let message = "begun here, or unmounted by hand, and its claim is gone: undone";
        tracing::warn!(%volume, %alloc, epoch, trace, "{message}");
        let (key, use_of) = ((volume.clone(), alloc.clone()), entry.clone());
        let undone = self.unmounting.undo_use(key.0, key.1, use_of, context).await;
        if let Err(problem) = &undone {
            tracing::warn!(trace, %problem, "it is not undone yet");
        }
        undone.is_ok()
    }
}

/// The journalled use, as a mount that no claim covers.
fn unaccounted_mount((volume, alloc): &UseKey, entry: &JournalledUse) -> UnaccountedMount {
    UnaccountedMount {
        namespace: volume.namespace.clone(),
        volume: volume.volume.clone(),
        alloc: alloc.clone(),
        path: entry.target.to_string_lossy().into_owned(),
        plugin: Some(entry.plugin.clone()),
        external_id: Some(entry.external_id.clone()),
        used: Some(MountUse {
            mode: entry.mode,
            access: entry.access,
            attachment: entry.attachment,
        }),
    }
}

/// Whether a workload may have the use. A block device need not be in the mount table.
async fn may_be_mounted(entry: &JournalledUse) -> bool {
    entry.attachment == AttachmentMode::BlockDevice
        || MountTable::read().await.map_or(true, |table| table.has(&entry.target))
}
