//! Records: the values in the buckets.
//!
//! **Owns** the envelope of every value: the thing itself first, state at the front, for people who
//! look with `nats kv get`; then the trace id of its last change and the schema's version.
//!
//! **Promises** that a record of an older schema is upgraded when read, so that what it did not say
//! is taken for what holds most (D9); and that one of a newer schema is refused, so that an old
//! process never drops what a new one wrote. Reading stores nothing: an upgraded record is stored
//! as such with its next change.

use std::fmt;

use berth_domain::NodeId;
use berth_domain::alloc::Alloc;
use berth_domain::class::{Class, ClassUse};
use berth_domain::plugin::{Instance, Job, Node};
use berth_domain::volume::storage::Snapshot;
use berth_domain::volume::{Claim, HandleOwner, VolumeSpec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::code::Code;
pub use crate::message::query::UnreadableRecord;
use crate::message::secret::StoredSecrets;
use crate::problem::Problem;
use crate::trail::Trail;

/// The schema of most records.
pub const SCHEMA: u32 = 1;

/// The schema of records that older versions must not read: a spec with `storage`, and a snapshot.
/// An older version would grant a volume that is not at its storage, and write the spec back
/// without `storage`.
pub const SCHEMA_STORAGE: u32 = 2;

/// The newest schema that this version reads and writes.
pub const NEWEST_SCHEMA: u32 = SCHEMA_STORAGE;

/// A value as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<T> {
    /// The thing itself.
    #[serde(flatten)]
    pub body: T,
    /// The trace of its last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The spans of its life, on claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trail: Option<Trail>,
    /// The version of its form.
    pub schema: u32,
}

/// Why a stored value is not read.
#[derive(Debug, Error)]
pub enum RecordError {
    /// A newer version wrote it.
    #[error(
        "the record has schema {found}; this version reads up to {NEWEST_SCHEMA}, and leaves it \
         as it is"
    )]
    Newer {
        /// Its schema.
        found: u32,
    },
    /// It is no record of ours.
    #[error("the record cannot be read")]
    Unreadable(#[source] serde_json::Error),
}

impl RecordError {
    /// The reason, for programs.
    pub const fn code(&self) -> Code {
        match self {
            Self::Newer { .. } => Code::NewerRecord,
            Self::Unreadable(_) => Code::DamagedRecord,
        }
    }

    /// The report of the unreadable record at this key.
    pub fn unreadable_at(&self, key: &str) -> UnreadableRecord {
        let error = match self {
            Self::Newer { .. } => self.to_string(),
            Self::Unreadable(source) => format!("{self}: {source}"),
        };
        UnreadableRecord { key: key.to_owned(), code: self.code(), error }
    }
}

impl UnreadableRecord {
    /// The refusal of whatever would have to know what the record says.
    pub fn problem(&self) -> Problem {
        Problem { record: Some(self.key.clone()), ..Problem::new(self.code, self) }
    }
}

impl fmt::Display for UnreadableRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record {} cannot be read here: {}", self.key, self.error)
    }
}

/// A thing as the bytes to store.
pub fn write<T: Serialize>(body: T, trace: Option<String>) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Record { body, trace, trail: None, schema: SCHEMA })
}

/// A spec as the bytes to store. Without `storage` older versions can read it.
pub fn write_spec(spec: &VolumeSpec, trace: Option<String>) -> Result<Vec<u8>, serde_json::Error> {
    let schema = schema_of_spec(spec);
    serde_json::to_vec(&Record { body: spec, trace, trail: None, schema })
}

/// The schema that a spec is stored with.
pub const fn schema_of_spec(spec: &VolumeSpec) -> u32 {
    if spec.storage.is_some() { SCHEMA_STORAGE } else { SCHEMA }
}

/// A snapshot as the bytes to store.
pub fn write_snapshot(
    snapshot: &Snapshot,
    trace: Option<String>,
) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Record { body: snapshot, trace, trail: None, schema: SCHEMA_STORAGE })
}

/// A claim as the bytes to store, with the spans of its life.
pub fn write_claim(claim: &Claim, trail: Trail) -> Result<Vec<u8>, serde_json::Error> {
    let trace = Some(trail.now().trace_id());
    serde_json::to_vec(&Record { body: claim, trace, trail: Some(trail), schema: SCHEMA })
}

/// The node of a claim whose record names none. No agent answers there, so such a claim holds its
/// volume until an operator proves that the node is gone. A missing field never frees a volume.
pub const NODE_UNKNOWN: &str = "unknown";

/// Whether a claim's record named no node: then the projection has it on a node of its own.
pub fn is_node_unknown(node: &NodeId) -> bool {
    let rest = node.as_str().strip_prefix(NODE_UNKNOWN);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The content of a record.
pub trait Body: DeserializeOwned {
    /// Whether the next report says all that the record says, so that a damaged one may be written
    /// over. A node's record may say that the node is gone, which no report says.
    const IS_REPORTED_AGAIN: bool = false;

    /// Brings the fields that an older version wrote to the present form; `from` is its schema.
    fn upgrade(_fields: &mut Map<String, Value>, _from: u32) {}
}

impl Body for Claim {
    /// Before schema 1 a claim may lack what was taken for granted. It is read as the claim that
    /// holds most: granted, to write, attached by the controller, on an unknown node.
    fn upgrade(fields: &mut Map<String, Value>, from: u32) {
        if from < 1 {
            absent(fields, "state", "taken");
            absent(fields, "mode", "write");
            absent(fields, "controller", true);
            absent(fields, "node", NODE_UNKNOWN);
        }
    }
}

impl Body for Alloc {
    /// An alloc that does not say whether it has ended may be running.
    fn upgrade(fields: &mut Map<String, Value>, from: u32) {
        if from < 1 {
            absent(fields, "state", "live");
        }
    }
}

impl Body for Node {
    /// A node is down until its lease is seen.
    fn upgrade(fields: &mut Map<String, Value>, from: u32) {
        if from < 1 {
            absent(fields, "state", "down");
        }
    }
}

impl Body for VolumeSpec {}
impl Body for Snapshot {}
impl Body for Class {}
impl Body for ClassUse {}
impl Body for HandleOwner {}
impl Body for Instance {
    const IS_REPORTED_AGAIN: bool = true;
}
impl Body for Job {
    const IS_REPORTED_AGAIN: bool = true;
}
impl Body for StoredSecrets {}

fn absent(fields: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    fields.entry(name).or_insert_with(|| value.into());
}

/// The thing that was stored.
pub fn read<T: Body>(bytes: &[u8]) -> Result<Record<T>, RecordError> {
    read_up_to(NEWEST_SCHEMA, bytes)
}

/// The same, by a version that reads schemas up to `newest`.
fn read_up_to<T: Body>(newest: u32, bytes: &[u8]) -> Result<Record<T>, RecordError> {
    // Twice over the bytes, which is cheaper than once through a tree of values.
    let RecordHeader { trace, trail, schema } =
        serde_json::from_slice(bytes).map_err(RecordError::Unreadable)?;
    let found = u32::try_from(schema).unwrap_or(u32::MAX);
    if found > newest {
        return Err(RecordError::Newer { found });
    }
    let body = if found >= SCHEMA {
        serde_json::from_slice(bytes)
    } else {
        serde_json::from_slice(bytes).and_then(|mut fields| {
            T::upgrade(&mut fields, found);
            serde_json::from_value(Value::Object(fields))
        })
    };
    let body = body.map_err(RecordError::Unreadable)?;
    Ok(Record { body, trace, trail, schema: SCHEMA })
}

/// What every record has besides the thing itself.
#[derive(Deserialize)]
struct RecordHeader {
    #[serde(default)]
    trace: Option<String>,
    #[serde(default)]
    trail: Option<Trail>,
    /// The first records had none.
    #[serde(default)]
    schema: u64,
}

#[cfg(test)]
mod tests {
    use berth_domain::PluginId;
    use berth_domain::volume::storage::StorageLife;

    use super::*;

    /// The last release reads schema 1 only.
    #[test]
    fn an_older_version_reads_a_spec_without_storage_and_refuses_one_with_it() {
        let plain = VolumeSpec::empty(&PluginId::new("p").unwrap());
        let written = write_spec(&plain, None).unwrap();
        assert_eq!(read_up_to::<VolumeSpec>(SCHEMA, &written).unwrap().body, plain);
        let storage = Some(Box::new(StorageLife::default()));
        let written = write_spec(&VolumeSpec { storage, ..plain }, None).unwrap();
        let refused = read_up_to::<VolumeSpec>(SCHEMA, &written).unwrap_err();
        assert!(matches!(refused, RecordError::Newer { found: SCHEMA_STORAGE }), "{refused}");
        assert_eq!(refused.code(), Code::NewerRecord);
        assert!(read::<VolumeSpec>(&written).is_ok());
    }
}
