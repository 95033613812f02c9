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
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is damaged; mend or remove it", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("the content cannot be made")]
    Tool(#[from] ToolError),
    #[error("an id has 1 to {} bytes", encoding::LONGEST_ID_BYTES)]
    Id,
}

impl BackendError {
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }
}
