//! Projections that report each change that may make work due.
//!
//! **Owns** which changes of a record are reported, and as what.
//!
//! **Promises** to report every change that may make a call due.
//!
//! **Never** decides what is due: [`due`](crate::due) does.

use std::collections::BTreeSet;
use std::hash::Hash;

use berth_bus::Fold;
use berth_contract::key::{self, VolumeEntry};
use berth_domain::plugin::{Half, Instance, Node, NodeState};
use berth_domain::volume::{CallOwner, State, Volume, VolumeSpec};
use berth_domain::{AllocId, NodeId, PluginId, Timestamp, VolumeKey};
use berth_service::projection::{Allocs, Instances, Nodes, Volumes};
use berth_service::reconcile::Waker;

/// A unit of work: one claim of one volume, the volume's operation, or one of its snapshots.
pub type WorkKey = (VolumeKey, CallOwner);

/// One claim of one volume.
pub type ClaimKey = (VolumeKey, AllocId);

/// A reported change. The work that it concerns is looked up outside of the projections, which must
/// not wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WatchedChange {
    /// A volume changed: the end of one of its calls may let another one begin (rule 3).
    Volume(VolumeKey),
    /// An alloc may not want one of its claims any more.
    Claim(ClaimKey),
    /// A claim changed its state, or is gone: a call of another claim of the volume may succeed
    /// now.
    ClaimMoved(ClaimKey),
    /// The run that a volume was created for may have ended.
    Run(VolumeKey),
    /// A plugin's controller can be called, for the first time or again.
    Controller(PluginId),
    /// A plugin can be called on a node, for the first time or again.
    Plugin(PluginId, NodeId),
    /// A node is ready again, its agent was started again, or it was declared gone.
    Node(NodeId),
}

/// The queue of reported changes.
pub type Changes = Waker<WatchedChange>;

pub struct WatchedVolumes {
    pub volumes: Volumes,
    /// The work whose last call failed. A change of a plugin or a node looks at nothing else.
    pub failed: BTreeSet<WorkKey>,
    pub changes: Changes,
}

impl WatchedVolumes {
    pub fn new(changes: Changes) -> Self {
        Self { volumes: Volumes::default(), failed: BTreeSet::new(), changes }
    }

    fn follow_failed(&mut self, entry: Option<&VolumeEntry>) {
        let (volume, owner) = match entry {
            Some(VolumeEntry::Claim(volume, alloc)) => (volume, CallOwner::Claim(alloc.clone())),
            Some(VolumeEntry::Spec(volume)) => (volume, CallOwner::Volume),
            Some(VolumeEntry::Snapshot(volume, id)) => (volume, CallOwner::Snapshot(id.clone())),
            _ => return,
        };
        let of = self.volumes.get(volume).map(|subtree| &subtree.volume);
        let has_failed = of.is_some_and(|of| has_failed(of, &owner));
        let work = (volume.clone(), owner);
        if has_failed {
            self.failed.insert(work);
        } else {
            self.failed.remove(&work);
        }
    }

    fn state(&self, volume: &VolumeKey, alloc: &AllocId) -> Option<State> {
        let claims = self.volumes.get(volume).map(|subtree| &subtree.volume.claims);
        claims.and_then(|claims| claims.get(alloc)).map(|claim| claim.state)
    }
}

/// Whether the last call of the work failed.
fn has_failed(volume: &Volume, owner: &CallOwner) -> bool {
    let tries = match owner {
        CallOwner::Claim(alloc) => volume.claims.get(alloc).map(|claim| claim.progress.tries),
        CallOwner::Volume => {
            let operation = volume.spec.as_ref().and_then(VolumeSpec::operation);
            operation.map(|operation| operation.progress.calls.tries)
        }
        CallOwner::Snapshot(id) => {
            let snapshot = volume.snapshots.get(id).filter(|snapshot| snapshot.call().is_some());
            snapshot.map(|snapshot| snapshot.progress.calls.tries)
        }
    };
    tries.is_some_and(|tries| tries > 0)
}

impl Fold for WatchedVolumes {
    fn clock_set_back(&mut self) {
        self.volumes.clock_set_back();
    }

    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        let entry = key::parse_volume(key);
        let was = match &entry {
            Some(VolumeEntry::Claim(volume, alloc)) => self.state(volume, alloc),
            _ => None,
        };
        self.volumes.put(key, revision, value);
        self.follow_failed(entry.as_ref());
        match entry {
            Some(VolumeEntry::Claim(volume, alloc)) => {
                let is = self.state(&volume, &alloc);
                let taken = is == Some(State::Taken);
                // A claim that is granted at once has kept no other claim waiting, and thousands
                // may join a volume.
                if was.is_some() || !taken {
                    self.changes.wake(WatchedChange::Volume(volume.clone()));
                }
                // A further failure is not reported, because two claims that fail would wake each
                // other.
                if was.is_some() && is != was {
                    self.changes.wake(WatchedChange::ClaimMoved((volume.clone(), alloc.clone())));
                }
                if taken {
                    // The alloc may have ended before its claim was recorded.
                    self.changes.wake(WatchedChange::Claim((volume, alloc)));
                }
            }
            Some(VolumeEntry::Spec(volume) | VolumeEntry::Snapshot(volume, _)) => {
                self.changes.wake(WatchedChange::Volume(volume));
            }
            // A claim that waits for another registration of its handle is found by the scan.
            Some(
                VolumeEntry::Handle(_)
                | VolumeEntry::Class(_)
                | VolumeEntry::Quota(..)
                | VolumeEntry::Level,
            )
            | None => {}
        }
    }

    fn delete(&mut self, key: &str, revision: u64) {
        let entry = key::parse_volume(key);
        self.volumes.delete(key, revision);
        self.follow_failed(entry.as_ref());
        let (volume, alloc) = match entry {
            Some(VolumeEntry::Claim(volume, alloc)) => (volume, Some(alloc)),
            Some(VolumeEntry::Spec(volume) | VolumeEntry::Snapshot(volume, _)) => (volume, None),
            _ => return,
        };
        if self.volumes.get(&volume).is_none() {
            return;
        }
        self.changes.wake(WatchedChange::Volume(volume.clone()));
        if let Some(alloc) = alloc {
            self.changes.wake(WatchedChange::ClaimMoved((volume, alloc)));
        }
    }
}

pub struct WatchedAllocs {
    pub allocs: Allocs,
    pub changes: Changes,
}

impl WatchedAllocs {
    /// Wakes the claims on the volumes that an ended alloc requested.
    fn wake_claims(&self, key: &str, gone: bool) {
        let Some((namespace, id)) = key::parse_alloc(key) else { return };
        let Some((_, alloc)) = self.allocs.get(&namespace, &id) else { return };
        if !gone && self.allocs.is_live(&namespace, &id) {
            return;
        }
        for (volume, _) in alloc.requests() {
            let volume = VolumeKey::new(namespace.clone(), volume);
            self.changes.wake(WatchedChange::Run(volume.clone()));
            self.changes.wake(WatchedChange::Claim((volume, id.clone())));
        }
    }
}

impl Fold for WatchedAllocs {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        self.allocs.put(key, revision, value);
        self.wake_claims(key, false);
    }

    fn delete(&mut self, key: &str, revision: u64) {
        // First, because the next step forgets which volumes the alloc requested.
        self.wake_claims(key, true);
        self.allocs.delete(key, revision);
    }
}

pub struct WatchedInstances {
    pub instances: Instances,
    pub changes: Changes,
}

impl WatchedInstances {
    /// Since when an instance is healthy; `None` while it is not.
    fn healthy_since(&self, plugin: &PluginId, node: &NodeId, half: Half) -> Option<Timestamp> {
        let instances = &self.instances.get(plugin)?.instances;
        let is_well = |instance: &&Instance| instance.healthy;
        instances.get(&(node.clone(), half)).filter(is_well).map(|instance| instance.since)
    }
}

impl Fold for WatchedInstances {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        let Some((plugin, node, half)) = key::parse_instance(key) else {
            return self.instances.put(key, revision, value);
        };
        let was = self.healthy_since(&plugin, &node, half);
        self.instances.put(key, revision, value);
        let is = self.healthy_since(&plugin, &node, half);
        // This includes an instance that was unhealthy in a revision that this mirror did not get.
        if is.is_some() && is != was {
            self.changes.wake(match half {
                Half::Controller => WatchedChange::Controller(plugin),
                Half::Node => WatchedChange::Plugin(plugin, node),
            });
        }
    }

    fn delete(&mut self, key: &str, revision: u64) {
        self.instances.delete(key, revision);
    }
}

pub struct WatchedNodes {
    pub nodes: Nodes,
    pub changes: Changes,
}

/// What decides whether a node can be called.
#[derive(Debug, PartialEq, Eq)]
struct NodeAnswers {
    state: NodeState,
    is_gone: bool,
    /// New with each start of the agent, as is the key: the plugins there may have been away,
    /// within one lease, although each of their records says that they are healthy.
    boot_id: String,
    sealing_key: Option<String>,
}

impl WatchedNodes {
    fn answers(&self, node: &NodeId) -> Option<NodeAnswers> {
        self.nodes.get(node).map(|node: &Node| NodeAnswers {
            state: node.state,
            is_gone: node.gone.is_some(),
            boot_id: node.boot_id.clone(),
            sealing_key: node.sealing_key.clone(),
        })
    }
}

impl Fold for WatchedNodes {
    fn put(&mut self, key: &str, revision: u64, value: &[u8]) {
        let Some(node) = key::parse_node(key) else {
            return self.nodes.put(key, revision, value);
        };
        let was = self.answers(&node);
        self.nodes.put(key, revision, value);
        let is = self.answers(&node);
        let may_help = is.as_ref().is_some_and(|is| is.state == NodeState::Ready || is.is_gone);
        if is != was && may_help {
            self.changes.wake(WatchedChange::Node(node));
        }
    }

    fn delete(&mut self, key: &str, revision: u64) {
        self.nodes.delete(key, revision);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;

    /// Its last call may have kept another call of the volume waiting.
    #[test]
    fn a_deleted_spec_or_snapshot_is_reported_as_a_change_of_its_volume() {
        let spec = json!({"plugin": "p", "capabilities": [], "schema": 1});
        let snapshot = json!({"state": "deleting", "since": "2026-01-01T00:00:00Z", "name": "s",
            "plugin": "p", "source": "v", "schema": 2});
        let claim = json!({"state": "node-detached", "node": "n1", "mode": "write",
            "since": "2026-01-01T00:00:00Z", "access": "single-node-writer",
            "attachment": "file-system", "controller": true, "schema": 1});
        let mut watched = WatchedVolumes::new(Changes::default());
        let keys = ["default.v.claim.a", "default.v.snapshot.s", "default.v.spec"];
        for (revision, (key, record)) in (1..).zip(keys.into_iter().zip([claim, snapshot, spec])) {
            watched.put(key, revision, record.to_string().as_bytes());
        }
        let volume = VolumeKey::new("default".parse().unwrap(), "v".parse().unwrap());
        assert_eq!(watched.volumes.get(&volume).unwrap().unreadable().len(), 0);
        for (revision, key) in (4..).zip(["default.v.snapshot.s", "default.v.spec"]) {
            watched.changes.take();
            watched.delete(key, revision);
            let reported = watched.changes.take();
            assert_eq!(reported, HashSet::from([WatchedChange::Volume(volume.clone())]), "{key}");
        }
        watched.delete("default.v.claim.a", 6);
        assert_eq!(watched.changes.take(), HashSet::new(), "nothing is left to work on");
    }

    /// Its agent and its plugins were away within one lease: each record of them is as before.
    #[test]
    fn an_agent_that_was_started_again_is_reported_once_and_only_while_its_node_is_ready() {
        let mut watched = WatchedNodes { nodes: Nodes::default(), changes: Changes::default() };
        let node = NodeId::new("n1").unwrap();
        let reported = HashSet::from([WatchedChange::Node(node.clone())]);
        for (revision, (state, boot, key, is_reported)) in (1..).zip([
            ("ready", "b1", json!("K1"), true),
            ("ready", "b1", json!("K1"), false),
            ("ready", "b1", json!("K2"), true),
            ("ready", "b2", json!("K2"), true),
            ("down", "b2", json!("K2"), false),
            ("down", "b2", json!("K3"), false),
            ("ready", "b2", json!("K3"), true),
            // The agent of an earlier version has no key.
            ("ready", "b2", json!(null), true),
            ("ready", "b3", json!(null), true),
            ("ready", "b3", json!(null), false),
        ]) {
            let record = json!({"state": state, "since": "2026-01-01T00:00:00Z", "boot_id": boot,
                "clock_skew_ms": 0, "version": "1", "reported": "2026-01-01T00:00:00Z",
                "sealing_key": key, "schema": 1});
            watched.put("n1", revision, record.to_string().as_bytes());
            assert_eq!(watched.nodes.get(&node).unwrap().boot_id, boot, "it is readable");
            let expected = if is_reported { reported.clone() } else { HashSet::new() };
            assert_eq!(watched.changes.take(), expected, "{revision}");
        }
    }

    #[test]
    fn work_is_listed_while_its_last_call_failed() {
        let mut watched = WatchedVolumes::new(Changes::default());
        let claim = |tries: u32| {
            json!({"state": "node-detached", "node": "n1", "mode": "write",
            "since": "2026-01-01T00:00:00Z", "access": "single-node-writer", "tries": tries,
            "attachment": "file-system", "controller": true, "schema": 1})
        };
        let volume = VolumeKey::new("default".parse().unwrap(), "v".parse().unwrap());
        let work = BTreeSet::from([(volume, CallOwner::Claim(AllocId::new("a").unwrap()))]);
        for (revision, tries) in (1..).zip([0, 1, 2, 0, 3]) {
            watched.put("default.v.claim.a", revision, claim(tries).to_string().as_bytes());
            let expected = if tries > 0 { work.clone() } else { BTreeSet::new() };
            assert_eq!(watched.failed, expected, "{tries}");
        }
        watched.delete("default.v.claim.a", 6);
        assert_eq!(watched.failed, BTreeSet::new());
    }
}
