//! Records without further use (F2): allocs that have ended, nodes that are down, plugin instances
//! of nodes without a record.
//!
//! **Never** picks a node by its silence alone. A claim, an alloc that was not reported ended, and
//! a proof that the node has not answered yet each say that something may be mounted there. Each of
//! them keeps the node.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use berth_contract::key::{VolumeEntry, parse_volume};
use berth_contract::record::UnreadableRecord;
use berth_domain::plugin::{Node, NodeState};
use berth_domain::{AllocId, Namespace, NodeId};

use super::{EndedAlloc, Plan, SweepView, describe};

/// What keeps a node: the first thing found, and the number of things.
#[derive(Default)]
struct NodeBurden {
    first: String,
    all: usize,
}

impl SweepView<'_> {
    /// Allocs that ended longer ago than `after`, and have no claim anywhere. An alloc that may
    /// still be mounted stays: the registry trusts its node only by the alloc's record.
    pub(super) fn allocs(&self, after: Duration, plan: &mut Plan) {
        let claimants = self.claimants();
        let over = self.allocs.iter().filter(|(namespace, alloc, record)| {
            record.state.is_terminal()
                && self.overdue(record.since, after)
                && !claimants.contains(&(*namespace, (*alloc).clone()))
                && !self.nodes.may_have_mounts(&record.node, namespace, alloc)
        });
        plan.ended = over
            .map(|(namespace, alloc, record)| EndedAlloc {
                namespace: namespace.clone(),
                alloc: alloc.clone(),
                state: record.state,
                at: record.since,
            })
            .collect();
        let mut unreadable: Vec<_> = self.allocs.unreadable().collect();
        unreadable.sort_by_key(|(namespace, alloc, _)| (*namespace, *alloc));
        let describe_kept = |(namespace, alloc, record): (_, _, &UnreadableRecord)| {
            format!("alloc {alloc} of namespace {namespace}: {record}")
        };
        plan.kept.extend(unreadable.into_iter().map(describe_kept));
        plan.ended.sort_by(|a, b| (&a.namespace, &a.alloc).cmp(&(&b.namespace, &b.alloc)));
    }

    fn claimants(&self) -> HashSet<(&Namespace, AllocId)> {
        let claimants = self.volumes.iter().flat_map(|(volume, subtree)| {
            let unreadable = subtree.unreadable.keys().filter_map(|key| match parse_volume(key) {
                Some(VolumeEntry::Claim(_, alloc)) => Some(alloc),
                _ => None,
            });
            let readable = subtree.volume.claims.keys().cloned();
            readable.chain(unreadable).map(|alloc| (&volume.namespace, alloc))
        });
        claimants.collect()
    }

    /// Nodes that are down for longer than `after`, with nothing on them.
    pub(super) fn nodes(&self, after: Duration, plan: &mut Plan) {
        let unreadable = self.nodes.unreadable().iter();
        plan.kept.extend(unreadable.map(|(id, record)| format!("node {id}: {record}")));
        let mounts = self.nodes.unaccounted();
        plan.kept.extend(mounts.map(|(id, mount)| format!("node {id}: {mount}")));
        let overdue =
            |node: &Node| node.state == NodeState::Down && self.overdue(node.since, after);
        let down: Vec<(&NodeId, &Node)> =
            self.nodes.iter().filter(|(_, node)| overdue(node)).collect();
        if down.is_empty() {
            return;
        }
        let (unreadable, burdens) = (self.unreadable(), self.burdens());
        for (id, node) in down {
            let why = match (&node.gone, burdens.get(id), &unreadable) {
                (Some(proof), ..) => Some(format!(
                    "it counts as gone ({proof}); were that forgotten, nobody would tell it to \
                     undo its mounts when it comes back"
                )),
                (None, Some(NodeBurden { first, all: 1 }), _) => {
                    Some(format!("there is the {first}"))
                }
                (None, Some(NodeBurden { first, all }), _) => {
                    Some(format!("there is the {first}, and {} more", all - 1))
                }
                (None, None, Some(burden)) => {
                    Some(format!("{burden} cannot be read, and may be there"))
                }
                (None, None, None) => None,
            };
            match why {
                None => plan.idle.push(id.clone()),
                Some(why) => {
                    plan.kept.push(format!("node {id}: down since {}, but {why}", node.since));
                }
            }
        }
    }

    /// What may be on each node.
    fn burdens(&self) -> BTreeMap<&NodeId, NodeBurden> {
        let mut burdens: BTreeMap<&NodeId, NodeBurden> = BTreeMap::new();
        let mut add = |node, describe_burden: &dyn Fn() -> String| {
            let burden = burdens.entry(node).or_default();
            burden.all += 1;
            if burden.all == 1 {
                burden.first = describe_burden();
            }
        };
        for (volume, subtree) in self.volumes.iter() {
            for (alloc, claim) in &subtree.volume.claims {
                add(&claim.node, &|| describe(volume, alloc, claim.epoch));
            }
        }
        for (node, mount) in self.nodes.unaccounted() {
            add(node, &|| format!("mount of volume {} without a claim", mount.volume));
        }
        for (namespace, alloc, record) in self.allocs.iter() {
            if !record.state.is_terminal() {
                add(&record.node, &|| format!("alloc {alloc} of namespace {namespace}, live"));
            }
        }
        burdens
    }

    /// A record that may be a claim or a live alloc on any node.
    fn unreadable(&self) -> Option<String> {
        let claim = |key: &&String| !matches!(parse_volume(key), Some(VolumeEntry::Spec(_)));
        let mut claims = self.volumes.iter().flat_map(|(_, subtree)| subtree.unreadable.keys());
        let claim = claims.find(claim).map(|key| format!("the record {key}"));
        claim.or_else(|| {
            let (namespace, alloc, _) = self.allocs.unreadable().next()?;
            Some(format!("the record of alloc {alloc} of namespace {namespace}"))
        })
    }

    /// Unknown nodes with plugin instances, all of them older than the grace period.
    pub(super) fn plugins(&self, after: Duration, plan: &mut Plan) {
        let mut strays: BTreeMap<&NodeId, bool> = BTreeMap::new();
        for (_, plugin) in self.plugins.iter() {
            for ((node, _), instance) in &plugin.instances {
                let is_known =
                    self.nodes.get(node).is_some() || self.nodes.unreadable().contains_key(node);
                if !is_known {
                    *strays.entry(node).or_insert(true) &= self.overdue(instance.since, after);
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
