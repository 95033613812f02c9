//! Calls that change the storage, as the volumewatcher sends them to controllers and agents, and
//! questions to a controller.
//!
//! **Owns** what `controller.provision` and `agent.expand` say beside any
//! [`Call`](super::call::Call), and the messages of `controller.query`.
//!
//! **Never** carries a secret: a question has the id of its secrets, and the executor fetches them.

use std::collections::BTreeMap;

use berth_domain::access::Capability;
use berth_domain::volume::MountOptions;
use berth_domain::volume::storage::{OriginKind, Topology};
use berth_domain::{NodeId, PluginId, SnapshotId, Timestamp, VolumeId};
use serde::{Deserialize, Serialize};

use crate::{decode_leaf, decode_part, decode_struct, decode_variants};

/// The details of `controller.provision` and `agent.expand`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageDetails {
    /// The snapshot; absent for a call of the volume itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// The other volumes of a group, which the executor locks too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<GroupVolume>,
    /// The node whose agent gets the call: for `agent.expand` always, for a controller's call only
    /// if that node's controller has to get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// What the plugin is asked to do.
    pub work: StorageWork,
}

/// Another volume of a group's call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The plugin's id of it.
    pub external_id: String,
}
decode_struct!(GroupVolume { volume, external_id });

/// What the plugin is asked to do in a call of the storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageWork {
    /// `CreateVolume`.
    Create(Box<NewVolume>),
    /// `DeleteVolume`.
    Delete,
    /// `ControllerExpandVolume`, or `NodeExpandVolume`.
    Expand {
        /// The smallest new size, in bytes.
        required_bytes: u64,
        /// The largest new size, in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit_bytes: Option<u64>,
        /// How the volume is used, or may be used if it is not in use.
        capability: Capability,
        /// How its file system is mounted.
        #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
        mount: MountOptions,
    },
    /// `ControllerModifyVolume`.
    Modify {
        /// The mutable parameters to set.
        parameters: BTreeMap<String, String>,
    },
    /// `CreateSnapshot`; for a snapshot that is cut already, the question whether it is ready.
    Snapshot {
        /// The snapshot's name for the plugin, by which CSI makes a repeated call harmless.
        name: String,
        /// Parameters, which only the plugin reads.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        parameters: BTreeMap<String, String>,
        /// The plugin's id of the snapshot, if it is cut already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut: Option<String>,
    },
    /// `DeleteSnapshot`.
    DeleteSnapshot {
        /// The plugin's id of the snapshot.
        id: String,
    },
    /// `CreateVolumeGroupSnapshot`; for a group that is cut already, the question whether it is
    /// ready.
    Group {
        /// The group's name for the plugin, by which CSI makes a repeated call harmless.
        name: String,
        /// The plugin's ids of the volumes.
        sources: Vec<String>,
        /// Parameters, which only the plugin reads.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        parameters: BTreeMap<String, String>,
        /// The plugin's ids of the group and of its snapshots, if it is cut already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut: Option<GroupIds>,
    },
    /// `DeleteVolumeGroupSnapshot`.
    DeleteGroup(GroupIds),
}

/// The plugin's ids of a group of snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupIds {
    /// The plugin's id of the group.
    pub group: String,
    /// The plugin's ids of its snapshots.
    pub snapshots: Vec<String>,
}
decode_struct!(GroupIds { group, snapshots });

/// A volume that is to be created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewVolume {
    /// Its name for the plugin, by which CSI makes a repeated call harmless.
    pub name: String,
    /// The smallest size, in bytes; 0 if the plugin may choose.
    #[serde(default)]
    pub required_bytes: u64,
    /// The largest size, in bytes; absent if there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// The ways in which it may be used.
    pub capabilities: Vec<Capability>,
    /// How its file system is mounted.
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
    /// Parameters, which only the plugin reads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Parameters that may change later, which only the plugin reads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// Topologies in one of which it is created, the preferred one first; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<Topology>,
    /// What it is a copy of; absent for an empty volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<CopySource>,
}
decode_struct!(NewVolume {
    name,
    required_bytes = 0,
    limit_bytes,
    capabilities,
    mount = MountOptions::default(),
    parameters,
    mutable_parameters,
    topologies,
    origin,
});

/// What a new volume is a copy of, as its plugin knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySource {
    /// Whether it is a volume or a snapshot.
    pub kind: OriginKind,
    /// The plugin's id of it.
    pub external_id: String,
}
decode_struct!(CopySource { kind, external_id });

impl StorageWork {
    /// The plugin's name of what the call is to create. None if that is cut already.
    pub fn creates(&self) -> Option<&str> {
        match self {
            Self::Create(new) => Some(&new.name),
            Self::Snapshot { name, cut: None, .. } | Self::Group { name, cut: None, .. } => {
                Some(name)
            }
            _ => None,
        }
    }
}

decode_leaf!(OriginKind);
decode_variants!(StorageWork {
    "create" => Create(Box<NewVolume>),
    "delete" => Delete,
    "expand" => Expand { required_bytes, limit_bytes, capability, mount = MountOptions::default() },
    "modify" => Modify { parameters },
    "snapshot" => Snapshot { name, parameters, cut },
    "delete-snapshot" => DeleteSnapshot { id },
    "group" => Group { name, sources, parameters, cut },
    "delete-group" => DeleteGroup(GroupIds),
});
decode_part!(StorageDetails { snapshot, others, node, work });

/// `controller.query`: a question to a controller. It changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageQuery {
    /// The plugin.
    pub plugin: PluginId,
    /// The question.
    pub question: Question,
}
decode_struct!(StorageQuery { plugin, question });
decode_variants!(Question {
    "volumes" => Volumes { token = String::new(), limit },
    "snapshots" => Snapshots { token = String::new(), limit },
    "volume" => Volume { id },
    "capacity" => Capacity { capabilities, parameters, topology },
});

/// What a controller is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// `ListVolumes`: one page.
    Volumes {
        /// The plugin's token of the page; empty for the first one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        token: String,
        /// The most entries.
        limit: u32,
    },
    /// `ListSnapshots`: one page.
    Snapshots {
        /// The plugin's token of the page; empty for the first one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        token: String,
        /// The most entries.
        limit: u32,
    },
    /// `ControllerGetVolume`.
    Volume {
        /// The plugin's id of the volume.
        id: String,
    },
    /// `GetCapacity`.
    Capacity {
        /// The ways in which the volumes may be used; any if empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        capabilities: Vec<Capability>,
        /// Parameters of `CreateVolume`, which only the plugin reads.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        parameters: BTreeMap<String, String>,
        /// The topology; any if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        topology: Option<Topology>,
    },
}

/// A controller's answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answered {
    /// The volumes of the page, or the volume that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<PluginVolumeStatus>,
    /// The snapshots of the page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<PluginSnapshotStatus>,
    /// The plugin's token of the next page; absent if this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Free bytes, for a question about capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// The largest volume that can be created, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_volume_bytes: Option<u64>,
    /// The smallest volume that can be created, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_volume_bytes: Option<u64>,
}

/// A volume as its plugin lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginVolumeStatus {
    /// The plugin's id of the volume.
    pub external_id: String,
    /// Its size, in bytes; absent if the plugin does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// The plugin's `volume_context`; empty if it is larger than CSI allows (4 KiB).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// Where it can be reached; everywhere, or not known, if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<Topology>,
    /// The plugin's ids of the nodes that it is attached to; absent if the plugin does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_on: Option<Vec<String>>,
    /// What is wrong with it, in the plugin's words (`volume_condition`); absent if it is well, or
    /// if the plugin does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abnormal: Option<String>,
}

/// A snapshot as its plugin lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginSnapshotStatus {
    /// The plugin's id of the snapshot.
    pub external_id: String,
    /// The plugin's id of the volume that it is a snapshot of.
    pub source: String,
    /// The smallest size of a volume that is made of it, in bytes; absent if the plugin does not
    /// say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// When it was cut; absent if the plugin does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<Timestamp>,
    /// Whether a volume can be made of it.
    pub ready: bool,
    /// Where a volume that is made of it can be reached; absent if the plugin does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usable_from: Vec<Topology>,
    /// The plugin's id of its group; absent if it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Where the controller is that listed it, if each controller has a storage of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<Topology>,
}
