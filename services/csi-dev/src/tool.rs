//! The system's programs that this driver calls: for file systems, loop devices and copies.
//!
//! Owns: running one of them. Promises: none runs for longer than [`DEADLINE`]; one at a time works
//! on a volume or snapshot, also when the instance that started it is killed meanwhile; a missing
//! one is named together with the package that has it. Never: passes on anything that a CO wrote as
//! an option, or a secret.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use thiserror::Error;

use crate::lock::{Lock, LockError};

/// Longer than formatting or copying a volume of a test takes.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// What `timeout` of coreutils exits with, when the program took too long, and is not there.
const TOOK_TOO_LONG: [i32; 2] = [124, 137];
const NOT_THERE: i32 = 127;

/// A program and the package that it comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tool {
    pub program: &'static str,
    /// As Debian and Ubuntu call the package.
    pub package: &'static str,
    /// The highest exit code that is no failure.
    pub success: i32,
}

/// Copies content.
pub const CP: Tool = Tool { program: "cp", package: "coreutils", success: 0 };
/// Binds loop devices.
pub const LOSETUP: Tool = Tool { program: "losetup", package: "util-linux", success: 0 };
/// Makes ext4.
pub const MKFS_EXT4: Tool = Tool { program: "mkfs.ext4", package: "e2fsprogs", success: 0 };
/// Makes xfs.
pub const MKFS_XFS: Tool = Tool { program: "mkfs.xfs", package: "xfsprogs", success: 0 };
/// Mends ext4, which has to be before it grows; 1 means that there was something to mend.
pub const E2FSCK: Tool = Tool { program: "e2fsck", package: "e2fsprogs", success: 1 };
/// Grows ext4.
pub const RESIZE2FS: Tool = Tool { program: "resize2fs", package: "e2fsprogs", success: 0 };
/// Grows xfs.
pub const XFS_GROWFS: Tool = Tool { program: "xfs_growfs", package: "xfsprogs", success: 0 };

/// Why a program did not do its work.
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
    #[error("{program} failed: {said}")]
    Failed { program: &'static str, said: String },
}

/// Waits until no program works on the volume or snapshot in `dir`, and lets none begin.
pub fn idle(dir: &Path) -> Result<Lock, LockError> {
    Lock::wait(&dir.join("work"))
}

impl Tool {
    /// Runs it with these arguments, for the volume or snapshot in `dir`, and returns what it
    /// printed.
    pub fn run<S: AsRef<OsStr>>(
        self,
        dir: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String, ToolError> {
        let Self { program, package, success } = self;
        // It reads nothing there: it keeps the lock when this process is killed, and so the next
        // instance does not mount what is being formatted, or bind a device beside one.
        let idle = idle(dir).map_err(|source| ToolError::Busy { program, source })?;
        let held = idle.handle().map_err(|source| ToolError::Start { program, source })?;
        let output = Command::new("timeout")
            .args(["--signal=KILL", &DEADLINE.as_secs().to_string(), program])
            .args(args)
            .env("LC_ALL", "C")
            .stdin(held)
            .output()
            .map_err(|source| ToolError::Start { program, source })?;
        match output.status.code() {
            Some(code) if (0..=success).contains(&code) => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Some(NOT_THERE) => Err(ToolError::Missing { program, package }),
            Some(code) if TOOK_TOO_LONG.contains(&code) => Err(ToolError::TooLong { program }),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.lines().rev().find(|line| !line.trim().is_empty());
                let said = said.unwrap_or("it did not say why").trim().to_owned();
                Err(ToolError::Failed { program, said })
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
