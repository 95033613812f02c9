//! A person's word that nothing of a volume is left here, for a plugin that never takes it down
//! (rule 18).
//!
//! **Owns** at which paths a plugin has answered an unpublish or unstage with an error while
//! nothing was mounted there.
//!
//! **Promises** that a word is taken only for a path of which that was known before it was said,
//! and at which nothing was staged or published since. So a word said of one staging is never taken
//! for a later one. It is kept in memory: after a restart the plugin is asked once more.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::access::AttachmentMode;
use berth_host::DeviceNumber;
use berth_host::process::list_pids;

use super::local_problem;
use crate::host_pool::VolumeHost;
use crate::journal::JournalledUse;

/// Paths that are remembered. One that is forgotten costs the person a second word.
const PATHS_MAX: usize = 4096;
/// Processes that a problem names.
const NAMED_MAX: usize = 4;

/// Paths that a plugin does not take down although nothing is mounted there.
#[derive(Debug, Clone, Default)]
pub(super) struct RefusedPaths(Arc<Mutex<BTreeSet<PathBuf>>>);

impl RefusedPaths {
    /// Notes a refusal. Whether it was noted before.
    pub(super) fn add_refusal(&self, path: &Path) -> bool {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.len() >= PATHS_MAX && !paths.contains(path) {
            paths.pop_first();
        }
        !paths.insert(path.to_owned())
    }

    /// Something is staged or published there: what was refused before says nothing any more.
    pub(super) fn forget_refusal(&self, path: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }
}

/// Refuses while a process has the volume's block device open: no mount table tells of that.
pub(super) async fn check_device_unused(
    host: &VolumeHost,
    noted: Option<&JournalledUse>,
) -> Result<(), Problem> {
    let block = noted.filter(|entry| entry.attachment == AttachmentMode::BlockDevice);
    let disk = block.and_then(|entry| entry.disk.as_ref());
    let Some(device) = disk.and_then(|disk| DeviceNumber::parse(&disk.device)) else {
        return Ok(());
    };
    let look = host.run("look which processes have a device open", move || openers(device));
    let openers = look.await.map_err(local_problem(Code::UnmountFailed))?;
    let openers = openers.map_err(local_problem(Code::UnmountFailed))?;
    if openers.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = openers.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let message = format!("its block device is still open in processes {}", named.join(", "));
    let next = "end these processes; Berth ends none, and the release goes on by itself then";
    Err(Problem::new(Code::VolumeHeldByProcess, message).retryable().next(next))
}

/// The processes that have a block device open. What cannot be read may have.
fn openers(device: DeviceNumber) -> std::io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for pid in list_pids()? {
        let files = match fs::read_dir(format!("/proc/{pid}/fd")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            files => files?,
        };
        let is_device = |file: &fs::DirEntry| {
            fs::metadata(file.path()).is_ok_and(|seen| {
                seen.file_type().is_block_device() && DeviceNumber::from_raw(seen.rdev()) == device
            })
        };
        if files.flatten().any(|file| is_device(&file)) {
            found.push(pid);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_until_something_is_staged_there_again() {
        let (paths, staging) = (RefusedPaths::default(), Path::new("/s/vol/staging"));
        assert!(!paths.add_refusal(staging), "the first one is no ground for a word yet");
        assert!(paths.add_refusal(staging));
        paths.forget_refusal(staging);
        assert!(!paths.add_refusal(staging), "what was staged since is not what was refused");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let paths = RefusedPaths::default();
        for at in 0..PATHS_MAX + 10 {
            paths.add_refusal(Path::new(&format!("/s/{at:05}")));
        }
        assert_eq!(paths.0.lock().unwrap().len(), PATHS_MAX);
    }

    #[test]
    fn a_device_that_nobody_has_open_has_no_openers() {
        assert_eq!(openers(DeviceNumber { major: 4095, minor: 4095 }).unwrap(), Vec::<u32>::new());
    }
}
