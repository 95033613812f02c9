//! Projections: the contents of a bucket, kept current in memory.
//!
//! **Owns** a [`Fold`] of the service's choice and keeps it equal to the bucket below a filter: all
//! keys first, then each change as it comes.
//!
//! **Promises**
//! - [`Mirror::start`] returns when the first reading is complete, for an empty bucket too.
//! - A key never goes back to an older revision. That holds after a service applied its own commit
//!   at once ([`Mirror::put`]) and the watch then brings an older message. It also holds when the
//!   answer to that commit is late and the watch has brought a newer message.
//! - A silent watch is noticed within two and a half heartbeats, a broken connection at once. Until
//!   the mirror has caught up again, [`Mirror::stale_since`] says so.
//! - After a gap the mirror continues where it was, if the last message that it applied is
//!   unchanged in the stream. Otherwise all keys are read again and compared, so that deleted keys
//!   are noticed: the bucket has another incarnation, or the gap was longer than delete markers
//!   stay. All keys are also compared with the bucket now and then, beside the watch, and read
//!   again if one differs.
//! - Only the server's clock measures how much time has passed (decision 0022): neither a paused
//!   process nor a suspended machine notices its pause.
//! - A bucket that is deleted or replaced is lost ([`loss`](crate::incarnation::loss)): no endpoint
//!   of the process answers a request. It is read again when its stream has a new
//!   [incarnation](crate::incarnation), and served when all of it was read.
//! - A snapshot ([`Mirror::snapshot`]) is the bucket as of one revision. A bucket keeps few values
//!   of a key, and a value that was replaced before the watch reached it never comes. Then no
//!   snapshot is taken until the newer value has come.
//!
//! A mirror may be behind. A decision may use it if the write has a guard. An answer uses the
//! leader ([`Bucket::get`], [`Bucket::list`]), or first waits with [`Mirror::reach`] for the
//! leader's head.
//!
//! **Never** keeps more than the fold does, except the revision of each live key.

mod check;
mod fold;
mod follow;
mod set_back;
mod state;
mod table;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use berth_contract::{code::Code, problem::Problem};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::cause::Cause;
use crate::connection::exchange::pause;
use crate::store::bucket::Bucket;
use crate::store::filter;
use crate::store::list::List;
use crate::store::read::ReadError;

pub use fold::Fold;
use follow::Follower;
pub use state::MirrorOptions;
use state::{MirrorShared, Progress};
pub use table::NoPicture;
use table::Table;

/// How long a snapshot waits for a moment without own commits ahead of the watch before it asks
/// commits to wait for the watch.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long a stored commit waits for the watch while a snapshot asks for it.
const WATCH_MAX: Duration = Duration::from_millis(50);
/// Most lists that [`Mirror::read_again`] reads while the mirror changes.
const READ_AGAIN_TRIES: u32 = 3;

/// Why there is no mirror, or why it is behind.
#[derive(Debug, Error)]
pub enum MirrorError {
    /// The filter is not valid.
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
        /// How long the process tried.
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
        /// The revision up to which everything is applied.
        applied: u64,
        /// The revision that the caller waited for.
        wanted: u64,
    },
}

/// The problem to answer the service's caller with.
impl From<MirrorError> for Problem {
    fn from(error: MirrorError) -> Self {
        Self::new(Code::BusUnavailable, crate::cause::chain(&error)).retryable()
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
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for SnapshotWaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
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
            differs: watch::Sender::new(0),
        });
        let source: Weak<MirrorShared<F>> = Arc::downgrade(&shared);
        bucket.bus.fault_sources().add(source);
        let follower = Follower::new(Arc::clone(&shared));
        let (timed, checked) = (Arc::clone(&shared), Arc::clone(&shared));
        let task = tokio::spawn(async {
            tokio::join!(follower.run(), set_back::watch(timed), check::now_and_then(checked));
        });
        let mirror = Self { shared, task: Arc::new(Task(task)) };
        let mut progress = mirror.shared.progress.subscribe();
        let started = timeout_at(deadline, progress.wait_for(|progress| progress.started)).await;
        if matches!(started, Ok(Ok(_))) {
            return Ok(mirror);
        }
        let source = Cause::new(mirror.shared.progress.borrow().last_error.clone());
        Err(MirrorError::Start { bucket: name, within: options.start_within, source })
    }

    /// Reads the projection. The watch waits meanwhile: be brief, and copy what is kept.
    pub fn read<T>(&self, inspect: impl FnOnce(&F) -> T) -> T {
        inspect(self.shared.table().fold())
    }

    /// Reads the projection when it shows the bucket as of one revision, which is returned too:
    /// everything up to it, and nothing after it.
    ///
    /// A process's own commit that was applied ahead of the watch ([`Mirror::put`]) makes the
    /// snapshot wait until the watch has reached it. If there is always such a commit, the next
    /// ones are applied by the watch. No commit is delayed: it is stored at once, and visible here
    /// a moment later.
    pub async fn snapshot<T>(
        &self,
        deadline: Instant,
        inspect: impl FnOnce(&F) -> T,
    ) -> Result<(u64, T), MirrorError> {
        let mut inspect = Some(inspect);
        // `inspect` is taken only when there is a snapshot.
        let mut glance = || match self.glance(|fold| inspect.take().map(|inspect| inspect(fold))) {
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

    /// As [`snapshot`](Self::snapshot), but without waiting. If there is no snapshot now, the error
    /// says what to wait for ([`Mirror::mend`]).
    pub fn glance<T>(&self, inspect: impl FnOnce(&F) -> T) -> Result<(u64, T), NoPicture> {
        let table = self.shared.table();
        table.shows().map(|revision| (revision, inspect(table.fold())))
    }

    /// Waits until the reason for having no snapshot is gone, as far as the reason names a
    /// revision.
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

    /// Applies a commit of this process: at once, or by the watch while a snapshot waits. Does
    /// nothing if the watch has passed it, or has brought a newer revision of the key.
    pub async fn put(&self, key: &str, revision: u64, value: &[u8]) {
        self.wait_for_watch(revision).await;
        self.shared.apply_beside(key, revision, Some(value));
    }

    /// Applies a delete of this process, under the same conditions.
    pub async fn delete(&self, key: &str, revision: u64) {
        self.wait_for_watch(revision).await;
        self.shared.apply_beside(key, revision, None);
    }

    async fn wait_for_watch(&self, revision: u64) {
        if self.shared.snapshots_waiting.load(Ordering::Relaxed) > 0 {
            // After that time the commit is applied ahead of the watch.
            let _: Result<(), MirrorError> = self.reach(revision, Instant::now() + WATCH_MAX).await;
        }
    }

    /// Reads the keys below a filter again at the leader, and forgets the other keys below it. For
    /// a leader's head that is lower than one that the mirror saw: a marker was purged, or this
    /// mirror missed a delete.
    ///
    /// Returns the head that belongs to the keys. `None` if the mirror does not hold exactly what
    /// was read: other writers change the keys all the time, the list came from a deposed leader,
    /// or the stream is another one than the mirror follows. A guard taken from such a list would
    /// pass for a decision on other keys.
    pub async fn read_again(&self, filter: &str) -> Result<Option<u64>, ReadError> {
        for _ in 0..READ_AGAIN_TRIES {
            let list = self.shared.bucket.list_known(filter).await?;
            if !list.settled {
                return Ok(None);
            }
            self.take_list(filter, &list);
            if self.shared.table().holds_exactly(filter, &list) {
                return Ok(Some(list.head));
            }
            // A write since then may be applied already: then the next list has it.
            pause(0).await;
        }
        Ok(None)
    }

    /// Applies a list, and forgets the keys below its filter that are not on it. A key counts as
    /// missing only up to the revision that the list was read from: the list may come from a
    /// deposed leader.
    fn take_list(&self, filter: &str, list: &List) {
        for entry in &list.entries {
            self.shared.apply_beside(&entry.key, entry.revision, entry.value.as_deref());
        }
        let missing_keys = self.shared.table().others(filter, list.known, &list.entries);
        let missed: Vec<_> =
            missing_keys.into_iter().filter(|key| self.shared.forget(key, list.known)).collect();
        if !missed.is_empty() {
            let bucket = self.shared.bucket.name();
            tracing::warn!(bucket, ?missed, "deletes were missed; the keys were read again");
        }
    }

    /// Everything below the filter up to this revision is applied.
    pub fn applied(&self) -> u64 {
        self.shared.progress.borrow().applied
    }

    /// Since when the mirror may be behind by an unknown amount; `None` while it follows.
    pub fn stale_since(&self) -> Option<Instant> {
        self.shared.progress.borrow().stale_since
    }

    /// Waits until everything up to `revision` is applied. This may take a heartbeat longer if the
    /// filter does not cover the revision's key.
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

    /// Notifies of each change of the projection; the value counts the changes.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }
}
