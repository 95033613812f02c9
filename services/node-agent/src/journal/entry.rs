//! The entries of the journal and their encoding.
//!
//! **Owns** the form on disk. A key is `<ns>.<volume>.<alloc>.<kind>`, with ids encoded as in the
//! buckets. A value is JSON: the state comes first, and `schema` is the version of the form.
//!
//! **Promises** that an entry of a newer schema is refused and not misread.

use std::path::PathBuf;

use berth_contract::token::{decode, encode};
use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::volume::MountSummary;
use berth_domain::{AllocId, Namespace, PluginId, Timestamp, VolumeId, VolumeKey};
use berth_host::MountContent;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::options::OptionsFingerprint;

/// Largest number of `JournalledDetach` that are kept. The oldest are forgotten. The agent needs
/// an entry as long as a handler may still receive a grant of its epoch or of an earlier one. No
/// handler waits longer than [`WAIT_MAX`](berth_domain::limits::WAIT_MAX).
pub(super) const DETACHED_MAX: usize = 16_384;

/// The schema that this version writes.
const SCHEMA: u32 = 1;

/// How far a use has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UseState {
    /// Any of the plugin calls may have been made.
    Intent,
    /// Every call succeeded.
    Published,
}

/// A disk. It is valid within one boot of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The block device's `major:minor`, such as `7:3`.
    pub device: String,
    /// The kernel's disk sequence number (Linux, `sysfs-block`, `diskseq`). It grows with every
    /// disk, so a reused device number is noticed.
    pub seq: u64,
}

/// An expansion of a volume on this node: `NodeExpandVolume` may have been made, or has succeeded.
///
/// For a person who reads the journal after a crash. An agent needs it for no decision: the call
/// may always be repeated, and is, until the claim service has stored its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalledExpansion {
    /// The size, in bytes.
    pub to_bytes: u64,
    /// Whether the plugin has answered OK, and the size was checked.
    pub done: bool,
}

/// The use of a volume by an alloc.
pub type UseKey = (VolumeKey, AllocId);

/// An alloc's use of a volume on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalledUse {
    pub state: UseState,
    /// The epoch of its claim.
    pub epoch: u64,
    pub plugin: PluginId,
    pub external_id: String,
    pub access: AccessMode,
    pub attachment: AttachmentMode,
    pub mode: Mode,
    /// `None` if the plugin does not stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<PathBuf>,
    /// Of an intent: `NodeStageVolume` has succeeded, and `NodePublishVolume` is next or was made.
    /// Earlier versions neither write nor read it. To them it is an intent like any other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub staged: bool,
    /// The mount options in use. `None` if an earlier version wrote the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<OptionsFingerprint>,
    /// For people: the same options without the flags. Empty if an earlier version wrote the entry.
    #[serde(default, skip_serializing_if = "MountSummary::is_empty")]
    pub mount: MountSummary,
    pub target: PathBuf,
    /// The disk behind the published volume. `None` if it has none, if the kernel does not number
    /// disks, or if an earlier version wrote the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// For people: what was requested and the plugin left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What the mount table showed of the volume at the agent's paths. After the unmount the agent
    /// finds other mounts of the volume by it. Valid within the boot. Older versions wrote none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<MountContent>,
    /// The last expansion of the volume on this node. Older versions wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expansion: Option<JournalledExpansion>,
    /// Who wants the alloc, for events. `None` if an earlier version wrote the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub boot_id: String,
    pub since: Timestamp,
}

impl JournalledUse {
    /// Whether it is a use of this volume of the plugin.
    pub fn is_of(&self, plugin: &PluginId, external_id: &str) -> bool {
        self.plugin == *plugin && self.external_id == external_id
    }

    /// The state as one word for people.
    pub fn progress(&self) -> &'static str {
        match self.state {
            UseState::Intent if self.staged => "staged",
            UseState::Intent => "begun",
            UseState::Published => "published",
        }
    }
}

/// A detach of an alloc's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalledDetach {
    /// No grant of this epoch or of an earlier one mounts anything (rule 10).
    pub epoch: u64,
    pub done: bool,
}

/// A change of one entry. A detach that is done also removes the use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "few are under way at a time")]
pub(super) enum JournalChange {
    Use(VolumeKey, AllocId, JournalledUse),
    Detached(VolumeKey, AllocId, JournalledDetach),
}

/// Why an entry cannot be read.
#[derive(Debug, Error)]
pub enum EntryError {
    #[error("no key of this journal")]
    Key,
    #[error("its form is {found}; this version reads up to {SCHEMA}")]
    LongPoll { found: u64 },
    #[error("no value of this journal")]
    Value(#[source] serde_json::Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Use,
    Detached,
}

impl EntryKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Detached => "detached",
        }
    }
}

pub(super) fn entry_key(volume: &VolumeKey, alloc: &AllocId, kind: EntryKind) -> String {
    let (namespace, id) = (encode(&volume.namespace), encode(&volume.volume));
    format!("{namespace}.{id}.{}.{}", encode(alloc), kind.as_str())
}

impl JournalChange {
    pub(super) fn decode_entry(key: &[u8], value: &[u8]) -> Result<Self, EntryError> {
        let (volume, alloc, kind) = parse_key(key).ok_or(EntryError::Key)?;
        Ok(match kind {
            EntryKind::Use => Self::Use(volume, alloc, parse_value(value)?),
            EntryKind::Detached => Self::Detached(volume, alloc, parse_value(value)?),
        })
    }
}

fn parse_key(key: &[u8]) -> Option<(VolumeKey, AllocId, EntryKind)> {
    let mut tokens = std::str::from_utf8(key).ok()?.split('.');
    let namespace = Namespace::new(decode(tokens.next()?).ok()?).ok()?;
    let volume = VolumeId::new(decode(tokens.next()?).ok()?).ok()?;
    let alloc = AllocId::new(decode(tokens.next()?).ok()?).ok()?;
    let kind = match tokens.next()? {
        "use" => EntryKind::Use,
        "detached" => EntryKind::Detached,
        _ => return None,
    };
    tokens.next().is_none().then(|| (VolumeKey::new(namespace, volume), alloc, kind))
}

#[derive(Serialize)]
struct StoredEntry<'a, T> {
    #[serde(flatten)]
    entry: &'a T,
    schema: u32,
}

/// Encodes an entry with its schema.
pub(super) fn encode_value<T: Serialize>(entry: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&StoredEntry { entry, schema: SCHEMA })
}

fn parse_value<T: DeserializeOwned>(value: &[u8]) -> Result<T, EntryError> {
    let value: Value = serde_json::from_slice(value).map_err(EntryError::Value)?;
    match value.get("schema").and_then(Value::as_u64) {
        Some(found) if found > u64::from(SCHEMA) => Err(EntryError::LongPoll { found }),
        _ => serde_json::from_value(value).map_err(EntryError::Value),
    }
}
