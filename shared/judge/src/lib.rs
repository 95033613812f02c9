//! The judge of call order: checks a CO and its driver by the logs of all instances of the driver.
//!
//! Owns: finding each place where a CO broke a rule of CSI's volume lifecycle, of changes at the
//! storage, or of safety rules 1 to 4; and each place where the driver's report contradicts the
//! kernel's mount table. Each finding has the lines that prove it.
//!
//! Promises: the judge rebuilds the use of every volume from the calls alone, by its own model. So
//! it also finds mistakes in the driver's rules: a disagreement is a finding. Memory is bounded,
//! however long the logs are.
//!
//! Never: guesses. A call without an end has an unknown effect, so its use counts as "may exist".
//! The CO knows only what it was answered.
//!
//! ```text
//! rule          the rules, their safety rule and CSI section
//! log_row       the fields of a log line that the rules use
//! log_merge     the lines of all logs in order of time
//! volume_use    one attachment, stage or publication, and how certain it is
//! volume_model  all uses of a volume, as the calls make and undo them
//! objects       names and ids that are created and deleted
//! snapshots     members of groups, and which snapshots are ready
//! changes       sizes and modifications of volumes
//! open_calls    calls in flight
//! check         which rules of the lifecycle a call breaks at its beginning
//! check_storage which rules of the storage it breaks
//! replay        the run through all calls
//! kernel        whether the kernel's mount table confirms a report
//! unanswered    creations that were never answered
//! pending       findings whose proof is not complete yet
//! finding       what is printed
//! ```

mod changes;
mod check;
mod check_storage;
mod finding;
mod kernel;
mod log_merge;
mod log_row;
mod objects;
mod open_calls;
mod pending;
mod replay;
mod rule;
mod snapshots;
#[cfg(test)]
mod tests;
mod unanswered;
mod volume_model;
mod volume_use;

use std::collections::BTreeSet;
use std::path::PathBuf;

use log_merge::LogMerge;
use replay::Replay;

pub use finding::{Finding, FindingKind, LogLine, ObjectKind, RuleReference};
pub use log_merge::ReadError;
pub use rule::Rule;

/// What was read from the logs.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// The number of lines.
    pub lines: u64,
    /// A note for each line that was skipped, and for each creation without an answer at the end.
    pub notes: Vec<String>,
}

/// Judges the logs at `paths` together. Calls `found` with each finding as soon as it is proven. A
/// log that is named twice counts once.
pub fn judge(paths: &[PathBuf], found: &mut dyn FnMut(Finding)) -> Result<Summary, ReadError> {
    let mut merge = LogMerge::open(paths.iter().collect::<BTreeSet<_>>().into_iter())?;
    let mut replay = Replay::new(found);
    let mut lines = 0;
    while let Some((row, line)) = merge.next()? {
        lines += 1;
        replay.process_line(row, line);
    }
    let mut notes = merge.notes;
    notes.extend(replay.finish());
    Ok(Summary { lines, notes })
}

/// All findings of the logs at `paths` together.
pub fn judge_files(paths: &[PathBuf]) -> Result<Vec<Finding>, ReadError> {
    let mut findings = Vec::new();
    judge(paths, &mut |finding| findings.push(finding))?;
    Ok(findings)
}
