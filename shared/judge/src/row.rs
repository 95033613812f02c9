//! A line of a log as the judge reads it.
//!
//! Owns: the judge's own view of an entry, flat and with only what it looks at. Promises: shares no
//! type with the driver that writes it, but the names of calls and codes. Never: judges.

use std::collections::BTreeMap;

use berth_csi::{Code, Rpc};
use serde::Deserialize;
use serde_json::Value;

/// What a line tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Entry {
    Start,
    Begin,
    Gone,
    Fence,
    End,
}

/// What a call has changed, whatever was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Effect {
    None,
    Done,
    Unknown,
}

/// One line.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub entry: Entry,
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
    pub args: Ask,
    pub code: Option<Code>,
    pub effect: Option<Effect>,
    pub violation: Option<Noticed>,
    pub fault: Option<String>,
    #[serde(default)]
    pub answer: Told,
    /// What the kernel had mounted at the paths of a node call when it ended.
    pub kernel: Option<Vec<PathMounts>>,
    #[serde(default)]
    pub attach: bool,
    #[serde(default)]
    pub stage: bool,
    #[serde(default)]
    pub holds: Vec<Holding>,
    #[serde(default)]
    pub fenced: bool,
}

/// The rule by which the driver refused.
#[derive(Debug, Deserialize)]
pub(super) struct Noticed {
    pub rule: String,
}

/// What an instance found on its node when it started.
#[derive(Debug, Deserialize)]
pub(super) struct Holding {
    pub volume_id: String,
    pub staging: Option<String>,
    #[serde(default)]
    pub targets: Vec<String>,
}

/// What the kernel had mounted at a path.
#[derive(Debug, Deserialize)]
pub(super) struct PathMounts {
    pub path: String,
    /// The last is the one that is seen at the path.
    pub mounts: Vec<KernelMount>,
    pub block_device: Option<BlockDevice>,
}

/// A mount, by the kernel's mount table.
#[derive(PartialEq, Eq, Debug, Deserialize)]
pub(super) struct KernelMount {
    pub device: String,
    pub root: String,
    pub read_only: bool,
}

/// A block device whose node is seen at a path.
#[derive(Debug, Deserialize)]
pub(super) struct BlockDevice {
    pub read_only: Option<bool>,
}

/// The arguments that the rules are about.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Ask {
    pub volume_id: String,
    pub source_volume_id: String,
    pub snapshot_id: String,
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

/// What of an answer the CO has to go by.
#[derive(Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Told {
    pub publish_context: BTreeMap<String, String>,
    pub volume: Made,
    pub snapshot: Made,
}

/// The id of what was made.
#[derive(Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Made {
    volume_id: String,
    snapshot_id: String,
}

/// Something with an id of its own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Object {
    Volume(String),
    Snapshot(String),
}

impl Row {
    /// When it was written. No call ends before it began, whatever its clock did.
    pub fn time_us(&self) -> u64 {
        match self.entry {
            Entry::Start => self.start_us,
            Entry::Begin => self.begin_us,
            Entry::Gone => self.gone_us,
            Entry::Fence => self.fence_us,
            Entry::End => self.end_us.max(self.begin_us + 1),
        }
    }

    /// At the same time, ends come first: a CO calls after an answer.
    pub fn rank(&self) -> u8 {
        match self.entry {
            Entry::End | Entry::Gone => 0,
            Entry::Start | Entry::Fence => 1,
            Entry::Begin => 2,
        }
    }

    /// Whether the CO got to know that all went well, as far as the instance can tell.
    ///
    /// A node that has undone what it then no longer knows answers `NOT_FOUND`, as some drivers do.
    /// That is no success; but what was undone is not mounted, which the CO sees in the kernel.
    pub fn is_told(&self) -> bool {
        let undoes = matches!(self.rpc, Some(Rpc::NodeUnpublishVolume | Rpc::NodeUnstageVolume));
        let is_done = self.effect == Some(Effect::Done);
        let is_found_gone = undoes && is_done && self.code == Some(Code::NotFound);
        (self.code == Some(Code::Ok) || is_found_gone) && self.fault.as_deref() != Some("lost")
    }

    /// What the answer says was made.
    pub fn made(&self) -> Option<Object> {
        let Made { volume_id, .. } = &self.answer.volume;
        let Made { snapshot_id, .. } = &self.answer.snapshot;
        match self.rpc? {
            Rpc::CreateVolume => Some(Object::Volume(volume_id.clone())),
            Rpc::CreateSnapshot => Some(Object::Snapshot(snapshot_id.clone())),
            _ => None,
        }
    }
}

impl Ask {
    /// Whether nobody may write.
    pub fn is_for_readers(&self) -> bool {
        self.readonly || mode(self.volume_capability.as_ref()).ends_with("_READER_ONLY")
    }

    /// The volume it is about.
    pub fn volume(&self) -> Option<&str> {
        [&self.volume_id, &self.source_volume_id]
            .into_iter()
            .find(|id| !id.is_empty())
            .map(String::as_str)
    }

    /// What something is to be made from.
    pub fn source(&self) -> Option<Object> {
        if !self.source_volume_id.is_empty() {
            return Some(Object::Volume(self.source_volume_id.clone()));
        }
        let kind = &self.volume_content_source.as_ref()?.r#type;
        let snapshot = kind.snapshot.iter().map(|from| Object::Snapshot(from.snapshot_id.clone()));
        let volume = kind.volume.iter().map(|from| Object::Volume(from.volume_id.clone()));
        snapshot.chain(volume).next()
    }
}

/// The access mode of a capability; empty where there is none.
pub(super) fn mode(capability: Option<&Value>) -> &str {
    let mode = capability.and_then(|all| all.pointer("/access_mode/mode"));
    mode.and_then(Value::as_str).unwrap_or_default()
}
