//! The directory of one volume or snapshot.
//!
//! Owns: the names of its files, its lock, and how the directory is created and removed. Promises:
//! a directory keeps its lock until it is removed completely, so no other process finds half of it.
//! Never: knows the content of the files.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::BackendError;
use super::file;
use crate::lock::{Lock, LockError};
use crate::tool;

/// The record. The volume or snapshot exists while this file does.
pub(super) fn record(dir: &Path) -> PathBuf {
    dir.join("meta.json")
}

/// The recorded use of a volume.
pub(super) fn state(dir: &Path) -> PathBuf {
    dir.join("state.json")
}

/// Why a volume is abnormal, as a JSON string.
pub(super) fn abnormal(dir: &Path) -> PathBuf {
    dir.join("abnormal.json")
}

/// The slots of the calls of a volume.
pub(super) fn calls(dir: &Path) -> PathBuf {
    dir.join("calls")
}

fn lock_file(dir: &Path) -> PathBuf {
    dir.join("lock")
}

/// Locks the volume or snapshot in `dir`, also while its content is copied.
pub fn lock(dir: &Path) -> Result<Lock, BackendError> {
    Ok(Lock::wait(&lock_file(dir))?)
}

/// As [`lock`]; none if the directory was removed.
pub(super) fn lock_unless_gone(dir: &Path) -> Result<Option<Lock>, BackendError> {
    match Lock::wait(&lock_file(dir)) {
        Err(LockError::Gone { .. }) => Ok(None),
        lock => Ok(Some(lock?)),
    }
}

/// Creates the directory and takes its lock. Retries if another process removes it meanwhile.
pub(super) fn make(dir: &Path) -> Result<Lock, BackendError> {
    let mut tries = 3;
    loop {
        file::make_dir(dir)?;
        tries -= 1;
        match Lock::wait(&lock_file(dir)) {
            Err(LockError::Gone { .. }) if tries > 0 => {}
            lock => return Ok(lock?),
        }
    }
}

/// Removes `dir` of a volume or snapshot that does not exist. The lock file is removed last.
pub(super) fn remove(dir: &Path, lock: Lock) -> Result<(), BackendError> {
    let _idle = tool::idle(dir)?;
    let failed = |source| BackendError::io("list", dir, source);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name() != "lock" {
            file::remove(&entry.path())?;
        }
    }
    file::remove(dir)?;
    drop(lock);
    Ok(())
}
