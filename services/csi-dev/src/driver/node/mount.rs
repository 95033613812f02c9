//! Mounting the content of a volume, growing its file system, and giving it to a group.
//!
//! Owns: the file system of an image on this node. Promises: a file system grows with
//! `NodeExpandVolume`, or with a writable mount where the driver has no such call. Never: shrinks a
//! file system, or repairs one that is mounted.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

use berth_csi::Code;
use berth_csi_proxy::chain;

use super::device;
use crate::ability::Ability;
use crate::backend::Volume;
use crate::backing::FsType;
use crate::capability::READ_ONLY;
use crate::driver::Driver;
use crate::driver::refusal::Refusal;
use crate::mounts::{self, MountSource};
use crate::tool::{E2FSCK, RESIZE2FS, ToolError, XFS_GROWFS};

/// What a mount may do besides.
#[derive(Clone, Copy)]
pub(super) struct Preparation {
    /// The volume is mounted nowhere else on this node.
    pub is_first: bool,
    /// No call comes later that lets the file system grow to its device.
    pub is_last: bool,
}

impl Preparation {
    pub(super) fn new(driver: &Driver, is_first: bool) -> Self {
        Self { is_first, is_last: !driver.has(Ability::ExpandNode) }
    }

    /// Whether the mount lets this file system grow. If a call is to do that, the mount does not:
    /// a CO which forgets the call is seen.
    fn grows(self, fs: FsType) -> bool {
        self.is_last || (fs == FsType::Ext4 && !may_grow_mounted_ext4())
    }
}

/// The kernel grows a mounted ext4 only for a process with this capability.
fn may_grow_mounted_ext4() -> bool {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    effective.is_some_and(|effective| effective & CAP_SYS_RESOURCE != 0)
}

/// Mounts the volume from `source`.
pub(super) fn mount_volume(
    volume: &Volume,
    source: MountSource<'_>,
    mount_point: &Path,
    flags: &BTreeSet<String>,
    preparation: Preparation,
) -> Result<(), Refusal> {
    let failed = |error| Refusal::mount(&volume.meta().volume_id, &error);
    let content = device::content(volume)?;
    let written = match source {
        MountSource::Device { device, fs, readonly: false } => Some((device, fs)),
        _ => None,
    };
    if let Some((device, fs)) = written.filter(|_| preparation.is_first) {
        // A killed call may have left a mount.
        mounts::unmount_content(mount_point, &content).map_err(failed)?;
        if preparation.grows(fs) {
            grow_unmounted(volume, fs, device)?;
        }
    }
    mounts::mount_content(source, &content, mount_point, flags).map_err(failed)?;
    match written {
        Some((device, FsType::Xfs))
            if preparation.grows(FsType::Xfs) && !flags.contains(READ_ONLY) =>
        {
            grow_mounted(volume, FsType::Xfs, device, mount_point).map_err(Refusal::midway)
        }
        _ => Ok(()),
    }
}

/// Grows an ext4 to the size of its device before it is mounted. An xfs can grow only while it is
/// mounted.
fn grow_unmounted(volume: &Volume, fs: FsType, device: &str) -> Result<(), Refusal> {
    if fs == FsType::Xfs || ext4_fills(device).unwrap_or(false) {
        return Ok(());
    }
    let grown = E2FSCK.run(volume.dir(), ["-f", "-p", device]);
    let grown = grown.and_then(|_| RESIZE2FS.run(volume.dir(), [device]));
    grown.map(drop).map_err(|error| Refusal::tool(&error, chain(&error)))
}

/// Grows the file system on `device`, mounted at `mount_point`, to the size of the device.
pub(super) fn grow_mounted(
    volume: &Volume,
    fs: FsType,
    device: &str,
    mount_point: &Path,
) -> Result<(), Refusal> {
    let grown = match fs {
        FsType::Ext4 => RESIZE2FS.run(volume.dir(), [device]),
        FsType::Xfs => XFS_GROWFS.run(volume.dir(), [mount_point]),
    };
    grown.map(drop).map_err(|error| {
        let mut refusal = Refusal::tool(&error, chain(&error));
        let is_denied = matches!(
            &error,
            ToolError::Failed { output, .. } if output.contains("Permission denied")
        );
        if is_denied {
            refusal.code = Code::FailedPrecondition;
            refusal.message += "; it grows when it is unstaged and staged again";
        }
        refusal
    })
}

/// Whether the ext4 on `device` is as large as the device, by its superblock.
fn ext4_fills(device: &str) -> io::Result<bool> {
    const AT: u64 = 1024;
    let mut device = File::open(device)?;
    let mut block = [0; 1024];
    device.read_exact_at(&mut block, AT)?;
    let number = |at: usize| {
        u64::from_le_bytes([&block[at..at + 4], &[0; 4]].concat().try_into().unwrap_or_default())
    };
    let blocks = number(0x4) | number(0x150) << 32;
    let block_bytes = 1024_u64 << number(0x18).min(6);
    // Fewer than 64 blocks are not worth growing for.
    let device_bytes = device.seek(SeekFrom::End(0))?;
    Ok(device_bytes.saturating_sub(blocks.saturating_mul(block_bytes)) < 64 * block_bytes)
}

/// Lets `group` read and write the top directory at `mount_point`. New entries inherit the group.
pub(super) fn give_to_group(
    volume_id: &str,
    mount_point: &Path,
    group: u32,
) -> Result<(), Refusal> {
    const READ_WRITE_INHERIT: u32 = 0o2070;
    let give = || {
        let meta = fs::metadata(mount_point)?;
        if meta.gid() != group {
            chown(mount_point, None, Some(group))?;
        }
        if meta.mode() & READ_WRITE_INHERIT == READ_WRITE_INHERIT {
            return Ok(());
        }
        let mode = (meta.mode() | READ_WRITE_INHERIT) & 0o7777;
        fs::set_permissions(mount_point, Permissions::from_mode(mode))
    };
    give().map_err(|error: io::Error| {
        let message = format!("volume {volume_id:?}: cannot give it to the group {group}: {error}");
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => {
                Refusal::new(Code::FailedPrecondition, message).midway()
            }
            _ => Refusal::uncertain(message),
        }
    })
}
