//! A snapshot: a record below its volume, which outlives the volume.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::answer::CutSnapshot;
use super::progress::StorageProgress;
use super::provision::Topology;
use crate::volume::call::{CallKind, is_zero};
use crate::{NodeId, PluginId, SecretsId, Timestamp, VolumeId};

/// How far a snapshot has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotState {
    /// It is being cut.
    Creating,
    /// It was cut, and the plugin still works on it (`ready_to_use` is false).
    Cut,
    /// A volume can be made of it.
    Ready,
    /// It was not cut: the plugin refused, and nothing is at the storage.
    Failed,
    /// It is being deleted.
    Deleting,
}

impl SnapshotState {
    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Cut => "cut",
            Self::Ready => "ready",
            Self::Failed => "failed",
            Self::Deleting => "deleting",
        }
    }
}

impl fmt::Display for SnapshotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One snapshot. It names all that its deletion needs, because its volume may be gone by then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is told of by the plugin or a request alone"
)]
pub struct Snapshot {
    /// Its state.
    pub state: SnapshotState,
    /// When it entered its state.
    pub since: Timestamp,
    /// How far its calls have come.
    #[serde(default)]
    pub progress: StorageProgress,
    /// It is to be deleted as soon as its id is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub doomed: bool,
    /// `deleting`: a volume could be made of it. It is ready again if its deletion is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_ready: bool,
    /// The plugin's id of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// A second id that the plugin answered with for the same name: it was asked by name whether
    /// the snapshot is ready, and cut another. Nothing is asked of it any more but to delete both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_id: Option<String>,
    /// The plugin says that it is a snapshot of another volume, or that its group is not one
    /// snapshot of each member. Nothing is made of it, and nothing is asked of it any more but to
    /// delete it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
    /// What a volume that is made of it needs, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether its volume was still to grow when it was requested: its file system may be smaller
    /// than `size_bytes`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub growing: bool,
    /// When the plugin cut it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<Timestamp>,
    /// The name for the plugin: CSI's key of idempotency.
    pub name: String,
    /// The plugin.
    pub plugin: PluginId,
    /// The plugin's id of the volume.
    pub source: String,
    /// Where the volume could be reached: the snapshot is at the same storage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<Topology>,
    /// Where a volume that is made of it can be reached, by the plugin. Empty if it does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usable_from: Vec<Topology>,
    /// The node whose controller cut it, or created its volume, if no other was to be called (see
    /// `StorageLife::home`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<NodeId>,
    /// Opaque parameters of `CreateSnapshot`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// The id of the secrets for its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsId>,
    /// The group that it was cut with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<SnapshotGroup>,
    /// The revision of the write that created it; 0 until the next write (see `Claim::epoch`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub create_index: u64,
}

/// Snapshots of several volumes that are cut at one moment and deleted together. Each has the id of
/// the group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SnapshotGroup {
    /// The volumes, in order. The calls are made for the first one.
    pub members: Vec<VolumeId>,
    /// The plugin's id of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The plugin's ids of its snapshots, if it was cut and is not one snapshot of each member: the
    /// call that deletes the group names them. No member has an id of its own then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<String>,
}

/// What a requested snapshot is to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotWish {
    /// The name for the plugin, new in each request.
    pub name: String,
    /// The plugin's id of the volume.
    pub source: String,
    /// Opaque parameters.
    pub parameters: BTreeMap<String, String>,
    /// The volumes of its group; empty if it has none.
    pub members: Vec<VolumeId>,
}

impl Snapshot {
    /// Whether it needs its source, or may need it again: the source must not be deleted. While it
    /// is deleted before it was ready, the plugin may refuse that, and go on with it.
    pub fn is_unfinished(&self) -> bool {
        match self.state {
            SnapshotState::Creating | SnapshotState::Cut => true,
            SnapshotState::Deleting => !self.was_ready,
            SnapshotState::Ready | SnapshotState::Failed => false,
        }
    }

    /// Whether what the plugin answered leaves nothing to ask but to delete it.
    pub fn can_only_be_deleted(&self) -> bool {
        self.second_id.is_some() || self.foreign
    }

    /// The call that it makes next, or is making. None if it is at rest.
    pub fn call(&self) -> Option<CallKind> {
        match (self.state, &self.group) {
            (SnapshotState::Cut, _) if self.can_only_be_deleted() => None,
            (SnapshotState::Creating | SnapshotState::Cut, None) => Some(CallKind::SnapshotCreate),
            (SnapshotState::Creating | SnapshotState::Cut, Some(_)) => Some(CallKind::GroupCreate),
            (SnapshotState::Deleting, None) => Some(CallKind::SnapshotDelete),
            (SnapshotState::Deleting, Some(_)) => Some(CallKind::GroupDelete),
            (SnapshotState::Ready | SnapshotState::Failed, _) => None,
        }
    }

    /// Whether the calls of its group are made for this volume.
    pub fn is_led_by(&self, volume: &VolumeId) -> bool {
        self.leader(volume) == volume
    }

    /// Whether it may be the snapshot that the plugin lists. The id of one that is being cut is not
    /// known before its call is answered.
    pub fn may_be(&self, plugin: &PluginId, listed: &CutSnapshot) -> bool {
        let is_being_cut = self.state == SnapshotState::Creating && self.source == listed.source;
        self.plugin == *plugin && (is_being_cut || self.ids().any(|id| *id == listed.external_id))
    }

    /// Whether the plugin cut another snapshot than this one. The agent takes no other group than
    /// the one that was cut.
    pub(in crate::volume) fn is_another(&self, made: &CutSnapshot) -> bool {
        let is_another = self.external_id.as_ref().is_some_and(|id| *id != made.external_id);
        is_another && self.group.is_none()
    }

    /// The plugin's ids of it; of a group that is wrong, those of all its snapshots.
    pub fn ids(&self) -> impl Iterator<Item = &String> {
        let of_group = self.group.iter().flat_map(|group| &group.snapshots);
        self.external_id.iter().chain(&self.second_id).chain(of_group)
    }

    /// The volume for which the calls of its group are made. A snapshot without a group makes its
    /// own.
    pub fn leader<'a>(&'a self, volume: &'a VolumeId) -> &'a VolumeId {
        self.group.as_ref().and_then(|group| group.members.first()).unwrap_or(volume)
    }

    pub(in crate::volume) fn enter(&mut self, state: SnapshotState, now: Timestamp) {
        self.state = state;
        self.since = now;
        self.progress = StorageProgress::default();
    }
}
