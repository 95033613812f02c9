//! Why the shared directory could not be used.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::encoding;
use crate::lock::LockError;
use crate::tool::ToolError;

/// Why the shared directory could not be used.
#[derive(Debug, Error)]
pub enum BackendError {
    /// The file system said no.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file holds something else than this driver writes.
    #[error("{} is damaged; mend or remove it", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// There is no lock on what is needed.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A program that makes or copies content failed.
    #[error("the content cannot be made")]
    Tool(#[from] ToolError),
    /// The id is empty or longer than 256 bytes.
    #[error("an id has 1 to {} bytes", encoding::LONGEST_ID_BYTES)]
    Id,
}

impl BackendError {
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }
}
