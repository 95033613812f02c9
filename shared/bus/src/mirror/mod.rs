//! Projections: what a bucket holds, kept at hand.
//!
//! **Owns** a [`Fold`] of the service's choice and keeps it equal to the bucket below a filter: all
//! keys first, then each change as it comes.
//!
//! **Promises**
//! - [`Mirror::start`] returns when the first reading is complete, for an empty bucket too.
//! - A key never goes back: what is applied is newer than what was. That holds also after a service
//!   applied its own commit at once ([`Mirror::put`]) and the watch brings older news, and when the
//!   answer to that commit is late and the watch has brought newer.
//! - A silent watch is noticed within two heartbeats and a half, a broken connection at once; until
//!   the mirror has caught up again, [`Mirror::stale_since`] says so.
//! - After a gap it goes on from where it stood, if the last message it applied is still there
//!   unchanged. If it is not (the bucket was made anew, restored from a backup, or too much time
//!   has passed for delete markers to have stayed) all keys are read again and compared, so that
//!   deleted keys are noticed. The same happens now and then without a reason, and nobody sees it.
//! - How much time has passed is said by the server's clock alone (decision 0022): a process that
//!   was stopped does not notice when, nor a machine that was suspended that it was.
//! - A bucket that is deleted or replaced is lost until all of it was read ([`loss`](crate::loss)):
//!   no endpoint of the process answers a request meanwhile.
//! - A snapshot ([`Mirror::snapshot`]) is the bucket as it was at one revision. A bucket keeps few
//!   values of a key: what was replaced before it came here never comes, and no picture is shown
//!   until what replaced it has.
//!
//! A mirror may be behind. Decide by it and write with a guard; answer by the leader
//! ([`Bucket::get`], [`Bucket::list`]), or [`Mirror::reach`] its head first.
//!
//! **Never** keeps more than the fold itself does, and the revision of each live key.

mod follow;
mod table;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use berth_contract::{code::Code, problem::Problem};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::bucket::Bucket;
use crate::cause::Cause;
use crate::filter;
use crate::read::ReadError;

use follow::Follower;
pub use table::NoPicture;
use table::Table;

/// How long a snapshot waits for a moment without own commits ahead of the watch before it asks
/// commits to wait for the watch.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a stored commit waits for the watch while a snapshot asks for it.
const WATCH_MAX: Duration = Duration::from_millis(50);

/// What a projection makes of each key.
pub trait Fold: Send + Sync + 'static {
    /// The key has this value now.
    fn put(&mut self, key: &str, revision: u64, value: &[u8]);
    /// The key, which was put before, is gone.
    fn delete(&mut self, key: &str, revision: u64);
}

/// How a mirror watches. The defaults suit a service; tests hurry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorOptions {
    /// How long the first reading may take.
    pub start_within: Duration,
    /// How often the watch says that it lives; two and a half silences end it.
    pub heartbeat: Duration,
    /// How often all keys are read again and compared, give or take a quarter.
    pub resync_every: Duration,
    /// How often the leader is asked whether the mirror is behind.
    pub probe_every: Duration,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self {
            start_within: Duration::from_secs(30),
            heartbeat: Duration::from_secs(1),
            resync_every: Duration::from_secs(300),
            probe_every: Duration::from_secs(10),
        }
    }
}

/// Why there is no mirror, or why it is behind.
#[derive(Debug, Error)]
pub enum MirrorError {
    /// The filter is none.
    #[error("{filter:?} is no key or filter of bucket {bucket}")]
    Filter {
        /// The bucket.
        bucket: String,
        /// The filter.
        filter: String,
    },
    /// The first reading was not complete in time.
    #[error("bucket {bucket} could not be read within {within:?}; check nats-server")]
    Start {
        /// The bucket.
        bucket: String,
        /// How long it was tried.
        within: Duration,
        /// What the last try ended with.
        #[source]
        source: Cause,
    },
    /// The mirror has not reached the revision in time.
    #[error("the mirror of bucket {bucket} is at {applied}, and {wanted} did not come in time")]
    Behind {
        /// The bucket.
        bucket: String,
        /// Where it is.
        applied: u64,
        /// What was waited for.
        wanted: u64,
    },
}

impl MirrorError {
    /// What a caller of ours is told.
    pub fn into_problem(self, step: &str) -> Problem {
        Problem::new(Code::BusUnavailable, crate::cause::chain(&self)).retryable().at_step(step)
    }
}

/// A projection that follows its bucket until the last handle is dropped.
pub struct Mirror<F> {
    shared: Arc<MirrorShared<F>>,
    task: Arc<Task>,
}

impl<F> Clone for Mirror<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), task: Arc::clone(&self.task) }
    }
}

impl<F> fmt::Debug for Mirror<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mirror")
            .field("bucket", &self.shared.bucket)
            .field("progress", &*self.shared.progress.borrow())
            .finish_non_exhaustive()
    }
}

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A snapshot that asks commits to wait for the watch, until it is dropped.
struct SnapshotWaiting<'a>(&'a AtomicUsize);

impl<'a> SnapshotWaiting<'a> {
    fn begin(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for SnapshotWaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct MirrorShared<F> {
    bucket: Bucket,
    filter: String,
    options: MirrorOptions,
    table: RwLock<Table<F>>,
    /// Snapshots that ask commits to wait for the watch.
    snapshots_waiting: AtomicUsize,
    progress: watch::Sender<Progress>,
    changes: watch::Sender<u64>,
}

/// How far a mirror is.
#[derive(Debug, Clone)]
struct Progress {
    /// Everything up to this revision is applied.
    applied: u64,
    /// Whether the first reading is complete.
    started: bool,
    stale_since: Option<Instant>,
    /// What the last try to follow ended with.
    last_error: String,
}

impl<F: Fold> Mirror<F> {
    /// Reads all keys below `filter` (`>` for the whole bucket) into `fold`, then follows them.
    pub async fn start(
        bucket: &Bucket,
        filter: &str,
        fold: F,
        options: MirrorOptions,
    ) -> Result<Self, MirrorError> {
        let name = bucket.name().to_owned();
        if !filter::is_filter(filter) {
            return Err(MirrorError::Filter { bucket: name, filter: filter.to_owned() });
        }
        let deadline = Instant::now() + options.start_within;
        let progress = Progress {
            applied: 0,
            started: false,
            stale_since: Some(Instant::now()),
            last_error: "nothing was read yet".to_owned(),
        };
        let shared = Arc::new(MirrorShared {
            bucket: bucket.clone(),
            filter: filter.to_owned(),
            options,
            table: RwLock::new(Table::new(fold)),
            snapshots_waiting: AtomicUsize::new(0),
            progress: watch::Sender::new(progress),
            changes: watch::Sender::new(0),
        });
        let task = tokio::spawn(Follower::new(Arc::clone(&shared)).run());
        let mirror = Self { shared, task: Arc::new(Task(task)) };
        let mut progress = mirror.shared.progress.subscribe();
        let started = timeout_at(deadline, progress.wait_for(|progress| progress.started)).await;
        if matches!(started, Ok(Ok(_))) {
            return Ok(mirror);
        }
        let source = Cause::new(mirror.shared.progress.borrow().last_error.clone());
        Err(MirrorError::Start { bucket: name, within: options.start_within, source })
    }

    /// Looks at the projection. The watch waits meanwhile: look briefly, and copy what is kept.
    pub fn read<T>(&self, look: impl FnOnce(&F) -> T) -> T {
        look(self.shared.table().fold())
    }

    /// Looks at the projection when it is a picture of the bucket at one revision, which is
    /// answered too: with everything up to it, and nothing of what came after. An own commit that
    /// was applied ahead of the watch ([`Mirror::put`]) makes it wait until the watch is there.
    /// When there is always one, the next ones are shown by the watch instead. No commit is held
    /// back: it is stored meanwhile, and shown a moment later.
    pub async fn snapshot<T>(
        &self,
        deadline: Instant,
        look: impl FnOnce(&F) -> T,
    ) -> Result<(u64, T), MirrorError> {
        let mut look = Some(look);
        // Once it is taken there is an answer.
        let mut glance = || match self.glance(|fold| look.take().map(|look| look(fold))) {
            Ok((revision, Some(seen))) => Ok((revision, seen)),
            Ok((revision, None)) => Err(NoPicture::Before(revision)),
            Err(why) => Err(why),
        };
        let patient_until = Instant::now() + PATIENCE;
        let mut waiting = None;
        loop {
            let why = match glance() {
                Ok(seen) => return Ok(seen),
                Err(NoPicture::Before(wanted) | NoPicture::Torn(wanted))
                    if Instant::now() >= deadline =>
                {
                    return Err(self.behind(wanted));
                }
                Err(why) => why,
            };
            if waiting.is_none() && Instant::now() >= patient_until {
                waiting = Some(SnapshotWaiting::begin(&self.shared.snapshots_waiting));
            }
            self.mend(why, deadline).await?;
        }
    }

    /// As [`snapshot`](Self::snapshot), now or not at all: else answered with what to wait for
    /// ([`Mirror::mend`]).
    pub fn glance<T>(&self, look: impl FnOnce(&F) -> T) -> Result<(u64, T), NoPicture> {
        let table = self.shared.table();
        table.shows().map(|revision| (revision, look(table.fold())))
    }

    /// Waits for what keeps the projection from being a picture, as far as that is known.
    pub async fn mend(&self, why: NoPicture, deadline: Instant) -> Result<(), MirrorError> {
        let at = match why {
            NoPicture::Before(revision) => return self.reach(revision, deadline).await,
            NoPicture::Torn(at) => at,
        };
        let shared = &self.shared;
        let Ok(Ok(head)) = timeout_at(deadline, shared.bucket.head(&shared.filter)).await else {
            return Err(self.behind(at));
        };
        shared.table_mut().mend(at, head);
        self.reach(head, deadline).await
    }

    /// Shows an own commit: at once, or by the watch while a snapshot waits for it. Not when the
    /// watch is past it or knows newer of the key.
    pub async fn put(&self, key: &str, revision: u64, value: &[u8]) {
        self.wait_for_watch(revision).await;
        self.shared.apply_beside(key, revision, Some(value));
    }

    /// Shows an own delete, under the same conditions.
    pub async fn delete(&self, key: &str, revision: u64) {
        self.wait_for_watch(revision).await;
        self.shared.apply_beside(key, revision, None);
    }

    async fn wait_for_watch(&self, revision: u64) {
        if self.shared.snapshots_waiting.load(Ordering::Relaxed) > 0 {
            // Later than that it is shown ahead of the watch.
            let _: Result<(), MirrorError> = self.reach(revision, Instant::now() + WATCH_MAX).await;
        }
    }

    /// Reads the keys below a filter again at the leader, and forgets the others below it: for a
    /// leader's head that is lower than what was seen here. Either a marker was purged, or this
    /// mirror missed a delete. Answers the head that goes with the keys; none when others write
    /// there all the time.
    pub async fn read_again(&self, filter: &str) -> Result<Option<u64>, ReadError> {
        let bucket = &self.shared.bucket;
        // What it lacks is judged by what the list itself is read from: a leader that was deposed
        // and does not know it yet may have answered.
        let list = bucket.list_known(filter).await?;
        if !list.settled {
            return Ok(None);
        }
        for entry in &list.entries {
            self.shared.apply_beside(&entry.key, entry.revision, entry.value.as_deref());
        }
        let gone = self.shared.table().others(filter, list.known, &list.entries);
        let missed: Vec<_> =
            gone.into_iter().filter(|key| self.shared.forget(key, list.known)).collect();
        if !missed.is_empty() {
            let bucket = bucket.name();
            tracing::warn!(bucket, ?missed, "deletes were missed; the keys were read again");
        }
        Ok(Some(list.head))
    }

    /// Everything below the filter up to this revision is applied.
    pub fn applied(&self) -> u64 {
        self.shared.progress.borrow().applied
    }

    /// Since when the mirror may be behind without knowing by how much; none while it follows.
    pub fn stale_since(&self) -> Option<Instant> {
        self.shared.progress.borrow().stale_since
    }

    /// Waits until everything up to `revision` is applied. For a revision of a key that the filter
    /// does not cover this may take a heartbeat longer.
    pub async fn reach(&self, revision: u64, deadline: Instant) -> Result<(), MirrorError> {
        let mut progress = self.shared.progress.subscribe();
        let reached = progress.wait_for(|progress| progress.applied >= revision);
        match timeout_at(deadline, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(self.behind(revision)),
        }
    }

    fn behind(&self, wanted: u64) -> MirrorError {
        let bucket = self.shared.bucket.name().to_owned();
        MirrorError::Behind { bucket, applied: self.applied(), wanted }
    }

    /// Woken at each change of the projection; the number counts them.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }
}

impl<F: Fold> MirrorShared<F> {
    fn table(&self) -> RwLockReadGuard<'_, Table<F>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, Table<F>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a key that is gone, unless it was written after `revision`.
    fn forget(&self, key: &str, revision: u64) -> bool {
        let gone = self.table_mut().gone(key, revision);
        self.count_change(gone);
        gone
    }

    /// Applies what the watch brought, if it is newer than what is known of the key.
    fn apply(&self, key: &str, revision: u64, value: Option<&[u8]>) {
        let changed = self.table_mut().apply(key, revision, value);
        self.count_change(changed);
    }

    /// Applies what did not come by the watch, if it is newer than what is known of the key.
    fn apply_beside(&self, key: &str, revision: u64, value: Option<&[u8]>) {
        let changed = self.table_mut().apply_beside(key, revision, value);
        self.count_change(changed);
    }

    fn count_change(&self, changed: bool) {
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}
