//! Who else on this host has a volume mounted, or a file of it open.
//!
//! **Owns** the question for Docker's sessions; which process has which mount is
//! [`berth_host::holders`]'s.
//!
//! **Promises** that what cannot be read is an error, never an absence (unknown is in use), except
//! a process that has ended meanwhile. Open files are looked for as far as we may look, and prove
//! only that somebody is there.
//!
//! **Never** touches a mount: a look at a dead one hangs for ever. Does not count a mount that goes
//! with ours by propagation.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use berth_host::process::{list_pids, read_stat, unless_ended};
use berth_host::{HostMounts, MountPlace, MountTable};

/// Holders that are named at most.
const NAMED_MAX: usize = 4;

/// What the host shows of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// Nobody else has it.
    Nobody,
    /// Some have, in words.
    By(Vec<String>),
    /// It is not mounted here, so that nobody can be told by it.
    NotMounted,
}

/// Whether anybody has what is mounted at `target`; with `open`, also whether any process has a
/// file below it open. Reads all of /proc, on this thread.
pub fn of(target: &Path, open: bool) -> io::Result<Use> {
    let own = MountTable::read_blocking().map_err(io::Error::other)?;
    let Some(content) = own.top_at(target).map(berth_host::Mount::content) else {
        return Ok(Use::NotMounted);
    };
    let ours = own.mounts().iter().filter(|mount| content.is_shown_by(mount));
    let places: Vec<MountPlace> = ours.filter_map(|mount| own.place_of(mount)).collect();
    let all = HostMounts::read_blocking().map_err(io::Error::other)?;
    let held = all.holders_of(&[content]).into_iter();
    let held = held.filter(|holder| !holder.is_own && !holder.may_go_with(&places)).take(NAMED_MAX);
    let mut holders: Vec<String> = held.map(|holder| holder.to_string()).collect();
    if open {
        for pid in list_pids()? {
            if holders.len() >= NAMED_MAX {
                break;
            }
            let process = PathBuf::from(format!("/proc/{pid}"));
            if let Some(file) = opened(&process, target)? {
                let name = read_stat(pid)?.map(|stat| stat.comm).unwrap_or_default();
                holders.push(format!("process {pid} ({name}) has {} open", file.display()));
            }
        }
    }
    Ok(if holders.is_empty() { Use::Nobody } else { Use::By(holders) })
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
        read => unless_ended(read),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

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
