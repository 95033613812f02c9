//! The level of records: the highest schema that may be written.
//!
//! **Owns** the record of the level, what a replica says of itself in `nats micro`, and the rule by
//! which the level rises.
//!
//! **Promises** that the level rises only when every replica that was seen reads the new schema,
//! never while an operator holds it, and that it never falls.
//!
//! **Never** asks anybody: the claim service does, and keeps the record.

use std::collections::BTreeMap;

use berth_domain::Timestamp;
use serde::{Deserialize, Serialize};

use crate::record::{Body, NEWEST_SCHEMA, SCHEMA};
use crate::service::{READERS, ServiceName};

/// The metadata field with the newest schema that a replica reads. A replica of a version that did
/// not know levels has none.
pub const READS: &str = "reads_schema";
/// The metadata field of the claim service with the level in force.
pub const IN_FORCE: &str = "level";
/// The metadata field of the claim service that says who holds the level, if anybody does.
pub const HELD_BY: &str = "level_held_by";

/// The level, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// The highest schema that may be written.
    pub level: u32,
    /// The hold, while an operator wants no rise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<LevelHolder>,
}

/// Who holds the level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelHolder {
    /// Who holds it.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
}

impl Body for Level {}

/// What a replica of this version says that it reads, if its service reads records.
pub fn facts_of(service: ServiceName) -> Option<(String, String)> {
    READERS.contains(&service).then(|| (READS.to_owned(), NEWEST_SCHEMA.to_string()))
}

impl Default for Level {
    fn default() -> Self {
        Self { level: SCHEMA, held: None }
    }
}

impl Level {
    /// The level in force where records of this schema are there already: a replica that cannot
    /// read them is in the way with or without further ones.
    pub fn in_force(&self, found: u32) -> u32 {
        self.level.max(found)
    }

    /// The level after a look at the replicas, when it rises. `found` is the newest schema of the
    /// records that are there; `all_read` says that every replica reads the newest one.
    pub fn raised(&self, found: u32, all_read: bool) -> Option<Self> {
        let may_rise = all_read && self.held.is_none();
        let level = self.in_force(found).max(if may_rise { NEWEST_SCHEMA } else { SCHEMA });
        (level > self.level).then(|| Self { level, held: self.held.clone() })
    }

    /// The level, held by this operator; as it was when it is held already.
    #[must_use]
    pub fn hold(self, hold: LevelHolder) -> Self {
        Self { held: Some(self.held.unwrap_or(hold)), ..self }
    }
}

/// A replica that keeps the level from rising.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OlderReplica {
    /// Its service, such as `berth-claim`.
    pub service: String,
    /// Its worker, with host and process; its instance's id where it says no worker.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The newest schema that it reads.
    pub reads: u32,
}

impl OlderReplica {
    /// The replica, if it cannot read this schema.
    pub fn find(
        service: &str,
        id: &str,
        version: &str,
        metadata: &BTreeMap<String, String>,
        schema: u32,
    ) -> Option<Self> {
        let said = metadata.get(READS).and_then(|said| said.parse().ok());
        let reads = said.unwrap_or(SCHEMA);
        (reads < schema).then(|| Self {
            service: service.to_owned(),
            name: metadata.get("worker").map_or(id, String::as_str).to_owned(),
            version: version.to_owned(),
            reads,
        })
    }
}

impl std::fmt::Display for OlderReplica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { service, name, version, reads } = self;
        write!(f, "{service} {name}, version {version}, reads records up to schema {reads}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(level: u32) -> Level {
        Level { level, held: None }
            .hold(LevelHolder { by: "user.ops".to_owned(), since: Timestamp::from_unix_ms(1) })
    }

    #[test]
    fn the_level_rises_when_all_replicas_read_the_newest_schema_and_nobody_holds_it() {
        let first = Level::default();
        assert_eq!(first.raised(SCHEMA, false), None);
        assert_eq!(first.raised(SCHEMA, true).unwrap().level, NEWEST_SCHEMA);
        assert_eq!(held(SCHEMA).raised(SCHEMA, true), None);
    }

    /// A fleet of before levels, or one that was restored, has them already.
    #[test]
    fn records_of_a_newer_schema_have_raised_the_level_whoever_holds_it() {
        let raised = held(SCHEMA).raised(NEWEST_SCHEMA, false).unwrap();
        assert_eq!(raised, held(NEWEST_SCHEMA), "and the hold stays");
        assert_eq!(Level::default().in_force(NEWEST_SCHEMA), NEWEST_SCHEMA);
    }

    #[test]
    fn the_level_never_falls() {
        let newer = Level { level: NEWEST_SCHEMA + 1, held: None };
        for (found, all_read) in [(SCHEMA, true), (NEWEST_SCHEMA, false)] {
            assert_eq!(newer.raised(found, all_read), None);
        }
        assert_eq!(newer.in_force(SCHEMA), NEWEST_SCHEMA + 1);
    }

    #[test]
    fn the_first_hold_counts() {
        let again = LevelHolder { by: "user.other".to_owned(), since: Timestamp::from_unix_ms(2) };
        assert_eq!(held(1).hold(again).held.unwrap().by, "user.ops");
    }

    #[test]
    fn a_replica_that_says_nothing_reads_the_first_schema() {
        let facts = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let find = |pairs: &[(&str, &str)]| {
            OlderReplica::find("berth-claim", "x-1", "0.1.0", &facts(pairs), NEWEST_SCHEMA)
        };
        let old = find(&[("worker", "claim/host/1")]).unwrap();
        let told = old.to_string();
        assert!(told.starts_with("berth-claim claim/host/1, version 0.1.0"), "{told}");
        assert_eq!(find(&[(READS, "1")]).unwrap().name, "x-1");
        assert_eq!(find(&[(READS, "junk")]).unwrap().reads, SCHEMA);
        assert_eq!(find(&[(READS, &NEWEST_SCHEMA.to_string())]), None);
    }
}
