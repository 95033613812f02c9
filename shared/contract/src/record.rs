//! Records: what stands in the buckets.
//!
//! **Owns** the envelope of every value: the thing itself first, state at the front, for people who
//! look with `nats kv get`; then the trace id of its last change and the schema's version.
//!
//! **Promises** that a record of an older schema is upgraded when read, and that one of a newer
//! schema is refused, so that an old process never drops what a new one wrote.

use berth_domain::volume::Claim;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::trail::Trail;

/// The schema that this version writes.
pub const SCHEMA: u32 = 1;

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
    #[error("the record has schema {found}; this version reads up to {SCHEMA}")]
    Newer {
        /// Its schema.
        found: u32,
    },
    /// It is no record of ours.
    #[error("the record cannot be read")]
    Unreadable(#[source] serde_json::Error),
}

/// A thing as the bytes to store.
pub fn write<T: Serialize>(body: T, trace: Option<String>) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Record { body, trace, trail: None, schema: SCHEMA })
}

/// A claim as the bytes to store, with the spans of its life.
pub fn write_claim(claim: &Claim, trail: Trail) -> Result<Vec<u8>, serde_json::Error> {
    let trace = Some(trail.now().trace_id());
    serde_json::to_vec(&Record { body: claim, trace, trail: Some(trail), schema: SCHEMA })
}

/// The thing that was stored.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<Record<T>, RecordError> {
    // Twice over the bytes, which is cheaper than once through a tree of values.
    let Envelope { trace, trail, schema } =
        serde_json::from_slice(bytes).map_err(RecordError::Unreadable)?;
    let found = schema.unwrap_or(1);
    if found > u64::from(SCHEMA) {
        return Err(RecordError::Newer { found: u32::try_from(found).unwrap_or(u32::MAX) });
    }
    let body = if found == u64::from(SCHEMA) {
        serde_json::from_slice(bytes)
    } else {
        serde_json::from_slice(bytes)
            .and_then(|value| serde_json::from_value(upgrade(value, found)))
    };
    let body = body.map_err(RecordError::Unreadable)?;
    Ok(Record { body, trace, trail, schema: SCHEMA })
}

/// What every record has besides the thing itself.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    trace: Option<String>,
    #[serde(default)]
    trail: Option<Trail>,
    #[serde(default)]
    schema: Option<u64>,
}

/// Brings a record to the present schema, one version at a time. There is one version so far; each
/// new one adds an arm here and a golden file of the old form to the tests.
fn upgrade(value: Value, _found: u64) -> Value {
    value
}
