//! An operator's word that nothing of a volume is left here, for a plugin that never takes the
//! volume down (rule 18).
//!
//! **Owns** the paths at which a plugin refused an unpublish or unstage while nothing was mounted
//! there.
//!
//! **Promises** that the word counts only at a path that was refused before, and at which nothing
//! was staged or published since. So a word about one staging never counts for a later staging. The
//! paths are kept in memory: after a restart the plugin must refuse once more.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::access::AttachmentMode;
use berth_host::process::list_pids;
use berth_host::{DeviceNumber, HolderProcess, name_process};

use super::node_faults::local_problem;
use super::processes::fact_of;
use crate::host::pool::VolumeHost;
use crate::journal::JournalledUse;

/// Largest number of paths that are remembered. A forgotten path costs the operator a second word.
const PATHS_MAX: usize = 4096;
/// Largest number of processes that a problem names.
const NAMED_MAX: usize = 4;

/// The refused paths. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct RefusedPaths(Arc<Mutex<BTreeSet<PathBuf>>>);

impl RefusedPaths {
    /// Remembers a refusal. Returns whether it was known.
    pub(super) fn add_refusal(&self, path: &Path) -> bool {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.len() >= PATHS_MAX && !paths.contains(path) {
            paths.pop_first();
        }
        !paths.insert(path.to_owned())
    }

    /// Forgets a refusal, because something is staged or published at the path now.
    pub(super) fn forget_refusal(&self, path: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }
}

/// Refuses while a process has the volume's block device open. No mount table shows that.
pub(super) async fn check_device_unused(
    host: &VolumeHost,
    noted: Option<&JournalledUse>,
) -> Result<(), Problem> {
    let block = noted.filter(|entry| entry.attachment == AttachmentMode::BlockDevice);
    let disk = block.and_then(|entry| entry.disk.as_ref());
    let Some(device) = disk.and_then(|disk| DeviceNumber::parse(&disk.device)) else {
        return Ok(());
    };
    let look = host.run("look which processes have a device open", move || list_openers(device));
    let openers = look.await.map_err(local_problem(Code::UnmountFailed))?;
    let openers = openers.map_err(local_problem(Code::UnmountFailed))?;
    if openers.is_empty() {
        return Ok(());
    }
    let name = |one: &HolderProcess| format!("{} ({})", one.pid, one.command);
    let named: Vec<String> = openers.iter().take(NAMED_MAX).map(name).collect();
    let message = format!("its block device is still open in processes {}", named.join(", "));
    let next = "end these processes; Berth ends none, and the release goes on by itself then";
    let problem = Problem::new(Code::VolumeHeldByProcess, message);
    Err(problem.held_by(openers.iter().map(fact_of)).retryable().next(next))
}

/// Lists the processes that have a block device open. Fails if a process cannot be inspected.
fn list_openers(device: DeviceNumber) -> std::io::Result<Vec<HolderProcess>> {
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
            found.push(name_process(pid));
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
        assert_eq!(list_openers(DeviceNumber { major: 4095, minor: 4095 }).unwrap(), Vec::new());
    }
}
