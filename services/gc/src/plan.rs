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

/// The result of a scan of the caches. The collector reads the evidence for each again, at the
/// stream's leader.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Claims that seem to have no running alloc.
    pub unwanted: Vec<UnwantedClaim>,
    /// Volumes that are closing and have no claim left.
    pub closing: Vec<VolumeKey>,
    /// Allocs that have ended for long, and have no claim left.
    pub ended: Vec<EndedAlloc>,
    /// Nodes that are down for long, with nothing on them that anybody may still need.
    pub idle: Vec<NodeId>,
    /// Nodes without a record that have plugin instances.
    pub strays: Vec<NodeId>,
    /// What must stay for now, and why, in words.
    pub kept: Vec<String>,
}

/// A claim that seems to have no running alloc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwantedClaim {
    pub volume: VolumeKey,
    pub alloc: AllocId,
    /// Tells the claims of one alloc on one volume apart.
    pub epoch: u64,
}

/// An alloc whose record seems to be of no use any more.
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

/// All that a plan is made from.
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

    /// Finds things of one kind that should have gone for longer than `after`.
    pub fn find(&self, kind: Kind, after: Duration, plan: &mut Plan) {
        match kind {
            Kind::Claims => self.claims(after, plan),
            Kind::Allocs => self.allocs(after, plan),
            Kind::Nodes => self.nodes(after, plan),
            Kind::Plugins => self.plugins(after, plan),
        }
    }
}

/// A claim as people know it.
pub fn describe(volume: &VolumeKey, alloc: &AllocId, epoch: u64) -> String {
    format!("claim of alloc {alloc} on volume {volume} (epoch {epoch})")
}

#[cfg(test)]
mod tests;
