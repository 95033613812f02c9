//! The record on disk of what the agent may have mounted. The agent writes it before it mounts.
//!
//! **Owns** `<state_dir>/journal`. It has two kinds of entries (rules 10 and 11):
//! - one [`JournalledUse`] per volume and alloc. It is written as an intent before the first
//!   plugin call, as staged between staging and publishing, and as published after the last call;
//! - one [`JournalledDetach`] per volume and alloc that was detached, with the epoch.
//!
//! **Promises** that a change is on the disk when its function returns. A change whose caller
//! stopped waiting is made as a whole or not at all. An entry that cannot be read fails the start:
//! a dropped entry would be a mount that the agent does not know of. After a failed write the
//! journal is opened again until a write succeeds, and [`Journal::fault`] says why.
//!
//! **Never** counts uses: they are read from the entries.

mod entry;
mod error;
mod index;
mod options;
mod store;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use berth_domain::retry::Schedule;
use berth_domain::{AllocId, PluginId, VolumeKey};
use berth_service::clock;
use berth_service::process::chain;
use berth_service::shutdown::Shutdown;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

pub use entry::{Disk, JournalledDetach, JournalledExpansion, JournalledUse, UseKey, UseState};
pub use error::JournalError;
pub use index::VolumeUses;
pub use options::OptionsFingerprint;

use berth_durable::in_turn;
use berth_service::fault_report::FaultReport;
use entry::DETACHED_MAX;
use entry::JournalChange;
use index::JournalIndex;
use store::JournalStore;

/// Wait before the journal is opened again after a failed write.
const REOPEN_RETRY: Schedule =
    Schedule { first: Duration::from_millis(500), max: Duration::from_secs(5) };

/// The journal. Cheap to clone.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<JournalState>,
    // Locked while a change is written to the disk and then to the index: both have one order.
    store: Arc<Mutex<JournalStore>>,
}

struct JournalState {
    index: RwLock<JournalIndex>,
    fault: FaultReport,
}

impl Journal {
    /// Opens the journal in this directory and reads all entries. Creates a missing directory.
    pub async fn open(path: PathBuf) -> Result<Self, JournalError> {
        let open = tokio::task::spawn_blocking(move || {
            let (store, entries) = JournalStore::open(path)?;
            let index = RwLock::new(JournalIndex::from_entries(entries, None));
            Ok::<_, JournalError>((store, JournalState { index, fault: FaultReport::default() }))
        });
        let (store, inner) = open.await.map_err(JournalError::Thread)??;
        Ok(Self { inner: Arc::new(inner), store: Arc::new(Mutex::new(store)) })
    }

    /// Why writes fail: set by the first failed write, cleared once the journal is open again.
    pub fn fault(&self) -> FaultReport {
        self.inner.fault.clone()
    }

    /// Opens the journal again after each failed write, until the shutdown.
    pub async fn keep_open(self, shutdown: Shutdown) {
        let mut fault = self.inner.fault.follow();
        let mut tries = 0;
        loop {
            tries = if fault.borrow_and_update().is_some() { tries + 1 } else { 0 };
            let again = async {
                match tries {
                    0 => drop(fault.changed().await),
                    _ => sleep(REOPEN_RETRY.wait(tries, clock::jitter())).await,
                }
            };
            tokio::select! {
                () = again => {}
                () = shutdown.requested() => return,
            }
            let inner = Arc::clone(&self.inner);
            let opened = in_turn(&self.store, move |store| inner.open_again(store)).await;
            match opened.map_err(JournalError::Thread).and_then(|opened| opened) {
                Ok(()) if tries > 0 => tracing::info!(tries, "the journal is written again"),
                Ok(()) => {}
                Err(error) => {
                    let why = chain(&error);
                    tracing::warn!(why, tries, "the journal cannot be written; trying again");
                }
            }
        }
    }

    /// The uses and detaches of one volume.
    pub fn volume(&self, volume: &VolumeKey) -> VolumeUses {
        self.inner.index.read().unwrap_or_else(PoisonError::into_inner).volume(volume)
    }

    /// Every use, by volume and alloc.
    pub fn uses(&self) -> Vec<(VolumeKey, AllocId, JournalledUse)> {
        self.inner.index.read().unwrap_or_else(PoisonError::into_inner).uses()
    }

    /// The uses of one volume of a plugin, under whatever names. A node has a few hundred uses.
    pub fn uses_of(
        &self,
        plugin: &PluginId,
        external_id: &str,
    ) -> Vec<(VolumeKey, AllocId, JournalledUse)> {
        let index = self.inner.index.read().unwrap_or_else(PoisonError::into_inner);
        index.uses_of(plugin, external_id)
    }

    /// Writes a use: as an intent before the first call, as staged after `NodeStageVolume`, and as
    /// published after the last call.
    pub async fn write_use(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        entry: JournalledUse,
    ) -> Result<(), JournalError> {
        self.write_change(JournalChange::Use(volume.clone(), alloc.clone(), entry)).await
    }

    /// Writes a detach before the first unmount, and as done after the last one. A detach that is
    /// done removes the use.
    pub async fn write_detach(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        detach: JournalledDetach,
    ) -> Result<(), JournalError> {
        self.write_change(JournalChange::Detached(volume.clone(), alloc.clone(), detach)).await
    }

    async fn write_change(&self, change: JournalChange) -> Result<(), JournalError> {
        let inner = Arc::clone(&self.inner);
        let write = move |store: &mut JournalStore| inner.write(store, change, Instant::now());
        in_turn(&self.store, write).await.map_err(JournalError::Thread)?
    }
}

impl JournalState {
    fn write(
        &self,
        store: &mut JournalStore,
        change: JournalChange,
        now: Instant,
    ) -> Result<(), JournalError> {
        let (change, forgotten) = {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            let change = index.settle_change(change);
            let forgotten = index.choose_forgotten(&change, DETACHED_MAX, now);
            (change, forgotten.ok_or(JournalError::Full)?)
        };
        if let Err(error) = store.write(&change, &forgotten) {
            // The error that closed the store is more useful than later errors of a closed store.
            if !store.is_open() && self.fault.current().is_none() {
                self.fault.set(Some(chain(&error)));
            }
            return Err(error);
        }
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.apply_change(change, Some(now));
        index.forget_detaches(&forgotten);
        Ok(())
    }

    /// Opens the store if it is closed. The index is then read from the store, because the change
    /// whose write failed may be on the disk.
    fn open_again(&self, store: &mut JournalStore) -> Result<(), JournalError> {
        if store.is_open() {
            return Ok(());
        }
        match store.open_again() {
            Ok(entries) => {
                let index = JournalIndex::from_entries(entries, Some(Instant::now()));
                *self.index.write().unwrap_or_else(PoisonError::into_inner) = index;
                self.fault.set(None);
                Ok(())
            }
            Err(error) => {
                self.fault.set(Some(chain(&error)));
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
