//! The messages of the `volume.*` requests.
//!
//! **Owns** their fields. The document by which a volume is registered is in `registration`.
//!
//! **Promises** that a reply shows no secret and no mount flag.
//!
//! **Never** decides: what may change of a volume is `domain::volume`'s.

use std::collections::BTreeMap;

use berth_domain::access::Capability;
use berth_domain::alloc::VolumeRequest;
use berth_domain::plugin::Count;
use berth_domain::volume::storage::{OperationKind, Stage};
use berth_domain::volume::{Closing, MountDoubt, MountSummary, State};
use berth_domain::{AllocId, ClassId, Namespace, NodeId, PluginId, VolumeId};
use serde::{Deserialize, Serialize};

use super::claim::ClaimStatus;
use super::query::{LongPoll, Page, RefusedRequest, UnreadableRecord};
pub use super::registration::{DOCUMENT_FIELDS, GivenSecrets, RegisterVolume, SEALED_FIELD};
use super::storage::StorageStatus;
use crate::code::Code;
use crate::decode_struct;

/// `volume.register` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The volume.
    pub id: VolumeId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Whether anything was written; false when it was registered so already (A4).
    pub changed: bool,
    /// The newest revision of the volume.
    pub index: u64,
}

/// `volume.deregister`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deregister {
    /// The volume.
    pub id: VolumeId,
    /// Close a volume that is in use rather than refuse: it takes no new claims, and goes once it
    /// has no claim and is mounted nowhere (A5).
    #[serde(default)]
    pub force: bool,
    /// What is said for it, for the history.
    #[serde(default)]
    pub reason: String,
    /// Only the volume that was registered at this revision, when given: not one that took its name
    /// since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_index: Option<u64>,
}
decode_struct!(Deregister { id, force = false, reason = String::new(), create_index });

/// `volume.deregister` was done, or has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deregistered {
    /// The volume.
    pub id: VolumeId,
    /// Whether it is gone; else it goes with the last of `releasing` and of `mounts`.
    pub gone: bool,
    /// How many claims are left.
    #[serde(default)]
    pub claims: usize,
    /// The first of the allocs that have them. A claim is released once its alloc has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releasing: Vec<AllocId>,
    /// The first of the places where a volume that is not gone may be mounted without a claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountDoubt>,
}

/// `volume.detach`: the volume is to leave the node (C6). Released are all claims there whose alloc
/// has ended or vanished; one whose alloc lives refuses, and then nothing is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detach {
    /// The volume.
    pub id: VolumeId,
    /// The node, also if it is down or no longer known.
    pub node: NodeId,
    /// Why, for the history.
    #[serde(default)]
    pub reason: String,
    /// The operator who confirms that the storage has detached the volume from the node. This
    /// replaces the controller's answer where the plugin was asked and cannot give it, and frees
    /// the claims that have left the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_by: Option<String>,
    /// The operator who confirms that nothing of the volume is left on the node. It is used once,
    /// for the next unmount, if the plugin answered the last one with an error and the agent finds
    /// no mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstaged_by: Option<String>,
}
decode_struct!(Detach { id, node, reason = String::new(), confirmed_by, unstaged_by });

/// `volume.detach` was done, or has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The volume.
    pub id: VolumeId,
    /// The node.
    pub node: NodeId,
    /// Whether nothing on the node holds the volume any more; else `claims` are being released.
    pub gone: bool,
    /// How many claims of the node's are still being released.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: usize,
    /// The first of them, each with its step, its last error and its next try.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimStatus>,
    /// What the release waits for, when a person has to do something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Mounts of the volume on the node that no claim covers. Nothing is being done about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unaccounted: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `volume.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeQuery {
    /// The volume.
    pub id: VolumeId,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: LongPoll,
}
decode_struct!(VolumeQuery { id } + newer);

impl VolumeQuery {
    /// The volume as it is now.
    pub fn current(id: VolumeId) -> Self {
        Self { id, newer: LongPoll::default() }
    }
}

/// `volume.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListVolumes {
    /// Only ids that begin so.
    #[serde(default)]
    pub prefix: String,
    /// Only volumes of this plugin.
    #[serde(default)]
    pub plugin: Option<PluginId>,
    /// Only volumes with a claim on this node that holds them, or may.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// Only volumes with a claim in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Only volumes that are being deregistered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: LongPoll,
}
decode_struct!(ListVolumes {
    prefix = String::new(),
    plugin,
    node,
    state,
    closing = false,
} + page, newer);

/// Whether a volume can be claimed, derived when read (A6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether its plugin can serve it somewhere. False for a volume whose creation the storage
    /// refused.
    pub healthy: bool,
    /// In words.
    pub description: String,
    /// Healthy controller instances of how many; none when the plugin needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<Count>,
    /// Healthy node instances of how many.
    pub nodes: Count,
    /// What the plugin calls abnormal of the volume, in its words, while it is mounted somewhere.
    /// It is shown only: claims and mounts go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abnormal: Option<String>,
}

/// `volume.status`: a volume with its claims and its health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// The volume.
    pub id: VolumeId,
    /// Its namespace.
    pub namespace: Namespace,
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Set while it is being deregistered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<Closing>,
    /// Its plugin.
    pub plugin: PluginId,
    /// What the plugin's instances call it; absent while no instance is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// What the plugin calls it; absent until the plugin has created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The ways in which it may be used.
    pub capabilities: Vec<Capability>,
    /// The way in which it is used, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<Capability>,
    /// The file system asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// How many mount flags there are; the flags may be sensitive.
    #[serde(default)]
    pub mount_flags: usize,
    /// The group that is to be able to read and write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_group: Option<String>,
    /// Where it can be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<BTreeMap<String, String>>,
    /// Its size, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Context.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// Whether it has secrets. They are never shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_secrets: bool,
    /// Whether it can be claimed.
    pub health: Health,
    /// Set while the plugin has no room for it: what it said (A7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted: Option<String>,
    /// Other registrations of the same volume of the plugin. While there are any, neither is
    /// granted. Volumes of other namespaces are not named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registered_twice: Vec<String>,
    /// Mounts of it that no claim covers, each with its node. While there is one, no other node is
    /// granted the volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unaccounted: Vec<String>,
    /// The same for programs, and the nodes that may have it and have not said. While there is one,
    /// the volume is neither deleted nor deregistered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountDoubt>,
    /// What a person can do when it is not as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The newest refused request that names it; none once a claim was granted after it. It is
    /// read from the events, so it may be missing, and events are kept for a week at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<RefusedRequest>,
    /// Its life at its storage; absent from an older service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageStatus>,
    /// How many snapshots it has: `snapshot.list` shows them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snapshot_count: usize,
    /// How many claims it has.
    #[serde(default)]
    pub claim_count: usize,
    /// Its claims; the first that fit a message, when there are more: `claim.status` has all.
    pub claims: Vec<ClaimStatus>,
    /// The revision that registered it.
    pub create_index: u64,
    /// Its newest revision.
    pub modify_index: u64,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

/// A volume in a list: counts of its claims only; no context, no parameters (A1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStub {
    /// The volume.
    pub id: VolumeId,
    /// Its namespace.
    pub namespace: Namespace,
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its plugin.
    pub plugin: PluginId,
    /// What the plugin's instances call it; absent while no instance is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// What the plugin calls it; absent until the plugin has created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// The ways in which it may be used; none from an older service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// The way in which it is used, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<Capability>,
    /// Where it can be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<BTreeMap<String, String>>,
    /// Claims that read.
    pub readers: usize,
    /// Claims that write.
    pub writers: usize,
    /// Claims being released.
    pub releasing: usize,
    /// Claims in line.
    pub waiting: usize,
    /// Whether its plugin can serve it somewhere. False for a volume whose creation the storage
    /// refused.
    pub healthy: bool,
    /// The plugin's healthy controller instances of how many; none when the plugin needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<Count>,
    /// The plugin's healthy node instances of how many; none from an older service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Count>,
    /// What the plugin calls abnormal of it, in its words, while it is mounted somewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abnormal: Option<String>,
    /// Whether it is being deregistered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
    /// How far its life at its storage has come; absent if it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The change at its storage that is under way: `volume.status` shows how far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationKind>,
    /// The last change that the plugin refused for good; absent once another change succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<OperationKind>,
    /// The class that it was made from; absent if it was made without one, or registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassId>,
    /// Its size, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Whether the same volume of the plugin is registered under another name: then neither is
    /// granted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub registered_twice: bool,
    /// How it is mounted, where an alloc's request does not say otherwise.
    #[serde(flatten)]
    pub mount: MountSummary,
    /// The revision that registered it; 0 from an older service.
    #[serde(default)]
    pub create_index: u64,
    /// Its newest revision.
    pub modify_index: u64,
}

/// `volume.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volumes {
    /// The revision of the volumes bucket that the list shows: all of it, and nothing newer.
    pub index: u64,
    /// The volumes, by namespace and id.
    pub volumes: Vec<VolumeStub>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

/// `volume.placement`: where a workload with these volumes could run now (D6).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListPlacements {
    /// The volumes, as the workload's alloc would ask for them.
    #[serde(default)]
    pub volumes: Vec<VolumeRequest>,
    /// Which of several alike it is, from 0; needed by volumes that are `per_alloc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Only of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait until the answer is another one.
    #[serde(flatten)]
    pub newer: LongPoll,
}
decode_struct!(ListPlacements { volumes, index, node } + page, newer);

/// `volume.placement`: the answer that claims would get at this moment. Nothing is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placements {
    /// Stands for this answer: another answer has another number, which may be a smaller one. To
    /// wait for another answer, ask again with it as `newer_than`.
    #[serde(default)]
    pub index: u64,
    /// The volumes, by id: how many claims hold each, and how many wait in line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeDemand>,
    /// The nodes, by id.
    pub nodes: Vec<NodePlacement>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How much a volume is in demand, and whether its plugin calls it well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeDemand {
    /// The volume.
    pub volume: VolumeId,
    /// How many claims hold it, or are being released.
    pub holding: usize,
    /// How many claims wait in line. A new one is behind them.
    pub waiting: usize,
    /// What the plugin calls abnormal of the volume, in its words, while it is mounted somewhere.
    /// It is shown only: claims and mounts go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abnormal: Option<String>,
}

/// How many more volumes of a plugin a node takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginSlots {
    /// The plugin.
    pub plugin: PluginId,
    /// How many more volumes it takes there; none where the plugin names no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// How many volumes of the plugin the node has.
    pub used: u64,
}

/// Whether one node can host the volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlacement {
    /// The node.
    pub node: NodeId,
    /// Whether it can host all of them now.
    pub fits: bool,
    /// Whether it could after a wait: claims with `wait` get in line there. Where this is false as
    /// well, an operator must change something first.
    #[serde(default)]
    pub fits_later: bool,
    /// The room that the volumes' plugins have there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<PluginSlots>,
    /// Why not, everything at once, by volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<Obstacle>,
}

/// What is in the way of a volume on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// The volume.
    pub volume: VolumeId,
    /// Which reason: the code that `claim.take` would answer.
    pub code: Code,
    /// In words.
    pub message: String,
    /// Whether it may pass by itself: the plugin or the node comes back, a call ends.
    #[serde(default)]
    pub retryable: bool,
    /// Whether `claim.take` with `wait` waits for it: in line after the holders, or for what may
    /// come back.
    #[serde(default)]
    pub can_wait: bool,
}
