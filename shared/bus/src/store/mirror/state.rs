//! The state that the handles of a mirror share with its task.

use std::sync::atomic::AtomicUsize;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::fold::Fold;
use super::table::Table;
use crate::connection::fault_source::FaultSource;
use crate::store::bucket::Bucket;

/// How a mirror watches. The defaults suit a service; tests use shorter times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorOptions {
    /// How long the first reading may take.
    pub start_within: Duration,
    /// The heartbeat interval of the watch; silence for two and a half intervals ends the watch.
    pub heartbeat: Duration,
    /// How often all keys are compared with the bucket, plus or minus up to a quarter.
    pub check_every: Duration,
    /// How often the leader is asked whether the mirror is behind.
    pub probe_every: Duration,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self {
            start_within: Duration::from_secs(30),
            heartbeat: Duration::from_secs(1),
            check_every: Duration::from_secs(300),
            probe_every: Duration::from_secs(10),
        }
    }
}

/// The state that the handles and the task of a mirror share.
pub(super) struct MirrorShared<F> {
    pub(super) bucket: Bucket,
    pub(super) filter: String,
    pub(super) options: MirrorOptions,
    pub(super) table: RwLock<Table<F>>,
    /// Snapshots that ask commits to wait for the watch.
    pub(super) snapshots_waiting: AtomicUsize,
    pub(super) progress: watch::Sender<Progress>,
    pub(super) changes: watch::Sender<u64>,
    /// The last comparison that found a difference: all keys have to be read again, unless that
    /// has happened since.
    pub(super) differs: watch::Sender<u32>,
}

/// The progress of a mirror.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    /// Everything up to this revision is applied.
    pub(super) applied: u64,
    /// Whether the first reading is complete.
    pub(super) started: bool,
    pub(super) stale_since: Option<Instant>,
    /// What the last try to follow ended with.
    pub(super) last_error: String,
}

impl<F: Fold> FaultSource for MirrorShared<F> {
    fn fault(&self) -> Option<String> {
        let progress = self.progress.borrow().clone();
        let since = progress.stale_since?.elapsed().as_secs_f32();
        let (bucket, why) = (self.bucket.name(), progress.last_error);
        Some(if progress.started {
            format!("what is known of bucket {bucket} may be {since:.1} s old: {why}")
        } else {
            format!("bucket {bucket} is not read yet, after {since:.1} s: {why}")
        })
    }
}

impl<F: Fold> MirrorShared<F> {
    pub(super) fn table(&self) -> RwLockReadGuard<'_, Table<F>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn table_mut(&self) -> RwLockWriteGuard<'_, Table<F>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a key that is gone, unless it was written after `revision`.
    pub(super) fn forget(&self, key: &str, revision: u64) -> bool {
        let is_changed = self.table_mut().gone(key, revision);
        self.count_change(is_changed);
        is_changed
    }

    /// Applies a message of the watch, if it is newer than the known revision of the key.
    pub(super) fn apply(&self, key: &str, revision: u64, value: Option<&[u8]>) {
        let changed = self.table_mut().apply(key, revision, value);
        self.count_change(changed);
    }

    /// Applies a change that did not come by the watch, if it is newer than the known revision of
    /// the key.
    pub(super) fn apply_beside(&self, key: &str, revision: u64, value: Option<&[u8]>) {
        let changed = self.table_mut().apply_beside(key, revision, value);
        self.count_change(changed);
    }

    pub(super) fn count_change(&self, changed: bool) {
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}
