//! The volumes that are registered for each handle, and the volume that the handle's key names.
//!
//! **Promises** that nearly all handles are kept in a few bytes: those whose key names the one
//! volume that is registered with them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::slice;

use berth_contract::record::{self, UnreadableRecord};
use berth_domain::volume::{Handle, HandleOwner};
use berth_domain::{PluginId, VolumeKey};

/// All handles that a key or a spec names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Handles {
    /// By plugin and external id.
    entries: BTreeMap<PluginId, HashMap<Box<str>, HandleEntry>>,
    /// The handles whose key is not that of the one volume that is registered with it.
    disagreeing: BTreeSet<Handle>,
}

/// The volumes and the key of one handle.
#[derive(Debug, PartialEq, Eq)]
pub struct HandleEntry(EntryKind);

#[derive(Debug, PartialEq, Eq)]
enum EntryKind {
    /// The key names the one volume that is registered, and there are no strays.
    Settled {
        revision: u64,
        owner: VolumeKey,
    },
    Unsettled(Box<EntryParts>),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct EntryParts {
    guard: Option<(u64, KeyOwner)>,
    registered: Vec<VolumeKey>,
    strays: Vec<VolumeKey>,
}

/// The volume that a key names, if this version can read it.
type KeyOwner = Result<VolumeKey, UnreadableRecord>;

/// The key of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleGuard<'a> {
    /// Its revision.
    pub revision: u64,
    /// The volume that it names, if this version can read it.
    pub owner: Result<&'a VolumeKey, &'a UnreadableRecord>,
}

impl Handles {
    /// The entry of a handle.
    pub fn get(&self, handle: &Handle) -> Option<&HandleEntry> {
        self.entries.get(&handle.plugin)?.get(handle.external_id.as_str())
    }

    /// The handles whose key and registered volumes disagree.
    pub fn iter_disagreeing(&self) -> impl Iterator<Item = (&Handle, &HandleEntry)> {
        self.disagreeing.iter().filter_map(|handle| Some((handle, self.get(handle)?)))
    }

    /// The handles of a plugin by their external ids, in no order.
    pub fn iter_plugin(&self, plugin: &PluginId) -> impl Iterator<Item = (&str, &HandleEntry)> {
        let own = self.entries.get(plugin).into_iter().flatten();
        own.map(|(external_id, entry)| (external_id.as_ref(), entry))
    }

    /// Whether no key and no spec names a handle.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
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
            self.change(old, |parts| parts.registered.retain(|other| other != volume));
        }
        if let Some(new) = new {
            self.change(new, |parts| {
                parts.registered.push(volume.clone());
                parts.registered.sort();
            });
        }
    }

    /// Applies a change of the handles that only claims of the volume name.
    pub(super) fn record_strays(&mut self, volume: &VolumeKey, old: Vec<Handle>, new: Vec<Handle>) {
        if old == new {
            return;
        }
        for handle in old {
            self.change(handle, |parts| parts.strays.retain(|other| other != volume));
        }
        for handle in new {
            self.change(handle, |parts| {
                parts.strays.push(volume.clone());
                parts.strays.sort();
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
                Err(unreadable)
            }
        };
        self.change(handle, |parts| parts.guard = Some((revision, owner)));
    }

    pub(super) fn delete(&mut self, handle: Handle) {
        self.change(handle, |parts| parts.guard = None);
    }

    fn change(&mut self, handle: Handle, change: impl FnOnce(&mut EntryParts)) {
        let of_plugin = self.entries.entry(handle.plugin.clone()).or_default();
        let known = of_plugin.remove(handle.external_id.as_str());
        let mut parts = known.map(HandleEntry::into_parts).unwrap_or_default();
        change(&mut parts);
        if parts.agrees() {
            self.disagreeing.remove(&handle);
        } else {
            self.disagreeing.insert(handle.clone());
        }
        if parts != EntryParts::default() {
            of_plugin.insert(handle.external_id.into(), HandleEntry::from_parts(parts));
        } else if of_plugin.is_empty() {
            self.entries.remove(&handle.plugin);
        }
    }
}

impl HandleEntry {
    /// The handle's key, if there is one.
    pub fn guard(&self) -> Option<HandleGuard<'_>> {
        let (revision, owner) = match &self.0 {
            EntryKind::Settled { revision, owner } => (*revision, Ok(owner)),
            EntryKind::Unsettled(parts) => {
                let (revision, owner) = parts.guard.as_ref()?;
                (*revision, owner.as_ref())
            }
        };
        Some(HandleGuard { revision, owner })
    }

    /// The volumes that are registered with it. More than one is a fault: of an older version, of a
    /// restored backup, or of keys that an operator wrote by hand.
    pub fn registered(&self) -> &[VolumeKey] {
        match &self.0 {
            EntryKind::Settled { owner, .. } => slice::from_ref(owner),
            EntryKind::Unsettled(parts) => &parts.registered,
        }
    }

    /// Volumes that are not registered with it, but have claims that were granted for it: their
    /// registration was lost.
    pub fn strays(&self) -> &[VolumeKey] {
        match &self.0 {
            EntryKind::Settled { .. } => &[],
            EntryKind::Unsettled(parts) => &parts.strays,
        }
    }

    fn from_parts(parts: EntryParts) -> Self {
        let settled = match (parts.registered.as_slice(), &parts.guard, parts.strays.as_slice()) {
            // The registered volume is kept, which shares the text of its ids with its record.
            ([volume], Some((revision, Ok(owner))), []) if owner == volume => {
                Some(EntryKind::Settled { revision: *revision, owner: volume.clone() })
            }
            _ => None,
        };
        Self(settled.unwrap_or_else(|| EntryKind::Unsettled(Box::new(parts))))
    }

    fn into_parts(self) -> EntryParts {
        match self.0 {
            EntryKind::Settled { revision, owner } => EntryParts {
                guard: Some((revision, Ok(owner.clone()))),
                registered: vec![owner],
                strays: Vec::new(),
            },
            EntryKind::Unsettled(parts) => *parts,
        }
    }
}

impl EntryParts {
    /// Whether the key names the one volume that is registered, or there is neither.
    fn agrees(&self) -> bool {
        match (self.registered.as_slice(), &self.guard) {
            ([], None) => true,
            ([volume], Some((_, Ok(owner)))) => owner == volume,
            _ => false,
        }
    }
}
