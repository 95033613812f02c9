//! The journal on disk: fjall, synced at each change.

use std::fs;
use std::path::PathBuf;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::JournalError;
use super::entry::{Change, EntryError, Kind, key, value};
use super::index::Forgotten;

/// What is journalled.
const VOLUMES: &str = "volumes";
/// Where it is tried whether anything can be written.
const TRIALS: &str = "trials";
/// More than an entry has: a disk that takes this takes the next entry.
const TRIAL_BYTES: usize = 64 * 1024;
/// A node has hundreds of entries of a few hundred bytes: the engine's defaults are for far more.
const CACHE_BYTES: u64 = 1024 * 1024;
const MEMTABLE_BYTES: u64 = 4 * 1024 * 1024;
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(super) struct Store {
    path: PathBuf,
    database: Database,
    volumes: Keyspace,
    trials: Keyspace,
}

impl Store {
    /// Opens it, and reads every entry.
    pub(super) fn open(path: PathBuf) -> Result<(Self, Vec<Change>), JournalError> {
        let failed = |source: fjall::Error| match source {
            fjall::Error::Locked => JournalError::InUse(path.clone()),
            source => JournalError::Open { path: path.clone(), source },
        };
        fs::create_dir_all(&path).map_err(|error| failed(error.into()))?;
        let database = Database::builder(&path)
            .worker_threads(1)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(LOG_BYTES_MAX)
            .open()
            .map_err(failed)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let volumes = database.keyspace(VOLUMES, options).map_err(failed)?;
        let trials = database.keyspace(TRIALS, options).map_err(failed)?;
        let mut entries = Vec::new();
        for item in volumes.iter() {
            let (key, value) = item.into_inner().map_err(failed)?;
            let entry = Change::read(&key, &value).map_err(|source: EntryError| {
                let key = String::from_utf8_lossy(&key).into_owned();
                JournalError::Entry { path: path.clone(), key, source }
            })?;
            entries.push(entry);
        }
        Ok((Self { path, database, volumes, trials }, entries))
    }

    /// Writes something that means nothing, synced. That it was opened shows only that it is read.
    pub(super) fn try_out(&self) -> Result<(), JournalError> {
        let failed = |source| JournalError::Write { path: self.path.clone(), source };
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        batch.insert(&self.trials, "opened", [0; TRIAL_BYTES]);
        batch.commit().map_err(failed)
    }

    /// Writes a change and what it makes room with, all or nothing, synced.
    pub(super) fn write(&self, change: &Change, forgotten: &Forgotten) -> Result<(), JournalError> {
        let failed = |source| JournalError::Write { path: self.path.clone(), source };
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        let json = |error: serde_json::Error| failed(std::io::Error::other(error).into());
        match change {
            Change::Use(volume, alloc, entry) => {
                batch.insert(
                    &self.volumes,
                    key(volume, alloc, Kind::Use),
                    value(entry).map_err(json)?,
                );
            }
            Change::Detached(volume, alloc, detached) => {
                if detached.done {
                    batch.remove(&self.volumes, key(volume, alloc, Kind::Use));
                }
                let bytes = value(detached).map_err(json)?;
                batch.insert(&self.volumes, key(volume, alloc, Kind::Detached), bytes);
            }
        }
        for (volume, alloc) in forgotten {
            batch.remove(&self.volumes, key(volume, alloc, Kind::Detached));
        }
        batch.commit().map_err(failed)
    }
}
