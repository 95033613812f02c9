//! The volumes that are registered for each handle, and the volume that the handle's key names.

use std::collections::{BTreeSet, HashMap};

use berth_contract::record::{self, UnreadableRecord};
use berth_domain::VolumeKey;
use berth_domain::volume::{Handle, HandleOwner};

/// All handles that a key or a spec names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Handles {
    entries: HashMap<Handle, HandleEntry>,
    /// The handles whose key is not that of the one volume that is registered with it.
    disagreeing: BTreeSet<Handle>,
}

/// The volumes and the key of one handle.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HandleEntry {
    /// The handle's key, if there is one.
    pub guard: Option<HandleGuard>,
    /// The volumes that are registered with it. More than one is a fault: of an older version, of a
    /// restored backup, or of keys that an operator wrote by hand.
    pub registered: Vec<VolumeKey>,
    /// Volumes that are not registered with it, but have claims that were granted for it: their
    /// registration was lost.
    pub strays: Vec<VolumeKey>,
}

/// The key of a handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandleGuard {
    /// Its revision.
    pub revision: u64,
    /// The volume that it names, if this version can read it.
    pub owner: Result<VolumeKey, Box<UnreadableRecord>>,
}

impl Handles {
    /// The entry of a handle.
    pub fn get(&self, handle: &Handle) -> Option<&HandleEntry> {
        self.entries.get(handle)
    }

    /// The handles whose key and registered volumes disagree.
    pub fn iter_disagreeing(&self) -> impl Iterator<Item = (&Handle, &HandleEntry)> {
        self.disagreeing.iter().filter_map(|handle| self.entries.get_key_value(handle))
    }

    /// All handles, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Handle, &HandleEntry)> {
        self.entries.iter()
    }

    /// Applies a change of a volume's spec.
    pub(super) fn record_change(
        &mut self,
        volume: &VolumeKey,
        old: Option<Handle>,
        new: Option<Handle>,
    ) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.change(old, |entry| entry.registered.retain(|other| other != volume));
        }
        if let Some(new) = new {
            self.change(new, |entry| {
                // Nearly always it is the only one.
                entry.registered.reserve_exact(1);
                entry.registered.push(volume.clone());
                entry.registered.sort();
            });
        }
    }

    /// Applies a change of the handles that only claims of the volume name.
    pub(super) fn record_strays(&mut self, volume: &VolumeKey, old: Vec<Handle>, new: Vec<Handle>) {
        if old == new {
            return;
        }
        for handle in old {
            self.change(handle, |entry| entry.strays.retain(|other| other != volume));
        }
        for handle in new {
            self.change(handle, |entry| {
                entry.strays.push(volume.clone());
                entry.strays.sort();
            });
        }
    }

    pub(super) fn put(&mut self, key: &str, handle: Handle, revision: u64, value: &[u8]) {
        let owner = match record::read::<HandleOwner>(value) {
            Ok(record) => Ok(VolumeKey::new(record.body.namespace, record.body.volume)),
            Err(error) => {
                let unreadable = error.unreadable_at(key);
                let error = &unreadable.error;
                tracing::error!(key, error, "no other volume is registered for this handle");
                Err(Box::new(unreadable))
            }
        };
        self.change(handle, |entry| entry.guard = Some(HandleGuard { revision, owner }));
    }

    pub(super) fn delete(&mut self, handle: Handle) {
        self.change(handle, |entry| entry.guard = None);
    }

    fn change(&mut self, handle: Handle, change: impl FnOnce(&mut HandleEntry)) {
        let entry = self.entries.entry(handle.clone()).or_default();
        change(entry);
        entry.share_owner();
        let agrees = entry.agrees();
        if entry.guard.is_none() && entry.registered.is_empty() && entry.strays.is_empty() {
            self.entries.remove(&handle);
        }
        if agrees {
            self.disagreeing.remove(&handle);
        } else {
            self.disagreeing.insert(handle);
        }
    }
}

impl HandleEntry {
    /// Has the key name the registered volume by the same text.
    fn share_owner(&mut self) {
        if let Some(HandleGuard { owner: Ok(owner), .. }) = &mut self.guard
            && let Some(registered) = self.registered.iter().find(|volume| *volume == owner)
        {
            *owner = registered.clone();
        }
    }

    /// Whether the key names the one volume that is registered, or there is neither.
    fn agrees(&self) -> bool {
        match (self.registered.as_slice(), &self.guard) {
            ([], None) => true,
            ([volume], Some(HandleGuard { owner: Ok(owner), .. })) => owner == volume,
            _ => false,
        }
    }
}
