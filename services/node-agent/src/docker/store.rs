//! The names on disk: fjall, synced at each change.
//!
//! **Owns** `<state_dir>/docker`.

use std::fs;
use std::io;
use std::path::PathBuf;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use thiserror::Error;

use super::record::Record;

/// The one keyspace.
const NAMES: &str = "names";
/// A node has hundreds of names of a few hundred bytes: the engine's defaults are for far more.
const CACHE_BYTES: u64 = 1024 * 1024;
const MEMTABLE_BYTES: u64 = 4 * 1024 * 1024;
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Why the names cannot be read or kept.
#[derive(Debug, Error)]
pub enum StoreError {
    /// They cannot be opened or read.
    #[error("the store of Docker's volumes {} cannot be opened", path.display())]
    Open {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: fjall::Error,
    },
    /// Something in it is not what this version writes or reads.
    #[error(
        "the store {} holds a name that cannot be read, {name:?}; it is not skipped, because a \
         container may use its volume: start the version that wrote it, or move the store away \
         once no container uses a volume of Berth",
        path.display()
    )]
    Entry {
        /// Where the store is.
        path: PathBuf,
        /// The name.
        name: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A change is not on the disk; it may be there after a restart.
    #[error("the store {} cannot be written; the agent must be restarted", path.display())]
    Write {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: fjall::Error,
    },
    /// The thread that wrote ended.
    #[error("the store's thread ended before it answered")]
    Thread(#[source] tokio::task::JoinError),
}

pub(super) struct Store {
    path: PathBuf,
    database: Database,
    names: Keyspace,
}

impl Store {
    /// Opens it, made if it is not there, and reads every name.
    pub(super) fn open(path: PathBuf) -> Result<(Self, Vec<(String, Record)>), StoreError> {
        let failed = |source| StoreError::Open { path: path.clone(), source };
        fs::create_dir_all(&path).map_err(|error| failed(error.into()))?;
        let database = Database::builder(&path)
            .worker_threads(1)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(LOG_BYTES_MAX)
            .open()
            .map_err(failed)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let names = database.keyspace(NAMES, options).map_err(failed)?;
        let mut records = Vec::new();
        for item in names.iter() {
            let (key, value) = item.into_inner().map_err(failed)?;
            let name = String::from_utf8_lossy(&key).into_owned();
            let record = serde_json::from_slice(&value).map_err(|source| StoreError::Entry {
                path: path.clone(),
                name: name.clone(),
                source,
            })?;
            records.push((name, record));
        }
        Ok((Self { path, database, names }, records))
    }

    /// Writes what is known of a name now, synced; a name of which nothing is known is removed.
    pub(super) fn write(&self, name: &str, record: &Record) -> Result<(), StoreError> {
        let failed = |source| StoreError::Write { path: self.path.clone(), source };
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        if record.is_empty() {
            batch.remove(&self.names, name);
        } else {
            let json = |error: serde_json::Error| failed(io::Error::other(error).into());
            batch.insert(&self.names, name, serde_json::to_vec(record).map_err(json)?);
        }
        batch.commit().map_err(failed)
    }
}
