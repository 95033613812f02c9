//! The number of volumes on each node, by plugin. The counts follow the claims, so that a claim
//! need not read all volumes to check whether the node has room (E10).

use std::collections::HashMap;

use berth_domain::volume::{Claim, Claims, State};
use berth_domain::{AllocId, NodeId, PluginId};

/// How many volumes of each plugin have a claim that holds them, or may hold them, by node. A
/// volume counts once per node, however many claims it has there, in whichever namespace it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Load(HashMap<PluginId, HashMap<NodeId, u64>>);

impl Load {
    /// Volumes of the plugin on the node.
    pub fn count(&self, plugin: &PluginId, node: &NodeId) -> u64 {
        self.0.get(plugin).and_then(|nodes| nodes.get(node)).copied().unwrap_or(0)
    }

    /// Applies a change of a volume. `before` and `after` are its plugin.
    pub(super) fn record_change(
        &mut self,
        (before, after): (Option<PluginId>, Option<&PluginId>),
        moved: NodeChange,
        claims: &Claims,
    ) {
        if before.as_ref() == after {
            let Some(plugin) = before else { return };
            moved.left.iter().for_each(|node| self.less(&plugin, node));
            moved.came.iter().for_each(|node| self.more(&plugin, node));
            return;
        }
        if let Some(plugin) = before {
            moved.before(claims).for_each(|node| self.less(&plugin, node));
        }
        if let Some(plugin) = after {
            claims.nodes().for_each(|node| self.more(plugin, node));
        }
    }

    fn more(&mut self, plugin: &PluginId, node: &NodeId) {
        let nodes = self.0.entry(plugin.clone()).or_default();
        *nodes.entry(node.clone()).or_default() += 1;
    }

    fn less(&mut self, plugin: &PluginId, node: &NodeId) {
        let Some(nodes) = self.0.get_mut(plugin) else { return };
        if let Some(count) = nodes.get_mut(node) {
            *count -= 1;
            if *count == 0 {
                nodes.remove(node);
            }
        }
        if nodes.is_empty() {
            self.0.remove(plugin);
        }
    }
}

/// The nodes that a change of one claim removes from or adds to the nodes that hold its volume, or
/// may.
#[derive(Debug, Default)]
pub(super) struct NodeChange {
    /// The node that has no claim of the volume any more.
    left: Option<NodeId>,
    /// The node that has its first claim of the volume.
    came: Option<NodeId>,
}

impl NodeChange {
    /// Sets or removes the alloc's claim.
    pub fn by(claims: &mut Claims, alloc: AllocId, new: Option<Claim>) -> Self {
        let node = |claim: &Claim| (claim.state != State::Waiting).then(|| claim.node.clone());
        let came = new.as_ref().and_then(node).filter(|node| !claims.held_on(node));
        let old = match new {
            Some(claim) => claims.insert(alloc, claim),
            None => claims.remove(&alloc),
        };
        let left = old.as_ref().and_then(node).filter(|node| !claims.held_on(node));
        Self { left, came }
    }

    /// The nodes before the change that led to these claims.
    fn before<'a>(&'a self, claims: &'a Claims) -> impl Iterator<Item = &'a NodeId> {
        let stayed = claims.nodes().filter(|node| Some(*node) != self.came.as_ref());
        stayed.chain(&self.left)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_bus::Fold as _;
    use berth_domain::{NodeId, PluginId};

    use super::super::Volumes;

    /// The expected [`super::Load`], counted from all volumes.
    fn counted(volumes: &Volumes) -> BTreeMap<(PluginId, NodeId), u64> {
        let mut counts = BTreeMap::new();
        for (_, subtree) in volumes.iter() {
            let Some(spec) = &subtree.volume.spec else { continue };
            let holders = subtree.volume.holders().map(|(_, claim)| claim.node.clone());
            for node in holders.collect::<std::collections::BTreeSet<_>>() {
                *counts.entry((spec.plugin.clone(), node)).or_default() += 1;
            }
        }
        counts
    }

    #[test]
    fn it_is_what_counting_anew_says_after_any_change() {
        let mut volumes = Volumes::default();
        let mut seed: u64 = 42;
        let mut pick = |among: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % among
        };
        let mut largest = 0;
        for revision in 1..5_000 {
            let volume = format!("ns{}.v{}", pick(2), pick(2));
            let spec = format!(
                r#"{{"plugin":"p{}","capabilities":[{{"access":"multi-node-multi-writer",
                    "attachment":"file-system"}}],"schema":1}}"#,
                pick(2)
            );
            let claim = format!(
                r#"{{"state":"{}","node":"n{}","mode":"read","since":"2026-01-01T00:00:00Z",
                    "access":"multi-node-multi-writer","attachment":"file-system",
                    "controller":false,"schema":1}}"#,
                ["waiting", "taken", "unpublishing"][usize::try_from(pick(3)).unwrap()],
                pick(2)
            );
            let alloc = pick(3);
            match pick(5) {
                0 => volumes.put(&format!("{volume}.spec"), revision, spec.as_bytes()),
                1 if pick(3) == 0 => volumes.delete(&format!("{volume}.spec"), revision),
                2 | 3 => {
                    let key = format!("{volume}.claim.a{alloc}");
                    volumes.put(&key, revision, claim.as_bytes());
                }
                _ => volumes.delete(&format!("{volume}.claim.a{alloc}"), revision),
            }
            let counts = counted(&volumes);
            largest = largest.max(counts.len());
            for plugin in ["p0", "p1"].map(|id| PluginId::new(id).unwrap()) {
                for node in ["n0", "n1"].map(|id| NodeId::new(id).unwrap()) {
                    let expected = counts.get(&(plugin.clone(), node.clone())).copied();
                    let counted = volumes.load().count(&plugin, &node);
                    assert_eq!(counted, expected.unwrap_or(0), "{plugin} on {node} at {revision}");
                }
            }
        }
        assert_eq!(largest, 4, "every plugin had volumes on every node at some time");
    }
}
