//! Nodes that a restored bucket of nodes lacks (decision 0066).
//!
//! **Promises** that a node whose agent runs counts as one that may have mounts, whatever happened
//! to its record; and that agents which lost their leases over the restore have time to get them
//! back.
//!
//! **Never** finds a node that has neither a record nor a lease by then.

use berth_bus::Incarnation;
use berth_domain::volume::{Handle, NoRoute, VolumeSpec};
use berth_domain::{NodeId, VolumeKey};
use berth_service::clock;
use berth_service::projection::Nodes;

use crate::store::state::StateInner;

/// A restore that is older than this, by the wall clock, is over, also for a replica that starts
/// now. Clocks of hosts differ by less.
const RESTORE_IS_OVER_MS: u64 = 60 * 60 * 1_000;

/// Why a request is refused until then.
pub const MAY_RETURN: &str = "the records of nodes were restored a moment ago, and nodes that are \
                              missing there may still come back";

impl StateInner {
    /// Nodes that may have a mount of the volume without a claim, whatever their records say:
    /// because the claim there was deleted by hand, or because the node has no record.
    pub fn suspects(
        &self,
        nodes: &Nodes,
        volume: &VolumeKey,
        handle: Option<&Handle>,
    ) -> Vec<NodeId> {
        let mut suspects = self.lost.nodes_of(volume, handle);
        suspects.extend(self.unrecorded_nodes(nodes));
        suspects
    }

    /// Nodes whose agents run, and which the bucket of nodes lacks since a restore. Each of them
    /// reports soon, after it has compared its mounts with the restored claims.
    pub fn unrecorded_nodes(&self, nodes: &Nodes) -> Vec<NodeId> {
        if self.restored_nodes().is_none() {
            return Vec::new();
        }
        self.node_leases.read(|leases| leases.without_record(nodes))
    }

    /// Refuses a volume that allows one node while agents may still be getting their leases back.
    pub fn check_nodes_had_time(&self, spec: &VolumeSpec) -> Result<(), NoRoute> {
        let is_shared = || spec.capabilities.iter().all(|capability| capability.access.is_shared());
        if self.have_nodes_had_time() || is_shared() {
            return Ok(());
        }
        Err(NoRoute::Unreported(MAY_RETURN.to_owned()))
    }

    /// Whether agents that lost their leases over a restore have had time to get them back.
    pub fn have_nodes_had_time(&self) -> bool {
        self.restored_nodes().is_none_or(|restored| {
            is_over(restored, clock::now().unix_ms())
                || self.nodes_seen.has_reached_age(restored.number)
        })
    }

    /// The incarnation of the bucket of nodes, if it may lack nodes whose mounts are not among the
    /// claims. If no claim can be missing, no node has such a mount.
    fn restored_nodes(&self) -> Option<Incarnation> {
        let may_lack = |incarnation: &Incarnation| incarnation.origin.may_lack_records();
        Some(self.volumes.bucket.incarnation()).filter(may_lack)?;
        Some(self.nodes.bucket.incarnation()).filter(may_lack)
    }
}

fn is_over(restored: Incarnation, now_ms: u64) -> bool {
    now_ms.saturating_sub(restored.number) > RESTORE_IS_OVER_MS
}
