//! A volume at its storage, a snapshot of it and a copy of it: every interleaving of what creates,
//! grows, copies and deletes them (rules 19 to 24).
//!
//! **Owns** a small world: the records of a volume S and of a copy C, each with its own guard; a
//! storage with volumes and snapshots; calls on their way, at work and answered; two executors of
//! the plugin's controller and the agent of one node; a replica that is behind.
//!
//! **Promises** that each decision is made by [`berth_domain::volume::step`], on records as they
//! are stored. What the claim service adds is modelled: a copy is created in one atomic batch with
//! a write of its source (the *fence*), and a deletion is told of the copies that its replica
//! knows.
//!
//! **Never** bounds the number of requests, calls and incarnations. A call may act until its
//! deadline, or it may not: that is all that is kept of time.

mod action;
mod check;
mod decide;
mod events;
mod plugin;
mod records;
mod search;
mod world;

pub use search::{Report, search};

/// One world to search.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// The name in reports.
    pub name: &'static str,
    /// The records at the start.
    pub start: Start,
    /// The requests that users may send.
    pub requests: &'static [Request],
    /// Whether each executor has its own storage, as with a plugin for local disks.
    pub local: bool,
    /// Whether a second replica decides on records that it read earlier.
    pub stale: bool,
    /// The rule that is taken away.
    pub mutation: Option<Mutation>,
}

/// The records at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// There are no records.
    Empty,
    /// S was created.
    Ready,
    /// S was created, and a snapshot of it is ready.
    Snapshotted,
    /// S and C were created. Snapshots are cut of both, as a group that S leads.
    Pair,
}

/// The requests that users may send, at any moment and any number of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// S is created.
    Create,
    /// S is created at its first claim.
    CreateAtFirstUse,
    /// S is deleted.
    Delete,
    /// An alloc claims S, and ends.
    Claim,
    /// An alloc claims C, and ends.
    ClaimCopy,
    /// S is expanded. The nodes may have to follow.
    Expand,
    /// C is expanded.
    ExpandCopy,
    /// S is expanded again, perhaps while an expansion is under way.
    ExpandMore,
    /// A mutable parameter of S is changed.
    Modify,
    /// A snapshot of S is cut.
    Cut,
    /// The snapshot is deleted.
    DeleteSnapshot,
    /// C is created as a copy of S.
    CopyVolume,
    /// C is created from the snapshot.
    CopySnapshot,
    /// C is deleted.
    DeleteCopy,
    /// S, or its snapshot, disappears from the storage without Berth.
    Vanish,
}

/// A rule that is taken away, to show that the search finds the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// Writes have no guard.
    NoGuard,
    /// A copy is created without a write of its source.
    NoFence,
    /// A deletion is not told of the copies under way.
    CopiesIgnored,
    /// A creation without an answer that is to be deleted is not repeated first.
    DoomedDeleted,
    /// A later refusal ends the doubt about an earlier call.
    RefusalEndsDoubt,
    /// A failed call counts as one without effect.
    FailureIsRefusal,
    /// A deletion ignores the claims.
    DeleteIgnoresClaims,
    /// A deletion ignores unfinished snapshots.
    DeleteIgnoresSnapshots,
    /// Executors are not asked which calls they work on.
    NoAsking,
    /// The executor of a group's call locks and lists only the leading volume.
    LeaderLocked,
    /// Only the record of the group's leader decides which executors are asked.
    LeaderAsks,
    /// A group is stored on the record of its leader only.
    LeaderStored,
    /// Only executors with unanswered calls are asked, and not those with failed calls.
    AskTheUnheard,
    /// The next call of an uncertain creation goes to any executor.
    AnyExecutor,
    /// Each try of a creation has a new name.
    NewNames,
    /// Claims are granted while the volume is created.
    GrantWhileCreating,
    /// Executors take calls after their deadline.
    LateCalls,
    /// Answers of earlier attempts are accepted.
    OldAnswers,
    /// A call starts without a look at other calls.
    ForgetCalls,
    /// A deletion, or a larger expansion, forgets the call of the operation that it replaces.
    ForgetReplaced,
    /// The deletion of a snapshot forgets that a poll failed.
    ForgetFailures,
    /// The answer of a replaced call counts as one of the replacing operation.
    TakeInherited,
    /// A snapshot counts as ready once it is cut.
    CutIsReady,
    /// A failed call is not repeated.
    NoSecondTry,
    /// A copy may be made of a volume that is being deleted.
    CopyAnything,
}

impl Scenario {
    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn is_grouped(&self) -> bool {
        self.start == Start::Pair
    }

    fn has(&self, request: Request) -> bool {
        self.requests.contains(&request)
    }
}
