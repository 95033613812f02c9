//! The messages of the `owner.*` requests: leases of those whom allocs belong to.

use berth_domain::{OwnerId, Timestamp, limits};
use serde::{Deserialize, Serialize};

use super::query::Page;
use crate::decode::Fault;
use crate::decode_struct;

/// Characters of a holder. It is an id of the process, such as a random one.
const HOLDER_CHARS_MAX: usize = 256;

/// `owner.hold`: takes the lease of an owner, or renews it.
///
/// An owner that holds a lease loses its allocs when the lease ends: they are unowned, and another
/// owner may adopt them. They are not stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldOwner {
    /// The owner.
    pub owner: OwnerId,
    /// Which process: its own id, which no other process has.
    pub holder: String,
    /// How long the lease lives without renewal, in seconds.
    pub ttl_s: u64,
}
decode_struct!(HoldOwner { owner, holder, ttl_s });

impl HoldOwner {
    /// What is wrong with it, by field.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut add = |path: &str, problem| {
            faults.push(Fault { path: path.to_owned(), problem, line: None });
        };
        let long = self.holder.chars().count();
        if !(1..=HOLDER_CHARS_MAX).contains(&long) {
            add("holder", format!("has {long} characters; it must have 1 to {HOLDER_CHARS_MAX}"));
        }
        let longest = limits::LEASE_TTL_MAX.as_secs();
        if !(1..=longest).contains(&self.ttl_s) {
            add("ttl_s", format!("is {}; it must be 1 to {longest}", self.ttl_s));
        }
        faults
    }
}

/// `owner.hold` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerHeld {
    /// The revision of the lease's key.
    pub revision: u64,
}

/// `owner.yield`: gives the lease up. The owner's allocs are unowned from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct YieldOwner {
    /// The owner.
    pub owner: OwnerId,
    /// Which process holds it.
    pub holder: String,
}
decode_struct!(YieldOwner { owner, holder });

/// `owner.yield` was done; again is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerYielded {}

/// `owner.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListOwners {
    /// Only names that begin so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
}
decode_struct!(ListOwners { prefix = String::new() } + page);

/// An owner: it holds a lease, or live allocs belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerStub {
    /// Its name.
    pub name: OwnerId,
    /// Who it is: a kind and a name, `user.anna`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whether its lease is held.
    pub held: bool,
    /// Which process holds the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Since when that process holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How many live allocs belong to it.
    pub live: usize,
    /// How many of them may be adopted.
    pub unowned: usize,
}

/// `owner.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owners {
    /// The owners, by name.
    pub owners: Vec<OwnerStub>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
