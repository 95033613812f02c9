//! What this node has, or may have, mounted: on disk before it is done.
//!
//! **Owns** `<state_dir>/journal`. One [`Use`] per volume and alloc, written as an intent before
//! the first plugin call, as staged between staging and publishing, and as published after the
//! last; and one [`Detached`] per volume and alloc that was told to go, with the epoch it was told
//! for (rules 10 and 11).
//!
//! **Promises** that a change is on the disk when its function returns, that a change whose caller
//! stopped waiting is still made or not made as a whole, and that an entry which cannot be read is
//! refused at the start: an entry that was dropped would be a mount nobody knows of.
//!
//! **Never** counts: who uses a volume is read from the entries.

mod entry;
mod index;
mod options;
mod store;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use berth_domain::{AllocId, VolumeKey};
use thiserror::Error;
use tokio::time::Instant;

pub use entry::{Detached, Disk, Use, UseState};
pub use index::VolumeUses;
pub use options::Options;

use entry::{Change, EntryError};
use index::Index;
use store::Store;

/// How many [`Detached`] are kept before the oldest are forgotten. One is needed only while a grant
/// of its epoch, or an earlier one, may still be on its way to a handler of this process; no
/// handler waits longer than [`WAIT_MAX`](berth_domain::limits::WAIT_MAX).
const DETACHED_MAX: usize = 16_384;

/// Why the journal did not do what it was asked.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Another agent has it.
    #[error("the journal {} is in use: does another agent run on this directory?", .0.display())]
    InUse(PathBuf),
    /// It cannot be opened.
    #[error("the journal {} cannot be opened", path.display())]
    Open {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: fjall::Error,
    },
    /// Something in it is not what this version writes or reads.
    #[error(
        "the journal {} holds an entry that cannot be read, {key:?}; it is not skipped, because it \
         may be a mount: start the version that wrote it, or move the journal away once nothing \
         below the state directory is mounted",
        path.display()
    )]
    Entry {
        /// Where the journal is.
        path: PathBuf,
        /// The entry's key.
        key: String,
        /// What is wrong with it.
        #[source]
        source: EntryError,
    },
    /// A change is not on the disk; it may be there after a restart.
    #[error("the journal {} cannot be written; the agent must be restarted", path.display())]
    Write {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: fjall::Error,
    },
    /// Too many allocs were detached in too short a time to remember them all.
    #[error("{DETACHED_MAX} allocs were detached within minutes; no more can be remembered yet")]
    Full,
    /// The thread that wrote ended.
    #[error("the journal's thread ended before it answered")]
    Thread(#[source] tokio::task::JoinError),
}

/// The journal. Cheap to clone.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

struct Inner {
    // Held while a change goes to the disk and then to the index, so that both see one order.
    store: Mutex<Store>,
    index: RwLock<Index>,
}

impl Journal {
    /// Opens the journal in this directory, made if it is not there, and reads all of it.
    pub async fn open(path: PathBuf) -> Result<Self, JournalError> {
        let open = tokio::task::spawn_blocking(move || {
            let (store, entries) = Store::open(path)?;
            let mut index = Index::default();
            for entry in entries {
                index.apply(entry, None);
            }
            Ok(Inner { store: Mutex::new(store), index: RwLock::new(index) })
        });
        let inner = open.await.map_err(JournalError::Thread)??;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What it says of a volume.
    pub fn volume(&self, volume: &VolumeKey) -> VolumeUses {
        self.inner.index.read().unwrap_or_else(PoisonError::into_inner).volume(volume)
    }

    /// Every use, by volume and alloc.
    pub fn uses(&self) -> Vec<(VolumeKey, AllocId, Use)> {
        self.inner.index.read().unwrap_or_else(PoisonError::into_inner).uses()
    }

    /// Writes a use down: as an intent before the first call, as staged after the call that did it,
    /// as published after the last.
    pub async fn write_use(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        entry: Use,
    ) -> Result<(), JournalError> {
        self.change(Change::Use(volume.clone(), alloc.clone(), entry)).await
    }

    /// Writes down that an alloc is told to go, at this epoch.
    pub async fn begin_detach(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        epoch: u64,
    ) -> Result<(), JournalError> {
        let told = Detached { epoch, done: false };
        self.change(Change::Detached(volume.clone(), alloc.clone(), told)).await
    }

    /// Writes down that nothing of an alloc's use is left, and forgets the use.
    pub async fn end_detach(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        epoch: u64,
    ) -> Result<(), JournalError> {
        let gone = Detached { epoch, done: true };
        self.change(Change::Detached(volume.clone(), alloc.clone(), gone)).await
    }

    async fn change(&self, change: Change) -> Result<(), JournalError> {
        let inner = Arc::clone(&self.inner);
        let write = tokio::task::spawn_blocking(move || inner.write(change, Instant::now()));
        write.await.map_err(JournalError::Thread)?
    }
}

impl Inner {
    fn write(&self, change: Change, now: Instant) -> Result<(), JournalError> {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let (change, forgotten) = {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            let change = index.settle(change);
            let forgotten = index.to_forget(&change, DETACHED_MAX, now);
            (change, forgotten.ok_or(JournalError::Full)?)
        };
        store.write(&change, &forgotten)?;
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.apply(change, Some(now));
        index.forget(&forgotten);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
