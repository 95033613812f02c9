//! Hides volumes of other allocs from the mount namespace of a command.
//!
//! **Owns** the rule which inherited mounts are unmounted. Where the host's mounts are private, a
//! new mount namespace keeps a copy of each while its command runs. An agent may not release a
//! volume that a process still has, so every other release of the node would wait for the command.
//!
//! **Never** touches a mount outside this thread's namespace: the caller has made it a slave.

use std::io;
use std::path::{Path, PathBuf};

use berth_host::MountTable;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::unistd::gettid;

/// The name of the agent's directory of mounts, and the length of the names in it.
const ROOT: &str = "csi";
const VOLUME_NAME_LEN: usize = 24;

/// Unmounts, in this thread's namespace, every volume that an agent mounted and that is not at a
/// path in `own`.
pub fn hide(own: &[PathBuf]) -> io::Result<()> {
    // Each thread has a mount table of its own. The process's table is that of the main thread.
    let thread = gettid().as_raw().unsigned_abs();
    let table = MountTable::read_of(thread).map_err(io::Error::other)?;
    let table = table.ok_or(Errno::ENOENT)?;
    // In reverse order, so that a mount on top of another is unmounted first.
    for mount in table.mounts().iter().rev().filter(|mount| is_other(&mount.point, own)) {
        let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
        match umount2(&mount.point, flags) {
            // The mount was unmounted meanwhile, together with the host's.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn is_other(point: &Path, own: &[PathBuf]) -> bool {
    let components: Vec<_> = point.iter().collect();
    let is_volume = |name: &std::ffi::OsStr| {
        let name = name.as_encoded_bytes();
        name.len() == VOLUME_NAME_LEN && name.iter().all(u8::is_ascii_hexdigit)
    };
    // An agent's mount is below a volume's directory; an operator's mount has other names.
    let is_agents = components.windows(3).any(|three| match three {
        [root, volume, _] => *root == ROOT && is_volume(volume),
        _ => false,
    });
    is_agents && !own.iter().any(|own| point.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_agent_mounted_for_others_goes() {
        let volume = "/var/lib/berth/csi/0123456789abcdef01234567";
        let own = [PathBuf::from(format!("{volume}/aa/target"))];
        for other in ["bb/target", "staging", "bb/also1"] {
            assert!(is_other(&Path::new(volume).join(other), &own), "{other}");
        }
        for kept in ["aa/target", "aa/target/inner", ""] {
            assert!(!is_other(&Path::new(volume).join(kept), &own), "{kept}");
        }
        for kept in ["/", "/srv/csi/data/x", "/var/lib/berth/csi", "/proc"] {
            assert!(!is_other(Path::new(kept), &own), "{kept}");
        }
    }
}
