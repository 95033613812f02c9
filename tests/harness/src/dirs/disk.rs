//! A small disk that a test can fill.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// The file that takes all free space.
const FILLER: &str = ".filler";

/// A tmpfs of its own size, unmounted when dropped. Mounting needs root.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Makes `path`, and mounts a disk of this size there.
    ///
    /// # Panics
    /// Without root.
    pub fn mount(path: impl Into<PathBuf>, bytes: u64) -> Self {
        let path = path.into();
        fs::create_dir_all(&path).expect("the mount point can be made");
        let options = format!("size={bytes},mode=0700");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("berth-disk"), &path, Some("tmpfs"), flags, Some(options.as_str()))
            .expect("root can mount a tmpfs");
        Self { path }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes all free space: the next write to the disk fails with `ENOSPC`.
    pub fn fill(&self) {
        let mut filler = File::create(self.path.join(FILLER)).expect("a file needs no space yet");
        for size in [1 << 20, 1 << 12, 1] {
            let block = vec![0; size];
            while filler.write_all(&block).is_ok() {}
        }
    }

    /// Gives the space back.
    pub fn free(&self) {
        // Truncated first: a program that another test starts may have the file open for a moment,
        // which keeps a removed file's blocks. Fails only when the disk was not filled.
        let _ = OpenOptions::new().write(true).truncate(true).open(self.path.join(FILLER));
        let _ = fs::remove_file(self.path.join(FILLER));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Detached: a process that ends later may still use its files.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    }
}
