//! A bucket that is set back to an earlier state while everything runs (decisions 0049 to 0051).
//!
//! **Owns** a small world: one exclusive volume, two allocs on two nodes that want it, a backup,
//! and two claim services that remember what was there before. The decisions are the services' own:
//! `step`, the check of mounts elsewhere, and the doubts about mounts. Modelled are the bucket, its
//! incarnations and guards, what a service remembers and compares, the agents' journals, and what
//! is on its way.
//!
//! **Promises** of each state: one live alloc at most has the volume mounted; nothing is unmounted
//! or deleted under a live alloc; and the record breaks no invariant.
//!
//! **Never** models the controller: its calls go out beside a claim that is on the record. Calls of
//! the time before the restore that destroy or detach at the storage have ended when the bucket is
//! back.

mod bus;
mod decide;
mod node;
mod search;
mod world;

pub use search::{Report, search};

/// One world to search.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The name in reports.
    pub name: &'static str,
    /// How the bucket is set back.
    pub restore: Restore,
    /// Whether a claim service restarts meanwhile and loses its memory.
    pub restarts: bool,
    /// Whether the volume's owner deletes it.
    pub deletes: bool,
    /// The rule that is taken away.
    pub mutation: Option<Mutation>,
}

/// How the bucket is set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restore {
    /// By `berth bus restore`.
    Ours,
    /// By another tool, and a person accepts it later with `berth bus accept`.
    Stock,
}

/// A rule that is taken away, to show that the search finds the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A service decides on its memory, under the guard of the restored bucket.
    FromMemory,
    /// New revisions are equal to earlier ones.
    NotRaised,
    /// New revisions are higher, but the newest revision of the volume stays.
    HeadsStay,
    /// A service that knew the bucket serves it although it was set back.
    ServeFallen,
    /// An exclusive volume is granted before the other node has compared its mounts.
    NotCompared,
    /// A node compares its mounts with a list of claims from before the restore.
    OldLists,
    /// A mount that no claim covers is no reason to refuse a claim or a deletion.
    IgnoreMounts,
    /// An agent follows a grant that it requested before it compared.
    OldGrants,
}

impl Scenario {
    /// The scenario with a rule taken away.
    #[must_use]
    pub fn without(self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..self }
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
