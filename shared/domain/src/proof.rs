//! Proofs: they replace the answer of a node that cannot answer any more (rule 12).
//!
//! Only a node's agent can say that a volume is unmounted there. So a claim of a node that is gone
//! would be held for ever. A proof says, by other means, that nothing on the node can write any
//! more. The end of a lease is no proof, and neither is a timer.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{NodeId, Timestamp};

/// How it is known that nothing on the node can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProofKind {
    /// The host is without power, or destroyed.
    PoweredOff,
    /// The storage refuses all access by the host.
    StorageFenced,
    /// An operator confirms it.
    Confirmed,
}

impl ProofKind {
    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PoweredOff => "powered-off",
            Self::StorageFenced => "storage-fenced",
            Self::Confirmed => "confirmed",
        }
    }
}

impl fmt::Display for ProofKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The statement that nothing on a node can write, and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// How it is known.
    pub kind: ProofKind,
    /// Who made the statement.
    pub by: String,
    /// When it was made.
    pub at: Timestamp,
    /// A note for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, by, at, note } = self;
        write!(f, "{kind}, says {by} at {at}")?;
        if note.is_empty() { Ok(()) } else { write!(f, ": {note}") }
    }
}

/// A proof for one claim of the node. The worker saw the claim with this epoch *before* it read the
/// node's record. A later claim may be of the time after the node's return, which the proof does
/// not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    /// The node that is gone.
    pub node: NodeId,
    /// The claim's epoch.
    pub epoch: u64,
    /// The proof.
    pub proof: Proof,
}
