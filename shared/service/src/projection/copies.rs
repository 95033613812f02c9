//! Copies under way: volumes that are being created from another volume, or from a snapshot of it.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::volume::storage::Stage;
use berth_domain::volume::{Volume, name_in};
use berth_domain::{SnapshotId, VolumeKey};

/// A volume, or a snapshot of it.
pub type CopySource = (VolumeKey, Option<SnapshotId>);

/// The copies under way, by their source.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copies(BTreeMap<CopySource, BTreeSet<VolumeKey>>);

impl Copies {
    /// The volumes that are being created from the source, as names for callers of its namespace.
    pub fn copies_of(&self, source: &CopySource) -> Vec<String> {
        let copies = self.0.get(source).into_iter().flatten();
        copies.map(|copy| name_in(&source.0.namespace, copy)).collect()
    }

    /// The source that the volume is being created from.
    pub(super) fn source_of(key: &VolumeKey, volume: &Volume) -> Option<CopySource> {
        let spec = volume.spec.as_ref()?;
        let origin = spec.provision()?.origin.as_ref()?;
        let is_under_way = matches!(spec.stage(), Stage::Unused | Stage::Creating);
        let source = VolumeKey::new(key.namespace.clone(), origin.volume.clone());
        is_under_way.then(|| (source, origin.snapshot.clone()))
    }

    pub(super) fn record_change(
        &mut self,
        copy: &VolumeKey,
        old: Option<CopySource>,
        new: Option<CopySource>,
    ) {
        if old == new {
            return;
        }
        if let Some(old) = old
            && let Some(copies) = self.0.get_mut(&old)
        {
            copies.remove(copy);
            if copies.is_empty() {
                self.0.remove(&old);
            }
        }
        if let Some(new) = new {
            self.0.entry(new).or_default().insert(copy.clone());
        }
    }
}
