//! Unmounts one mount in the mount namespace of another process: a process of its own, since a
//! process that enters a namespace stays there.
//!
//! **Owns** the command line of that process, which is this program with other arguments, and its
//! exit codes.
//!
//! **Promises** that the mount is unmounted as `umount` does it, without force: the kernel refuses
//! while anything uses it. Before that the mount table of the namespace must show, at exactly this
//! path, the mount that was seen before. The process runs no program and reads no file of the
//! namespace.
//!
//! **Never** runs with threads: the kernel lets no process with several threads enter.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use berth_host::{Holder, HolderProcess, MountTable};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns};
use thiserror::Error;

use crate::host::mount_users::list_users;

/// The first argument of the process.
const COMMAND: &str = "unmount-copy";
/// Something uses the mount.
const BUSY: u8 = 2;
/// The mount is not there any more, or another one is.
const CHANGED: u8 = 3;
/// Anything else. The reason is on the standard error.
const FAILED: u8 = 4;

/// How the unmount ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyUnmount {
    /// It is unmounted.
    Done,
    /// It is not there any more, or another mount is there.
    Changed,
    /// A process uses it.
    Busy,
    /// It cannot be unmounted from here, for this reason.
    Refused(String),
}

/// Why the process failed.
#[derive(Debug, Error)]
enum CopyError {
    #[error("the arguments are PID NAMESPACE ID PATH")]
    Arguments,
    #[error("namespace {0} cannot be entered: {1}")]
    Enter(String, Errno),
    #[error("{} cannot be unmounted in namespace {namespace}: {source}", path.display())]
    Unmount { path: PathBuf, namespace: String, source: Errno },
    #[error("its mount table cannot be read: {0}")]
    Table(String),
}

/// One mount in a mount namespace.
#[derive(Debug)]
struct MountInNamespace {
    /// A process in the namespace.
    pid: u32,
    /// Such as `mnt:[4026531841]`.
    namespace: String,
    mount_id: u64,
    path: PathBuf,
}

/// Runs as the process that unmounts, if the arguments say so.
pub fn run_if_asked(arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let ended = match parse(arguments).ok_or(CopyError::Arguments).and_then(|one| unmount(&one)) {
        Ok(CopyUnmount::Done) => 0,
        Ok(CopyUnmount::Busy) => BUSY,
        Ok(CopyUnmount::Changed) => CHANGED,
        Ok(CopyUnmount::Refused(why)) => fail(&why),
        Err(error) => fail(&error.to_string()),
    };
    Some(ExitCode::from(ended))
}

#[expect(clippy::print_stderr, reason = "the agent reads it, and this process has no log")]
fn fail(why: &str) -> u8 {
    eprintln!("{why}");
    FAILED
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Option<MountInNamespace> {
    let mut text = || arguments.next()?.into_string().ok();
    let (pid, namespace, mount_id) = (text()?.parse().ok()?, text()?, text()?.parse().ok()?);
    Some(MountInNamespace { pid, namespace, mount_id, path: arguments.next()?.into() })
}

fn unmount(wanted: &MountInNamespace) -> Result<CopyUnmount, CopyError> {
    let MountInNamespace { pid, namespace, mount_id, path } = wanted;
    let Ok(entrance) = File::open(format!("/proc/{pid}/ns/mnt")) else {
        return Ok(CopyUnmount::Changed);
    };
    // Another process may have the id by now.
    let opened = fs::read_link(format!("/proc/self/fd/{}", entrance.as_raw_fd()));
    if !opened.is_ok_and(|opened| opened == Path::new(namespace)) {
        return Ok(CopyUnmount::Changed);
    }
    let table = MountTable::read_of(*pid).map_err(|error| CopyError::Table(error.to_string()))?;
    if table.and_then(|table| Some(table.top_at(path)?.id)) != Some(*mount_id) {
        return Ok(CopyUnmount::Changed);
    }
    let failed = |errno| CopyError::Enter(namespace.clone(), errno);
    setns(&entrance, CloneFlags::CLONE_NEWNS).map_err(failed)?;
    match umount2(path, MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) => Ok(CopyUnmount::Done),
        Err(Errno::EBUSY) => Ok(CopyUnmount::Busy),
        Err(Errno::ENOENT) => Ok(CopyUnmount::Changed),
        Err(source) => {
            let (path, namespace) = (path.clone(), namespace.clone());
            Err(CopyError::Unmount { path, namespace, source })
        }
    }
}

/// Starts the process for a holder's mount and waits for its end, on this thread.
pub fn unmount_of(holder: &Holder) -> CopyUnmount {
    let mut last = CopyUnmount::Changed;
    for process in &holder.processes {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(COMMAND)
            .args([process.pid.to_string(), holder.namespace.clone(), holder.mount.id.to_string()])
            .arg(holder.mount.point.as_os_str())
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null());
        last = match command.output() {
            Err(error) => CopyUnmount::Refused(error.to_string()),
            Ok(ended) => match ended.status.code() {
                Some(0) => CopyUnmount::Done,
                Some(code) if code == i32::from(BUSY) => CopyUnmount::Busy,
                Some(code) if code == i32::from(CHANGED) => CopyUnmount::Changed,
                _ => {
                    let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
                    CopyUnmount::Refused(format!("{said} ({})", ended.status))
                }
            },
        };
        // The process may just have ended, and another one still be in the namespace.
        if last != CopyUnmount::Changed {
            break;
        }
    }
    last
}

/// The processes in the holder's namespace that use its mount, at most `max`.
pub fn users_of(holder: &Holder, max: usize) -> Vec<HolderProcess> {
    let is_there = |pid| {
        let namespace = berth_host::process::read_mount_namespace(pid).ok().flatten();
        namespace.is_some_and(|one| one.as_os_str().as_bytes() == holder.namespace.as_bytes())
    };
    list_users(&holder.mount.point, max, is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_command_line_is_taken() {
        let line = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(run_if_asked(line("agent --config x").into_iter()).is_none());
        assert!(run_if_asked(line("agent").into_iter()).is_none());
        let parsed = parse(line("7 mnt:[8] 9 /a").into_iter()).unwrap();
        assert_eq!((parsed.pid, parsed.namespace.as_str(), parsed.mount_id), (7, "mnt:[8]", 9));
        assert_eq!(parsed.path, Path::new("/a"));
        assert!(parse(line("7 mnt:[8] 9").into_iter()).is_none());
    }

    #[test]
    fn a_process_that_is_not_in_the_namespace_any_more_changes_nothing() {
        let wanted = |namespace: &str, mount_id| MountInNamespace {
            pid: std::process::id(),
            namespace: namespace.to_owned(),
            mount_id,
            path: "/proc".into(),
        };
        assert_eq!(unmount(&wanted("mnt:[1]", 1)).unwrap(), CopyUnmount::Changed);
        let own = fs::read_link("/proc/self/ns/mnt").unwrap();
        let own = own.to_string_lossy();
        assert_eq!(unmount(&wanted(&own, 0)).unwrap(), CopyUnmount::Changed, "another mount");
    }
}
