//! What a sweep would collect; pure.
//!
//! **Owns** the decision what is left behind.
//!
//! **Promises** candidates ordered by id; that an unreadable record counts as in use; that what
//! should go and cannot is named with the reason.
//!
//! **Never** reads the bus: each candidate's evidence is read at the leader before it is collected.

mod claims;
mod records;

use std::collections::BTreeSet;

use berth_domain::alloc::AllocState;
use berth_domain::{AllocId, Namespace, NodeId, Timestamp, VolumeKey};
use berth_service::projection::{Instances, Nodes};

pub use records::{DownNode, burden_by_allocs, burden_by_claims};

/// The candidates of a sweep. The collector reads the evidence for each again, at the stream's
/// leader.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Claims that seem to have no running alloc.
    pub unwanted: Vec<UnwantedClaim>,
    /// Volumes that are closing and have no claim left.
    pub closing: Vec<VolumeKey>,
    /// Allocs that have ended longer ago than the configured age, and have no claim left.
    pub ended: Vec<EndedAlloc>,
    /// Nodes that are down for longer than the configured age, with nothing on them that may still
    /// be needed.
    pub idle: Vec<(NodeId, Timestamp)>,
    /// Nodes without a record that have plugin instances.
    pub strays: Vec<NodeId>,
    /// Records that must stay for now, each with the reason, in words.
    pub kept: Vec<String>,
    /// Volumes with a record that cannot be read.
    unreadable: BTreeSet<VolumeKey>,
    /// Whether there are more candidates than one sweep takes.
    pub more: bool,
}

/// A claim that seems to have no running alloc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwantedClaim {
    pub volume: VolumeKey,
    pub alloc: AllocId,
    /// Distinguishes the claims of one alloc on one volume.
    pub epoch: u64,
    /// It stays if its alloc ended later.
    pub ended_before: Timestamp,
}

/// An alloc whose record is not needed any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedAlloc {
    /// Its namespace.
    pub namespace: Namespace,
    /// The alloc.
    pub alloc: AllocId,
    /// How it ended.
    pub state: AllocState,
    /// When.
    pub at: Timestamp,
}

/// The records of nodes and plugins.
#[derive(Debug, Clone, Copy)]
pub struct SweepView<'a> {
    pub nodes: &'a Nodes,
    pub plugins: &'a Instances,
    pub now: Timestamp,
}

impl Plan {
    /// Whether there is nothing to collect.
    pub fn is_idle(&self) -> bool {
        let Self { unwanted, closing, ended, idle, strays, .. } = self;
        unwanted.is_empty()
            && closing.is_empty()
            && ended.is_empty()
            && idle.is_empty()
            && strays.is_empty()
    }
}

/// A claim in words.
pub fn describe(volume: &VolumeKey, alloc: &AllocId, epoch: u64) -> String {
    format!("claim of alloc {alloc} on volume {volume} (epoch {epoch})")
}

#[cfg(test)]
mod tests;
