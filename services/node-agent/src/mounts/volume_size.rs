//! How large the device of a mounted volume is, and the file system on it.
//!
//! **Promises** that sizes are the kernel's or the file system's own, and that the bytes which
//! encryption or a partition table takes do not count as missing.
//!
//! **Never** writes to a device.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;
/// Bytes of a sector, in sysfs.
const SECTOR_BYTES: u64 = 512;
/// Largest header of an encrypted or partitioned device, in bytes. LUKS takes 16 MiB.
const HEADER_BYTES_MAX: u64 = 64 * MIB;
/// Devices that are read, each below the last, at most.
const LAYERS_MAX: usize = 8;

/// How large a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VolumeSize {
    /// The device that is used, in bytes.
    pub(super) device: u64,
    /// The largest device that it is made of, in bytes.
    below: u64,
    /// The file system on it; none for a block device.
    pub(super) file_system: Option<FileSystemSize>,
}

/// How large a file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileSystemSize {
    /// In bytes.
    pub(super) bytes: u64,
    /// Largest difference from the size of its device, in bytes.
    slack: u64,
}

impl VolumeSize {
    /// Whether the volume has this many bytes.
    pub(super) fn reaches(&self, required: u64) -> bool {
        let with_header = self.device.saturating_add(HEADER_BYTES_MAX);
        let is_header = self.below >= required && with_header >= required;
        let needed = required.min(self.device);
        (self.device >= required || is_header)
            && self.file_system.is_none_or(|size| size.bytes.saturating_add(size.slack) >= needed)
    }
}

/// The size of the device at the path, and of the file system on it. `source` is the device of the
/// mount. None if the kernel lists no block device for it.
pub(super) fn read_size(path: &Path, source: Option<&Path>) -> io::Result<Option<VolumeSize>> {
    let metadata = std::fs::metadata(path)?;
    let number = match source {
        None if metadata.file_type().is_block_device() => metadata.rdev(),
        None => return Ok(None),
        Some(_) => metadata.dev(),
    };
    let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
    let Ok(dir) = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return Ok(None);
    };
    let device = device_bytes(&dir)?;
    let below = layers(dir).filter_map(|dir| device_bytes(&dir).ok()).max().unwrap_or(device);
    let file_system = source.map(|source| file_system_size(path, source)).transpose()?;
    Ok(Some(VolumeSize { device, below, file_system }))
}

fn device_bytes(dir: &Path) -> io::Result<u64> {
    let sectors = std::fs::read_to_string(dir.join("size"))?;
    Ok(sectors.trim().parse::<u64>().unwrap_or_default().saturating_mul(SECTOR_BYTES))
}

/// The device, then the devices below it, as long as each is made of one other.
fn layers(dir: PathBuf) -> impl Iterator<Item = PathBuf> {
    std::iter::successors(Some(dir), |dir| {
        if dir.join("partition").exists() {
            return dir.parent().map(Path::to_owned);
        }
        let mut slaves = std::fs::read_dir(dir.join("slaves")).ok()?.filter_map(Result::ok);
        match (slaves.next(), slaves.next()) {
            (Some(only), None) => std::fs::canonicalize(only.path()).ok(),
            _ => None,
        }
    })
    .take(LAYERS_MAX)
}

fn file_system_size(path: &Path, source: &Path) -> io::Result<FileSystemSize> {
    // Ext does not use blocks at the device's end that are too few for a group.
    if let Some(bytes) = ext_bytes(source) {
        return Ok(FileSystemSize { bytes, slack: 32 * MIB });
    }
    let stat = nix::sys::statvfs::statvfs(path).map_err(io::Error::from)?;
    let bytes = stat.blocks().saturating_mul(stat.fragment_size());
    // `statvfs` does not count logs and tables.
    Ok(FileSystemSize { bytes, slack: (bytes / 8).max(128 * MIB) })
}

/// The size of an ext2, ext3 or ext4 by its superblock. `statvfs` does not count its tables, which
/// may be a quarter of it.
fn ext_bytes(device: &Path) -> Option<u64> {
    let mut superblock = [0; 1024];
    File::open(device).ok()?.read_exact_at(&mut superblock, 1024).ok()?;
    read_superblock(&superblock)
}

fn read_superblock(superblock: &[u8; 1024]) -> Option<u64> {
    let read = |at: usize| {
        let bytes = superblock[at..at + 4].try_into().unwrap_or_default();
        u64::from(u32::from_le_bytes(bytes))
    };
    let is_ext = superblock[0x38..0x3a] == [0x53, 0xef];
    let has_64_bits = read(0x60) & 0x80 != 0;
    let high = if has_64_bits { read(0x150) << 32 } else { 0 };
    let block = 1024_u64.checked_shl(u32::try_from(read(0x18)).ok()?)?;
    is_ext.then(|| (high | read(0x4)).saturating_mul(block))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn size(device: u64, below: u64, file_system: Option<(u64, u64)>) -> VolumeSize {
        let file_system = file_system.map(|(bytes, slack)| FileSystemSize { bytes, slack });
        VolumeSize { device, below, file_system }
    }

    #[test]
    fn a_size_is_reached_by_device_and_file_system() {
        let header = 16 * MIB;
        for (size, reaches) in [
            (size(15 * GIB, 15 * GIB, None), true),
            (size(10 * GIB, 10 * GIB, None), false),
            // Encrypted, or a partition.
            (size(15 * GIB - header, 15 * GIB, Some((15 * GIB - header, 0))), true),
            // A part of a large disk.
            (size(10 * GIB, 100 * GIB, None), false),
            (size(15 * GIB, 15 * GIB, Some((15 * GIB - 9 * MIB, 32 * MIB))), true),
            (size(15 * GIB, 15 * GIB, Some((10 * GIB, 2 * GIB))), false),
            (size(400 * MIB, 400 * MIB, Some((320 * MIB, 32 * MIB))), false),
            // The device is larger than was requested.
            (size(20 * GIB, 20 * GIB, Some((15 * GIB, 0))), true),
        ] {
            assert_eq!(
                size.reaches(if size.device < GIB { 400 * MIB } else { 15 * GIB }),
                reaches,
                "{size:?}"
            );
        }
    }

    #[test]
    fn ext_is_as_large_as_its_superblock_says() {
        let mut superblock = [0; 1024];
        superblock[0x4..0x8].copy_from_slice(&5_u32.to_le_bytes());
        superblock[0x18] = 2;
        assert_eq!(read_superblock(&superblock), None, "no magic");
        superblock[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
        assert_eq!(read_superblock(&superblock), Some(5 * 4096));
        superblock[0x150] = 1;
        assert_eq!(read_superblock(&superblock), Some(5 * 4096), "not of 64 bits");
        superblock[0x60] = 0x80;
        assert_eq!(read_superblock(&superblock), Some(((1 << 32) + 5) * 4096));
    }
}
