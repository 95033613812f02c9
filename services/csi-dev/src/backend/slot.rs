//! Calls in flight, as all instances see them.
//!
//! Owns: one file per slot of a volume; a call holds the lock of its slot until it is answered.
//! Promises: at most one call per slot, also between instances; a killed process frees its slots,
//! since the kernel drops its locks. Never: waits; the caller of a busy slot gets an answer at
//! once.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use berth_csi::{Rpc, Service};
use serde::{Deserialize, Serialize};

use super::error::BackendError;
use super::{encoding, file};
use crate::lock::{LockedFile, try_lock};

/// A slot has at most one call in flight.
///
/// CSI makes the CO responsible for at most one call in flight per volume. Calls on different nodes
/// of a shared volume are made by different instances and do not depend on each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CallSlot {
    /// All controller calls about the volume, also those about a group that it belongs to.
    Controller,
    /// All node calls about the volume on this node.
    Node(String),
}

/// A call in flight, as another instance sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunningCall {
    pub rpc: Rpc,
    /// The instance that serves it.
    pub instance: String,
    pub seq: u64,
    /// When it began, in microseconds since 1970.
    pub since_us: u64,
    /// Whether its caller left: the deadline passed, the caller cancelled, or it died. CSI then
    /// allows the CO to call again, and the plugin to answer ABORTED.
    #[serde(default)]
    pub caller_gone: bool,
}

/// A held slot. Dropping it frees the slot for all instances.
#[derive(Debug)]
pub struct HeldSlot {
    held: LockedFile,
}

/// The first byte of a slot's file; the rest is [`RunningCall`] as JSON.
const WAITED_FOR: &[u8] = b"+";
const CALLER_GONE: &[u8] = b"-";

impl CallSlot {
    /// The slot of `rpc` at the instance of `node`; `None` if calls may overlap freely.
    pub fn of_call(rpc: Rpc, node: &str) -> Option<Self> {
        match rpc.service() {
            Service::Controller | Service::GroupController => Some(Self::Controller),
            Service::Node => Some(Self::Node(node.to_owned())),
            Service::Identity | Service::SnapshotMetadata => None,
        }
    }

    fn path(&self, calls: &Path) -> Result<PathBuf, BackendError> {
        match self {
            Self::Controller => Ok(calls.join("controller")),
            Self::Node(id) => {
                Ok(calls.join("node").join(encoding::encode(id).ok_or(BackendError::Id)?))
            }
        }
    }

    /// Takes the slot in the directory `calls`, or returns the call that has it. The caller holds
    /// the volume's lock, so that no [`Self::running`] takes the slot for a moment.
    pub(super) fn enter(
        &self,
        calls: &Path,
        call: &RunningCall,
    ) -> Result<Result<HeldSlot, RunningCall>, BackendError> {
        let path = self.path(calls)?;
        if let Some(dir) = path.parent() {
            file::make_dir(dir)?;
        }
        let failed = |source| BackendError::io("mark a call in", &path, source);
        let locked = match try_lock(&path)? {
            Ok(locked) => locked,
            Err(file) => return Ok(Err(read(file).map_err(failed)?)),
        };
        let mark = || {
            let mut text = WAITED_FOR.to_vec();
            serde_json::to_writer(&mut text, call)?;
            locked.file().set_len(0)?;
            locked.file().write_all_at(&text, 0)
        };
        mark().map_err(failed)?;
        Ok(Ok(HeldSlot { held: locked }))
    }

    /// The call that has the slot. The caller holds the volume's lock.
    pub(super) fn running(&self, calls: &Path) -> Result<Option<RunningCall>, BackendError> {
        let path = self.path(calls)?;
        if !fs::exists(&path).map_err(|source| BackendError::io("look for", &path, source))? {
            return Ok(None);
        }
        let Err(file) = try_lock(&path)? else { return Ok(None) };
        read(file).map(Some).map_err(|source| BackendError::io("read", &path, source))
    }
}

impl fmt::Display for RunningCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rpc, instance, seq, .. } = self;
        write!(f, "{rpc} (call {seq} of instance {instance})")
    }
}

impl HeldSlot {
    /// Notes that the call's caller left.
    pub fn caller_gone(&self) -> io::Result<()> {
        // A reader never sees a write of one byte half done.
        self.held.file().write_all_at(CALLER_GONE, 0)
    }
}

fn read(mut file: File) -> io::Result<RunningCall> {
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    let (mark, json) = text.split_at_checked(1).unwrap_or((WAITED_FOR, &[]));
    let running: RunningCall = serde_json::from_slice(json)?;
    Ok(RunningCall { caller_gone: mark == CALLER_GONE, ..running })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(seq: u64) -> RunningCall {
        RunningCall {
            rpc: Rpc::NodeStageVolume,
            instance: "n1/1".into(),
            seq,
            since_us: 7,
            caller_gone: false,
        }
    }

    #[test]
    fn a_slot_holds_one_call_and_names_it_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let slot = CallSlot::Node("a/b".into());
        assert_eq!(slot.running(dir.path()).unwrap(), None);
        let held_slot = slot.enter(dir.path(), &call(1)).unwrap().unwrap();
        assert_eq!(slot.running(dir.path()).unwrap(), Some(call(1)));
        assert_eq!(slot.enter(dir.path(), &call(2)).unwrap().unwrap_err(), call(1));
        // Other slots are free.
        assert!(CallSlot::Controller.enter(dir.path(), &call(3)).unwrap().is_ok());
        assert!(CallSlot::Node("b".into()).enter(dir.path(), &call(4)).unwrap().is_ok());
        drop(held_slot);
        assert_eq!(slot.running(dir.path()).unwrap(), None);
        assert!(slot.enter(dir.path(), &call(5)).unwrap().is_ok());
    }

    /// Found by chaos: another call was starting `losetup`, whose child had a copy of every file
    /// handle, so a slot stayed locked after its call was answered.
    #[test]
    fn a_slot_is_free_also_while_a_child_has_a_copy_of_its_handle() {
        let dir = tempfile::tempdir().unwrap();
        let held_slot = CallSlot::Controller.enter(dir.path(), &call(1)).unwrap().unwrap();
        let _copy = held_slot.held.file().try_clone().unwrap();
        drop(held_slot);
        assert_eq!(CallSlot::Controller.running(dir.path()).unwrap(), None);
        assert!(CallSlot::Controller.enter(dir.path(), &call(2)).unwrap().is_ok());
    }

    #[test]
    fn a_caller_that_left_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let held_slot = CallSlot::Controller.enter(dir.path(), &call(1)).unwrap().unwrap();
        held_slot.caller_gone().unwrap();
        let running = CallSlot::Controller.running(dir.path()).unwrap();
        assert_eq!(running, Some(RunningCall { caller_gone: true, ..call(1) }));
    }

    #[test]
    fn what_a_killed_process_wrote_is_no_call() {
        let dir = tempfile::tempdir().unwrap();
        // The content remains, the lock does not.
        fs::write(dir.path().join("controller"), "+{\"rpc\":\"NodeStageVolume\"").unwrap();
        assert_eq!(CallSlot::Controller.running(dir.path()).unwrap(), None);
        assert!(CallSlot::Controller.enter(dir.path(), &call(1)).unwrap().is_ok());
    }
}
