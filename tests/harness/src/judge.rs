//! The development driver's judge, run as an operator runs it.
//!
//! Owns: that command. Promises: whatever makes the judge fail, its own words are in the answer,
//! from both of its outputs. Never: judges by itself.

use std::path::PathBuf;
use std::process::Command;

use crate::process::binary;

/// What the judge says of these call logs together.
///
/// # Errors
/// How it ended and all it printed, if it did not find the calls right.
pub fn judge(logs: impl IntoIterator<Item = PathBuf>) -> Result<(), String> {
    let mut command = Command::new(binary("berth-csi-dev"));
    let judged = command.arg("judge").args(logs).output();
    let judged = judged.map_err(|error| format!("the judge could not be run: {error}"))?;
    if judged.status.success() {
        return Ok(());
    }
    let found = String::from_utf8_lossy(&judged.stdout);
    let said = String::from_utf8_lossy(&judged.stderr);
    Err(format!("the judge of the call logs ended with {}\n{found}{said}", judged.status))
}

/// Fails the test with what the judge says, unless it finds the calls right. The call logs are kept
/// with all others of a failing test, since they may have thousands of lines.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn assert_right(logs: impl IntoIterator<Item = PathBuf>) {
    if let Err(found) = judge(logs) {
        panic!("{found}");
    }
}
