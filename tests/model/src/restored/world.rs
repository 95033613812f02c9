//! The world: the bucket and its backup, the claim services, the nodes, and what is on its way.

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
    /// A command is at work on it: it is removed, or says that it is unfinished.
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
    /// For each revision, how often the bucket was set back before it was stored: a message of the
    /// same revision is another one then.
    pub(super) messages: Vec<u8>,
    pub(super) allocs: [Registered; ALLOCS],
}

impl Stream {
    /// The newest revision of the bucket.
    pub(super) fn last(&self) -> u8 {
        u8::try_from(self.messages.len()).unwrap_or(u8::MAX)
    }
}

/// What a claim service knows of the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Memory {
    pub(super) number: u8,
    pub(super) lacks: bool,
    /// The messages that it has seen.
    pub(super) messages: Vec<u8>,
    pub(super) record: Record,
    pub(super) head: u8,
}

/// The claim service whose memory may be behind. The other one knows all that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Service {
    /// None before it has read the bucket.
    pub(super) memory: Option<Memory>,
    /// A write that is decided, and not yet stored.
    pub(super) pending: Option<Pending>,
}

/// A write that is decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) ask: Ask,
    /// The number of what was decided.
    pub(super) decision: u16,
    pub(super) guard: u8,
    /// The incarnation that it was decided on, and the newest revision that was known.
    pub(super) footing: (u8, u8),
    /// With what the alloc's node had compared when the request began.
    pub(super) since: u8,
    /// The bucket was compared: the write may be sent at any time from now on.
    pub(super) is_checked: bool,
}

/// What a claim service is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ask {
    /// An agent asks for the alloc's claim.
    Take(u8),
    /// A worker asks for the next call of a release.
    Begin(u8),
    /// The answer of a node's call.
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
    /// The epoch up to which claims were detached.
    pub(super) detached: u8,
    /// The revision of the newest call.
    pub(super) newest_call: u8,
    /// A list of claims lacked the mount.
    pub(super) is_missed: bool,
    /// The incarnation with which the agent has compared.
    pub(super) compared: u8,
    /// The same, as the registry has it.
    pub(super) reported: u8,
    /// The registry has the mount as one that no claim covers.
    pub(super) is_unaccounted: bool,
}

/// A grant on its way to its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Grant {
    pub(super) alloc: u8,
    pub(super) epoch: u8,
    /// With what the agent had compared when it asked.
    pub(super) since: u8,
}

/// A call on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Call {
    Detach { alloc: u8, epoch: u8, revision: u8, attempt: u8 },
    Delete { attempt: u8 },
}

/// What an answer is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Answer {
    Detached { alloc: u8, attempt: u8 },
    Deleted { attempt: u8 },
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct World {
    pub(super) stream: Stream,
    pub(super) backup: Option<Stream>,
    /// How often the bucket was set back.
    pub(super) setbacks: u8,
    pub(super) service: Service,
    pub(super) has_restarted: bool,
    pub(super) nodes: [Node; ALLOCS],
    /// Allocs that run.
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
