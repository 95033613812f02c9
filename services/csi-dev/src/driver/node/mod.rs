//! The calls for volumes on the node of this instance.
//!
//! Owns: the work of the node service. Promises: each call is in one file with the call that undoes
//! it. Never: attaches.

pub(super) mod device;
pub(super) mod expand;
mod mount;
pub(super) mod publish;
pub(super) mod stage;
pub(super) mod stats;

use std::path::Path;

use berth_csi::v1::node_service_capability::{self, rpc::Type};
use berth_csi::v1::{
    NodeGetCapabilitiesResponse, NodeGetInfoResponse, NodeServiceCapability, Topology,
};

use super::Driver;
use super::refusal::Refusal;
use crate::ability::Ability;
use crate::backend::Volume;
use crate::mounts::{self, Presence};

impl Driver {
    /// The volume that an unpublish or unstage undoes: the one that the call names. A lenient
    /// instance undoes the volume that is mounted at the path, whatever the call names, as a plugin
    /// does that only looks at the path. `None` if no volume is left to undo, and nothing is
    /// mounted.
    fn volume_to_undo(
        &self,
        id: &str,
        mount_point: Option<&Path>,
    ) -> Result<Option<Volume>, Refusal> {
        if !self.profile.lenient {
            return self.volume(id).map(Some);
        }
        let named = self.backend.volume(id)?;
        let Some(mount_point) = mount_point else { return Ok(named) };
        let failed = |error| Refusal::mount(id, &error);
        for volume in self.backend.volumes()? {
            let content = device::content(&volume)?;
            if mounts::find_presence(mount_point, &content).map_err(failed)? == Presence::Volume {
                return Ok(Some(volume));
            }
        }
        if named.is_none() {
            // The mounted volume was deleted.
            mounts::unmount_any(mount_point).map_err(failed)?;
        }
        Ok(named)
    }
}

pub(super) fn info(driver: &Driver) -> NodeGetInfoResponse {
    let segments = driver.profile.topology();
    NodeGetInfoResponse {
        node_id: driver.profile.node_id.clone(),
        max_volumes_per_node: driver.profile.max_volumes,
        accessible_topology: driver.has(Ability::Topology).then_some(Topology { segments }),
    }
}

pub(super) fn capabilities(driver: &Driver) -> NodeGetCapabilitiesResponse {
    let kinds = [
        (Ability::Stage, Type::StageUnstageVolume),
        (Ability::ExpandNode, Type::ExpandVolume),
        (Ability::SingleNodeMultiWriter, Type::SingleNodeMultiWriter),
        (Ability::MountGroup, Type::VolumeMountGroup),
        (Ability::Stats, Type::GetVolumeStats),
        (Ability::Condition, Type::VolumeCondition),
        (Ability::Health, Type::GetVolumeHealth),
        (Ability::Health, Type::GetStorageHealth),
    ];
    let capability = |kind: Type| NodeServiceCapability {
        r#type: Some(node_service_capability::Type::Rpc(node_service_capability::Rpc {
            r#type: kind.into(),
        })),
    };
    let on = kinds.into_iter().filter(|(ability, _)| driver.has(*ability));
    let capabilities = on.map(|(_, kind)| capability(kind)).collect();
    NodeGetCapabilitiesResponse { capabilities }
}
