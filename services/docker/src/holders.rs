//! Finds the processes of this host that have a volume mounted, or a file of it open.
//!
//! **Promises** that what cannot be read is an error, never an absence, except for a process that
//! has ended meanwhile. Open files are searched as far as this process may read; they prove only
//! that there is a user.
//!
//! **Never** touches a mount: access to a dead mount hangs for ever. Does not count mounts that
//! propagation removes together with the agent's.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use berth_host::process::{list_pids, read_stat, unless_ended};
use berth_host::{HostMounts, MountPlace, MountTable};

/// Users that are named, at most.
const NAMED_MAX: usize = 4;

/// The users of a mount, as the host shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeUse {
    Nobody,
    /// These processes, in words.
    By(Vec<String>),
    /// Nothing is mounted there, so mounts show no user.
    NotMounted,
}

/// Finds the processes that have what is mounted at `target`; with `with_open_files`, also those
/// that have a file below it open. Reads all of `/proc`, on the calling thread.
pub fn find_users(target: &Path, with_open_files: bool) -> io::Result<VolumeUse> {
    let own = MountTable::read_blocking().map_err(io::Error::other)?;
    let Some(content) = own.top_at(target).map(berth_host::Mount::content) else {
        return Ok(VolumeUse::NotMounted);
    };
    let ours = own.mounts().iter().filter(|mount| content.is_shown_by(mount));
    let places: Vec<MountPlace> = ours.filter_map(|mount| own.place_of(mount)).collect();
    let host_mounts = HostMounts::read_blocking().map_err(io::Error::other)?;
    let holders = host_mounts.holders_of(&[content]).into_iter();
    let holders = holders.filter(|holder| !holder.is_own && !holder.may_go_with(&places));
    let mut users: Vec<String> = holders.take(NAMED_MAX).map(|holder| holder.to_string()).collect();
    if with_open_files {
        for pid in list_pids()? {
            if users.len() >= NAMED_MAX {
                break;
            }
            let process = PathBuf::from(format!("/proc/{pid}"));
            if let Some(file) = find_open_file(&process, target)? {
                let name = read_stat(pid)?.map(|stat| stat.comm).unwrap_or_default();
                users.push(format!("process {pid} ({name}) has {} open", file.display()));
            }
        }
    }
    Ok(if users.is_empty() { VolumeUse::Nobody } else { VolumeUse::By(users) })
}

/// A file at or below `target` that the process has open, or its working or root directory there.
fn find_open_file(process: &Path, target: &Path) -> io::Result<Option<PathBuf>> {
    let within = |link: PathBuf| link.starts_with(target).then_some(link);
    for name in ["cwd", "root"] {
        if let Some(link) = if_readable(fs::read_link(process.join(name)))?.and_then(within) {
            return Ok(Some(link));
        }
    }
    let Some(files) = if_readable(fs::read_dir(process.join("fd")))? else { return Ok(None) };
    for file in files {
        let Some(file) = if_readable(file)? else { break };
        if let Some(link) = if_readable(fs::read_link(file.path()))?.and_then(within) {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// `None` also for a process with more privileges than this one.
fn if_readable<T>(read: io::Result<T>) -> io::Result<Option<T>> {
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
    fn mount_at_an_odd_path_is_seen() {
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
            let volume_use = find_users(&target, true);
            umount2(&target, MntFlags::MNT_DETACH).unwrap();
            assert_ne!(volume_use.unwrap(), VolumeUse::NotMounted, "{}", target.display());
        }
    }

    #[test]
    fn path_without_a_mount_is_not_mounted() {
        assert_eq!(find_users(Path::new("/nowhere/at/all"), true).unwrap(), VolumeUse::NotMounted);
    }

    #[test]
    fn open_file_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let own = Path::new("/proc/self");
        assert_eq!(find_open_file(own, dir.path()).unwrap(), None);
        let file = fs::File::create(dir.path().join("open")).unwrap();
        assert_eq!(find_open_file(own, dir.path()).unwrap(), Some(dir.path().join("open")));
        drop(file);
    }
}
