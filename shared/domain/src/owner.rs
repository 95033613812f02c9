//! Owners of allocs: who may change an alloc, and when it has lost its owner.
//!
//! An owner is one instance of a scheduler. Its name and the identity that gave it belong together:
//! another identity with the same name is another owner. So two instances of a scheduler, and two
//! schedulers, cannot stop each other's allocs by mistake.
//!
//! **Promises** that an alloc with an owner is changed only by this owner, by a request that names
//! the revision of the record that its sender saw, or by the agent of its node.
//!
//! **Never** ends an alloc because its owner is gone: the end of a lease is no proof of anything
//! about the workload.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{OwnerId, Timestamp};

/// Whom an alloc belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocOwner {
    /// The name that the owner gave itself.
    pub name: OwnerId,
    /// Whether the owner held its lease when it took the alloc. Without a lease, an owner keeps its
    /// allocs until it gives them up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leased: bool,
    /// Since when the owner's lease is not held any more: the alloc may be adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unowned_since: Option<Timestamp>,
}

impl AllocOwner {
    /// An owner that has its alloc.
    pub const fn new(name: OwnerId, leased: bool) -> Self {
        Self { name, leased, unowned_since: None }
    }
}

/// What a request for a change says of itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChangeGuard<'a> {
    /// The sender's identity, as in the alloc's record.
    pub by: Option<&'a str>,
    /// As which owner it is sent.
    pub owner: Option<&'a OwnerId>,
    /// The revision of the alloc's record that the sender saw.
    pub revision: Option<u64>,
}

/// Why an alloc is not changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GuardRefusal {
    /// The record has changed since the sender saw it.
    #[error("its record is at revision {now}, not {seen}")]
    Changed {
        /// The revision that the request names.
        seen: u64,
        /// The revision of the record.
        now: u64,
    },
    /// It belongs to another owner.
    #[error("it belongs to owner {owner} ({})", .by.as_deref().unwrap_or("unnamed"))]
    Owned {
        /// The owner's name.
        owner: OwnerId,
        /// The owner's identity.
        by: Option<String>,
    },
    /// It has no owner, and the sender says that it is its owner.
    #[error("it has no owner, so it is not {0}'s")]
    NotOwned(OwnerId),
}
