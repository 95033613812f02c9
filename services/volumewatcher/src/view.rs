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
use berth_domain::volume::NextStorageCall;
use berth_domain::volume::{CallOwner, Claim, State, Volume, VolumeSpec};
use berth_domain::{AllocId, NodeId, PluginId, VolumeKey};
use berth_service::clock;
use berth_service::first_seen::FirstSeen;
use berth_service::projection::{Allocs, Nodes};
use berth_service::reconcile::Next;

use crate::due::{Due, Executor, VolumeLook, WorkFacts};
use crate::early::EarlyTries;
use crate::watch::{
    ClaimKey, WatchedAllocs, WatchedChange, WatchedInstances, WatchedNodes, WatchedVolumes, WorkKey,
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
    /// Since when this replica knows of a volume that was created for an alloc which is not
    /// registered.
    pub runs_seen: FirstSeen<(VolumeKey, u64)>,
}

impl WatchView {
    /// The lane of what is due for a claim, an operation or a snapshot, or when to look again.
    pub fn place(&self, key: &WorkKey) -> Result<CallLane, Next> {
        let early = self.early.is_ready(key);
        let (volume, owner) = key;
        let looked = self.read_volume(volume, |found, allocs, nodes| {
            let look = VolumeLook::new(found, clock::now())?;
            let (facts, tries) = match owner {
                CallOwner::Claim(alloc) => {
                    let claim = found.claims.get(alloc)?;
                    (claim_facts(allocs, nodes, volume, alloc, claim), claim.progress.tries)
                }
                CallOwner::Volume => {
                    let operation = found.spec.as_ref()?.operation();
                    let tries = operation.map_or(0, |operation| operation.progress.calls.tries);
                    (storage_facts(self.is_run_wanted(allocs, volume, found)), tries)
                }
                CallOwner::Snapshot(id) => {
                    let snapshot = found.snapshots.get(id);
                    let led = snapshot.filter(|it| it.is_led_by(&volume.volume))?;
                    (storage_facts(true), led.progress.calls.tries)
                }
            };
            Some((look.due(owner, WorkFacts { early, ..facts }), tries > 0))
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

    /// What may go on of a volume now: claims that are being released, its operation, snapshots.
    pub fn may_go_on(&self, volume: &VolumeKey) -> Vec<WorkKey> {
        self.read_volume(volume, |found, allocs, nodes| {
            let mut all = self.storage_due(volume, found, allocs);
            let look = VolumeLook::new(found, clock::now())?;
            let going =
                look.may_go_on(|alloc, claim| claim_facts(allocs, nodes, volume, alloc, claim));
            all.extend(going.into_iter().map(|alloc| claim_key(volume, alloc)));
            Some(all)
        })
        .unwrap_or_default()
    }

    /// Everything that something may be done for now.
    pub fn all_due(&self) -> Vec<WorkKey> {
        let now = clock::now();
        let mut all = Vec::new();
        self.for_each_busy(|volume, found, allocs, nodes| {
            all.extend(self.storage_due(volume, found, allocs));
            let known =
                |alloc: &AllocId, claim: &Claim| claim_facts(allocs, nodes, volume, alloc, claim);
            let Some(look) = VolumeLook::new(found, now) else { return };
            for (alloc, claim) in &found.claims {
                let stays = matches!(claim.state, State::Taken | State::Waiting);
                if stays && is_due(&look.due(&CallOwner::Claim(alloc.clone()), known(alloc, claim)))
                {
                    all.push(claim_key(volume, alloc));
                }
            }
            let going = look.may_go_on(known).into_iter();
            all.extend(going.map(|alloc| claim_key(volume, alloc)));
        });
        all
    }

    /// What has a failed call that may have waited for this.
    pub fn held_up(&self, change: &WatchedChange) -> Vec<WorkKey> {
        let hosted = match change {
            WatchedChange::Node(node) => self.controllers_on(node),
            _ => Vec::new(),
        };
        let mut all = Vec::new();
        self.for_each_busy(|volume, found, _, _| {
            all.extend(storage_held_up(volume, found, change, &hosted));
            let of_spec = found.spec.as_ref().map(|spec| &spec.plugin);
            let concerned = found.claims.iter().filter(|(_, claim)| {
                let Some(plugin) = claim.plugin.as_ref().or(of_spec) else { return false };
                claim.progress.tries > 0
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
            all.extend(concerned.map(|(alloc, _)| claim_key(volume, alloc)));
        });
        all
    }

    /// The claims of the same volume with a failed call, which may have waited for this one.
    pub fn held_up_beside(&self, (volume, changed): &ClaimKey) -> Vec<WorkKey> {
        self.read_volume(volume, |found, _, _| {
            let others = found.claims.iter().filter(|(alloc, claim)| {
                let leaves = matches!(claim.state, State::Unpublishing | State::NodeDetached);
                *alloc != changed && leaves && claim.progress.tries > 0
            });
            Some(others.map(|(alloc, _)| claim_key(volume, alloc)).collect())
        })
        .unwrap_or_default()
    }

    /// The claims on a node, if it is known to be gone.
    pub fn left_behind(&self, node: &NodeId) -> Vec<WorkKey> {
        let mut all = Vec::new();
        self.for_each_busy(|volume, found, _, nodes| {
            if !is_gone(nodes, node) {
                return;
            }
            let there = found.claims.iter().filter(|(_, claim)| claim.node == *node);
            all.extend(there.map(|(alloc, _)| claim_key(volume, alloc)));
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

    /// The trace of the work: of a claim's release, one for all replicas and attempts; of a change
    /// of the storage, the one of the request for it.
    pub fn trace(&self, (volume, owner): &WorkKey) -> TraceContext {
        let trace = self.volumes.read(|watched| {
            let subtree = watched.volumes.get(volume)?;
            match owner {
                CallOwner::Claim(alloc) => Some(subtree.trail(alloc)?.release),
                CallOwner::Volume => subtree.storage_trace(None),
                CallOwner::Snapshot(id) => subtree.storage_trace(Some(id)),
            }
        });
        trace.unwrap_or_else(clock::begin_trace)
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

    /// Calls `visit` with each volume that has claims, or of which anything is to be done.
    fn for_each_busy(&self, mut visit: impl FnMut(&VolumeKey, &Volume, &Allocs, &Nodes)) {
        self.allocs.read(|allocs| {
            self.nodes.read(|nodes| {
                self.volumes.read(|volumes| {
                    let busy = volumes.volumes.iter().filter(|(_, of)| is_busy(&of.volume));
                    for (volume, subtree) in busy {
                        visit(volume, &subtree.volume, &allocs.allocs, &nodes.nodes);
                    }
                });
            });
        });
    }

    /// The volume's operation and its snapshots, as far as something may be done for them now.
    fn storage_due(&self, key: &VolumeKey, volume: &Volume, allocs: &Allocs) -> Vec<WorkKey> {
        let Some(look) = VolumeLook::new(volume, clock::now()) else { return Vec::new() };
        let mut all = Vec::new();
        let wanted = self.is_run_wanted(allocs, key, volume);
        if is_due(&look.due(&CallOwner::Volume, storage_facts(wanted))) {
            all.push((key.clone(), CallOwner::Volume));
        }
        for (id, snapshot) in &volume.snapshots {
            let owner = CallOwner::Snapshot(id.clone());
            // The call of a group may have waited for this volume.
            if is_due(&look.due(&owner, storage_facts(true))) {
                let leader = snapshot.leader(&key.volume).clone();
                all.push((VolumeKey::new(key.namespace.clone(), leader), owner));
            }
        }
        all
    }

    /// Whether the run that the volume was created for goes on, as far as this replica knows. The
    /// alloc may be about to be registered. How long that may take is measured here: the clock of
    /// the replica that wrote the volume may be wrong.
    fn is_run_wanted(&self, allocs: &Allocs, key: &VolumeKey, volume: &Volume) -> bool {
        let Some(spec) = &volume.spec else { return true };
        let Some(alloc) = spec.provision().and_then(|provision| provision.for_alloc.as_ref())
        else {
            return true;
        };
        match allocs.get(&key.namespace, alloc) {
            Some(_) => allocs.is_live(&key.namespace, alloc),
            None => !self.runs_seen.has_reached_age((key.clone(), spec.create_index)),
        }
    }
}

fn claim_key(volume: &VolumeKey, alloc: &AllocId) -> WorkKey {
    (volume.clone(), CallOwner::Claim(alloc.clone()))
}

/// Whether anything may be to do for the volume: now, or when something changes.
fn is_busy(volume: &Volume) -> bool {
    let of_spec = |spec: &VolumeSpec| {
        let provision = spec.provision();
        spec.operation().is_some() || provision.is_some_and(|made| made.for_alloc.is_some())
    };
    !volume.claims.is_empty()
        || volume.spec.as_ref().is_some_and(of_spec)
        || volume.snapshots.values().any(|snapshot| snapshot.call().is_some())
}

/// What has a failed storage call that may have waited for this.
fn storage_held_up(
    key: &VolumeKey,
    volume: &Volume,
    change: &WatchedChange,
    hosted: &[PluginId],
) -> Vec<WorkKey> {
    let concerns = |plugin: &PluginId, node: Option<&NodeId>| match (change, node) {
        (WatchedChange::Controller(of), None) => of == plugin,
        (WatchedChange::Plugin(of, on), Some(node)) => of == plugin && on == node,
        (WatchedChange::Node(on), Some(node)) => on == node,
        (WatchedChange::Node(_), None) => hosted.contains(plugin),
        _ => false,
    };
    let mut all = Vec::new();
    if let Some(spec) = &volume.spec
        && let Some(operation) = spec.operation().filter(|it| it.progress.calls.tries > 0)
    {
        let node = match volume.next_storage_call(operation) {
            NextStorageCall::Node(node) => Some(node),
            _ => None,
        };
        if concerns(&spec.plugin, node.as_ref()) {
            all.push((key.clone(), CallOwner::Volume));
        }
    }
    let waiting = volume
        .snapshots
        .iter()
        .filter(|(_, snapshot)| snapshot.call().is_some() && snapshot.progress.calls.tries > 0);
    for (id, _) in waiting.filter(|(_, snapshot)| concerns(&snapshot.plugin, None)) {
        all.push((key.clone(), CallOwner::Snapshot(id.clone())));
    }
    all
}

fn claim_facts(
    allocs: &Allocs,
    nodes: &Nodes,
    volume: &VolumeKey,
    alloc: &AllocId,
    claim: &Claim,
) -> WorkFacts {
    WorkFacts {
        wanted: allocs.is_live(&volume.namespace, alloc),
        gone: is_gone(nodes, &claim.node),
        early: false,
    }
}

const fn storage_facts(wanted: bool) -> WorkFacts {
    WorkFacts { wanted, gone: false, early: false }
}

const fn is_due(due: &Due) -> bool {
    matches!(due, Due::Now(_))
}

fn is_gone(nodes: &Nodes, node: &NodeId) -> bool {
    nodes.get(node).is_some_and(|node| node.gone.is_some())
}
