//! Programs of the system that this driver runs: for file systems, loop devices and copies.
//!
//! Owns: running one of them. Promises: none runs longer than [`DEADLINE`]. Only one at a time
//! works on a volume or snapshot, even if the instance that started it was killed. The error for a
//! missing program names its package. Never: passes a secret, or a CO's text as an option.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use thiserror::Error;

use crate::lock::{Lock, LockError};

/// Longest run of a program; formatting or copying a test's volume takes less.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Exit codes of coreutils' `timeout`: the program took too long, or is missing.
const TOOK_TOO_LONG: [i32; 2] = [124, 137];
const NOT_THERE: i32 = 127;

/// A program and the package that it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tool {
    pub program: &'static str,
    /// The name of the package in Debian and Ubuntu.
    pub package: &'static str,
    /// The highest exit code that counts as success.
    pub success: i32,
}

pub const CP: Tool = Tool { program: "cp", package: "coreutils", success: 0 };
pub const LOSETUP: Tool = Tool { program: "losetup", package: "util-linux", success: 0 };
pub const MKFS_EXT4: Tool = Tool { program: "mkfs.ext4", package: "e2fsprogs", success: 0 };
pub const MKFS_XFS: Tool = Tool { program: "mkfs.xfs", package: "xfsprogs", success: 0 };
/// Must run before ext4 grows. Exit code 1: it repaired something.
pub const E2FSCK: Tool = Tool { program: "e2fsck", package: "e2fsprogs", success: 1 };
pub const RESIZE2FS: Tool = Tool { program: "resize2fs", package: "e2fsprogs", success: 0 };
pub const XFS_GROWFS: Tool = Tool { program: "xfs_growfs", package: "xfsprogs", success: 0 };

#[derive(Debug, Error)]
pub enum ToolError {
    #[error("{program} is not installed; install the package {package}")]
    Missing { program: &'static str, package: &'static str },
    #[error("{program} cannot begin")]
    Busy { program: &'static str, source: LockError },
    #[error("cannot run {program}")]
    Start { program: &'static str, source: io::Error },
    #[error("{program} was not done after {DEADLINE:?} and was ended")]
    TooLong { program: &'static str },
    #[error("{program} failed: {output}")]
    Failed { program: &'static str, output: String },
}

/// Takes the lock under which programs work on the volume or snapshot in `dir`, once none does.
pub fn idle(dir: &Path) -> Result<Lock, LockError> {
    Lock::wait(&dir.join("work"))
}

impl Tool {
    /// Runs the program for the volume or snapshot in `dir`. Returns its output.
    pub fn run<S: AsRef<OsStr>>(
        self,
        dir: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String, ToolError> {
        let Self { program, package, success } = self;
        // The program has the lock as its stdin. If this process is killed, the program keeps the
        // lock, and the next instance waits for it.
        let idle = idle(dir).map_err(|source| ToolError::Busy { program, source })?;
        let stdin = idle.handle().map_err(|source| ToolError::Start { program, source })?;
        let output = Command::new("timeout")
            .args(["--signal=KILL", &DEADLINE.as_secs().to_string(), program])
            .args(args)
            .env("LC_ALL", "C")
            .stdin(stdin)
            .output()
            .map_err(|source| ToolError::Start { program, source })?;
        match output.status.code() {
            Some(code) if (0..=success).contains(&code) => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Some(NOT_THERE) => Err(ToolError::Missing { program, package }),
            Some(code) if TOOK_TOO_LONG.contains(&code) => Err(ToolError::TooLong { program }),
            _ => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
                let output = last.unwrap_or("it printed no reason").trim().to_owned();
                Err(ToolError::Failed { program, output })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let dir = tempfile::tempdir().unwrap();
        let tool = Tool { program: "mkfs.of-no-kind", package: "nothing-progs", success: 0 };
        let error = tool.run(dir.path(), ["x"]).unwrap_err().to_string();
        assert!(error.contains("mkfs.of-no-kind") && error.contains("nothing-progs"), "{error}");
    }

    #[test]
    fn what_a_program_says_is_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let error = CP.run(dir.path(), ["/no/such/file", "/tmp"]).unwrap_err().to_string();
        assert!(error.starts_with("cp failed:") && error.contains("/no/such/file"), "{error}");
        let echo = Tool { program: "echo", package: "coreutils", success: 0 };
        assert_eq!(echo.run(dir.path(), ["a", "b"]).unwrap(), "a b\n");
    }
}
