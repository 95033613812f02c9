//! Processes, as `/proc` shows them.
//!
//! **Owns** the reading of `/proc/PID/stat`, of our capabilities, of a process's mount namespace,
//! of its mount table and of its open files; waiting for the end of a process; and signals to it
//! ([`ProcessHandle`]).
//!
//! **Promises** that a process which ended meanwhile is `None`, and that anything else which cannot
//! be read is an error. The kernel reuses process ids: a [`ProcessHandle`] stays with the process
//! that it was opened for, so no other process is signalled in its place.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub use procfs::process::Stat;
use procfs::process::Status;
use procfs::{FromRead as _, ProcError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

/// One process, identified by a pidfd, so that a reused process id does no harm.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: u32,
    fd: OwnedFd,
}

impl ProcessHandle {
    /// Opens the process that has this id now, if `is_meant` accepts it. `None` if it does not, or
    /// if the process has ended.
    ///
    /// What `is_meant` reads below `/proc/PID` is of the opened process: while that process has not
    /// ended, no other process has its id.
    pub fn open_if(
        pid: u32,
        is_meant: impl FnOnce() -> io::Result<bool>,
    ) -> io::Result<Option<Self>> {
        let Some(fd) = open_pidfd(pid)? else { return Ok(None) };
        let handle = Self { pid, fd };
        Ok((is_meant()? && !handle.has_ended()?).then_some(handle))
    }

    /// Opens the process that has this id and was started at this time, in clock ticks since boot
    /// ([`Stat::starttime`]).
    pub fn open(pid: u32, starttime: u64) -> io::Result<Option<Self>> {
        let is_meant = || Ok(read_stat(pid)?.is_some_and(|stat| stat.starttime == starttime));
        Self::open_if(pid, is_meant)
    }

    /// Its process id, for messages and for `/proc`. Another process may have the id once this one
    /// has ended.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has ended. A process that its parent has not waited for yet has ended,
    /// too.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            match poll(&mut fds, Some(&at_once)) {
                Err(Errno::INTR) => {}
                ready => return Ok(ready? > 0),
            }
        }
    }

    /// Sends a signal to this process and to no other; false when it has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The ids of all processes, each once. Kernel threads are among them.
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
    Stat::from_read(bytes).map_err(io_error)
}

fn io_error(error: ProcError) -> io::Error {
    match error {
        ProcError::Io(error, _) => error,
        error => io::Error::new(ErrorKind::InvalidData, error.to_string()),
    }
}

/// Whether this process has a capability of capabilities(7), by its number, in its effective set.
pub fn has_capability(number: u32) -> io::Result<bool> {
    let status = Status::from_file("/proc/self/status").map_err(io_error)?;
    Ok(status.capeff >> number & 1 == 1)
}

/// The process's mount namespace, such as `mnt:[4026531841]`.
pub fn read_mount_namespace(pid: u32) -> io::Result<Option<PathBuf>> {
    unless_ended(fs::read_link(format!("/proc/{pid}/ns/mnt")))
}

/// Opens the file with this device and inode that a process has open, whatever its name is, also if
/// it was removed. `None` if no process has it open.
///
/// # Errors
///
/// If it was not found, and the open files of a process could not be read.
pub fn find_open_file(dev: u64, ino: u64) -> io::Result<Option<File>> {
    let mut hidden = None;
    for pid in list_pids()? {
        let process = Path::new("/proc").join(pid.to_string());
        let files = match unless_ended(fs::read_dir(process.join("fdinfo"))) {
            Ok(files) => files.into_iter().flatten(),
            Err(error) => {
                hidden = Some(error);
                continue;
            }
        };
        for number in files.flatten().map(|entry| entry.file_name()) {
            // The inode is compared first, because a `stat` on a dead mount hangs for ever.
            let about = fs::read_to_string(process.join("fdinfo").join(&number));
            if about.is_ok_and(|about| is_other_inode(&about, ino)) {
                continue;
            }
            let path = process.join("fd").join(&number);
            let is_it = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == (dev, ino);
            if fs::metadata(&path).is_ok_and(is_it) {
                return File::open(&path).map(Some);
            }
        }
    }
    hidden.map_or(Ok(None), Err)
}

/// Whether `/proc/PID/fdinfo/FD` names another inode. Linux before 5.14 names none.
fn is_other_inode(about: &str, ino: u64) -> bool {
    let named = about.lines().find_map(|line| line.strip_prefix("ino:"));
    named.is_some_and(|named| named.trim().parse() != Ok(ino))
}

/// A descriptor that becomes readable when the process ends; `None` if it has ended already.
pub fn open_pidfd(pid: u32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// `None` if the process has ended meanwhile, or is a kernel thread, which has no mounts.
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
    fn an_open_file_is_found_also_after_it_was_removed() {
        // No other file gets the inode's number while this one exists.
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let metadata = fs::metadata(&path).unwrap();
        match find_open_file(metadata.dev(), metadata.ino()) {
            Ok(open_file) => assert!(open_file.is_none(), "{open_file:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
        }
        let _open = File::open(&path).unwrap();
        drop(path);
        let open_file = find_open_file(metadata.dev(), metadata.ino()).unwrap().unwrap();
        assert_eq!(open_file.metadata().unwrap().ino(), metadata.ino());
        assert!(is_other_inode("pos:\t0\nino:\t7\n", 8));
        assert!(!is_other_inode("pos:\t0\nino:\t8\n", 8) && !is_other_inode("pos:\t0\n", 8));
    }

    #[test]
    fn a_name_may_hold_anything() {
        let fields = " S 1 42 43 34816 44 4194304 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0 0 0 0 0 0 0 0 \
            0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let stat = parse_stat(format!("7 (a) b){fields}").as_bytes()).unwrap();
        assert_eq!((stat.pid, stat.comm.as_str(), stat.state), (7, "a) b", 'S'));
        assert_eq!((stat.ppid, stat.pgrp, stat.tpgid, stat.starttime), (1, 42, 44, 777));
        assert!(parse_stat(b"7 (a").is_err());
    }

    #[test]
    fn a_handle_stays_with_its_process_when_the_id_is_reused() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let starttime = read_stat(pid).unwrap().unwrap().starttime;
        assert!(ProcessHandle::open(pid, starttime + 1).unwrap().is_none());
        assert!(ProcessHandle::open_if(pid, || Ok(false)).unwrap().is_none());
        let handle = ProcessHandle::open(pid, starttime).unwrap().unwrap();
        assert_eq!((handle.pid(), handle.has_ended().unwrap()), (pid, false));
        assert!(handle.signal(Signal::KILL).unwrap());
        child.wait().unwrap();
        assert!(handle.has_ended().unwrap());
        // From here on the kernel may give the id to a new process. The pause makes the new process
        // younger: times of start are counted in ticks of 10 ms, so two processes of the same tick
        // cannot be distinguished.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let Some(_other) = reuse(pid) else {
            println!("SKIPPED (needs root): gives a process id to another process");
            return;
        };
        assert!(read_stat(pid).unwrap().is_some(), "another process has the id");
        assert!(handle.has_ended().unwrap());
        assert!(!handle.signal(Signal::KILL).unwrap(), "the other process was signalled");
        assert!(read_stat(pid).unwrap().is_some_and(|stat| stat.state != 'Z'));
        assert!(ProcessHandle::open(pid, starttime).unwrap().is_none());
    }

    /// A process that is ended when this is dropped.
    struct Sleeper(std::process::Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            // The process may have ended already.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts processes until one has the id. It takes several tries, because other tests start
    /// processes, too.
    fn reuse(pid: u32) -> Option<Sleeper> {
        for _ in 0..1000 {
            fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            let sleeper = Sleeper(Command::new("sleep").arg("1000").spawn().unwrap());
            if sleeper.0.id() == pid {
                return Some(sleeper);
            }
        }
        panic!("process id {pid} was not given again");
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
