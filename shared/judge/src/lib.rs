//! The judge of call order: it judges a CO, and its driver, by the logs of all of the driver's
//! instances.
//!
//! Owns: finding each place where a CO broke a rule of CSI's volume lifecycle or of safety rules
//! 1 to 4, and the lines that prove it; and each place where the driver reported what its kernel's
//! mount table contradicts. Promises: it rebuilds what was in use from the calls alone,
//! by a model of its own, so that it finds a mistake in the driver's rules, too: where the two do
//! not agree, that is a finding. Reads logs of any length in bounded memory. Never: guesses: what a
//! call that has no end did is unknown, and counts as "may be so"; what the CO was not told, it
//! does not know.
//!
//! ```text
//! rule      the rules, their safety rule and CSI section
//! row       a line, as far as the rules look at it
//! merge     the lines of all logs in order of time
//! thing     an attachment, stage or publication, and how sure it is
//! volume    the things of a volume, as the calls make and undo them
//! objects   names and ids that are made and deleted
//! open      calls in flight
//! check     which rules a call breaks by being made now
//! replay    the run through all calls
//! kernel    whether what was reported is so, by the kernel's mount table
//! pending   what was found, until its proof is whole
//! finding   what is printed
//! ```

mod check;
mod finding;
mod kernel;
mod merge;
mod objects;
mod open;
mod pending;
mod replay;
mod row;
mod rule;
#[cfg(test)]
mod tests;
mod thing;
mod volume;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use merge::Merge;
use replay::Replay;

pub use finding::{Finding, Kind, Line, Named};
pub use rule::Rule;

/// Why a log could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file system said no.
    #[error("cannot read the log {}", path.display())]
    Io {
        /// Which log.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is no entry of a log.
    #[error("{}:{number} is no line of a call log", path.display())]
    Line {
        /// Which log.
        path: PathBuf,
        /// Which line, counted from 1.
        number: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// What was read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// How many lines.
    pub lines: u64,
    /// Lines that were passed over, and why.
    pub notes: Vec<String>,
}

/// Judges the logs at `paths` together, and tells each finding as soon as it is proven; a log given
/// twice counts once.
pub fn judge(paths: &[PathBuf], found: &mut dyn FnMut(Finding)) -> Result<Summary, ReadError> {
    let mut merge = Merge::open(paths.iter().collect::<BTreeSet<_>>().into_iter())?;
    let mut replay = Replay::new(found);
    let mut lines = 0;
    while let Some((row, line)) = merge.next()? {
        lines += 1;
        replay.pass(row, line);
    }
    replay.finish();
    Ok(Summary { lines, notes: merge.notes })
}

/// Everything that the logs at `paths` together prove against the CO.
pub fn judge_files(paths: &[PathBuf]) -> Result<Vec<Finding>, ReadError> {
    let mut findings = Vec::new();
    judge(paths, &mut |finding| findings.push(finding))?;
    Ok(findings)
}
