//! What is due for a claim, the volume's operation or a snapshot, decided from the mirrors; pure.
//!
//! **Owns** which executor would carry out the next call, and which claims of a volume are asked
//! about side by side.
//!
//! **Promises** that nothing is at rest here while the claim service would begin a call for it, by
//! the same record: both ask [`Volume::due`]. The opposite may happen: the claim service may refuse
//! a call that seems due here.
//!
//! **Never** decides that a call begins: that is the claim service's decision.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_domain::volume::{self, CallOwner, Claim, DueCall, DueFacts, Policy, State, Volume};
use berth_domain::{AllocId, NodeId, PluginId, Timestamp, limits};

/// The executor of a call. Calls of one executor wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Executor {
    /// The controller of a plugin, wherever it is.
    Controller(PluginId),
    /// A plugin on a node, by the node's agent.
    Node(PluginId, NodeId),
}

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// A call of this executor may begin, or the claim may be deleted.
    Now(Executor),
    /// Nothing before then, unless something changes.
    At(Timestamp),
    /// Nothing, unless something changes.
    Rest,
}

/// Facts about a claim, an operation or a snapshot besides its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkFacts {
    /// The alloc that has the claim, or that the volume was created for, has not ended.
    pub wanted: bool,
    /// The claim's node is gone: a proof says that nothing there can write any more (rule 12).
    pub gone: bool,
    /// Something changed that the last failed call may have waited for.
    pub early: bool,
}

/// One volume at one time.
pub struct VolumeLook<'a> {
    volume: &'a Volume,
    plugin: PluginId,
    now: Timestamp,
    policy: Policy,
}

impl<'a> VolumeLook<'a> {
    /// None when there is no such volume to look at.
    pub fn new(volume: &'a Volume, now: Timestamp) -> Option<Self> {
        let of_snapshot =
            || volume.snapshots.values().next().map(|snapshot| snapshot.plugin.clone());
        // The registration of a volume with claims may be lost.
        let of_claim = || volume.claims.values().find_map(|claim| claim.plugin.clone());
        let of_spec = volume.spec.as_ref().map(|spec| spec.plugin.clone());
        let plugin = of_spec.or_else(of_claim).or_else(of_snapshot)?;
        Some(Self { volume, plugin, now, policy: earliest() })
    }

    /// The claims being released that may go on now, side by side: at most one for each executor
    /// that rule 3 keeps apart. So when one of thousands of claims that leave one volume has moved,
    /// the others do not all ask. The oldest claim comes first: if allocs come and go all the time,
    /// none is overtaken for ever.
    pub fn may_go_on(self, facts_of: impl Fn(&AllocId, &Claim) -> WorkFacts) -> Vec<&'a AllocId> {
        let mut claims = Vec::new();
        let (mut at_controller, mut at_nodes) = (false, BTreeSet::new());
        // A granted or waiting claim becomes due when its alloc changes.
        for (alloc, claim) in self.volume.claims.moving() {
            let owner = CallOwner::Claim(alloc.clone());
            let due = self.domain_due(&owner, facts_of(alloc, claim));
            let volume::Due::Now(call) = due else { continue };
            let waits = match (claim.state, &call) {
                (State::Unpublishing, DueCall::Node(node)) => {
                    at_controller || at_nodes.contains(node)
                }
                (State::NodeDetached, DueCall::Controller) => at_controller || !at_nodes.is_empty(),
                // Giving up a claim is recorded first, or needs no call at all.
                _ => false,
            };
            if waits {
                continue;
            }
            match call {
                DueCall::Nobody | DueCall::Controller => at_controller = true,
                DueCall::Node(node) => drop(at_nodes.insert(node)),
            }
            claims.push(alloc);
        }
        claims
    }

    /// What is due for a claim, the volume's operation or a snapshot.
    pub fn due(&self, owner: &CallOwner, facts: WorkFacts) -> Due {
        self.by_executor(self.domain_due(owner, facts))
    }

    fn domain_due(&self, owner: &CallOwner, work_facts: WorkFacts) -> volume::Due {
        let WorkFacts { wanted, gone, early } = work_facts;
        let facts = DueFacts { now: self.now, policy: &self.policy, wanted, gone, early };
        self.volume.due(owner, &facts)
    }

    /// The same with the executor of the call. Work without a call waits for the controller's lane.
    fn by_executor(&self, due: volume::Due) -> Due {
        let plugin = self.plugin.clone();
        match due {
            volume::Due::Now(DueCall::Nobody | DueCall::Controller) => {
                Due::Now(Executor::Controller(plugin))
            }
            volume::Due::Now(DueCall::Node(node)) => Due::Now(Executor::Node(plugin, node)),
            volume::Due::At(at) => Due::At(at),
            volume::Due::Rest => Due::Rest,
        }
    }
}

/// The policy by which a call may begin earliest, because the claim service's clock and timeouts
/// may differ from this replica's. The claim service answers an early request with the time to
/// wait.
fn earliest() -> Policy {
    Policy {
        clock_margin: Duration::ZERO,
        abandoned_after: limits::CLOCK_MARGIN,
        ..Policy::default()
    }
}

#[cfg(test)]
mod tests;
