//! A volume's specification, as its owner registered it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::handle::Handle;
use super::storage::StorageLife;
use crate::access::Capability;
use crate::{PluginId, SecretsId, Timestamp, VolumeId};

/// What a volume is (A1). Health is derived when read and never stored here (A6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpec {
    /// Set while the volume is being deregistered: there are no new claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<Closing>,
    /// The plugin that serves it.
    pub plugin: PluginId,
    /// A name for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The plugin's id of the volume (CSI's `volume_id`); the volume's own id if absent (A10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The capabilities that claims may use, at least one.
    pub capabilities: Vec<Capability>,
    /// File system and mount flags (A11).
    #[serde(default)]
    pub mount: MountOptions,
    /// Topologies from which the volume can be reached. Empty means everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<BTreeMap<String, String>>,
    /// Its size, in bytes, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Opaque; goes to `ValidateVolumeCapabilities` and creation (A8).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Opaque; the plugin's `volume_context`, goes to every call that takes it (A8).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// Its life at the storage, as far as Berth had a hand in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<Box<StorageLife>>,
    /// The id of the secrets for its plugin calls. The secrets are stored in another bucket (A9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsId>,
    /// The revision of the write that registered it; 0 until the next write (see `Claim::epoch`).
    #[serde(default, skip_serializing_if = "super::claim::is_zero")]
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

/// How a volume's file system is mounted. Flags may hold secrets: they stay out of logs (A11).
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MountOptions {
    /// The file system; the plugin's own choice when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// Mount flags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The group that may read and write (`VolumeCapability.volume_mount_group`), in the plugin's
    /// form: a number for most plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl MountOptions {
    /// The request's options where given, otherwise the volume's, field by field (A11).
    #[must_use]
    pub fn merged_with(&self, request: &Self) -> Self {
        Self {
            fs_type: request.fs_type.clone().or_else(|| self.fs_type.clone()),
            flags: if request.flags.is_empty() { &self.flags } else { &request.flags }.clone(),
            group: request.group.clone().or_else(|| self.group.clone()),
        }
    }

    /// The options as they may be shown: each flag is replaced by `***` (A11).
    #[must_use]
    pub fn struck_out(&self) -> Self {
        let flags = self.flags.iter().map(|_| "***".to_owned()).collect();
        Self { flags, ..self.clone() }
    }

    /// Whether no option is set.
    pub fn is_empty(&self) -> bool {
        self.fs_type.is_none() && self.flags.is_empty() && self.group.is_none()
    }
}

impl std::fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountOptions")
            .field("fs_type", &self.fs_type)
            .field("flags", &format_args!("[{} struck out]", self.flags.len()))
            .field("group", &self.group)
            .finish()
    }
}

impl VolumeSpec {
    /// A volume of the plugin of which nothing more is known.
    pub fn empty(plugin: &PluginId) -> Self {
        Self {
            closing: None,
            plugin: plugin.clone(),
            name: String::new(),
            external_id: None,
            capabilities: Vec::new(),
            mount: MountOptions::default(),
            topologies: Vec::new(),
            capacity_bytes: None,
            parameters: BTreeMap::new(),
            context: BTreeMap::new(),
            storage: None,
            secrets: None,
            create_index: 0,
        }
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
            let mut topologies = spec.topologies.clone();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Field by field: what the request does not say is the volume's (A11).
    #[test]
    fn the_requests_options_replace_the_volumes() {
        let options = |fs_type: Option<&str>, flags: &[&str], group: Option<&str>| MountOptions {
            fs_type: fs_type.map(str::to_owned),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            group: group.map(str::to_owned),
        };
        let of_volume = options(Some("ext4"), &["noatime", "nodev"], Some("100"));
        for (request, expected) in [
            (options(None, &[], None), of_volume.clone()),
            (
                options(Some("xfs"), &[], None),
                options(Some("xfs"), &["noatime", "nodev"], Some("100")),
            ),
            // The flags as a whole, and not added to the volume's.
            (options(None, &["ro"], None), options(Some("ext4"), &["ro"], Some("100"))),
            (
                options(None, &[], Some("200")),
                options(Some("ext4"), &["noatime", "nodev"], Some("200")),
            ),
        ] {
            assert_eq!(of_volume.merged_with(&request), expected, "{request:?}");
            assert_eq!(MountOptions::default().merged_with(&request), request);
        }
    }
}
