//! Faults planted by a test.
//!
//! Owns: which faults stand, by the fault file and by the control socket, and how often each was
//! used. Promises: the file is looked at again at every call, so it can change while the driver
//! runs; a file that cannot be understood fails every call, so a mistyped fault is noticed; the
//! same faults and the same calls give the same fates. Never: waits or fails by itself.
//!
//! Both are JSON arrays; no file means no faults. Write the file in one step ([`write()`]).
//!
//! ```json
//! [{"rpc": "NodeStageVolume", "volume": "v1", "when": "after",
//!   "delay_ms": 500, "code": "UNAVAILABLE", "times": 2, "probability": 0.5, "seed": 7}]
//! ```
//!
//! Each instance counts for itself, and starts again whenever the faults are written anew.
//!
//! ```text
//! entry    one fault: which calls it hits, and what it does to them
//! parse    reading faults, with everything that is wrong with them at once
//! list     faults that stand, how often each was used, chance
//! wrong    answers that are wrong in small ways
//! control  the socket, and asking it
//! ```

pub mod control;
mod entry;
mod list;
mod parse;
#[cfg(test)]
mod tests;
mod wrong;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use berth_csi::Rpc;
use thiserror::Error;

use list::{Listed, Lists};

pub use entry::{Fate, Fault, Planted, When, Wrong};
pub use parse::parse;
pub(crate) use wrong::{AGAIN, chatter, distort};

/// The faults of one instance.
#[derive(Debug)]
pub struct Faults {
    file: Option<PathBuf>,
    lists: Mutex<Lists>,
}

/// Why faults could not be used.
#[derive(Debug, Error)]
pub enum FaultError {
    /// The file system said no.
    #[error("cannot read or write the fault file {}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// They are no array of faults.
    #[error("the faults in {} cannot be understood: {}", path.display(), faults.join("; "))]
    Content {
        /// Which file.
        path: PathBuf,
        /// Everything that is wrong.
        faults: Vec<String>,
    },
}

impl Faults {
    /// Faults from `file`, which need not exist, and those that will be [`set`](Self::set).
    pub fn from_file(file: Option<PathBuf>) -> Self {
        Self { file, lists: Mutex::default() }
    }

    /// What befalls the next call of `rpc` about `volume`. Asked once per call.
    pub fn fate(&self, rpc: Rpc, volume: Option<&str>) -> Result<Fate, FaultError> {
        let mut lists = self.look()?;
        let mut take = |when| lists.take(when, rpc, volume);
        Ok(Fate { before: take(When::Before), after: take(When::After) })
    }

    /// Whether this fault still stands. A file that can no longer be read has none.
    pub fn stands(&self, fault: &Fault) -> bool {
        self.look().is_ok_and(|lists| lists.contains(fault))
    }

    /// Plants these, in place of those planted so before; those of the file stay.
    pub fn set(&self, faults: Vec<Fault>) {
        self.lock().set(faults);
    }

    /// All that stand, and how often each was used.
    pub fn show(&self) -> Result<Vec<Listed>, FaultError> {
        Ok(self.look()?.show())
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The faults as they stand, after a look at the file.
    fn look(&self) -> Result<MutexGuard<'_, Lists>, FaultError> {
        let mut lists = self.lock();
        if let Some(path) = &self.file {
            lists.look(path)?;
        }
        Ok(lists)
    }
}

/// Writes a fault file in one step, over an earlier one.
pub fn write(path: &Path, faults: &[Fault]) -> Result<(), FaultError> {
    let failed = |source| FaultError::Io { path: path.to_owned(), source };
    let text = serde_json::to_vec_pretty(faults).map_err(|error| failed(error.into()))?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path)).map_err(failed)
}
