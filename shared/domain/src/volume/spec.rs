//! A volume's specification, as its owner registered it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::handle::Handle;
use crate::access::Capability;
use crate::{PluginId, SecretsId, Timestamp, VolumeId};

/// What a volume is (A1). Health is derived when read and never stored here (A6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSpec {
    /// Set while the volume is on its way out: no new claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<Closing>,
    /// The plugin that serves it.
    pub plugin: PluginId,
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What the plugin calls it; the id when absent (A10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The ways in which it may be used, at least one.
    pub capabilities: Vec<Capability>,
    /// File system and mount flags (A11).
    #[serde(default)]
    pub mount: MountOptions,
    /// Where it can be reached: each a set of topology segments; empty for everywhere.
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
    /// Which secrets its plugin calls are made with; the secrets themselves are kept apart (A9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsId>,
    /// The revision of the write that registered it; 0 until the next write (see `Claim::epoch`).
    #[serde(default, skip_serializing_if = "super::claim::is_zero")]
    pub create_index: u64,
}

/// A deregistration under way (A5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// Since when.
    pub since: Timestamp,
    /// What was said for it, for the history.
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
    /// The group that is to be able to read and write (`VolumeCapability.volume_mount_group`), as
    /// the plugin takes it: a number to most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl MountOptions {
    /// A request's options over the volume's, field by field (A11).
    #[must_use]
    pub fn merged_with(&self, request: &Self) -> Self {
        Self {
            fs_type: request.fs_type.clone().or_else(|| self.fs_type.clone()),
            flags: if request.flags.is_empty() { &self.flags } else { &request.flags }.clone(),
            group: request.group.clone().or_else(|| self.group.clone()),
        }
    }

    /// The same as it may be shown: how many flags there are, and none of them (A11).
    #[must_use]
    pub fn struck_out(&self) -> Self {
        let flags = self.flags.iter().map(|_| "***".to_owned()).collect();
        Self { flags, ..self.clone() }
    }

    /// Whether nothing is asked for.
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
    /// What the plugin calls the volume (A10).
    pub fn external_id(&self, volume: &VolumeId) -> String {
        self.external_id.clone().unwrap_or_else(|| volume.to_string())
    }

    /// What makes it the same volume as another, or not.
    pub fn handle(&self, volume: &VolumeId) -> Handle {
        Handle { plugin: self.plugin.clone(), external_id: self.external_id(volume) }
    }

    /// Whether a plugin that was asked of this need not be asked of `other`: a name is for people.
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
