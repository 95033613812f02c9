//! The world: the bucket and its backup, the claim services, the nodes, and the messages under way.

use std::collections::BTreeSet;

/// Two of them, each on a node of its own.
pub(super) const ALLOCS: usize = 2;

/// The number of a volume's record.
pub(super) type Record = u16;

/// What the record of an alloc says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Registered {
    #[default]
    Never,
    Live,
    Ended,
}

/// Whether the bucket's stream can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Access {
    #[default]
    Served,
    /// A command works on the bucket: it is removed, or marked as unfinished.
    Unfinished,
}

/// The bucket of volumes, with the record of the allocs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Stream {
    /// The number of its incarnation.
    pub(super) number: u8,
    /// Whether this incarnation may lack records.
    pub(super) lacks: bool,
    pub(super) access: Access,
    pub(super) record: Record,
    /// The newest revision of the volume.
    pub(super) head: u8,
    /// For each revision, how often the bucket was set back before it was stored. Messages of the
    /// same revision differ by that.
    pub(super) messages: Vec<u8>,
    pub(super) allocs: [Registered; ALLOCS],
}

impl Stream {
    /// The newest revision of the bucket.
    pub(super) fn last(&self) -> u8 {
        u8::try_from(self.messages.len()).unwrap_or(u8::MAX)
    }
}

/// What a claim service remembers of the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Memory {
    pub(super) number: u8,
    pub(super) lacks: bool,
    /// The messages that it has seen.
    pub(super) messages: Vec<u8>,
    pub(super) record: Record,
    pub(super) head: u8,
}

/// The claim service whose memory may lag. The other service knows all stored records.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Service {
    /// `None` until it has read the bucket.
    pub(super) memory: Option<Memory>,
    /// A write that is decided and not yet stored.
    pub(super) pending: Option<Pending>,
}

/// A write that is decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) ask: Ask,
    /// The number of the decision.
    pub(super) decision: u16,
    pub(super) guard: u8,
    /// The incarnation and the newest known revision that the decision was made on.
    pub(super) footing: (u8, u8),
    /// The incarnation that the alloc's node had compared with when the request began.
    pub(super) since: u8,
    /// Whether the service has compared the bucket. The write may be sent at any time from then on.
    pub(super) is_checked: bool,
}

/// A request to a claim service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ask {
    /// An agent asks for the alloc's claim.
    Take(u8),
    /// A worker asks for the next call of a release.
    Begin(u8),
    /// A node answers a call.
    Answer(u8, u8),
    /// The owner deletes the volume.
    Delete,
    /// A worker asks for the next call of the deletion.
    Drive,
    /// The volume is deleted at its storage.
    Settle(u8),
}

/// A node, its agent, and its record at the registry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Node {
    /// The epoch of the claim by which the node's alloc has it mounted.
    pub(super) mounted: Option<u8>,
    /// The epoch up to which the agent has detached claims.
    pub(super) detached: u8,
    /// The revision of the newest call that it got.
    pub(super) newest_call: u8,
    /// Whether a list of claims lacked the mount.
    pub(super) is_missed: bool,
    /// The incarnation with which the agent has compared.
    pub(super) compared: u8,
    /// The incarnation that it has compared with, as the registry knows it.
    pub(super) reported: u8,
    /// Whether the registry lists its mount as one without a claim.
    pub(super) is_unaccounted: bool,
}

/// A grant under way to its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Grant {
    pub(super) alloc: u8,
    pub(super) epoch: u8,
    /// The incarnation that the agent had compared with when it sent the request.
    pub(super) since: u8,
}

/// A call under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Call {
    Detach { alloc: u8, epoch: u8, revision: u8, attempt: u8 },
    Delete { attempt: u8 },
}

/// What an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Answer {
    Detached { alloc: u8, attempt: u8 },
    Deleted { attempt: u8 },
}

/// A state of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct World {
    pub(super) stream: Stream,
    pub(super) backup: Option<Stream>,
    /// How often the bucket was set back.
    pub(super) setbacks: u8,
    pub(super) service: Service,
    pub(super) has_restarted: bool,
    pub(super) nodes: [Node; ALLOCS],
    /// Whether each alloc runs.
    pub(super) runs: [bool; ALLOCS],
    pub(super) grants: BTreeSet<Grant>,
    pub(super) calls: BTreeSet<Call>,
    pub(super) answers: BTreeSet<Answer>,
}

impl World {
    /// Whether a live alloc has the volume mounted on the node.
    pub(super) fn writes(&self, at: usize) -> bool {
        self.runs[at] && self.nodes[at].mounted.is_some()
    }

    pub(super) fn is_in_use(&self) -> bool {
        (0..ALLOCS).any(|at| self.writes(at))
    }
}
