//! Why the journal does not take a change, or cannot be read.

use std::path::PathBuf;

use berth_durable::DurableError;
use thiserror::Error;

use super::entry::{DETACHED_MAX, EntryError};

/// Why the journal cannot be opened, read or written.
#[derive(Debug, Error)]
pub enum JournalError {
    #[error("the journal does not work")]
    Disk(#[from] DurableError),
    #[error(
        "the journal {} holds an entry that cannot be read, {key:?}; it is not skipped, because it \
         may be a mount: start the version that wrote it, or move the journal away once nothing \
         below the state directory is mounted",
        path.display()
    )]
    Entry {
        path: PathBuf,
        key: String,
        #[source]
        source: EntryError,
    },
    #[error("an entry of the journal could not be written")]
    Json(#[from] serde_json::Error),
    #[error("{DETACHED_MAX} allocs were detached within minutes; no more can be remembered yet")]
    Full,
    #[error("the journal's thread ended before it answered")]
    Thread(#[source] tokio::task::JoinError),
}
