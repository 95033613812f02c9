//! The record of one name that Docker uses, and how it changes.
//!
//! **Owns** the count of references: how often each of Docker's IDs was mounted and not unmounted.
//! The engine mounts one ID more than once (`docker cp` on a running container), so mounts of an ID
//! are counted.
//!
//! **Promises** that a reference is dropped only if the engine unmounts it, or if it is in doubt
//! and the host showed that nobody uses the volume. A reference is in doubt
//! - after the engine restarted, because a killed engine sends no unmounts;
//! - after this process restarted, because a response or an unmount may have been lost with it.
//!
//! What a name's `docker volume create` does at the storage is in [`creation`](super::creation).
//!
//! **Never** waits, reads a clock or touches a disk.

use std::collections::BTreeMap;

use berth_domain::{AllocId, Timestamp};
use serde::{Deserialize, Serialize};

use super::creation::Creation;
use super::target::VolumeTarget;

/// IDs that may hold one volume on one node at once.
const IDS_MAX: usize = 4096;

/// One name, as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRecord {
    /// Written by `docker volume create`; none for a name that is a volume's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<NameDefinition>,
    /// The use of the volume on this node, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// A name that was created on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameDefinition {
    #[serde(flatten)]
    pub target: VolumeTarget,
    pub created: Timestamp,
    /// How the volume is created at its storage. `None` for a name of an existing volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
}

impl NameDefinition {
    /// Whether the volume is being created or deleted for this name.
    pub fn is_under_way(&self) -> bool {
        self.creation.as_ref().is_some_and(|creation| creation.progress.is_under_way())
    }
}

/// One use of a volume on this node, by any number of containers, under one alloc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    #[serde(flatten)]
    pub target: VolumeTarget,
    /// The alloc that claims the volume. Each session has a new one: an ended alloc stays ended.
    pub alloc: AllocId,
    /// The boot of the host in which the session began. No container outlives it.
    pub boot_id: String,
    pub phase: SessionPhase,
    /// The references of each of Docker's IDs.
    #[serde(default)]
    pub ids: BTreeMap<String, IdCount>,
}

/// The phase of a session. It never goes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionPhase {
    /// The alloc is registered, or about to be. No container uses the volume yet.
    Opening,
    /// The volume is mounted at this path.
    Open { path: String },
    /// The alloc is stopped, or about to be.
    Closing,
}

/// How many references an ID has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdCount {
    pub count: u32,
    pub trust: CountTrust,
}

/// Whether a count can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountTrust {
    /// The engine and this process have run without a break since the mount.
    Sure,
    /// This process was away since the mount.
    #[serde(alias = "agent-was-away")] // written while the agent served Docker
    PluginWasAway,
    /// The engine restarted since the mount.
    EngineRestarted,
}

/// Why an ID was not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountRefusal {
    /// The session is not open.
    NotOpen,
    /// [`IDS_MAX`] hold it.
    Full,
}

impl NameRecord {
    pub fn is_empty(&self) -> bool {
        self.definition.is_none() && self.session.is_none()
    }

    /// Where the volume is mounted.
    pub fn path(&self) -> Option<&str> {
        match &self.session.as_ref()?.phase {
            SessionPhase::Open { path } => Some(path),
            SessionPhase::Opening | SessionPhase::Closing => None,
        }
    }

    /// The volume of the name; `None` until this node knows it.
    pub fn target(&self) -> Option<&VolumeTarget> {
        let session = self.session.as_ref().map(|session| &session.target);
        self.definition.as_ref().map(|definition| &definition.target).or(session)
    }
}

impl Session {
    pub fn new(target: VolumeTarget, alloc: AllocId, boot_id: String) -> Self {
        Self { target, alloc, boot_id, phase: SessionPhase::Opening, ids: BTreeMap::new() }
    }

    /// Counts a reference. For an ID in doubt, this confirms the reference that was counted before.
    pub fn add_reference(&mut self, id: &str) -> Result<(), CountRefusal> {
        if !matches!(self.phase, SessionPhase::Open { .. }) {
            return Err(CountRefusal::NotOpen);
        }
        let is_full = self.ids.len() >= IDS_MAX;
        match self.ids.get_mut(id) {
            Some(counted) if counted.trust != CountTrust::Sure => counted.trust = CountTrust::Sure,
            Some(counted) => counted.count = counted.count.saturating_add(1),
            None if is_full => return Err(CountRefusal::Full),
            None => {
                self.ids.insert(id.to_owned(), IdCount { count: 1, trust: CountTrust::Sure });
            }
        }
        Ok(())
    }

    /// Drops a reference. `false` when the ID has none.
    pub fn drop_reference(&mut self, id: &str) -> bool {
        let Some(counted) = self.ids.get_mut(id) else { return false };
        counted.count = counted.count.saturating_sub(1);
        if counted.count == 0 {
            self.ids.remove(id);
        }
        true
    }

    /// Puts every count in doubt: each ID then has at most one reference.
    pub fn doubt_counts(&mut self, trust: CountTrust) {
        for counted in self.ids.values_mut() {
            *counted = IdCount { count: 1, trust: counted.trust.max(trust) };
        }
    }

    /// Whether a container uses the volume for certain; `None` if no ID is counted. One sure ID is
    /// enough; of the doubts, the one that needs more proof counts.
    pub fn trust(&self) -> Option<CountTrust> {
        self.ids.values().map(|counted| counted.trust).min()
    }

    pub fn close(&mut self) {
        self.ids.clear();
        self.phase = SessionPhase::Closing;
    }
}

#[cfg(test)]
mod tests {
    use berth_domain::{Namespace, VolumeId};

    use super::*;

    fn open() -> Session {
        let target =
            VolumeTarget::without_options(Namespace::default(), VolumeId::new("data").unwrap());
        let mut session = Session::new(target, AllocId::new("a").unwrap(), "boot".to_owned());
        assert_eq!(session.add_reference("x"), Err(CountRefusal::NotOpen));
        session.phase = SessionPhase::Open { path: "/p".to_owned() };
        session
    }

    fn counts(session: &Session) -> Vec<(&str, u32)> {
        session.ids.iter().map(|(id, counted)| (id.as_str(), counted.count)).collect()
    }

    #[test]
    fn each_id_is_counted_as_often_as_it_was_mounted() {
        let mut session = open();
        for id in ["x", "x", "y"] {
            session.add_reference(id).unwrap();
        }
        assert_eq!(counts(&session), [("x", 2), ("y", 1)]);
        assert!(
            session.drop_reference("x")
                && session.drop_reference("y")
                && !session.drop_reference("y")
        );
        assert_eq!(counts(&session), [("x", 1)]);
        assert!(session.drop_reference("x") && session.trust().is_none());
    }

    #[test]
    fn restarted_engine_leaves_one_reference_of_each_id_in_doubt() {
        let mut session = open();
        for id in ["x", "x", "y"] {
            session.add_reference(id).unwrap();
        }
        session.doubt_counts(CountTrust::EngineRestarted);
        assert_eq!(counts(&session), [("x", 1), ("y", 1)]);
        assert_eq!(session.trust(), Some(CountTrust::EngineRestarted));
        // The container is started again: this is the reference that was counted.
        session.add_reference("x").unwrap();
        assert_eq!(
            (counts(&session), session.trust()),
            (vec![("x", 1), ("y", 1)], Some(CountTrust::Sure))
        );
        session.add_reference("x").unwrap();
        assert_eq!(counts(&session), [("x", 2), ("y", 1)]);
    }

    #[test]
    fn plugin_that_was_away_keeps_the_older_doubt() {
        let mut session = open();
        session.add_reference("x").unwrap();
        session.doubt_counts(CountTrust::EngineRestarted);
        session.doubt_counts(CountTrust::PluginWasAway);
        assert_eq!(session.trust(), Some(CountTrust::EngineRestarted));
        session.add_reference("y").unwrap();
        session.doubt_counts(CountTrust::PluginWasAway);
        assert_eq!(session.trust(), Some(CountTrust::PluginWasAway));
    }

    #[test]
    fn stored_records_are_read_again() {
        let mut session = open();
        session.add_reference("x").unwrap();
        let definition = NameDefinition {
            target: session.target.clone(),
            created: Timestamp::from_unix_ms(7),
            creation: None,
        };
        let record = NameRecord { definition: Some(definition), session: Some(session) };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<NameRecord>(&text).unwrap(), record, "{text}");
        // In the form of the first version: such records are on the disks of running nodes.
        let first = r#"{"definition":{"namespace":"default","volume":"data","mode":"write",
            "created":"1970-01-01T00:00:00.007Z"},"session":{"namespace":"default","volume":"data",
            "mode":"write","alloc":"a","boot_id":"boot","phase":{"open":{"path":"/p"}},
            "ids":{"x":{"count":1,"trust":"sure"}}}}"#;
        assert_eq!(serde_json::from_str::<NameRecord>(first).unwrap(), record);
        let away = serde_json::from_str::<CountTrust>(r#""agent-was-away""#).unwrap();
        assert_eq!(away, CountTrust::PluginWasAway);
    }
}
