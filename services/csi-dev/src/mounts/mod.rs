//! Mounts of a volume's content: of its directory, its file system, or its device node.
//!
//! Owns: what counts as mounted, and every change of it. Promises: the kernel decides whether
//! something is mounted, never the recorded state. Every operation is idempotent. Only mounts of
//! the given volume are undone. Never: deletes anything but an empty mount point without a mount.

mod content;
mod error;
mod place;
mod table;

use std::collections::BTreeSet;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::backing::FsType;
use crate::capability::MOUNT_FLAGS;
use table::{is_mount_point, read_table};

pub use content::VolumeContent;
pub use error::MountError;
pub use place::{MountPointKind, make_place, remove_place, resolve_place};

/// What is mounted at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Nothing is mounted there.
    Absent,
    /// The volume is mounted there.
    Volume,
    /// Something else is mounted there.
    Foreign,
}

/// Looks up what is mounted at `mount_point`, and whether it is `content`.
pub fn find_presence(mount_point: &Path, content: &VolumeContent) -> Result<Presence, MountError> {
    if !is_mount_point(mount_point)? {
        return Ok(Presence::Absent);
    }
    let same = content
        .is_at(mount_point)
        .map_err(|error| MountError::io("look at", mount_point, error))?;
    Ok(if same { Presence::Volume } else { Presence::Foreign })
}

#[derive(Clone, Copy, Debug)]
pub enum MountSource<'a> {
    /// An existing directory or device node.
    Bind(&'a Path),
    /// The file system on a device.
    Device {
        device: &'a str,
        fs: FsType,
        /// Mount without any write, not even a journal replay.
        readonly: bool,
    },
}

/// Aborts the ext4 that is mounted at `mount_point`, if there is one: no process can write to it
/// any more. Unwritten data is lost, as if the disk were gone.
pub fn abort(mount_point: &Path) -> Result<(), MountError> {
    let table = read_table(mount_point)?;
    let Some(mounted) = table.top_at(mount_point) else { return Ok(()) };
    if mounted.options.split(',').any(|option| option == "ro") {
        return Ok(());
    }
    mount(None::<&str>, mount_point, None::<&str>, MsFlags::MS_REMOUNT, Some("abort"))
        .map_err(|errno| MountError::io("abort the file system at", mount_point, errno))
}

/// Mounts `source`, which has the volume's `content`, at `mount_point` with `flags`. Replaces a
/// mount that a killed call left. Fails if another mount or a file is there.
pub fn mount_content(
    source: MountSource<'_>,
    content: &VolumeContent,
    mount_point: &Path,
    flags: &BTreeSet<String>,
) -> Result<(), MountError> {
    unmount_content(mount_point, content)?;
    if !place::is_empty(mount_point)? {
        return Err(MountError::NotEmpty { path: mount_point.to_owned() });
    }
    mount_at(source, mount_point).map_err(|errno| MountError::io("mount", mount_point, errno))?;
    if flags.is_empty() {
        return Ok(());
    }
    // A bind mount takes flags only when remounted. Its inherited flags must be repeated: in a user
    // namespace the kernel refuses to drop them.
    let table = read_table(mount_point)?;
    let came_with =
        table.top_at(mount_point).map(|mount| mount.options.as_str()).unwrap_or_default();
    let is_wanted =
        |name: &str| flags.contains(name) || came_with.split(',').any(|option| option == name);
    let wanted = MOUNT_FLAGS.iter().filter(|(name, _)| is_wanted(name));
    let remount_flags =
        wanted.fold(MsFlags::MS_BIND | MsFlags::MS_REMOUNT, |flags, (_, flag)| flags | *flag);
    mount(None::<&str>, mount_point, None::<&str>, remount_flags, None::<&str>)
        .map_err(|errno| MountError::io("set the flags of", mount_point, errno))
}

fn mount_at(source: MountSource<'_>, mount_point: &Path) -> Result<(), Errno> {
    let none = None::<&str>;
    let (device, fs, readonly) = match source {
        MountSource::Bind(source) => {
            return mount(Some(source), mount_point, none, MsFlags::MS_BIND, none);
        }
        MountSource::Device { device, fs, readonly } => (device, fs, readonly),
    };
    let flags = if readonly { MsFlags::MS_RDONLY } else { MsFlags::empty() };
    let data = match (fs, readonly) {
        (FsType::Ext4, false) => "",
        (FsType::Ext4, true) => "noload",
        // A cloned xfs has the UUID of its original, and both may be mounted.
        (FsType::Xfs, false) => "nouuid",
        (FsType::Xfs, true) => "nouuid,norecovery",
    };
    mount(Some(device), mount_point, Some(fs.name()), flags, Some(data))
}

/// Unmounts whatever is mounted at `mount_point`. Missing is success.
pub fn unmount_any(mount_point: &Path) -> Result<(), MountError> {
    while is_mount_point(mount_point)? {
        match umount2(mount_point, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(Errno::EBUSY) => return Err(MountError::Busy { path: mount_point.to_owned() }),
            Err(errno) => return Err(MountError::io("unmount", mount_point, errno)),
        }
    }
    Ok(())
}

/// Unmounts all mounts of this content at `mount_point`. Missing is success.
pub fn unmount_content(mount_point: &Path, content: &VolumeContent) -> Result<(), MountError> {
    loop {
        match find_presence(mount_point, content)? {
            Presence::Absent => return Ok(()),
            Presence::Foreign => return Err(MountError::Foreign { path: mount_point.to_owned() }),
            Presence::Volume => {}
        }
        match umount2(mount_point, MntFlags::UMOUNT_NOFOLLOW) {
            // Another process unmounted it meanwhile.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(Errno::EBUSY) => return Err(MountError::Busy { path: mount_point.to_owned() }),
            Err(errno) => return Err(MountError::io("unmount", mount_point, errno)),
        }
    }
}
