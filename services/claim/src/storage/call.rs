//! Storage calls, put together from the records.
//!
//! **Owns** what the agent is told of a call, and which node's controller gets it.
//!
//! **Promises** that a volume at one node's storage is called there only, whatever topologies other
//! nodes report; and that the executor learns of every other controller that may still be at a call
//! for these volumes.
//!
//! **Never** changes a record.

use std::collections::BTreeSet;

use berth_contract::code::Code;
use berth_contract::message::call::{Call, StorageCall};
use berth_contract::message::storage_call::{
    CopySource, GroupIds, GroupVolume, NewVolume, StorageDetails, StorageWork,
};
use berth_contract::problem::Problem;
use berth_domain::plugin::{ControllerChoice, Plugin};
use berth_domain::volume::storage::{
    Operation, Provision, Snapshot, Stage, StorageLife, Topology, Work,
};
use berth_domain::volume::{Attempt, CallKind, CallOwner, Volume, VolumeSpec};
use berth_domain::{NodeId, PluginId, SnapshotId, VolumeId, VolumeKey};
use berth_service::clock;
use berth_service::projection::Volumes;

use crate::store::state::{StateInner, busy_controllers};

/// Why no controller is called.
pub const UNKNOWN_CONTROLLER: &str = "no node from which the volume can be reached reports the \
    plugin now, and the plugin's other controllers may not know the volume";

impl StateInner {
    /// The node whose controller has to get the next call for the volume, or its snapshot; none if
    /// any controller may get it. A plugin's controllers may each know only the storage of their
    /// own host (see `Plugin::controller_with_home`). Fails while no agent reports that controller.
    pub fn storage_executor(
        &self,
        volume: &Volume,
        snapshot: Option<&SnapshotId>,
    ) -> Result<Option<NodeId>, Problem> {
        let Some((plugin, topologies)) = place_of(volume, snapshot) else { return Ok(None) };
        let home = home_of(volume, snapshot);
        let creates = snapshot.is_none()
            && volume.spec.as_ref().is_some_and(|spec| spec.stage() == Stage::Creating);
        let executor = self.with_plugin(plugin, |plugin, ready| {
            let choice = match plugin.controller_with_home(home, topologies) {
                ControllerChoice::Any if creates => {
                    plugin.controller_to_create(topologies, ready, clock::jitter())
                }
                choice => choice,
            };
            match choice {
                ControllerChoice::Only(node) => Some(Some(node.clone())),
                ControllerChoice::Any => Some(None),
                ControllerChoice::Unknown => None,
            }
        });
        match executor {
            Some(Some(executor)) => Ok(executor),
            None if topologies.is_empty() => Ok(None),
            Some(None) | None => Err(Problem::new(Code::NotDue, UNKNOWN_CONTROLLER).plugin(plugin)),
        }
    }

    /// Reads a plugin, with a test of which nodes are ready.
    pub fn with_plugin<T>(
        &self,
        plugin: &PluginId,
        read: impl FnOnce(&Plugin, &dyn Fn(&NodeId) -> bool) -> T,
    ) -> Option<T> {
        self.nodes.mirror.read(|nodes| {
            self.plugins.mirror.read(|plugins| {
                let plugin = plugins.get(plugin)?;
                Some(read(plugin, &|node: &NodeId| nodes.is_ready(node)))
            })
        })
    }

    /// The call of an attempt on the record; none if the attempt was replaced.
    pub fn storage_call(
        &self,
        key: &VolumeKey,
        snapshot: Option<&SnapshotId>,
        attempt: &Attempt,
        revision: u64,
    ) -> Option<StorageCall> {
        self.volumes.mirror.read(|volumes| {
            let volume = &volumes.get(key)?.volume;
            let progress = match snapshot {
                Some(id) => &volume.snapshots.get(id)?.progress,
                None => &volume.spec.as_ref()?.operation()?.progress,
            };
            let is_its_call =
                progress.calls.attempt.as_ref() == Some(attempt) && !progress.inherited;
            if !is_its_call {
                return None;
            }
            let planned = match snapshot {
                Some(id) => plan_snapshot(volumes, key, id, attempt)?,
                None => self.plan_operation(key, volume, attempt)?,
            };
            let owner = snapshot.cloned().map_or(CallOwner::Volume, CallOwner::Snapshot);
            let others = planned.details.others.iter().filter_map(|other| {
                let other = VolumeKey::new(key.namespace.clone(), other.volume.clone());
                volumes.get(&other)
            });
            let others: Vec<&Volume> = others.map(|subtree| &subtree.volume).collect();
            let busy = |plugin: &Plugin, ready: &dyn Fn(&NodeId) -> bool| -> BTreeSet<NodeId> {
                let called = std::iter::once(&volume).chain(&others);
                let busy =
                    called.flat_map(|volume| busy_controllers(volume, &owner, plugin, ready));
                busy.cloned().collect()
            };
            let mut ask_first = if attempt.call.is_controller() {
                self.with_plugin(&planned.plugin, busy).unwrap_or_default()
            } else {
                BTreeSet::new()
            };
            // The controller that gets the call makes its calls one after the other.
            ask_first.retain(|node| Some(node) != planned.details.node.as_ref());
            Some(Call {
                call: attempt.call,
                attempt: attempt.id.clone(),
                revision,
                deadline: attempt.deadline,
                namespace: key.namespace.clone(),
                volume: key.volume.clone(),
                external_id: planned.external_id,
                plugin: planned.plugin,
                ask_first: ask_first.into_iter().collect(),
                secrets: planned.secrets,
                details: planned.details,
            })
        })
    }

    fn plan_operation(
        &self,
        key: &VolumeKey,
        volume: &Volume,
        attempt: &Attempt,
    ) -> Option<PlannedCall> {
        let spec = volume.spec.as_ref()?;
        let storage = spec.storage.as_deref()?;
        let operation = storage.operation.as_ref()?;
        let mut node = operation.progress.executor.clone();
        let mut external_id = spec.external_id(&key.volume);
        let work = match &operation.work {
            Work::Create { .. } => {
                let provision = storage.provision.as_ref()?;
                external_id.clone_from(&provision.name);
                StorageWork::Create(Box::new(self.new_volume(spec, storage, provision, operation)))
            }
            Work::Delete { .. } => StorageWork::Delete,
            Work::Modify { parameters, .. } => {
                StorageWork::Modify { parameters: parameters.clone() }
            }
            Work::Expand(expansion) => {
                let mut required_bytes = expansion.required_bytes;
                if attempt.call == CallKind::NodeExpand {
                    node.clone_from(&expansion.node);
                    required_bytes = spec.bytes_at_nodes(expansion);
                }
                let capability = volume.in_use().or_else(|| spec.capabilities.first().copied())?;
                StorageWork::Expand {
                    required_bytes,
                    limit_bytes: expansion.limit_bytes.filter(|limit| *limit >= required_bytes),
                    capability,
                    mount: spec.mount.to_value(),
                }
            }
        };
        Some(PlannedCall {
            external_id,
            plugin: spec.plugin.clone(),
            secrets: spec.secrets.clone(),
            details: StorageDetails { snapshot: None, others: Vec::new(), node, work },
        })
    }

    fn new_volume(
        &self,
        spec: &VolumeSpec,
        storage: &StorageLife,
        provision: &Provision,
        operation: &Operation,
    ) -> NewVolume {
        let knows_topology = |plugin: &Plugin, _: &dyn Fn(&NodeId) -> bool| {
            let abilities = plugin.instances.values().filter_map(|instance| instance.controller);
            abilities.into_iter().any(|can| can.topology)
        };
        let knows_topology = self.with_plugin(&spec.plugin, knows_topology) == Some(true);
        // Each try prefers another topology: the last one may have had no room.
        let mut topologies: Vec<Topology> =
            if knows_topology { provision.requisite.clone() } else { Vec::new() };
        let places = topologies.len().max(1);
        topologies.rotate_left(operation.progress.calls.tries as usize % places);
        NewVolume {
            name: provision.name.clone(),
            required_bytes: provision.required_bytes,
            limit_bytes: provision.limit_bytes,
            capabilities: spec.capabilities.to_value(),
            mount: spec.mount.to_value(),
            parameters: spec.parameters.to_value(),
            mutable_parameters: storage.mutable.clone(),
            topologies,
            origin: provision.origin.as_ref().map(|origin| CopySource {
                kind: origin.kind(),
                external_id: origin.external_id.clone(),
            }),
        }
    }
}

/// What a call is about, without its attempt.
struct PlannedCall {
    external_id: String,
    plugin: PluginId,
    secrets: Option<berth_domain::SecretsId>,
    details: StorageDetails,
}

fn plan_snapshot(
    volumes: &Volumes,
    key: &VolumeKey,
    id: &SnapshotId,
    attempt: &Attempt,
) -> Option<PlannedCall> {
    let snapshot = volumes.get(key)?.volume.snapshots.get(id)?;
    let members = members(volumes, key, id, snapshot)?;
    let work = match attempt.call {
        CallKind::SnapshotCreate => StorageWork::Snapshot {
            name: snapshot.name.clone(),
            parameters: snapshot.parameters.clone(),
            cut: snapshot.external_id.clone(),
        },
        CallKind::SnapshotDelete => {
            StorageWork::DeleteSnapshot { id: snapshot.external_id.clone()? }
        }
        CallKind::GroupCreate => StorageWork::Group {
            name: snapshot.name.clone(),
            sources: members.iter().map(|(_, of)| of.source.clone()).collect(),
            parameters: snapshot.parameters.clone(),
            cut: group_ids(snapshot, &members),
        },
        CallKind::GroupDelete => StorageWork::DeleteGroup(group_ids(snapshot, &members)?),
        _ => return None,
    };
    let others = members.iter().filter(|(volume, _)| **volume != key.volume);
    let others = others.map(|(volume, of)| GroupVolume {
        volume: (*volume).clone(),
        external_id: of.source.clone(),
    });
    Some(PlannedCall {
        external_id: snapshot.source.clone(),
        plugin: snapshot.plugin.clone(),
        secrets: snapshot.secrets.clone(),
        details: StorageDetails {
            snapshot: Some(id.clone()),
            others: others.collect(),
            node: snapshot.progress.executor.clone(),
            work,
        },
    })
}

/// The snapshot of each volume of the group; the snapshot itself if it is in none. None if one of
/// them is unknown.
fn members<'a>(
    volumes: &'a Volumes,
    key: &'a VolumeKey,
    id: &SnapshotId,
    snapshot: &'a Snapshot,
) -> Option<Vec<(&'a VolumeId, &'a Snapshot)>> {
    let Some(group) = &snapshot.group else { return Some(vec![(&key.volume, snapshot)]) };
    let members = group.members.iter().map(|volume| {
        let member = VolumeKey::new(key.namespace.clone(), volume.clone());
        Some((volume, &**volumes.get(&member)?.volume.snapshots.get(id)?))
    });
    members.collect()
}

/// The plugin's ids of a group that was cut. In a group with a fault, each member has all ids.
fn group_ids(snapshot: &Snapshot, members: &[(&VolumeId, &Snapshot)]) -> Option<GroupIds> {
    let group = snapshot.group.as_ref()?;
    let of_members = members.iter().filter_map(|(_, of)| of.external_id.as_ref());
    let snapshots = of_members.chain(&group.snapshots).cloned().collect();
    Some(GroupIds { group: group.external_id.clone()?, snapshots })
}

/// The node whose controller alone knows the volume, or its snapshot.
fn home_of<'a>(volume: &'a Volume, snapshot: Option<&SnapshotId>) -> Option<&'a NodeId> {
    match snapshot {
        Some(id) => volume.snapshots.get(id)?.home.as_ref(),
        None => volume.spec.as_ref()?.home(),
    }
}

/// The plugin and the topologies of a volume, or of its snapshot, whose next call is a
/// controller's.
fn place_of<'a>(
    volume: &'a Volume,
    snapshot: Option<&SnapshotId>,
) -> Option<(&'a PluginId, &'a [Topology])> {
    if let Some(id) = snapshot {
        let snapshot = volume.snapshots.get(id)?;
        return snapshot.call().map(|_| (&snapshot.plugin, snapshot.topologies.as_slice()));
    }
    let spec = volume.spec.as_ref()?;
    let next = spec.operation()?.call();
    next.is_controller().then(|| (&spec.plugin, spec.accessible_from()))
}
