//! The development driver's judge, run as an operator runs it.
//!
//! Owns: that command. Promises: an error has both outputs of the judge. Never: judges by itself.

use std::path::PathBuf;
use std::process::Command;

use crate::process::binary;

/// Runs the judge over these call logs together.
///
/// # Errors
/// How the judge ended and all it printed, if it found a violation.
pub fn judge(logs: impl IntoIterator<Item = PathBuf>) -> Result<(), String> {
    let mut command = Command::new(binary("berth-csi-dev"));
    let judged = command.arg("judge").args(logs).output();
    let judged = judged.map_err(|error| format!("the judge could not be run: {error}"))?;
    if judged.status.success() {
        return Ok(());
    }
    let stdout = String::from_utf8_lossy(&judged.stdout);
    let stderr = String::from_utf8_lossy(&judged.stderr);
    Err(format!("the judge of the call logs ended with {}\n{stdout}{stderr}", judged.status))
}

/// Fails the test with the judge's findings, if there are any. The call logs are kept with the
/// other logs of a failing test, because they may have thousands of lines.
///
/// # Panics
/// When the judge finds a violation.
#[track_caller]
pub fn assert_right(logs: impl IntoIterator<Item = PathBuf>) {
    if let Err(verdict) = judge(logs) {
        panic!("{verdict}");
    }
}
