//! Two names of one storage volume: every interleaving of what writes them (rule 17).
//!
//! **Owns** a small world of the bucket `berth-volumes`: two volumes, a claim of each, the keys of
//! their handles; one claim replica that sees everything at once and another one whose mirror lags;
//! a claim service of an older version, which knows no keys of handles.
//!
//! **Promises** that the decisions are those of the claim service: [`berth_claim::handle`] and
//! [`berth_domain::volume::step`] are asked, on the projection that the services keep. What is
//! modelled is the order in which `transact` asks the leader, and what the server does with a
//! batch.
//!
//! **Never** bounds the number of operations: only how many messages the mirror may be behind.

mod decide;
mod search;
mod values;
mod world;

pub use search::{Report, search};

/// One world to search.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The name in reports.
    pub name: &'static str,
    /// The records at the start.
    pub start: Start,
    /// Whether a claim service of an older version registers and deregisters the two names. It
    /// grants no claims.
    pub older_service: bool,
    /// Whether the plugin's controller attaches the volume.
    pub controller: bool,
    /// How many messages the mirror may be behind.
    pub lag_max: usize,
    /// The rule that is taken away.
    pub mutation: Option<Mutation>,
}

/// The records at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// There are no records.
    Empty,
    /// Both names are registered for one handle, each has a claim on the same node, and the handle
    /// has no key. An older version left them so.
    Twice,
}

/// A rule that is taken away, to show that the search finds the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The spec is stored without the key of its handle.
    NoKey,
    /// The key has no guard: the handle is looked up in the mirror only.
    NoKeyGuard,
    /// The server stores the writes of a batch one after the other, and a kill comes between.
    NotAtomic,
    /// Deregistering deletes the key of the handle, whichever volume the key names.
    FreeOfOthers,
    /// Volumes that are registered twice are granted claims.
    GrantTwice,
    /// A release does not look at the claims of the other registration.
    BlindDetach,
    /// A key is taken over without a write below the volume that it named.
    NoFence,
    /// A new registration does not catch up with the whole bucket.
    NoCatchUp,
    /// The repair deletes a key without a guard.
    BlindRepair,
}

impl Scenario {
    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
