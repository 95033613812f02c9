//! Records without further use (F2): allocs that have ended, nodes that are down, plugin instances
//! of nodes without a record.
//!
//! **Never** picks a node by its silence alone. A claim, an alloc that was not reported ended, and
//! a proof that the node has not answered yet each say that something may be mounted there. Each of
//! them keeps the node.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_contract::key::{parse_alloc, parse_node};
use berth_contract::message::alloc::{AllocStub, Allocs};
use berth_contract::message::claim::Claims;
use berth_contract::message::registry::{NodeStatus, Nodes};
use berth_domain::plugin::NodeState;
use berth_domain::{NodeId, Timestamp, VolumeKey};

use super::{EndedAlloc, Plan, SweepView, describe};

/// A node that is down for long.
#[derive(Debug)]
pub struct DownNode {
    pub id: NodeId,
    since: Timestamp,
    /// What keeps it, by its own record.
    pub burden: Option<String>,
}

impl Plan {
    /// Adds the allocs of a page that ended before this time and have no claim. A claim service of
    /// an earlier version lists all allocs.
    pub fn add_ended(&mut self, page: &Allocs, before: Timestamp) {
        let is_over =
            |stub: &&AllocStub| stub.state.is_terminal() && stub.since < before && stub.claims == 0;
        let ended = page.allocs.iter().filter(is_over).map(|stub| EndedAlloc {
            namespace: stub.namespace.clone(),
            alloc: stub.id.clone(),
            state: stub.state,
            at: stub.since,
        });
        self.ended.extend(ended);
    }

    /// Names the allocs whose record cannot be read.
    pub fn add_unreadable_allocs(&mut self, page: &Allocs) {
        for record in &page.unreadable {
            if let Some((namespace, alloc)) = parse_alloc(&record.key) {
                self.kept.push(format!("alloc {alloc} of namespace {namespace}: {record}"));
            }
        }
    }

    /// Names the nodes whose record cannot be read.
    pub fn add_unreadable_nodes(&mut self, page: &Nodes) {
        for record in &page.unreadable {
            if let Some(node) = parse_node(&record.key) {
                self.kept.push(format!("node {node}: {record}"));
            }
        }
    }

    /// The nodes of a page that are down since before this time, each with what its own record says
    /// of it. Names the mounts of all nodes of the page that no claim covers.
    pub fn find_down(&mut self, page: Nodes, before: Timestamp) -> Vec<DownNode> {
        let mut down = Vec::new();
        for node in page.nodes {
            let mounts = node.unaccounted.iter();
            self.kept.extend(mounts.map(|mount| format!("node {}: {mount}", node.id)));
            if node.state == NodeState::Down && node.since <= before {
                let burden = burden_by_status(&node);
                down.push(DownNode { id: node.id, since: node.since, burden });
            }
        }
        down
    }

    /// Adds a node that is down, unless something keeps it.
    pub fn add_down(&mut self, node: DownNode, burden: Option<String>) {
        let DownNode { id, since, .. } = node;
        match burden {
            None => self.idle.push((id, since)),
            Some(why) => self.kept.push(format!("node {id}: down since {since}, but {why}")),
        }
    }
}

impl SweepView<'_> {
    /// Unknown nodes with plugin instances, all of them older than the grace period.
    pub fn find_strays(&self, after: Duration, plan: &mut Plan) {
        let mut strays: BTreeMap<&NodeId, bool> = BTreeMap::new();
        for (_, plugin) in self.plugins.iter() {
            for ((node, _), instance) in &plugin.instances {
                let is_known =
                    self.nodes.get(node).is_some() || self.nodes.unreadable().contains_key(node);
                if !is_known {
                    *strays.entry(node).or_insert(true) &= instance.since.after(after) <= self.now;
                }
            }
        }
        let unreadable = self.plugins.unreadable();
        plan.kept.extend(unreadable.map(|record| format!("plugin instance: {record}")));
        let old: BTreeSet<NodeId> =
            strays.into_iter().filter(|(_, old)| *old).map(|(node, _)| node.clone()).collect();
        plan.strays = old.into_iter().collect();
    }
}

fn burden_by_status(node: &NodeStatus) -> Option<String> {
    if let Some(proof) = &node.gone {
        return Some(format!(
            "it counts as gone ({proof}); were that forgotten, nobody would tell it to undo its \
             mounts when it comes back"
        ));
    }
    let mount = node.unaccounted.first()?;
    Some(format!("there is the mount of volume {} without a claim", mount.volume))
}

/// What keeps a node by a page of its claims.
pub fn burden_by_claims(page: &Claims) -> Option<String> {
    if let Some(claim) = page.claims.first() {
        let volume = VolumeKey::new(claim.namespace.clone(), claim.volume.clone());
        let more = if page.next.is_some() { ", and more" } else { "" };
        let name = describe(&volume, &claim.alloc, claim.epoch);
        return Some(format!("there is the {name}{more}"));
    }
    // It may be on any node.
    let record = page.unreadable.first()?;
    Some(format!("the record {} cannot be read, and may be there", record.key))
}

/// What keeps a node by a page of its live allocs.
pub fn burden_by_allocs(page: &Allocs) -> Option<String> {
    if let Some(alloc) = page.allocs.first() {
        let more = if page.next.is_some() { ", and more" } else { "" };
        let (id, namespace) = (&alloc.id, &alloc.namespace);
        return Some(format!("there is the alloc {id} of namespace {namespace}, live{more}"));
    }
    let record = page.unreadable.first()?;
    Some(format!("the record {} cannot be read, and may be there", record.key))
}
