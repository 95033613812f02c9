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
use berth_domain::volume::{CallOwner, Claim, State, Volume};
use berth_domain::{AllocId, NodeId, PluginId, Timestamp, VolumeKey};
use berth_service::clock;
use berth_service::first_seen::FirstSeen;
use berth_service::projection::{Allocs, Nodes};
use berth_service::reconcile::Next;

use crate::due::{Due, Executor, VolumeLook, WorkFacts};
use crate::early::EarlyTries;
use crate::scan;
use crate::watch::{
    ClaimKey, WatchedAllocs, WatchedChange, WatchedInstances, WatchedNodes, WatchedVolumes, WorkKey,
};

/// Calls of one lane wait for each other: the calls of one executor. Claims whose last call failed
/// have a second lane of that executor, so that volumes that hang do not delay the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallLane {
    pub executor: Executor,
    pub again: bool,
}

/// Added to each wait, because clocks differ and timers are coarse.
const WAIT_MARGIN: Duration = Duration::from_millis(2);

/// The mirrors of the buckets that decide what is due.
pub struct WatchView {
    pub allocs: Mirror<WatchedAllocs>,
    pub instances: Mirror<WatchedInstances>,
    pub nodes: Mirror<WatchedNodes>,
    pub volumes: Mirror<WatchedVolumes>,
    pub early: EarlyTries,
    /// When this replica first saw each volume that was created for an alloc which is not
    /// registered.
    pub runs_seen: FirstSeen<(VolumeKey, u64)>,
}

impl WatchView {
    /// The lane of the work if it is due, or else when to check it again.
    pub fn place(&self, key: &WorkKey) -> Result<CallLane, Next> {
        let early = self.early.is_ready(key);
        let (volume, owner) = key;
        let looked = self.read_volume(volume, |watched, allocs, nodes| {
            let look = VolumeLook::new(watched, clock::now())?;
            let (facts, tries) = match owner {
                CallOwner::Claim(alloc) => {
                    let claim = watched.claims.get(alloc)?;
                    (claim_facts(allocs, nodes, volume, alloc, claim), claim.progress.tries)
                }
                CallOwner::Volume => {
                    let operation = watched.spec.as_ref()?.operation();
                    let tries = operation.map_or(0, |operation| operation.progress.calls.tries);
                    (storage_facts(self.is_run_wanted(allocs, volume, watched)), tries)
                }
                CallOwner::Snapshot(id) => {
                    let snapshot = watched.snapshots.get(id);
                    let led = snapshot.filter(|leader| leader.is_led_by(&volume.volume))?;
                    (storage_facts(true), led.progress.calls.tries)
                }
            };
            Some((look.due(owner, WorkFacts { early, ..facts }), tries > 0))
        });
        match looked {
            Some((Due::Now(executor), again)) => Ok(CallLane { executor, again }),
            Some((Due::At(at), _)) => Err(Next::After(at.since(clock::now()) + WAIT_MARGIN)),
            Some((Due::Rest, _)) | None => {
                self.early.take(key);
                Err(Next::AwaitChange)
            }
        }
    }

    /// The due work of a volume: claims that are being released, its operation, and snapshots.
    pub fn may_go_on(&self, volume: &VolumeKey) -> Vec<WorkKey> {
        self.read_volume(volume, |watched, allocs, nodes| {
            let mut due_work = self.storage_due(volume, watched, allocs);
            let look = VolumeLook::new(watched, clock::now())?;
            let going =
                look.may_go_on(|alloc, claim| claim_facts(allocs, nodes, volume, alloc, claim));
            due_work.extend(going.into_iter().map(|alloc| claim_key(volume, alloc)));
            Some(due_work)
        })
        .unwrap_or_default()
    }

    /// The due work among all that is unfinished, and among the volumes that allocs use, from the
    /// given one on: as many as one scan looks at. Also where the next scan begins; none if this
    /// one came to the last volume.
    pub fn due_from(&self, first: Option<&VolumeKey>) -> (Vec<WorkKey>, Option<VolumeKey>) {
        let now = clock::now();
        let (mut due_work, mut next) = (Vec::new(), None);
        self.allocs.read(|WatchedAllocs { allocs, .. }| {
            self.nodes.read(|WatchedNodes { nodes, .. }| {
                self.volumes.read(|WatchedVolumes { volumes, .. }| {
                    let slice = scan::Slice::read(volumes, first);
                    for (key, subtree) in slice.volumes() {
                        self.add_due((key, &subtree.volume), allocs, nodes, now, &mut due_work);
                    }
                    next = slice.next;
                });
            });
        });
        (due_work, next)
    }

    fn add_due(
        &self,
        (key, volume): (&VolumeKey, &Volume),
        allocs: &Allocs,
        nodes: &Nodes,
        now: Timestamp,
        due_work: &mut Vec<WorkKey>,
    ) {
        due_work.extend(self.storage_due(key, volume, allocs));
        let known = |alloc: &AllocId, claim: &Claim| claim_facts(allocs, nodes, key, alloc, claim);
        let Some(look) = VolumeLook::new(volume, now) else { return };
        for (alloc, claim) in &volume.claims {
            let stays = matches!(claim.state, State::Taken | State::Waiting);
            if stays && is_due(&look.due(&CallOwner::Claim(alloc.clone()), known(alloc, claim))) {
                due_work.push(claim_key(key, alloc));
            }
        }
        let going = look.may_go_on(known).into_iter();
        due_work.extend(going.map(|alloc| claim_key(key, alloc)));
    }

    /// The work with a failed call that may have waited for this change.
    pub fn held_up_by(&self, change: &WatchedChange) -> Vec<WorkKey> {
        let hosted = match change {
            WatchedChange::Node(node) => self.controllers_on(node),
            _ => Vec::new(),
        };
        let concerns = |(plugin, node): (PluginId, Option<NodeId>)| match (change, node) {
            (WatchedChange::Controller(of), None) => *of == plugin,
            (WatchedChange::Plugin(of, on), Some(node)) => *of == plugin && *on == node,
            (WatchedChange::Node(on), Some(node)) => *on == node,
            (WatchedChange::Node(_), None) => hosted.contains(&plugin),
            _ => false,
        };
        self.volumes.read(|watched| {
            let failed = watched.failed.iter().filter(|(key, owner)| {
                let volume = watched.volumes.get(key).map(|subtree| &subtree.volume);
                volume.and_then(|volume| awaited(volume, owner)).is_some_and(concerns)
            });
            failed.cloned().collect()
        })
    }

    /// The other claims of the volume with a failed call, which may have waited for this claim.
    pub fn held_up_beside(&self, (volume, changed): &ClaimKey) -> Vec<WorkKey> {
        self.read_volume(volume, |watched, _, _| {
            let other_claims = watched.claims.iter().filter(|(alloc, claim)| {
                let leaves = matches!(claim.state, State::Unpublishing | State::NodeDetached);
                *alloc != changed && leaves && claim.progress.tries > 0
            });
            Some(other_claims.map(|(alloc, _)| claim_key(volume, alloc)).collect())
        })
        .unwrap_or_default()
    }

    /// The claims on a node that counts as gone.
    pub fn left_behind(&self, node: &NodeId) -> Vec<WorkKey> {
        if !self.nodes.read(|watched| is_gone(&watched.nodes, node)) {
            return Vec::new();
        }
        self.volumes.read(|watched| {
            let there = watched.volumes.index().claims_on(node, None);
            there.map(|(volume, alloc)| claim_key(volume, alloc)).collect()
        })
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

    /// The trace of the work: a claim's release has one for all replicas and attempts; a change of
    /// the storage has that of its request.
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
                    let watched = volumes.volumes.get(volume)?;
                    read(&watched.volume, &allocs.allocs, &nodes.nodes)
                })
            })
        })
    }

    /// The volume's operation and its snapshots, if they are due.
    fn storage_due(&self, key: &VolumeKey, volume: &Volume, allocs: &Allocs) -> Vec<WorkKey> {
        let Some(look) = VolumeLook::new(volume, clock::now()) else { return Vec::new() };
        let mut due_work = Vec::new();
        let wanted = self.is_run_wanted(allocs, key, volume);
        if is_due(&look.due(&CallOwner::Volume, storage_facts(wanted))) {
            due_work.push((key.clone(), CallOwner::Volume));
        }
        for (id, snapshot) in volume.snapshots.iter() {
            let owner = CallOwner::Snapshot(id.clone());
            // The call of a group may have waited for this volume.
            if is_due(&look.due(&owner, storage_facts(true))) {
                let leader = snapshot.leader(&key.volume).clone();
                due_work.push((VolumeKey::new(key.namespace.clone(), leader), owner));
            }
        }
        due_work
    }

    /// Whether the run that the volume was created for goes on, as far as this replica knows. The
    /// alloc may be about to be registered. How long that may take is measured by this process's
    /// clock, because the clock of the replica that wrote the volume may be wrong.
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

/// The plugin that the next call of the work goes to, and the node if it goes to an agent. None if
/// it makes no call.
fn awaited(volume: &Volume, owner: &CallOwner) -> Option<(PluginId, Option<NodeId>)> {
    let of_spec = volume.spec.as_ref().map(|spec| &spec.plugin);
    match owner {
        CallOwner::Claim(alloc) => {
            let claim = volume.claims.get(alloc)?;
            let node = match claim.state {
                State::Unpublishing => Some(claim.node.clone()),
                State::NodeDetached => None,
                _ => return None,
            };
            Some((claim.plugin.as_ref().or(of_spec)?.clone(), node))
        }
        CallOwner::Volume => {
            let operation = volume.spec.as_ref()?.operation()?;
            let node = match volume.next_storage_call(operation) {
                NextStorageCall::Node(node) => Some(node),
                _ => None,
            };
            Some((of_spec?.clone(), node))
        }
        CallOwner::Snapshot(id) => Some((volume.snapshots.get(id)?.plugin.clone(), None)),
    }
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
