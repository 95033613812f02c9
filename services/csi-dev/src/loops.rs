//! Loop devices: images as block devices.
//!
//! Owns: binding an image to a device, finding and releasing it. Promises: asks the kernel each
//! time, so devices bound by a killed process are found. Never: touches a device of another file.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::tool::{LOSETUP, ToolError};

/// Attempts to bind a device, because another process may take the free one first.
const TRIES: u32 = 5;

/// A device that an image is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopDevice {
    pub device: String,
    /// The device number, as `stat` shows it for the device node and for mounts of it.
    pub number: u64,
    pub readonly: bool,
    /// Whether the kernel releases it with its last user.
    pub going: bool,
}

#[derive(Debug, Error)]
pub enum LoopError {
    #[error("the loop device of {} cannot be bound or found", image.display())]
    Tool { image: PathBuf, source: ToolError },
    #[error("cannot look at {device}; is /dev the system's own?")]
    Node { device: String, source: io::Error },
}

/// The devices that `image` is bound to.
pub fn find(image: &Path) -> Result<Vec<LoopDevice>, LoopError> {
    let args = ["--noheadings", "--raw", "--output", "NAME,RO,AUTOCLEAR", "--associated"];
    let listed = losetup(image, args.map(AsRef::as_ref).into_iter().chain([image.as_os_str()]))?;
    let mut loops = Vec::new();
    for line in listed.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [device, readonly, going] = fields[..] else { continue };
        // Another process released it meanwhile.
        let Some(number) = number(device)? else { continue };
        let (readonly, going) = (readonly == "1", going == "1");
        loops.push(LoopDevice { device: device.to_owned(), number, readonly, going });
    }
    Ok(loops)
}

/// Binds `image` to a free device, and returns its path.
pub fn bind(image: &Path, readonly: bool) -> Result<String, LoopError> {
    let readonly: &[&str] = if readonly { &["--read-only"] } else { &[] };
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let args = ["--find", "--show"].iter().chain(readonly).map(AsRef::as_ref);
        match losetup(image, args.chain([image.as_os_str()])) {
            Ok(device) => return Ok(device.trim().to_owned()),
            Err(LoopError::Tool { source: ToolError::Failed { .. }, .. }) if tries > 0 => {}
            Err(error) => return Err(error),
        }
    }
}

/// Has the kernel read the size of the image again.
pub fn refresh_size(image: &Path, device: &str) -> Result<(), LoopError> {
    losetup(image, ["--set-capacity", device].map(AsRef::as_ref)).map(drop)
}

/// Releases a device of `image`, at once or with its last user.
pub fn release(image: &Path, device: &LoopDevice) -> Result<(), LoopError> {
    if device.going {
        return Ok(());
    }
    losetup(image, ["--detach", &device.device].map(AsRef::as_ref)).map(drop)
}

fn losetup<'a>(
    image: &Path,
    args: impl IntoIterator<Item = &'a OsStr>,
) -> Result<String, LoopError> {
    let done = LOSETUP.run(image.parent().unwrap_or(image), args);
    done.map_err(|source| LoopError::Tool { image: image.to_owned(), source })
}

fn number(device: &str) -> Result<Option<u64>, LoopError> {
    match fs::metadata(device) {
        Ok(meta) => Ok(Some(meta.rdev())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LoopError::Node { device: device.to_owned(), source }),
    }
}
