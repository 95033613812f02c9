//! A log line, as the judge reads it.
//!
//! Owns: the judge's own form of a log line, flat and with only the fields that the rules use.
//! Promises: shares no type with the driver, except the names of RPCs and codes. Never: judges.

use std::collections::BTreeMap;

use berth_csi::{Code, Rpc};
use serde::Deserialize;
use serde_json::Value;

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EntryKind {
    Start,
    Begin,
    Gone,
    Fence,
    End,
}

/// The effect of a call. The answer may say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CallEffect {
    None,
    Done,
    Unknown,
}

#[derive(Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is one field of the log")]
pub(super) struct LogRow {
    pub entry: EntryKind,
    pub node_id: String,
    pub instance: String,
    #[serde(default)]
    pub seq: u64,
    #[serde(default)]
    start_us: u64,
    #[serde(default)]
    begin_us: u64,
    #[serde(default)]
    gone_us: u64,
    #[serde(default)]
    fence_us: u64,
    #[serde(default)]
    end_us: u64,
    pub rpc: Option<Rpc>,
    #[serde(default)]
    pub args: CallArguments,
    pub code: Option<Code>,
    pub effect: Option<CallEffect>,
    /// The rule by which the driver refused.
    pub violation: Option<String>,
    pub fault: Option<String>,
    #[serde(default)]
    pub answer: AnswerFields,
    /// The mounts at the paths of a node call, at its end. At the end of a deletion: all mounts of
    /// directories that do not exist any more.
    pub kernel: Option<Vec<PathMounts>>,
    /// Whether the driver carries out calls that break a rule of order.
    #[serde(default)]
    pub lenient: bool,
    /// Whether the driver is foreign: nothing is known of it but its answers.
    #[serde(default)]
    pub foreign: bool,
    #[serde(default)]
    pub attach: bool,
    #[serde(default)]
    pub stage: bool,
    #[serde(default)]
    pub holds: Vec<HeldVolume>,
    #[serde(default)]
    pub fenced: bool,
}

/// A volume that an instance found in use on its node when it started.
#[derive(Debug, Deserialize)]
pub(super) struct HeldVolume {
    pub volume_id: String,
    pub staging: Option<String>,
    #[serde(default)]
    pub targets: Vec<String>,
}

/// The mounts at one path.
#[derive(Debug, Deserialize)]
pub(super) struct PathMounts {
    pub path: String,
    /// Oldest first. The last mount hides the others.
    pub mounts: Vec<KernelMount>,
    pub block_device: Option<BlockDevice>,
}

#[derive(PartialEq, Eq, Debug, Deserialize)]
pub(super) struct KernelMount {
    pub device: String,
    pub root: String,
    pub read_only: bool,
}

/// A block device whose node is at a path.
#[derive(Debug, Deserialize)]
pub(super) struct BlockDevice {
    pub read_only: Option<bool>,
}

/// The arguments that the rules use.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct CallArguments {
    pub volume_id: String,
    pub source_volume_id: String,
    pub source_volume_ids: Vec<String>,
    pub snapshot_id: String,
    pub snapshot_ids: Vec<String>,
    pub group_snapshot_id: String,
    pub name: String,
    pub node_id: String,
    pub staging_target_path: String,
    pub target_path: String,
    pub readonly: bool,
    pub publish_context: BTreeMap<String, String>,
    pub volume_context: BTreeMap<String, String>,
    pub volume_capability: Option<Value>,
    pub volume_capabilities: Value,
    pub capacity_range: Value,
    pub parameters: Value,
    pub mutable_parameters: Value,
    pub accessibility_requirements: Value,
    pub volume_content_source: Option<ContentSource>,
}

/// What a volume is made from.
#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct ContentSource {
    r#type: SourceType,
}

#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
struct SourceType {
    snapshot: Option<SnapshotSource>,
    volume: Option<VolumeSource>,
}

#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
struct SnapshotSource {
    snapshot_id: String,
}

#[derive(Clone, PartialEq, Default, Debug, Deserialize)]
#[serde(default)]
struct VolumeSource {
    volume_id: String,
}

/// The fields of an answer that the rules use.
#[derive(Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct AnswerFields {
    pub publish_context: BTreeMap<String, String>,
    pub volume: AnsweredVolume,
    pub snapshot: AnsweredSnapshot,
    pub group_snapshot: AnsweredGroup,
    /// Of an expanded volume.
    pub capacity_bytes: i64,
    /// Of a list.
    pub entries: Vec<AnsweredEntry>,
}

#[derive(Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct AnsweredVolume {
    pub volume_id: String,
    pub capacity_bytes: i64,
}

#[derive(Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct AnsweredSnapshot {
    pub snapshot_id: String,
    pub group_snapshot_id: String,
    pub ready_to_use: bool,
}

#[derive(Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct AnsweredGroup {
    pub group_snapshot_id: String,
    pub snapshots: Vec<AnsweredSnapshot>,
}

/// An entry of `ListSnapshots`; one of `ListVolumes` has no snapshot.
#[derive(Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct AnsweredEntry {
    pub snapshot: Option<AnsweredSnapshot>,
}

/// The log has at most this many entries of a list; a list of this length may have had more.
pub(super) const LOGGED_ENTRIES_MAX: usize = 64;

/// The id of a volume, snapshot or group of snapshots.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum ObjectId {
    Volume(String),
    Snapshot(String),
    Group(String),
}

/// The access mode of a capability; empty if there is none.
pub(super) fn mode(capability: Option<&Value>) -> &str {
    let mode = capability.and_then(|capability| capability.pointer("/access_mode/mode"));
    mode.and_then(Value::as_str).unwrap_or_default()
}

impl LogRow {
    /// Microseconds since 1970. No call ends before it began, even if the clock was set back.
    pub fn time_us(&self) -> u64 {
        match self.entry {
            EntryKind::Start => self.start_us,
            EntryKind::Begin => self.begin_us,
            EntryKind::Gone => self.gone_us,
            EntryKind::Fence => self.fence_us,
            EntryKind::End => self.end_us.max(self.begin_us + 1),
        }
    }

    /// Orders lines with equal times: ends first, since a CO may call after an answer.
    pub fn rank(&self) -> u8 {
        match self.entry {
            EntryKind::End | EntryKind::Gone => 0,
            EntryKind::Start | EntryKind::Fence => 1,
            EntryKind::Begin => 2,
        }
    }

    /// Whether the CO knows that the call succeeded, as far as the instance can tell.
    ///
    /// Some drivers undo a use and then answer `NOT_FOUND`, because they no longer know the volume.
    /// CSI does not count that as success; but the CO sees in the kernel's mount table that the
    /// mount is gone.
    pub fn is_known_success(&self) -> bool {
        let undoes = matches!(self.rpc, Some(Rpc::NodeUnpublishVolume | Rpc::NodeUnstageVolume));
        let is_done = self.effect == Some(CallEffect::Done);
        let is_found_gone = undoes && is_done && self.code == Some(Code::NotFound);
        (self.code == Some(Code::Ok) || is_found_gone) && self.fault.as_deref() != Some("lost")
    }

    /// Whether the answer tells the CO for certain that the call is done, or that it is not. Other
    /// codes leave that open (CSI, "Error Scheme").
    pub fn is_definite(&self) -> bool {
        let leaves_open = match self.code {
            Some(
                Code::Cancelled
                | Code::Unknown
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::Internal
                | Code::Unavailable
                | Code::DataLoss,
            )
            | None => true,
            // CSI defines it for this call only; gRPC also uses it for messages that are too large.
            Some(Code::ResourceExhausted) => self.rpc != Some(Rpc::CreateVolume),
            Some(_) => false,
        };
        !leaves_open && self.fault.as_deref() != Some("lost")
    }

    /// The created object in the answer; `None` if the answer has no id.
    pub fn made(&self) -> Option<ObjectId> {
        let AnswerFields { volume, snapshot, group_snapshot: group, .. } = &self.answer;
        let (id, kind): (_, fn(String) -> ObjectId) = match self.rpc? {
            Rpc::CreateVolume => (&volume.volume_id, ObjectId::Volume),
            Rpc::CreateSnapshot => (&snapshot.snapshot_id, ObjectId::Snapshot),
            Rpc::CreateVolumeGroupSnapshot => (&group.group_snapshot_id, ObjectId::Group),
            _ => return None,
        };
        Some(id.clone()).filter(|id| !id.is_empty()).map(kind)
    }
}

impl CallArguments {
    pub fn is_for_readers(&self) -> bool {
        self.readonly || mode(self.volume_capability.as_ref()).ends_with("_READER_ONLY")
    }

    /// The volume that the request is about.
    pub fn volume(&self) -> Option<&str> {
        [&self.volume_id, &self.source_volume_id]
            .into_iter()
            .find(|id| !id.is_empty())
            .map(String::as_str)
    }

    /// The volumes that the request is about.
    pub fn volumes(&self) -> impl Iterator<Item = &str> {
        self.volume().into_iter().chain(self.source_volume_ids.iter().map(String::as_str))
    }

    /// What a new volume, snapshot or group is made from.
    pub fn sources(&self) -> Vec<ObjectId> {
        let copied = self.volume_content_source.iter().map(|source| &source.r#type);
        let copied = copied.flat_map(|kind| {
            let snapshot = kind.snapshot.iter();
            let snapshot = snapshot.map(|from| ObjectId::Snapshot(from.snapshot_id.clone()));
            let volume = kind.volume.iter();
            snapshot.chain(volume.map(|from| ObjectId::Volume(from.volume_id.clone())))
        });
        let cut = Some(&self.source_volume_id).filter(|id| !id.is_empty());
        let cut = cut.into_iter().chain(&self.source_volume_ids);
        copied.chain(cut.map(|id| ObjectId::Volume(id.clone()))).collect()
    }

    /// The smallest size that is asked for, in bytes; 0 if the plugin may choose.
    pub fn required_bytes(&self) -> i64 {
        let required = self.capacity_range.get("required_bytes");
        required.and_then(Value::as_i64).unwrap_or_default()
    }
}
