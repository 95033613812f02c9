//! Judging a CO by the logs of all instances.
//!
//! Owns: finding each place where a CO broke a rule of [`crate::rules`], and the lines that prove
//! it. Promises: it rebuilds what was in use from the calls alone, never from the driver's notes;
//! what the driver noticed and this did not is reported too. Never: guesses: what a call that has
//! no end did is unknown, and counts as "may be so".

mod calls;
mod history;
mod replay;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use crate::log::{Line, ReadError, read_lines};
use crate::rules::Violation;

use calls::Calls;
use replay::Replay;

/// A rule that was broken, and the proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// About which volume.
    pub volume_id: String,
    /// Which rule, with the facts.
    pub violation: Violation,
    /// Whether the driver noticed it when it happened.
    pub noticed: bool,
    /// The call that broke it, then the calls that made it wrong.
    pub proof: Vec<Line>,
}

/// Everything that the logs prove against the CO, in order of time.
pub fn judge(lines: &[Line]) -> Vec<Finding> {
    let calls = Calls::gather(lines);
    let mut replay = Replay::new(&calls);
    for moment in calls.moments() {
        replay.pass(moment);
    }
    replay.findings()
}

/// Judges the logs at `paths` together; a log given twice counts once.
pub fn judge_files(paths: &[PathBuf]) -> Result<Vec<Finding>, ReadError> {
    let mut lines = Vec::new();
    for path in paths.iter().collect::<BTreeSet<_>>() {
        lines.extend(read_lines(path)?);
    }
    Ok(judge(&lines))
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noticed =
            if self.noticed { "refused by the driver" } else { "not noticed by the driver" };
        writeln!(f, "volume {:?}: {} ({noticed})", self.volume_id, self.violation)?;
        for line in &self.proof {
            writeln!(f, "  {}:{}: {}", line.file.display(), line.number, line.text)?;
        }
        Ok(())
    }
}
