//! What is known of one name that Docker uses, and how it changes.
//!
//! **Owns** the count of references: how often each of Docker's IDs was mounted and not unmounted.
//! The engine mounts one ID more than once (`docker cp` on a running container), so they are
//! counted and not collected.
//!
//! **Promises** that a reference is dropped only when the engine said so, or when it is in doubt
//! and the host showed that nobody uses the volume. In doubt is what was counted before the engine
//! started anew, since a dead engine unmounts nothing, and before this agent did, since an answer
//! or an unmount may have been lost with it.
//!
//! **Never** waits, reads a clock or touches a disk.

use std::collections::BTreeMap;

use berth_domain::access::{AccessMode, Mode};
use berth_domain::{AllocId, Namespace, Timestamp, VolumeId, VolumeKey};
use serde::{Deserialize, Serialize};

/// IDs that may hold one volume on one node at once.
const IDS_MAX: usize = 4096;

/// One name, as it is on the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What `docker volume create` said; none for a name that is a volume's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Definition>,
    /// Its use on this node, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// What containers may do.
    pub mode: Mode,
    /// How it is to be shared, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessMode>,
    /// The file system it is mounted with, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs: Option<String>,
    /// The size it had to have when it was given its name, in bytes, where that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

impl Target {
    /// A volume of which nothing else is said: containers write, and it is as it is registered.
    pub fn of(namespace: Namespace, volume: VolumeId) -> Self {
        let (mode, access, fs, size) = (Mode::Write, None, None, None);
        Self { namespace, volume, mode, access, fs, size }
    }

    /// The volume.
    pub fn key(&self) -> VolumeKey {
        VolumeKey::new(self.namespace.clone(), self.volume.clone())
    }
}

/// A name that was created here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// What it stands for.
    #[serde(flatten)]
    pub target: Target,
    /// Since when.
    pub created: Timestamp,
}

/// One use of a volume on this node, by as many containers as there are, under one alloc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// What is used.
    #[serde(flatten)]
    pub target: Target,
    /// The alloc that claims it. Each session has one of its own: what has ended stays ended.
    pub alloc: AllocId,
    /// In which life of the host: no reference outlives it.
    pub boot_id: String,
    /// How far it is.
    pub phase: Phase,
    /// How often each ID holds it.
    #[serde(default)]
    pub ids: BTreeMap<String, Held>,
}

/// How far a session is. It goes on only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The alloc is registered, or about to be; nothing is promised to anybody.
    Opening,
    /// It is mounted.
    Open {
        /// Where.
        path: String,
    },
    /// The alloc is stopped, or about to be.
    Closing,
}

/// How often an ID holds a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// So often.
    pub count: u32,
    /// How sure that is.
    pub trust: Trust,
}

/// How sure a count is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// The engine that asked for it runs, and so did we ever since.
    Sure,
    /// This process was away meanwhile.
    #[serde(alias = "agent-was-away")] // so while the agent served Docker
    PluginWasAway,
    /// The engine started anew meanwhile.
    EngineRestarted,
}

/// Why an ID was not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCounted {
    /// The session is not open (any more).
    NotOpen,
    /// Too many hold it.
    Full,
}

impl Record {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.definition.is_none() && self.session.is_none()
    }

    /// The path where the volume is mounted for Docker.
    pub fn path(&self) -> Option<&str> {
        match &self.session.as_ref()?.phase {
            Phase::Open { path } => Some(path),
            Phase::Opening | Phase::Closing => None,
        }
    }

    /// What the name stands for, where this node knows.
    pub fn target(&self) -> Option<&Target> {
        let session = self.session.as_ref().map(|session| &session.target);
        self.definition.as_ref().map(|definition| &definition.target).or(session)
    }
}

impl Session {
    /// A use that begins.
    pub fn begin(target: Target, alloc: AllocId, boot_id: String) -> Self {
        Self { target, alloc, boot_id, phase: Phase::Opening, ids: BTreeMap::new() }
    }

    /// One more reference; for an ID that was in doubt it is the one that was counted.
    pub fn mount(&mut self, id: &str) -> Result<(), NotCounted> {
        if !matches!(self.phase, Phase::Open { .. }) {
            return Err(NotCounted::NotOpen);
        }
        let is_full = self.ids.len() >= IDS_MAX;
        match self.ids.get_mut(id) {
            Some(held) if held.trust != Trust::Sure => held.trust = Trust::Sure,
            Some(held) => held.count = held.count.saturating_add(1),
            None if is_full => return Err(NotCounted::Full),
            None => {
                self.ids.insert(id.to_owned(), Held { count: 1, trust: Trust::Sure });
            }
        }
        Ok(())
    }

    /// One reference less; whether there was one.
    pub fn unmount(&mut self, id: &str) -> bool {
        let Some(held) = self.ids.get_mut(id) else { return false };
        held.count = held.count.saturating_sub(1);
        if held.count == 0 {
            self.ids.remove(id);
        }
        true
    }

    /// The engine started anew: of each ID one reference may be left, and none need be.
    pub fn doubt(&mut self, trust: Trust) {
        for held in self.ids.values_mut() {
            *held = Held { count: 1, trust: held.trust.max(trust) };
        }
    }

    /// How sure it is that somebody uses it; none when nobody is counted.
    pub fn trust(&self) -> Option<Trust> {
        // One that is sure makes the others not worth asking after; of the doubts, the one that
        // needs more proof counts.
        self.ids.values().map(|held| held.trust).min()
    }

    /// Nobody uses it any more.
    pub fn close(&mut self) {
        self.ids.clear();
        self.phase = Phase::Closing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Session {
        let target = Target::of(Namespace::default(), VolumeId::new("data").unwrap());
        let mut session = Session::begin(target, AllocId::new("a").unwrap(), "boot".to_owned());
        assert_eq!(session.mount("x"), Err(NotCounted::NotOpen));
        session.phase = Phase::Open { path: "/p".to_owned() };
        session
    }

    fn counts(session: &Session) -> Vec<(&str, u32)> {
        session.ids.iter().map(|(id, held)| (id.as_str(), held.count)).collect()
    }

    #[test]
    fn each_id_is_counted_as_often_as_it_was_mounted() {
        let mut session = open();
        for id in ["x", "x", "y"] {
            session.mount(id).unwrap();
        }
        assert_eq!(counts(&session), [("x", 2), ("y", 1)]);
        assert!(session.unmount("x") && session.unmount("y") && !session.unmount("y"));
        assert_eq!(counts(&session), [("x", 1)]);
        assert!(session.unmount("x") && session.trust().is_none());
    }

    #[test]
    fn an_engine_that_starts_anew_leaves_one_reference_of_each_in_doubt() {
        let mut session = open();
        for id in ["x", "x", "y"] {
            session.mount(id).unwrap();
        }
        session.doubt(Trust::EngineRestarted);
        assert_eq!(counts(&session), [("x", 1), ("y", 1)]);
        assert_eq!(session.trust(), Some(Trust::EngineRestarted));
        // The container is started again: that is the reference that was counted.
        session.mount("x").unwrap();
        assert_eq!(
            (counts(&session), session.trust()),
            (vec![("x", 1), ("y", 1)], Some(Trust::Sure))
        );
        session.mount("x").unwrap();
        assert_eq!(counts(&session), [("x", 2), ("y", 1)]);
    }

    #[test]
    fn an_agent_that_was_away_trusts_no_engine_more_for_it() {
        let mut session = open();
        session.mount("x").unwrap();
        session.doubt(Trust::EngineRestarted);
        session.doubt(Trust::PluginWasAway);
        assert_eq!(session.trust(), Some(Trust::EngineRestarted));
        session.mount("y").unwrap();
        session.doubt(Trust::PluginWasAway);
        assert_eq!(session.trust(), Some(Trust::PluginWasAway));
    }

    #[test]
    fn what_is_on_the_disk_is_read_again() {
        let mut session = open();
        session.mount("x").unwrap();
        let definition =
            Definition { target: session.target.clone(), created: Timestamp::from_unix_ms(7) };
        let record = Record { definition: Some(definition), session: Some(session) };
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record, "{text}");
        // As this version wrote it first: these are on the disks of running nodes.
        let first = r#"{"definition":{"namespace":"default","volume":"data","mode":"write",
            "created":"1970-01-01T00:00:00.007Z"},"session":{"namespace":"default","volume":"data",
            "mode":"write","alloc":"a","boot_id":"boot","phase":{"open":{"path":"/p"}},
            "ids":{"x":{"count":1,"trust":"sure"}}}}"#;
        assert_eq!(serde_json::from_str::<Record>(first).unwrap(), record);
    }
}
