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
    /// What it is called in reports.
    pub name: &'static str,
    /// What is there at the start.
    pub start: Start,
    /// What may be requested.
    pub requests: &'static [Request],
    /// Whether each executor has a storage of its own, as a plugin for local disks has.
    pub local: bool,
    /// Whether a second replica decides on what it saw a while ago.
    pub stale: bool,
    /// The rule that is taken away.
    pub mutation: Option<Mutation>,
}

/// What is there at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Nothing.
    Empty,
    /// S was created.
    Ready,
    /// S was created, and a snapshot of it is ready.
    Snapshotted,
    /// S and C were created. Snapshots are cut of both, as a group that S leads.
    Pair,
}

/// What may be requested, at any moment and any number of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// S is created.
    Create,
    /// S is created when its first claim says so.
    CreateAtFirstUse,
    /// S is deleted.
    Delete,
    /// An alloc claims S, and ends.
    Claim,
    /// An alloc claims C, and ends.
    ClaimCopy,
    /// S is made larger. The nodes may have to follow.
    Expand,
    /// C is made larger.
    ExpandCopy,
    /// S is made larger still, also while an expansion is under way.
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

/// A rule that is taken away, to see that the search notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// Writes have no guard.
    NoGuard,
    /// A copy is created without a write of its source.
    NoFence,
    /// A deletion is not told of the copies under way.
    CopiesIgnored,
    /// A creation that is to be deleted, and whose answer is missing, is not repeated first.
    DoomedDeleted,
    /// A later refusal ends the doubt about an earlier call.
    RefusalEndsDoubt,
    /// A call that failed is taken for one that did nothing.
    FailureIsRefusal,
    /// A deletion does not look at the claims.
    DeleteIgnoresClaims,
    /// A deletion does not look at unfinished snapshots.
    DeleteIgnoresSnapshots,
    /// Executors are not asked what they are at.
    NoAsking,
    /// The executor of a group's call locks and lists the volume that leads, and no other.
    LeaderLocked,
    /// Executors are asked what they are at by what the record of the group's leader says.
    LeaderAsks,
    /// A group is stored on the record of its leader only.
    LeaderStored,
    /// Executors are asked by the calls that are unanswered, not by those that failed.
    AskTheUnheard,
    /// The next call of an uncertain creation goes to any executor.
    AnyExecutor,
    /// Each try of a creation has a new name.
    NewNames,
    /// Claims are granted while the volume is created.
    GrantWhileCreating,
    /// Executors take calls after their deadline.
    LateCalls,
    /// Answers of earlier attempts are taken.
    OldAnswers,
    /// A call starts without looking at other calls.
    ForgetCalls,
    /// A deletion, or a larger expansion, forgets the call of what it replaces.
    ForgetReplaced,
    /// The deletion of a snapshot forgets that a poll failed.
    ForgetFailures,
    /// The answer of a call that was replaced is taken for one of what replaced it.
    TakeInherited,
    /// A snapshot is taken for ready once it is cut.
    CutIsReady,
    /// A call that did not succeed is not made again.
    NoSecondTry,
    /// A copy may be made of what is being deleted.
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
