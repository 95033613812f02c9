//! The messages of `level.hold`.
//!
//! **Owns** the request to hold the level of records or to let it go, and how the level is shown.

use berth_domain::Timestamp;
use serde::{Deserialize, Serialize};

use crate::decode_struct;

/// `level.hold`: hold the level of records, or let it go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldLevel {
    /// Whether it is to be held.
    pub hold: bool,
}
decode_struct!(HoldLevel { hold });

/// The level of records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelStatus {
    /// The highest schema that may be written.
    pub level: u32,
    /// The newest schema that the replica which answers could write.
    pub newest: u32,
    /// Who holds the level, if anybody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Timestamp>,
}
