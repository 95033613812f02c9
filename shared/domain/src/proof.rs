//! Proofs: what stands in for a node that cannot answer any more (rule 12).
//!
//! A claim of a node that is gone would be held for ever: only its agent can say that a volume is
//! unmounted there. A proof says that nothing on the node can write any more, by other means than
//! its word. A lease that ended is none, and no timer is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{NodeId, Timestamp};

/// By what it is known that nothing on the node can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProofKind {
    /// The host is without power, or destroyed.
    PoweredOff,
    /// The storage does not take anything from the host any more.
    StorageFenced,
    /// A person says so, and answers for it.
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

/// That nothing on a node can write, and on whose word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// By what it is known.
    pub kind: ProofKind,
    /// Who says so.
    pub by: String,
    /// Since when.
    pub at: Timestamp,
    /// What else was said.
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

/// A proof for one claim of the node's: the one of this epoch, which was seen *before* the node's
/// record was read. A claim that was made since may be of the node's next life, which the proof
/// says nothing of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proven {
    /// The node that is gone.
    pub node: NodeId,
    /// The claim's epoch.
    pub epoch: u64,
    /// What is known.
    pub proof: Proof,
}
