//! Why a mount could not be made, undone or looked at.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a mount could not be made, undone or looked at.
#[derive(Debug, Error)]
pub enum MountError {
    /// The path cannot be the place of a mount.
    #[error("{path:?} {wrong}")]
    Path {
        /// As the CO wrote it.
        path: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// Something else is mounted there.
    #[error("{} has another mount; unmount it by hand or use another path", path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
    },
    /// There are files beneath where the mount was or is to be.
    #[error("{} is not empty, so it is not ours; empty it or use another path", path.display())]
    NotEmpty {
        /// Where.
        path: PathBuf,
    },
    /// A process works in the mount.
    #[error("{} is in use; end the processes that use it", path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// The system said no.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl MountError {
    /// Whether it was found before anything was changed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Path { .. } | Self::Foreign { .. } | Self::NotEmpty { .. })
    }

    pub(super) fn io(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { doing, path: path.to_owned(), source: source.into() }
    }
}
