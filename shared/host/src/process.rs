//! Processes, as `/proc` shows them.
//!
//! **Owns** the reading of `/proc/PID/stat`, of a process's mount namespace and of its mount table,
//! and waiting for the end of a process.
//!
//! **Promises** that a process which ended meanwhile is `None`, and that anything else which cannot
//! be read is an error. A process id may be reused: compare [`Stat::starttime`] before you believe
//! that it is the same process.
//!
//! **Never** ends a process.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub use procfs::process::Stat;
use procfs::{FromRead as _, ProcError};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The ids of all processes, each once. Threads of the kernel are among them.
pub fn list_pids() -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(pids)
}

/// `/proc/PID/stat`: name, state, parent, process group, time of start and more.
pub fn read_stat(pid: u32) -> io::Result<Option<Stat>> {
    let Some(bytes) = unless_ended(fs::read(format!("/proc/{pid}/stat")))? else { return Ok(None) };
    parse_stat(&bytes).map(Some)
}

/// Parses the bytes of `/proc/PID/stat`.
pub fn parse_stat(bytes: &[u8]) -> io::Result<Stat> {
    Stat::from_read(bytes).map_err(|error| match error {
        ProcError::Io(error, _) => error,
        error => io::Error::new(ErrorKind::InvalidData, error.to_string()),
    })
}

/// The process's mount namespace, such as `mnt:[4026531841]`.
pub fn read_mount_namespace(pid: u32) -> io::Result<Option<PathBuf>> {
    unless_ended(fs::read_link(format!("/proc/{pid}/ns/mnt")))
}

/// A descriptor that becomes readable when the process has ended; `None` when it has already.
pub fn open_pidfd(pid: u32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// `None` when the process has ended meanwhile, or is a thread of the kernel, which has no mounts.
pub fn unless_ended<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        // A zombie has no mount table any more: EINVAL.
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput)
                || error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let rest = " S 1 42 43 34816 44 4194304 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0 0 0 0 0 0 0 0 0 0 \
            0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let stat = parse_stat(format!("7 (a) b){rest}").as_bytes()).unwrap();
        assert_eq!((stat.pid, stat.comm.as_str(), stat.state), (7, "a) b", 'S'));
        assert_eq!((stat.ppid, stat.pgrp, stat.tpgid, stat.starttime), (1, 42, 44, 777));
        assert!(parse_stat(b"7 (a").is_err());
    }

    #[test]
    fn a_process_is_seen_until_it_is_reaped() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        assert!(list_pids().unwrap().contains(&pid));
        assert_eq!(read_stat(pid).unwrap().unwrap().comm, "sleep");
        let own = read_mount_namespace(std::process::id()).unwrap();
        assert_eq!(read_mount_namespace(pid).unwrap(), own);
        assert!(open_pidfd(pid).unwrap().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(read_stat(pid).unwrap().is_none());
        assert!(read_mount_namespace(pid).unwrap().is_none());
        assert!(open_pidfd(pid).unwrap().is_none());
    }
}
