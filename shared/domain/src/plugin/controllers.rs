//! Which controller of a plugin is called.
//!
//! CSI does not say whether all controllers of a plugin serve one storage, or each serves that of
//! its own host.
//!
//! **Promises** that a volume which only one controller can know is called at no other one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Half, Plugin};
use crate::NodeId;
use crate::topology::reaches;

/// Which controllers of a plugin may be called for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerChoice<'a> {
    /// Any of them.
    Any,
    /// Only the one on this node.
    Only(&'a NodeId),
    /// One that no agent reports now: no node is known from which the volume can be reached.
    Unknown,
}

impl Plugin {
    /// The node whose own controller must be called for a volume there. None if any controller can
    /// be called.
    ///
    /// The controller on the volume's node is right whether all controllers serve one storage, or
    /// each its own host's. If it cannot be called, another one is right in the first case only.
    /// In the second case a volume has a topology that only one node is in: for it, no other
    /// controller is called, also while that one is not on the record, as after a restart of its
    /// agent.
    pub fn controller_beside(
        &self,
        node: &NodeId,
        volume: &[BTreeMap<String, String>],
        ready: impl Fn(&NodeId) -> bool,
    ) -> Option<NodeId> {
        let own = self.instances.get(&(node.clone(), Half::Controller));
        let can_be_asked = own.is_some_and(|own| own.healthy && ready(node));
        let is_alone = own.is_some() && self.is_only_reached_from(node, volume);
        if can_be_asked || is_alone {
            return Some(node.clone());
        }
        match self.controller_of(volume) {
            ControllerChoice::Only(only) => Some(only.clone()),
            ControllerChoice::Unknown => Some(node.clone()),
            ControllerChoice::Any => None,
        }
    }

    /// The ready nodes whose controller may still work on a call for a claim on one of `nodes`. Any
    /// controller may have been called, because the one on the claim's node may have been
    /// unhealthy. The exception is a volume whose topology only that node is in: no other
    /// controller was called.
    pub fn may_be_calling<'a>(
        &'a self,
        nodes: impl Iterator<Item = &'a NodeId>,
        volume: &[BTreeMap<String, String>],
        ready: impl Fn(&NodeId) -> bool,
    ) -> BTreeSet<&'a NodeId> {
        let mut calling = BTreeSet::new();
        for node in nodes {
            let is_alone = self.is_controller_on(node) && self.is_only_reached_from(node, volume);
            calling.extend(self.controller_hosts().filter(|host| !is_alone || *host == node));
        }
        calling.retain(|node| ready(node));
        calling
    }

    /// The nodes that host a controller, healthy or not.
    pub fn controller_hosts(&self) -> impl Iterator<Item = &NodeId> {
        let hosts = self.instances.keys().filter(|(_, half)| *half == Half::Controller);
        hosts.map(|(node, _)| node)
    }

    /// Whether the node hosts a controller, healthy or not.
    pub fn is_controller_on(&self, node: &NodeId) -> bool {
        self.instances.contains_key(&(node.clone(), Half::Controller))
    }

    /// Which controllers may be called for a volume with these topologies.
    ///
    /// A controller that does not know a volume answers its deletion with OK. So where controllers
    /// may have a storage each, none is called before the volume's own is known.
    pub fn controller_of(&self, topologies: &[BTreeMap<String, String>]) -> ControllerChoice<'_> {
        if topologies.is_empty() {
            return ControllerChoice::Any;
        }
        let within = self.instances.iter().filter(|(_, instance)| {
            instance.node.as_ref().is_some_and(|node| reaches(topologies, &node.topology))
        });
        let within: BTreeSet<&NodeId> = within.map(|((node, _), _)| node).collect();
        let mut hosts = self.controller_hosts();
        match (within.first(), within.len()) {
            (Some(only), 1) if hosts.any(|host| host == *only) => ControllerChoice::Only(only),
            (None, _) if hosts.any(|host| self.may_be_local(host)) => ControllerChoice::Unknown,
            _ => ControllerChoice::Any,
        }
    }

    /// Which controllers may be called about a volume at its storage: that of its home, while it is
    /// on record; then the topologies decide, because a disk may have been moved (decision 0069).
    pub fn controller_with_home<'a>(
        &'a self,
        home: Option<&'a NodeId>,
        topologies: &[BTreeMap<String, String>],
    ) -> ControllerChoice<'a> {
        match home.filter(|home| self.is_controller_on(home)) {
            Some(home) => ControllerChoice::Only(home),
            None => self.controller_of(topologies),
        }
    }

    /// Whether the controller there may have a storage of its own. An agent that was restarted
    /// before its plugin answers does not know where its node is.
    fn may_be_local(&self, host: &NodeId) -> bool {
        let beside = self.instances.get(&(host.clone(), Half::Node));
        beside.is_some_and(|instance| instance.node.is_none()) || self.is_local(host)
    }

    /// The nodes that host a controller, healthy or not, which may have a storage of its own.
    pub fn local_hosts(&self) -> Vec<NodeId> {
        self.controller_hosts().filter(|host| self.may_be_local(host)).cloned().collect()
    }

    /// Where the plugin says that the node is; none before it has said so.
    pub fn topology_of(&self, node: &NodeId) -> Option<&BTreeMap<String, String>> {
        let instance = self.instances.get(&(node.clone(), Half::Node))?;
        Some(&instance.node.as_ref()?.topology)
    }

    /// Whether no other node is where the plugin says that this one is.
    fn is_local(&self, host: &NodeId) -> bool {
        self.topology_of(host).is_some_and(|topology| {
            !topology.is_empty() && self.is_only_reached_from(host, std::slice::from_ref(topology))
        })
    }

    /// Which controller creates a volume in one of these topologies, if the controllers may have a
    /// storage each. A creation whose answer was lost is repeated there: elsewhere it would create
    /// a second volume. So none is called while those that can be asked are not known, also if one
    /// of them answers before its node is known to be ready. `draw` is a random number.
    pub fn controller_to_create(
        &self,
        topologies: &[BTreeMap<String, String>],
        ready: impl Fn(&NodeId) -> bool,
        draw: u32,
    ) -> ControllerChoice<'_> {
        let within = |host: &&NodeId| {
            self.topology_of(host).is_some_and(|topology| reaches(topologies, topology))
        };
        let able = self.controller_hosts().filter(|host| {
            let own = self.instances.get(&((*host).clone(), Half::Controller));
            own.is_some_and(|own| own.healthy) && ready(host)
        });
        let (local, shared): (Vec<_>, Vec<_>) = able.partition(|host| self.is_local(host));
        let local: Vec<_> = local.into_iter().filter(within).collect();
        if let Some(drawn) = local.get(draw as usize % local.len().max(1)) {
            return ControllerChoice::Only(drawn);
        }
        if !self.controller_hosts().any(|host| self.may_be_local(host)) {
            return ControllerChoice::Any;
        }
        // A node that says it is where another one is makes that one's storage look shared.
        let is_named = !topologies.is_empty();
        let there: Vec<_> = shared.iter().copied().filter(|_| is_named).filter(within).collect();
        match there.get(draw as usize % there.len().max(1)) {
            Some(drawn) => ControllerChoice::Only(drawn),
            None if shared.is_empty() => ControllerChoice::Unknown,
            None => ControllerChoice::Any,
        }
    }

    fn is_only_reached_from(&self, node: &NodeId, volume: &[BTreeMap<String, String>]) -> bool {
        !volume.is_empty()
            && self.instances.iter().all(|((other, _), instance)| {
                let elsewhere = || instance.node.as_ref().map(|abilities| &abilities.topology);
                other == node || elsewhere().is_none_or(|there| !reaches(volume, there))
            })
    }

    /// The nodes with a controller that can be called. Nodes in the volume's topology come first.
    pub fn controllers(
        &self,
        volume: &[BTreeMap<String, String>],
        ready: impl Fn(&NodeId) -> bool,
    ) -> Vec<NodeId> {
        let able = self.instances.iter().filter(|((node, half), instance)| {
            *half == Half::Controller && instance.healthy && ready(node)
        });
        let mut nodes: Vec<NodeId> = able.map(|((node, _), _)| node.clone()).collect();
        nodes.sort_by_key(|node| {
            !self.topology_of(node).is_some_and(|topology| reaches(volume, topology))
        });
        nodes
    }
}
