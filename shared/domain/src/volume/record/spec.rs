//! A volume's specification, as its owner registered it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::mount_options::MountOptions;
use crate::access::Capability;
use crate::volume::call::is_zero;
use crate::volume::handle::Handle;
use crate::volume::storage::{
    Expansion, Operation, Provision, Stage, StorageFailure, StorageLife, Topology, Work,
};
use crate::{Interned, NodeId, PluginId, SecretsId, Timestamp, VolumeId};

/// What a volume is (A1). Health is derived when read and never stored here (A6).
// Each service that decides has the specs of all volumes in memory. So what most volumes lack, or
// have alike, takes eight bytes of a spec. Not for the pages of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpec {
    /// Set while the volume is being deregistered: there are no new claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<Box<Closing>>,
    /// The plugin that serves it.
    pub plugin: PluginId,
    /// A name for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: Interned<String>,
    /// The plugin's id of the volume (CSI's `volume_id`); the volume's own id if absent (A10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The capabilities that claims may use, at least one.
    pub capabilities: Interned<Vec<Capability>>,
    /// File system and mount flags (A11).
    #[serde(default)]
    pub mount: Interned<MountOptions>,
    /// Topologies from which the volume can be reached. Empty means everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Interned<Vec<BTreeMap<String, String>>>,
    /// Its size, in bytes, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Opaque; goes to `ValidateVolumeCapabilities` and creation (A8).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: Interned<BTreeMap<String, String>>,
    /// Opaque; the plugin's `volume_context`, goes to every call that takes it (A8).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: Interned<BTreeMap<String, String>>,
    /// Its life at the storage, as far as Berth had a hand in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Box<StorageLife>>,
    /// The id of the secrets for its plugin calls. The secrets are stored in another bucket (A9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsId>,
    /// The revision of the write that registered it; 0 until the next write (see `Claim::epoch`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub create_index: u64,
}

/// A deregistration under way (A5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// When it began.
    pub since: Timestamp,
    /// The reason that was given, for people.
    pub reason: String,
}

impl VolumeSpec {
    /// A volume of the plugin of which nothing more is known.
    pub fn empty(plugin: &PluginId) -> Self {
        Self {
            closing: None,
            plugin: plugin.clone(),
            name: Interned::default(),
            external_id: None,
            capabilities: Interned::default(),
            mount: Interned::default(),
            topologies: Interned::default(),
            capacity_bytes: None,
            parameters: Interned::default(),
            context: Interned::default(),
            storage: None,
            secrets: None,
            create_index: 0,
        }
    }

    /// Has what is equal in both there once, for as long as neither changes it.
    pub fn share_with(&mut self, other: &Self) {
        self.capabilities.share_with(&other.capabilities);
        self.mount.share_with(&other.mount);
        self.topologies.share_with(&other.topologies);
        self.parameters.share_with(&other.parameters);
        self.context.share_with(&other.context);
    }

    /// The plugin's id of the volume (A10).
    pub fn external_id(&self, volume: &VolumeId) -> String {
        self.external_id.clone().unwrap_or_else(|| volume.to_string())
    }

    /// The volume's handle. Two specs with one handle are the same storage volume. A volume that is
    /// not created yet has none.
    pub fn handle(&self, volume: &VolumeId) -> Option<Handle> {
        let is_created = self.provision().is_none() || self.external_id.is_some();
        let external_id = || self.external_id(volume);
        is_created.then(|| Handle { plugin: self.plugin.clone(), external_id: external_id() })
    }

    /// Whether both specs are the same to the plugin: they differ in the name at most.
    pub fn is_the_same_to_its_plugin(&self, other: &Self) -> bool {
        self.differing_fields(other).iter().all(|field| *field == "name")
    }

    /// The fields in which `other` differs, by name. Topologies are compared as sets (A4), and
    /// capabilities in their order: the first is used for a claim that names none.
    pub fn differing_fields(&self, other: &Self) -> Vec<&'static str> {
        let set = |spec: &Self| {
            let mut topologies = spec.topologies.to_value();
            topologies.sort();
            topologies.dedup();
            topologies
        };
        [
            ("plugin", self.plugin != other.plugin),
            ("name", self.name != other.name),
            ("external_id", self.external_id != other.external_id),
            ("capability", self.capabilities != other.capabilities),
            ("mount", self.mount != other.mount),
            ("topology", set(self) != set(other)),
            ("capacity_bytes", self.capacity_bytes != other.capacity_bytes),
            ("parameters", self.parameters != other.parameters),
            ("context", self.context != other.context),
            ("secrets", self.secrets != other.secrets),
        ]
        .into_iter()
        .filter_map(|(field, differs)| differs.then_some(field))
        .collect()
    }
}

/// Its life at the storage.
impl VolumeSpec {
    /// The change of the volume at its storage that is under way.
    pub fn operation(&self) -> Option<&Operation> {
        self.storage.as_ref()?.operation.as_ref()
    }

    /// How Berth created the volume.
    pub fn provision(&self) -> Option<&Provision> {
        self.storage.as_ref()?.provision.as_ref()
    }

    /// What the plugin did otherwise than CSI wants. A failed volume without an id that has one may
    /// be left at the storage.
    pub fn faults(&self) -> &[String] {
        self.storage.as_ref().map_or(&[], |storage| &storage.faults)
    }

    /// The last change of the storage that was refused.
    pub fn failure(&self) -> Option<&StorageFailure> {
        self.storage.as_ref()?.failure.as_ref()
    }

    /// Where it is accessible: everywhere if empty. What the plugin returned is so, wherever it was
    /// requested (CSI, `Volume.accessible_topology`); until then, where it is requested.
    pub fn accessible_from(&self) -> &[Topology] {
        match self.provision() {
            Some(provision) if self.external_id.is_none() => &provision.requisite,
            _ => &self.topologies,
        }
    }

    /// How far its life at the storage has come.
    pub fn stage(&self) -> Stage {
        let Some(storage) = &self.storage else { return Stage::Ready };
        match storage.operation.as_ref().map(|operation| &operation.work) {
            Some(Work::Create { .. }) => return Stage::Creating,
            Some(Work::Delete { .. }) => return Stage::Deleting,
            Some(Work::Expand(_) | Work::Modify { .. }) | None => {}
        }
        match &storage.provision {
            Some(_) if storage.unusable => Stage::Failed,
            // Another claim may have it created elsewhere.
            Some(Provision { first_claim: Some(_), .. }) if self.external_id.is_none() => {
                Stage::Unused
            }
            Some(_) if self.external_id.is_none() => match &storage.failure {
                Some(_) => Stage::Failed,
                None => Stage::Unused,
            },
            _ => Stage::Ready,
        }
    }

    /// This spec with another life at the storage. A life that says nothing is not stored, so that
    /// older versions can read the record.
    #[must_use]
    pub(in crate::volume) fn living(&self, storage: StorageLife) -> Self {
        let says_something = storage != StorageLife::default();
        Self { storage: says_something.then(|| Box::new(storage)), ..self.clone() }
    }

    /// This spec with the creation that its first claim asks for, where that claim is.
    #[must_use]
    pub(in crate::volume) fn created_at(&self, topology: &Topology, now: Timestamp) -> Self {
        let mut storage = self.life();
        if let Some(provision) = &mut storage.provision {
            provision.place(topology);
        }
        let work = Work::Create { doomed: false };
        storage.operation = Some(Operation::new(work, now));
        self.living(storage)
    }

    /// The size to which a node has to expand the volume: what the controller made it.
    pub fn bytes_at_nodes(&self, expansion: &Expansion) -> u64 {
        let made = self.capacity_bytes.filter(|_| !expansion.node_only);
        made.unwrap_or(expansion.required_bytes)
    }

    /// The expansion that is under way, or goes on after the change that replaced it.
    pub fn pending_expansion(&self) -> Option<&Expansion> {
        fn expansion(work: &Work) -> Option<&Expansion> {
            match work {
                Work::Expand(expansion) => Some(expansion),
                Work::Modify { replaced, .. } => replaced.as_deref(),
                Work::Delete { replaced, .. } => expansion(replaced.as_deref()?),
                Work::Create { .. } => None,
            }
        }
        self.operation().and_then(|operation| expansion(&operation.work))
    }

    /// Its size once a pending expansion is done; none if it is not known.
    pub fn bytes_after_expansion(&self) -> Option<u64> {
        self.capacity_bytes.max(self.pending_expansion().map(|it| it.required_bytes))
    }

    /// The bytes that the volume counts for in a quota: the requested size until the plugin has
    /// answered, or the size that it is to grow to.
    pub fn counted_bytes(&self) -> u64 {
        let required_bytes = self.provision().map_or(0, |provision| provision.required_bytes);
        self.bytes_after_expansion().unwrap_or_default().max(required_bytes)
    }

    /// This spec with another home.
    #[must_use]
    pub fn at_home(&self, home: Option<NodeId>) -> Self {
        if self.home() == home.as_ref() {
            return self.clone();
        }
        self.living(StorageLife { home, ..self.life() })
    }

    /// The node whose controller alone knows the volume, as far as its creation or registration
    /// showed.
    pub fn home(&self) -> Option<&NodeId> {
        self.storage.as_ref()?.home.as_ref()
    }

    /// A copy of its life at the storage, to be changed.
    pub(in crate::volume) fn life(&self) -> StorageLife {
        self.storage.as_deref().cloned().unwrap_or_default()
    }
}
