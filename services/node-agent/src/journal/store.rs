//! The journal on disk.

use std::path::PathBuf;

use berth_service::process::chain;

use super::JournalError;
use super::entry::{EntryError, EntryKind, JournalChange, key, value};
use super::index::ForgottenDetaches;
use berth_durable::{Durable, Entries};

/// What is journalled.
const VOLUMES: &str = "volumes";

pub(super) struct JournalStore {
    path: PathBuf,
    disk: Durable,
}

impl JournalStore {
    /// Opens it, and reads every entry.
    pub(super) fn open(path: PathBuf) -> Result<(Self, Vec<JournalChange>), JournalError> {
        let (disk, entries) = Durable::open(path.clone(), VOLUMES)?;
        let store = Self { path, disk };
        let entries = store.read(entries)?;
        Ok((store, entries))
    }

    pub(super) fn is_open(&self) -> bool {
        self.disk.is_open()
    }

    /// Opens it after a write that failed, and reads every entry.
    pub(super) fn open_again(&mut self) -> Result<Vec<JournalChange>, JournalError> {
        let entries = self.disk.open_again()?;
        self.read(entries).inspect_err(|error| self.disk.close(chain(error)))
    }

    /// Writes a change and what it makes room with, all or nothing, synced.
    pub(super) fn write(
        &mut self,
        change: &JournalChange,
        forgotten: &ForgottenDetaches,
    ) -> Result<(), JournalError> {
        let mut changes = Vec::new();
        match change {
            JournalChange::Use(volume, alloc, entry) => {
                changes.push((key(volume, alloc, EntryKind::Use), Some(value(entry)?)));
            }
            JournalChange::Detached(volume, alloc, detached) => {
                if detached.done {
                    changes.push((key(volume, alloc, EntryKind::Use), None));
                }
                changes.push((key(volume, alloc, EntryKind::Detached), Some(value(detached)?)));
            }
        }
        let forget = |(volume, alloc)| (key(volume, alloc, EntryKind::Detached), None);
        changes.extend(forgotten.iter().map(|(volume, alloc)| forget((volume, alloc))));
        let pairs = changes.into_iter().map(|(key, value)| (key.into_bytes(), value));
        Ok(self.disk.write(pairs)?)
    }

    fn read(&self, entries: Entries) -> Result<Vec<JournalChange>, JournalError> {
        let read = |(key, value): (Vec<u8>, Vec<u8>)| {
            JournalChange::decode_entry(&key, &value).map_err(|source: EntryError| {
                let key = String::from_utf8_lossy(&key).into_owned();
                JournalError::Entry { path: self.path.clone(), key, source }
            })
        };
        entries.into_iter().map(read).collect()
    }
}
