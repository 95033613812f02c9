//! The messages of the `snapshot.*` requests.
//!
//! **Owns** how a snapshot, or a group of them, is named and shown.
//!
//! **Promises** that a list fits a message, page by page.
//!
//! **Never** says how a snapshot is stored.

use std::collections::BTreeMap;

use berth_domain::limits::{GROUP_MAX, LIST_MAX};
use berth_domain::volume::CallFailure;
use berth_domain::volume::storage::{SnapshotState, Topology};
use berth_domain::{Namespace, PluginId, SnapshotId, Timestamp, VolumeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::query::{LongPoll, Page, UnreadableRecord};
use super::storage::StorageWait;
use crate::decode::{Decode, Decoder};
use crate::{decode_leaf, decode_struct, text};

decode_leaf!(SnapshotState);

// A list of a request is as long as a group may be.
const _: () = assert!(GROUP_MAX == LIST_MAX);

/// `snapshot.create`: cuts a snapshot of a volume, or of several volumes at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateSnapshot {
    /// The snapshot's id, the same for each volume.
    pub snapshot: SnapshotId,
    /// The volumes, from 1 to 64. Several volumes are a group.
    pub volumes: Vec<VolumeId>,
    /// Whether one volume is a group, too: `CreateVolumeGroupSnapshot` instead of `CreateSnapshot`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
    /// Parameters of the plugin call, which only the plugin reads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

impl Decode for CreateSnapshot {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let snapshot = fields.field("snapshot");
        let volumes: Option<Vec<VolumeId>> = fields.field("volumes");
        let group: Option<Option<bool>> = fields.field("group");
        let parameters: Option<BTreeMap<String, String>> = fields.field("parameters");
        fields.finish(&[]);
        if let Some(volumes) = &volumes {
            decoder.demand(!volumes.is_empty(), "volumes", "is empty; name at least one volume");
            text::check_distinct(decoder, "volumes", volumes);
        }
        if let Some(parameters) = &parameters {
            text::check_keys(decoder, "parameters", parameters);
        }
        Some(Self {
            snapshot: snapshot?,
            volumes: volumes?,
            group: group?.unwrap_or_default(),
            parameters: parameters?,
        })
    }
}

/// `snapshot.delete`: destroys a snapshot at its storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteSnapshot {
    /// The volume that it is a snapshot of, which may be gone.
    pub volume: VolumeId,
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// Delete the snapshots of all volumes of its group. A snapshot of a group is not deleted
    /// without this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
    /// Remove the record only: whatever is at the storage stays there. For a snapshot whose plugin
    /// is gone, or refuses for ever.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forget: bool,
    /// Only the snapshot that was requested or registered at this revision, when given: not one
    /// that took its name since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_index: Option<u64>,
}
decode_struct!(DeleteSnapshot { volume, snapshot, group = false, forget = false, create_index });

/// `snapshot.adopt`: registers a snapshot that the plugin lists and Berth does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptSnapshot {
    /// The volume that it is a snapshot of. It need not be registered.
    pub volume: VolumeId,
    /// The id that the snapshot gets in Berth.
    pub snapshot: SnapshotId,
    /// The plugin.
    pub plugin: PluginId,
    /// The plugin's id of the snapshot.
    pub external_id: String,
}

impl Decode for AdoptSnapshot {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let volume = fields.field("volume");
        let snapshot = fields.field("snapshot");
        let plugin = fields.field("plugin");
        let external_id: Option<String> = fields.field("external_id");
        fields.finish(&[]);
        let fault = external_id.as_deref().and_then(text::external_id_fault);
        text::add_fault(decoder, "external_id", fault);
        Some(Self {
            volume: volume?,
            snapshot: snapshot?,
            plugin: plugin?,
            external_id: external_id?,
        })
    }
}

/// The answer to a request that changes snapshots: the snapshots that it was about, as they are
/// now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotsChanged {
    /// Whether this request changed anything.
    pub changed: bool,
    /// The snapshots, without those that are gone.
    pub snapshots: Vec<SnapshotStub>,
}

/// `snapshot.list`: snapshots that match everything that is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListSnapshots {
    /// Only snapshots of this volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
    /// Only snapshots whose id begins with this text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Only snapshots of this plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: LongPoll,
}
decode_struct!(ListSnapshots { volume, prefix = String::new(), plugin } + page, newer);

/// `snapshot.list`: the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshots {
    /// The revision of the volumes bucket that the list shows.
    pub index: u64,
    /// The snapshots, by namespace, volume and id.
    pub snapshots: Vec<SnapshotStub>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

/// One snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotStub {
    /// Its namespace.
    pub namespace: Namespace,
    /// The volume that it is a snapshot of, which may be gone.
    pub volume: VolumeId,
    /// Its id.
    pub snapshot: SnapshotId,
    /// How far it has come.
    pub state: SnapshotState,
    /// When it entered its state.
    pub since: Timestamp,
    /// Its plugin.
    pub plugin: PluginId,
    /// The plugin's id of it; absent until it is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// A second id of it: the plugin cut another one when it was asked by name whether the first is
    /// ready. Nothing is asked of it any more but to delete both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_id: Option<String>,
    /// Whether the plugin says that it is a snapshot of another volume, or that its group is not
    /// one snapshot of each volume. No volume is made of it, and nothing is asked of it any more
    /// but to delete it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// The smallest size of a volume that is made of it, in bytes; absent if the plugin does not
    /// say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// When the plugin cut it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<Timestamp>,
    /// Where a volume that is made of it can be reached; absent if the plugin does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usable_from: Vec<Topology>,
    /// The volumes of its group; empty if it is in none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<VolumeId>,
    /// How many calls of its present state did not succeed, or found that the plugin still works on
    /// it.
    #[serde(default)]
    pub tries: u32,
    /// When the next call is due; absent if none is due, or if one is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// Why the last call that did not succeed did not.
    #[serde(flatten)]
    pub failure: Option<CallFailure>,
    /// Whether an earlier call that was not answered may have changed something at the storage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// What it waits for, if no time and no retry ends the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<StorageWait>,
    /// The revision at which it was requested or registered.
    #[serde(default)]
    pub create_index: u64,
    /// The volume's newest revision.
    pub modify_index: u64,
}

impl SnapshotStub {
    /// Why the last call that did not succeed did not, in words.
    pub fn error(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.message.as_str())
    }
}
