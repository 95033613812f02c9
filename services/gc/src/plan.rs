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

use std::time::Duration;

use berth_contract::message::collect::Kind;
use berth_domain::alloc::AllocState;
use berth_domain::{AllocId, Namespace, NodeId, Timestamp, VolumeKey};
use berth_service::projection::{Allocs, Instances, Nodes, Volumes};

/// The candidates of a scan of the caches. The collector reads the evidence for each again, at the
/// stream's leader.
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
    pub idle: Vec<NodeId>,
    /// Nodes without a record that have plugin instances.
    pub strays: Vec<NodeId>,
    /// Records that must stay for now, each with the reason, in words.
    pub kept: Vec<String>,
}

/// A claim that seems to have no running alloc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwantedClaim {
    pub volume: VolumeKey,
    pub alloc: AllocId,
    /// Distinguishes the claims of one alloc on one volume.
    pub epoch: u64,
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

/// The records that a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct SweepView<'a> {
    pub volumes: &'a Volumes,
    pub allocs: &'a Allocs,
    pub nodes: &'a Nodes,
    pub plugins: &'a Instances,
    pub now: Timestamp,
}

impl SweepView<'_> {
    /// Whether more than `after` has passed since then.
    fn overdue(&self, since: Timestamp, after: Duration) -> bool {
        since.after(after) <= self.now
    }

    /// Adds the candidates of one kind that are due for longer than `after`.
    pub fn find(&self, kind: Kind, after: Duration, plan: &mut Plan) {
        match kind {
            Kind::Claims => self.claims(after, plan),
            Kind::Allocs => self.allocs(after, plan),
            Kind::Nodes => self.nodes(after, plan),
            Kind::Plugins => self.plugins(after, plan),
        }
    }
}

/// A claim in words.
pub fn describe(volume: &VolumeKey, alloc: &AllocId, epoch: u64) -> String {
    format!("claim of alloc {alloc} on volume {volume} (epoch {epoch})")
}

#[cfg(test)]
mod tests;
