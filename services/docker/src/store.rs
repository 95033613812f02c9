//! The names on disk.
//!
//! **Owns** `<state_dir>/names`.

use std::path::PathBuf;

use berth_durable::{Durable, DurableError, Entries};
use berth_service::process::chain;
use thiserror::Error;

use super::record::Record;

/// The one keyspace.
const NAMES: &str = "names";

/// Why the names cannot be read or kept.
#[derive(Debug, Error)]
pub enum StoreError {
    /// They cannot be opened, read or written.
    #[error("the store of Docker's volumes does not work")]
    Disk(#[from] DurableError),
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
    /// A record could not be written as JSON.
    #[error("a name could not be written")]
    Json(#[from] serde_json::Error),
    /// The thread that wrote ended.
    #[error("the store's thread ended before it answered")]
    Thread(#[source] tokio::task::JoinError),
}

pub struct Store {
    path: PathBuf,
    disk: Durable,
}

impl Store {
    /// Opens it, made if it is not there, and reads every name.
    pub fn open(path: PathBuf) -> Result<(Self, Vec<(String, Record)>), StoreError> {
        let (disk, entries) = Durable::open(path.clone(), NAMES)?;
        let store = Self { path, disk };
        let records = store.read(entries)?;
        Ok((store, records))
    }

    /// After a write that failed: opens it anew, and reads every name; none when it is open.
    pub fn open_again(&mut self) -> Result<Option<Vec<(String, Record)>>, StoreError> {
        if self.disk.is_open() {
            return Ok(None);
        }
        let entries = self.disk.open_again()?;
        self.read(entries).map(Some).inspect_err(|error| self.disk.close(chain(error)))
    }

    /// Writes what is known of a name now, synced; a name of which nothing is known is removed.
    pub fn write(&mut self, name: &str, record: &Record) -> Result<(), StoreError> {
        let value = if record.is_empty() { None } else { Some(serde_json::to_vec(record)?) };
        Ok(self.disk.write([(name.as_bytes().to_vec(), value)])?)
    }

    fn read(&self, entries: Entries) -> Result<Vec<(String, Record)>, StoreError> {
        let read = |(key, value): (Vec<u8>, Vec<u8>)| {
            let name = String::from_utf8_lossy(&key).into_owned();
            let record = serde_json::from_slice(&value);
            let record = record.map_err(|source| StoreError::Entry {
                path: self.path.clone(),
                name: name.clone(),
                source,
            })?;
            Ok((name, record))
        };
        entries.into_iter().map(read).collect()
    }
}
