//! What is registered of a plugin, by the plugin's ids, and the entries of `volume.external`.
//!
//! **Promises** that registrations of other namespaces are not named.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use berth_contract::message::storage::{
    ExternalSnapshot, ExternalVolume, Externals, ListExternals, Registration,
};
use berth_contract::message::storage_call::{Answered, PluginSnapshotStatus, PluginVolumeStatus};
use berth_domain::volume::Handle;
use berth_domain::volume::storage::Topology;
use berth_domain::{Namespace, PluginId, SnapshotId, VolumeKey};
use berth_service::projection::{HandleEntry, Volumes};
use serde::Serialize;

/// The volume or snapshot that a plugin's id is registered for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdOwner {
    pub volume: VolumeKey,
    pub snapshot: Option<SnapshotId>,
}

impl IdOwner {
    /// This, if the namespace may see it.
    pub fn seen_by(self, namespace: &Namespace) -> Option<Self> {
        namespace.covers(&self.volume.namespace).then_some(self)
    }
}

impl fmt::Display for IdOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VolumeKey { namespace, volume } = &self.volume;
        let snapshot = self.snapshot.as_ref().map(|snapshot| format!("@{snapshot}"));
        write!(f, "{namespace}/{volume}{}", snapshot.unwrap_or_default())
    }
}

/// What is registered of a plugin.
pub enum RegisteredIds<'a> {
    Volumes(&'a Volumes, &'a PluginId),
    /// An id is registered for one snapshot at most.
    Snapshots(BTreeMap<&'a String, IdOwner>),
}

impl<'a> RegisteredIds<'a> {
    pub fn read(volumes: &'a Volumes, query: &'a ListExternals) -> Self {
        if !query.snapshots {
            return Self::Volumes(volumes, &query.plugin);
        }
        let snapshots = volumes.iter().flat_map(|(key, subtree)| {
            let of_volume = subtree.volume.snapshots.iter();
            let of_plugin = of_volume.filter(|(_, snapshot)| snapshot.plugin == query.plugin);
            of_plugin.flat_map(move |(id, snapshot)| {
                let owner = IdOwner { volume: key.clone(), snapshot: Some(id.clone()) };
                snapshot.ids().map(move |external| (external, owner.clone()))
            })
        });
        Self::Snapshots(snapshots.collect())
    }

    /// What this id is registered for.
    pub fn owners(&self, external_id: &str) -> Vec<IdOwner> {
        match self {
            Self::Volumes(volumes, plugin) => {
                let plugin = (*plugin).clone();
                let handle = Handle { plugin, external_id: external_id.to_owned() };
                let entry = volumes.handles().get(&handle);
                let registered = entry.into_iter().flat_map(HandleEntry::registered);
                registered.map(|key| IdOwner { volume: key.clone(), snapshot: None }).collect()
            }
            Self::Snapshots(all) => all.get(&external_id.to_owned()).cloned().into_iter().collect(),
        }
    }

    /// All ids that are registered, in every namespace; only this one, if one is given.
    pub fn ids(&self, only: Option<&String>) -> BTreeSet<String> {
        if let Some(only) = only {
            let is_registered = !self.owners(only).is_empty();
            return is_registered.then(|| only.clone()).into_iter().collect();
        }
        match self {
            Self::Volumes(volumes, plugin) => {
                let all = volumes.handles().iter_plugin(plugin);
                let registered = all.filter(|(_, entry)| !entry.registered().is_empty());
                registered.map(|(external_id, _)| external_id.to_owned()).collect()
            }
            Self::Snapshots(all) => all.keys().map(|id| (*id).clone()).collect(),
        }
    }
}

/// An entry of `volume.external`.
pub trait ExternalEntry: Serialize + Clone {
    /// What the plugin says.
    type Listed: Serialize + Clone;
    /// What the plugin lists, of one page.
    fn listed(page: Answered) -> Vec<Self::Listed>;
    /// Its id, and where it is.
    fn identity(listed: &Self::Listed) -> (&str, &[Topology]);
    /// What stands for a plugin's entry that it does not list.
    fn unlisted(external_id: String) -> Self::Listed;
    fn new(registration: Registration, listed: Self::Listed, owner: Option<IdOwner>) -> Self;
    /// Its registration and the plugin's id.
    fn key(&self) -> (Registration, &str);
    fn put(entries: Vec<Self>, reply: &mut Externals);
}

impl ExternalEntry for ExternalVolume {
    type Listed = PluginVolumeStatus;

    fn listed(page: Answered) -> Vec<PluginVolumeStatus> {
        page.volumes
    }

    fn identity(listed: &PluginVolumeStatus) -> (&str, &[Topology]) {
        (&listed.external_id, &listed.topologies)
    }

    fn unlisted(external_id: String) -> PluginVolumeStatus {
        PluginVolumeStatus {
            external_id,
            capacity_bytes: None,
            context: BTreeMap::new(),
            topologies: Vec::new(),
            published_on: None,
            abnormal: None,
        }
    }

    fn new(registration: Registration, listed: PluginVolumeStatus, owner: Option<IdOwner>) -> Self {
        let (volume, namespace) =
            owner.map(|owner| (owner.volume.volume, owner.volume.namespace)).unzip();
        Self { registration, listed, volume, namespace }
    }

    fn key(&self) -> (Registration, &str) {
        (self.registration, &self.listed.external_id)
    }

    fn put(entries: Vec<Self>, reply: &mut Externals) {
        reply.volumes = entries;
    }
}

impl ExternalEntry for ExternalSnapshot {
    type Listed = PluginSnapshotStatus;

    fn listed(page: Answered) -> Vec<PluginSnapshotStatus> {
        page.snapshots
    }

    fn identity(listed: &PluginSnapshotStatus) -> (&str, &[Topology]) {
        (&listed.external_id, &listed.topologies)
    }

    fn unlisted(external_id: String) -> PluginSnapshotStatus {
        PluginSnapshotStatus {
            topologies: Vec::new(),
            external_id,
            source: String::new(),
            size_bytes: None,
            cut_at: None,
            ready: false,
            usable_from: Vec::new(),
            group: None,
        }
    }

    fn new(
        registration: Registration,
        listed: PluginSnapshotStatus,
        owner: Option<IdOwner>,
    ) -> Self {
        let snapshot = owner.as_ref().and_then(|owner| owner.snapshot.clone());
        let (volume, namespace) =
            owner.map(|owner| (owner.volume.volume, owner.volume.namespace)).unzip();
        Self { registration, listed, volume, namespace, snapshot }
    }

    fn key(&self) -> (Registration, &str) {
        (self.registration, &self.listed.external_id)
    }

    fn put(entries: Vec<Self>, reply: &mut Externals) {
        reply.snapshots = entries;
    }
}
