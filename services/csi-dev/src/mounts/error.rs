//! Why a mount could not be made, undone or inspected.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a mount could not be made, undone or inspected.
#[derive(Debug, Error)]
pub enum MountError {
    #[error("{path:?} {wrong}")]
    Path { path: String, wrong: &'static str },
    #[error("{} has another mount; unmount it by hand or use another path", path.display())]
    Foreign { path: PathBuf },
    #[error("{} is not empty, so it is not ours; empty it or use another path", path.display())]
    NotEmpty { path: PathBuf },
    #[error("{} is in use; end the processes that use it", path.display())]
    Busy { path: PathBuf },
    #[error("cannot {doing} {}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

impl MountError {
    /// Whether nothing was changed before the error.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Path { .. } | Self::Foreign { .. } | Self::NotEmpty { .. })
    }

    pub(super) fn io(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { doing, path: path.to_owned(), source: source.into() }
    }
}
