//! `berth-durable`: a few entries on disk, in fjall, synced at each change.
//!
//! **Owns** one directory. A node has hundreds of entries of a few hundred bytes each.
//!
//! **Promises**
//! - that a change is on the disk, whole, when [`Durable::write`] returns;
//! - that changes of a store are made one at a time ([`in_turn`]), so that a disk that hangs holds
//!   one of tokio's threads for blocking calls;
//! - that after a failed write nothing is written until [`Durable::open_again`] has read all
//!   entries and written a trial: the engine takes no write then, and the failed change may be on
//!   the disk or not.
//!
//! **Never** knows what an entry means.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

/// The keyspace of trial writes.
const TRIALS: &str = "trials";
/// Larger than any entry, so that a disk that takes this takes the next entry, too.
const TRIAL_BYTES: usize = 64 * 1024;
/// The engine's default cache is for far larger stores.
const CACHE_BYTES: u64 = 1024 * 1024;
const MEMTABLE_BYTES: u64 = 4 * 1024 * 1024;
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Why a store takes no writes.
type Reason = Arc<dyn Error + Send + Sync>;

/// Every entry with its key.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Why a store could not be opened or written.
#[derive(Debug, Clone, Error)]
pub enum DurableError {
    /// Another process has the store open.
    #[error("{} is in use: does the same service run twice on this directory?", .0.display())]
    InUse(PathBuf),
    /// The store cannot be opened or read.
    #[error("{} cannot be opened", path.display())]
    Open {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: Arc<fjall::Error>,
    },
    /// A change is not on the disk; it may be there once it is opened again.
    #[error("{} cannot be written; free its disk, or mend it: it is tried again", path.display())]
    Write {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: Arc<fjall::Error>,
    },
    /// An earlier write failed.
    #[error("{} cannot be written since a write failed", path.display())]
    Closed {
        /// Where it is.
        path: PathBuf,
        /// The error of that write.
        #[source]
        source: Reason,
    },
}

/// Makes a change of a store after the changes before it, off the async thread. The change is made
/// even if its caller stops waiting.
pub async fn in_turn<S: Send + 'static, T: Send + 'static>(
    store: &Arc<Mutex<S>>,
    change: impl FnOnce(&mut S) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let turn = Arc::clone(store).lock_owned();
    let change_task = tokio::spawn(async move {
        let mut store = turn.await;
        spawn_blocking(move || change(&mut store)).await
    });
    change_task.await.flatten()
}

/// The entries of one directory.
pub struct Durable {
    path: PathBuf,
    name: &'static str,
    open: Result<Open, Reason>,
}

struct Open {
    database: Database,
    entries: Keyspace,
    trials: Keyspace,
}

impl Durable {
    /// Opens the directory, which is made if it does not exist, and reads every entry of this
    /// keyspace.
    pub fn open(path: PathBuf, name: &'static str) -> Result<(Self, Entries), DurableError> {
        let (open, entries) = read(&path, name)?;
        Ok((Self { path, name, open: Ok(open) }, entries))
    }

    /// Whether the last write succeeded, so that the next write is tried.
    pub fn is_open(&self) -> bool {
        self.open.is_ok()
    }

    /// Opens the store again and writes a trial; returns every entry.
    pub fn open_again(&mut self) -> Result<Entries, DurableError> {
        let (open, entries) = read(&self.path, self.name)?;
        let mut batch = open.database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&open.trials, "opened", vec![0; TRIAL_BYTES]);
        batch.commit().map_err(|source| unwritten(&self.path, source))?;
        self.open = Ok(open);
        Ok(entries)
    }

    /// Refuses writes until the store is opened again, because an entry was not as expected.
    pub fn close(&mut self, why: impl Into<Box<dyn Error + Send + Sync>>) {
        self.open = Err(Arc::from(why.into()));
    }

    /// Writes all changes or none, synced. An entry without a value is removed.
    pub fn write(
        &mut self,
        changes: impl IntoIterator<Item = (Vec<u8>, Option<Vec<u8>>)>,
    ) -> Result<(), DurableError> {
        let open = self.open.as_ref().map_err(|source| DurableError::Closed {
            path: self.path.clone(),
            source: Arc::clone(source),
        })?;
        let mut batch = open.database.batch().durability(Some(PersistMode::SyncAll));
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&open.entries, key, value),
                None => batch.remove(&open.entries, key),
            }
        }
        batch.commit().map_err(|source| {
            let error = unwritten(&self.path, source);
            self.close(error.clone());
            error
        })
    }
}

fn read(path: &Path, name: &str) -> Result<(Open, Entries), DurableError> {
    let failed = |source: fjall::Error| match source {
        fjall::Error::Locked => DurableError::InUse(path.to_owned()),
        source => DurableError::Open { path: path.to_owned(), source: Arc::new(source) },
    };
    fs::create_dir_all(path).map_err(|error| failed(error.into()))?;
    let database = Database::builder(path)
        .worker_threads(1)
        .cache_size(CACHE_BYTES)
        .max_journaling_size(LOG_BYTES_MAX)
        .open()
        .map_err(failed)?;
    let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
    let entries = database.keyspace(name, options).map_err(failed)?;
    let trials = database.keyspace(TRIALS, options).map_err(failed)?;
    let mut all = Entries::new();
    for item in entries.iter() {
        let (key, value) = item.into_inner().map_err(failed)?;
        all.push((key.to_vec(), value.to_vec()));
    }
    Ok((Open { database, entries, trials }, all))
}

fn unwritten(path: &Path, source: fjall::Error) -> DurableError {
    DurableError::Write { path: path.to_owned(), source: Arc::new(source) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;

    /// More changes than tokio has threads for blocking calls.
    const CHANGES: u32 = 600;

    #[tokio::test]
    async fn changes_that_wait_for_a_disk_hold_one_thread_and_are_made_in_order() {
        let store = Arc::new(Mutex::new(Vec::new()));
        let (go_on, waits) = mpsc::channel::<()>();
        let begun = Arc::new(AtomicU32::new(0));
        let mut changes = JoinSet::new();
        let hangs = Arc::clone(&store);
        changes.spawn(async move {
            // Like a write to a disk that hangs.
            in_turn(&hangs, move |_| waits.recv().unwrap()).await
        });
        tokio::task::yield_now().await;
        for number in 0..CHANGES {
            let (store, begun) = (Arc::clone(&store), Arc::clone(&begun));
            changes.spawn(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                in_turn(&store, move |made| made.push(number)).await
            });
        }
        while begun.load(Ordering::SeqCst) < CHANGES {
            tokio::task::yield_now().await;
        }
        let other_work = timeout(Duration::from_secs(20), spawn_blocking(|| ())).await;
        other_work.expect("no thread is left for others").unwrap();
        assert!(changes.try_join_next().is_none(), "a change was made before the one that hangs");
        // The change is made even if its caller stops waiting.
        changes.abort_all();
        go_on.send(()).unwrap();
        in_turn(&store, |_| ()).await.unwrap();
        let expected: Vec<u32> = (0..CHANGES).collect();
        assert_eq!(*store.lock().await, expected);
    }
}
