//! Mounts of a volume's content: of its directory, its file system, or its device node.
//!
//! Owns: what counts as mounted, and every change of it. Promises: asks the kernel whether
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
    /// The volume is.
    Volume,
    /// Something else is.
    Foreign,
}

/// Looks up what is mounted at `place`, and whether it is `content`.
pub fn find_presence(place: &Path, content: &VolumeContent) -> Result<Presence, MountError> {
    if !is_mount_point(place)? {
        return Ok(Presence::Absent);
    }
    let same = content.is_at(place).map_err(|error| MountError::io("look at", place, error))?;
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

/// Aborts the ext4 that is mounted at `place`, if there is one: no process can write to it any
/// more. Unwritten data is lost, as if the disk were gone.
pub fn abort(place: &Path) -> Result<(), MountError> {
    let table = read_table(place)?;
    let Some(mounted) = table.top_at(place) else { return Ok(()) };
    if mounted.options.split(',').any(|option| option == "ro") {
        return Ok(());
    }
    mount(None::<&str>, place, None::<&str>, MsFlags::MS_REMOUNT, Some("abort"))
        .map_err(|errno| MountError::io("abort the file system at", place, errno))
}

/// Mounts `source`, which has the volume's `content`, at `place` with `flags`. Replaces a mount
/// that a killed call left. Fails if another mount or a file is there.
pub fn mount_content(
    source: MountSource<'_>,
    content: &VolumeContent,
    place: &Path,
    flags: &BTreeSet<String>,
) -> Result<(), MountError> {
    unmount_content(place, content)?;
    if !place::is_empty(place)? {
        return Err(MountError::NotEmpty { path: place.to_owned() });
    }
    mount_at(source, place).map_err(|errno| MountError::io("mount", place, errno))?;
    if flags.is_empty() {
        return Ok(());
    }
    // A bind mount takes flags only when remounted. Its inherited flags must be repeated: in a user
    // namespace the kernel refuses to drop them.
    let table = read_table(place)?;
    let came_with = table.top_at(place).map(|mount| mount.options.as_str()).unwrap_or_default();
    let is_wanted =
        |name: &str| flags.contains(name) || came_with.split(',').any(|option| option == name);
    let all = MOUNT_FLAGS.iter().filter(|(name, _)| is_wanted(name));
    let all = all.fold(MsFlags::MS_BIND | MsFlags::MS_REMOUNT, |all, (_, flag)| all | *flag);
    mount(None::<&str>, place, None::<&str>, all, None::<&str>)
        .map_err(|errno| MountError::io("set the flags of", place, errno))
}

fn mount_at(source: MountSource<'_>, place: &Path) -> Result<(), Errno> {
    let none = None::<&str>;
    let (device, fs, readonly) = match source {
        MountSource::Bind(source) => {
            return mount(Some(source), place, none, MsFlags::MS_BIND, none);
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
    mount(Some(device), place, Some(fs.name()), flags, Some(data))
}

/// Unmounts whatever is mounted at `place`. Missing is success.
pub fn unmount_any(place: &Path) -> Result<(), MountError> {
    while is_mount_point(place)? {
        match umount2(place, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(Errno::EBUSY) => return Err(MountError::Busy { path: place.to_owned() }),
            Err(errno) => return Err(MountError::io("unmount", place, errno)),
        }
    }
    Ok(())
}

/// Unmounts all mounts of this content at `place`. Missing is success.
pub fn unmount_content(place: &Path, content: &VolumeContent) -> Result<(), MountError> {
    loop {
        match find_presence(place, content)? {
            Presence::Absent => return Ok(()),
            Presence::Foreign => return Err(MountError::Foreign { path: place.to_owned() }),
            Presence::Volume => {}
        }
        match umount2(place, MntFlags::UMOUNT_NOFOLLOW) {
            // Another process unmounted it meanwhile.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(Errno::EBUSY) => return Err(MountError::Busy { path: place.to_owned() }),
            Err(errno) => return Err(MountError::io("unmount", place, errno)),
        }
    }
}
