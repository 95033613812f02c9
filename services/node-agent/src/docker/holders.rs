//! Who else on this host has a volume mounted, or a file of it open.
//!
//! **Owns** the reading of other processes' `/proc/PID/mountinfo`. A container has the volume under
//! a path of its own in a mount namespace of its own; what tells that it is the same is the device
//! and the root of the mount within it (proc(5)).
//!
//! **Promises** that what cannot be read is an error, never an absence (unknown is in use), except
//! a process that has ended meanwhile. Open files are looked for as far as we may look, and prove
//! only that somebody is there.
//!
//! **Never** touches a mount: a look at a dead one hangs for ever. Counts nobody who has the mount
//! at the very path where we have it: that is our mount, as its namespace inherited it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use berth_host::Mount;

/// Holders that are named at most.
const NAMED_MAX: usize = 4;
/// `ESRCH`: the process ended while it was looked at.
const NO_SUCH_PROCESS: i32 = 3;

/// What the host shows of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Use {
    /// Nobody else has it.
    Nobody,
    /// Some have, in words.
    By(Vec<String>),
    /// It is not mounted here, so that nobody can be told by it.
    NotMounted,
}

/// Whether anybody has what is mounted at `target`; with `open`, also whether any process has a
/// file below it open. Reads all of /proc, on this thread.
pub(super) fn of(target: &Path, open: bool) -> io::Result<Use> {
    let own = mounts(&fs::read("/proc/self/mountinfo")?)?;
    let Some(ours) = own.iter().rfind(|mount| mount.point.as_os_str() == target.as_os_str()) else {
        return Ok(Use::NotMounted);
    };
    let content = ours.content();
    let same =
        own.iter().filter(|mount| content.is_shown_by(mount)).map(|mount| mount.point.as_path());
    let same: BTreeSet<&Path> = same.collect();
    let mut seen = BTreeSet::from([fs::read_link("/proc/self/ns/mnt")?]);
    let mut holders = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let dir = entry?.path();
        let is_process = dir.file_name().is_some_and(|name| name.as_bytes()[0].is_ascii_digit());
        if !is_process || holders.len() >= NAMED_MAX {
            continue;
        }
        if open && let Some(file) = opened(&dir, target)? {
            holders.push(format!("{} has {} open", process(&dir), file.display()));
        }
        // Who may not know a process's namespace may know its mounts all the same (proc(5)).
        let namespace = may_look(fs::read_link(dir.join("ns/mnt")))?;
        if namespace.as_ref().is_some_and(|namespace| seen.contains(namespace)) {
            continue;
        }
        let Some(table) = still_there(fs::read(dir.join("mountinfo")))? else { continue };
        seen.extend(namespace);
        let elsewhere =
            |mount: &Mount| content.is_shown_by(mount) && !same.contains(mount.point.as_path());
        if let Some(mount) = mounts(&table)?.into_iter().find(elsewhere) {
            let point = mount.point.display();
            holders.push(format!("{} has it mounted at {point}", process(&dir)));
        }
    }
    Ok(if holders.is_empty() { Use::Nobody } else { Use::By(holders) })
}

/// A process, for people.
fn process(dir: &Path) -> String {
    let pid = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match fs::read_to_string(dir.join("comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

/// A file at or below `target` that the process has open, or where it stands.
fn opened(process: &Path, target: &Path) -> io::Result<Option<PathBuf>> {
    let within = |link: PathBuf| link.starts_with(target).then_some(link);
    for name in ["cwd", "root"] {
        if let Some(link) = may_look(fs::read_link(process.join(name)))?.and_then(within) {
            return Ok(Some(link));
        }
    }
    let Some(files) = may_look(fs::read_dir(process.join("fd")))? else { return Ok(None) };
    for file in files {
        let Some(file) = may_look(file)? else { break };
        if let Some(link) = may_look(fs::read_link(file.path()))?.and_then(within) {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// None also for a process with more privileges than ours.
fn may_look<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(None),
        read => still_there(read),
    }
}

/// None when the process has ended meanwhile, or is a thread of the kernel's.
fn still_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error)
            if error.kind() == ErrorKind::NotFound
                || error.kind() == ErrorKind::InvalidInput
                || error.raw_os_error() == Some(NO_SUCH_PROCESS) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The mounts of a table. A line that cannot be understood is an error: it may be the volume's.
fn mounts(table: &[u8]) -> io::Result<Vec<Mount>> {
    let lines = table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let unread = |line: &[u8]| {
        let line = String::from_utf8_lossy(line).into_owned();
        io::Error::new(ErrorKind::InvalidData, format!("a mount table has the line {line:?}"))
    };
    lines.map(|line| Mount::parse(line).ok_or_else(|| unread(line))).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use nix::mount::{MntFlags, MsFlags, mount, umount2};

    use super::*;

    /// The kernel writes such paths with escapes.
    #[test]
    fn a_volume_below_an_odd_path_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let names: [&[u8]; 5] = [b"a space", b"a\\backslash", b"a\nline", b"\\040", b"\xff\xfe"];
        for name in names {
            let target = dir.path().join(OsStr::from_bytes(name));
            fs::create_dir(&target).unwrap();
            let (bind, none) = (MsFlags::MS_BIND, None::<&Path>);
            if mount(Some(dir.path()), &target, none, bind, none).is_err() {
                println!("SKIPPED (needs root): mounts");
                return;
            }
            let seen = of(&target, true);
            umount2(&target, MntFlags::MNT_DETACH).unwrap();
            assert_ne!(seen.unwrap(), Use::NotMounted, "{}", target.display());
        }
        assert!(mounts(b"22 1 8:1\n").is_err(), "unknown is in use");
    }

    #[test]
    fn what_is_not_mounted_tells_nobody() {
        assert_eq!(of(Path::new("/nowhere/at/all"), true).unwrap(), Use::NotMounted);
    }

    #[test]
    fn a_file_that_is_open_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let own = Path::new("/proc/self");
        assert_eq!(opened(own, dir.path()).unwrap(), None);
        let file = fs::File::create(dir.path().join("open")).unwrap();
        assert_eq!(opened(own, dir.path()).unwrap(), Some(dir.path().join("open")));
        drop(file);
    }
}
