//! The mirrors of allocs, plugin instances, nodes and volumes, and the claims that a change
//! concerns.
//!
//! **Owns** the order in which mirrors are locked together: that of [`WatchView`]'s fields.
//!
//! **Promises** that a claim is judged by one moment of all mirrors.
//!
//! **Never** asks the bus: it reads memory only.

use std::time::Duration;

use berth_bus::Mirror;
use berth_contract::trace::TraceContext;
use berth_domain::plugin::Half;
use berth_domain::volume::{Claim, State, Volume};
use berth_domain::{AllocId, NodeId, PluginId, VolumeKey};
use berth_service::clock;
use berth_service::projection::{Allocs, Nodes};
use berth_service::reconcile::Next;

use crate::due::{ClaimFacts, Due, Executor, VolumeLook};
use crate::early::EarlyTries;
use crate::watch::{
    ClaimKey, WatchedAllocs, WatchedChange, WatchedInstances, WatchedNodes, WatchedVolumes,
};

/// Calls in one lane wait for each other: those of one executor. Claims whose last call failed have
/// a second lane of that executor, so that volumes that hang do not delay the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallLane {
    pub executor: Executor,
    pub again: bool,
}

/// Added to a wait: clocks differ, and timers are coarse.
const LATER: Duration = Duration::from_millis(2);

/// The mirrors.
pub struct WatchView {
    pub allocs: Mirror<WatchedAllocs>,
    pub instances: Mirror<WatchedInstances>,
    pub nodes: Mirror<WatchedNodes>,
    pub volumes: Mirror<WatchedVolumes>,
    pub early: EarlyTries,
}

impl WatchView {
    /// The lane of what is due for a claim, or when to look again.
    pub fn place(&self, key: &ClaimKey) -> Result<CallLane, Next> {
        let early = self.early.is_ready(key);
        let (volume, alloc) = key;
        let looked = self.read_volume(volume, |found, allocs, nodes| {
            let claim = found.claims.get(alloc)?;
            let known = ClaimFacts { early, ..claim_facts(allocs, nodes, volume, alloc, claim) };
            let due = VolumeLook::new(found, clock::now())?.due(alloc, claim, known);
            Some((due, claim.tries > 0))
        });
        match looked {
            Some((Due::Now(executor), again)) => Ok(CallLane { executor, again }),
            Some((Due::At(at), _)) => Err(Next::After(at.since(clock::now()) + LATER)),
            Some((Due::Rest, _)) | None => {
                self.early.take(key);
                Err(Next::AwaitChange)
            }
        }
    }

    /// The claims of a volume that are being released and may go on now.
    pub fn may_go_on(&self, volume: &VolumeKey) -> Vec<ClaimKey> {
        let key = |alloc: &AllocId| (volume.clone(), alloc.clone());
        self.read_volume(volume, |found, allocs, nodes| {
            let look = VolumeLook::new(found, clock::now())?;
            let going =
                look.may_go_on(|alloc, claim| claim_facts(allocs, nodes, volume, alloc, claim));
            Some(going.into_iter().map(key).collect())
        })
        .unwrap_or_default()
    }

    /// Every claim that something may be done for now.
    pub fn all_due(&self) -> Vec<ClaimKey> {
        let now = clock::now();
        let mut all = Vec::new();
        self.for_each_claimed(|volume, found, allocs, nodes| {
            let known =
                |alloc: &AllocId, claim: &Claim| claim_facts(allocs, nodes, volume, alloc, claim);
            let Some(look) = VolumeLook::new(found, now) else { return };
            for (alloc, claim) in &found.claims {
                let stays = matches!(claim.state, State::Taken | State::Waiting);
                if stays && matches!(look.due(alloc, claim, known(alloc, claim)), Due::Now(_)) {
                    all.push((volume.clone(), alloc.clone()));
                }
            }
            let going = look.may_go_on(known).into_iter();
            all.extend(going.map(|alloc| (volume.clone(), alloc.clone())));
        });
        all
    }

    /// The claims with a failed call that may have waited for this.
    pub fn held_up(&self, change: &WatchedChange) -> Vec<ClaimKey> {
        let hosted = match change {
            WatchedChange::Node(node) => self.controllers_on(node),
            _ => Vec::new(),
        };
        let mut all = Vec::new();
        self.for_each_claimed(|volume, found, _, _| {
            let Some(plugin) = found.spec.as_ref().map(|spec| &spec.plugin) else { return };
            let concerned = found.claims.iter().filter(|(_, claim)| {
                claim.tries > 0
                    && match (change, claim.state) {
                        (WatchedChange::Controller(of), State::NodeDetached) => of == plugin,
                        (WatchedChange::Plugin(of, on), State::Unpublishing) => {
                            of == plugin && *on == claim.node
                        }
                        (WatchedChange::Node(on), State::Unpublishing) => *on == claim.node,
                        (WatchedChange::Node(_), State::NodeDetached) => hosted.contains(plugin),
                        _ => false,
                    }
            });
            all.extend(concerned.map(|(alloc, _)| (volume.clone(), alloc.clone())));
        });
        all
    }

    /// The claims of the same volume with a failed call, which may have waited for this one.
    pub fn held_up_beside(&self, (volume, changed): &ClaimKey) -> Vec<ClaimKey> {
        self.read_volume(volume, |found, _, _| {
            let others = found.claims.iter().filter(|(alloc, claim)| {
                let leaves = matches!(claim.state, State::Unpublishing | State::NodeDetached);
                *alloc != changed && leaves && claim.tries > 0
            });
            Some(others.map(|(alloc, _)| (volume.clone(), alloc.clone())).collect())
        })
        .unwrap_or_default()
    }

    /// The claims on a node, if it is known to be gone.
    pub fn left_behind(&self, node: &NodeId) -> Vec<ClaimKey> {
        let mut all = Vec::new();
        self.for_each_claimed(|volume, found, _, nodes| {
            if !is_gone(nodes, node) {
                return;
            }
            let there = found.claims.iter().filter(|(_, claim)| claim.node == *node);
            all.extend(there.map(|(alloc, _)| (volume.clone(), alloc.clone())));
        });
        all
    }

    /// The plugins whose controller is hosted on a node.
    fn controllers_on(&self, node: &NodeId) -> Vec<PluginId> {
        self.instances.read(|watched| {
            let controller = (node.clone(), Half::Controller);
            let plugins = watched.instances.iter();
            let hosted = plugins.filter(|(_, plugin)| plugin.instances.contains_key(&controller));
            hosted.map(|(id, _)| id.clone()).collect()
        })
    }

    /// The trace of the claim's release: one trace for all replicas and attempts.
    pub fn trace(&self, (volume, alloc): &ClaimKey) -> TraceContext {
        let trail = self.volumes.read(|watched| {
            let subtree = watched.volumes.get(volume);
            subtree.and_then(|subtree| subtree.trail(alloc))
        });
        trail.map_or_else(clock::begin_trace, |trail| trail.release)
    }

    /// Reads one volume, with the allocs and nodes of the same moment.
    fn read_volume<T>(
        &self,
        volume: &VolumeKey,
        read: impl FnOnce(&Volume, &Allocs, &Nodes) -> Option<T>,
    ) -> Option<T> {
        self.allocs.read(|allocs| {
            self.nodes.read(|nodes| {
                self.volumes.read(|volumes| {
                    let found = volumes.volumes.get(volume)?;
                    read(&found.volume, &allocs.allocs, &nodes.nodes)
                })
            })
        })
    }

    /// Calls `visit` with each volume that has claims.
    fn for_each_claimed(&self, mut visit: impl FnMut(&VolumeKey, &Volume, &Allocs, &Nodes)) {
        self.allocs.read(|allocs| {
            self.nodes.read(|nodes| {
                self.volumes.read(|volumes| {
                    let claimed =
                        volumes.volumes.iter().filter(|(_, of)| !of.volume.claims.is_empty());
                    for (volume, subtree) in claimed {
                        visit(volume, &subtree.volume, &allocs.allocs, &nodes.nodes);
                    }
                });
            });
        });
    }
}

fn claim_facts(
    allocs: &Allocs,
    nodes: &Nodes,
    volume: &VolumeKey,
    alloc: &AllocId,
    claim: &Claim,
) -> ClaimFacts {
    ClaimFacts {
        wanted: allocs.is_live(&volume.namespace, alloc),
        gone: is_gone(nodes, &claim.node),
        early: false,
    }
}

fn is_gone(nodes: &Nodes, node: &NodeId) -> bool {
    nodes.get(node).is_some_and(|node| node.gone.is_some())
}
