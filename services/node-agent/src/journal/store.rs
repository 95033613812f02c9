//! The journal's file: encodes changes and decodes entries.
//!
//! **Promises** that a change and the detaches that it displaces are written together and synced.

use std::path::PathBuf;

use berth_service::process::chain;
use berth_telemetry::metric::JOURNAL_WRITES;

use super::entry::{EntryError, EntryKind, JournalChange, encode_value, entry_key};
use super::error::JournalError;
use super::index::ForgottenDetaches;
use berth_durable::{Durable, Entries};

/// The keyspace of the entries.
const JOURNAL_KEYSPACE: &str = "volumes";

pub(super) struct JournalStore {
    path: PathBuf,
    disk: Durable,
}

impl JournalStore {
    /// Opens the file and reads every entry.
    pub(super) fn open(path: PathBuf) -> Result<(Self, Vec<JournalChange>), JournalError> {
        let (disk, entries) = Durable::open(path.clone(), JOURNAL_KEYSPACE)?;
        let store = Self { path, disk };
        let entries = store.decode_entries(entries)?;
        Ok((store, entries))
    }

    pub(super) fn is_open(&self) -> bool {
        self.disk.is_open()
    }

    /// Opens the file after a failed write and reads every entry.
    pub(super) fn open_again(&mut self) -> Result<Vec<JournalChange>, JournalError> {
        let entries = self.disk.open_again()?;
        self.decode_entries(entries).inspect_err(|error| self.disk.close(chain(error)))
    }

    /// Writes a change and removes the forgotten detaches, all or nothing, synced.
    pub(super) fn write(
        &mut self,
        change: &JournalChange,
        forgotten: &ForgottenDetaches,
    ) -> Result<(), JournalError> {
        let mut changes = Vec::new();
        match change {
            JournalChange::Use(volume, alloc, entry) => {
                changes
                    .push((entry_key(volume, alloc, EntryKind::Use), Some(encode_value(entry)?)));
            }
            JournalChange::Detached(volume, alloc, detached) => {
                if detached.done {
                    changes.push((entry_key(volume, alloc, EntryKind::Use), None));
                }
                changes.push((
                    entry_key(volume, alloc, EntryKind::Detached),
                    Some(encode_value(detached)?),
                ));
            }
        }
        let forget = |(volume, alloc)| (entry_key(volume, alloc, EntryKind::Detached), None);
        changes.extend(forgotten.iter().map(|(volume, alloc)| forget((volume, alloc))));
        let pairs = changes.into_iter().map(|(key, value)| (key.into_bytes(), value));
        self.disk.write(pairs)?;
        JOURNAL_WRITES.add(1, []);
        Ok(())
    }

    fn decode_entries(&self, entries: Entries) -> Result<Vec<JournalChange>, JournalError> {
        let decode = |(key, value): (Vec<u8>, Vec<u8>)| {
            JournalChange::decode_entry(&key, &value).map_err(|source: EntryError| {
                let key = String::from_utf8_lossy(&key).into_owned();
                JournalError::Entry { path: self.path.clone(), key, source }
            })
        };
        entries.into_iter().map(decode).collect()
    }
}
