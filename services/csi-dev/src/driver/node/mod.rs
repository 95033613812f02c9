//! What is done to volumes on the node of this instance.
//!
//! Owns: the work of the node service. Promises: each call is in a file with the call that undoes
//! it. Never: attaches.

pub(super) mod device;
pub(super) mod expand;
mod mount;
pub(super) mod publish;
pub(super) mod stage;
pub(super) mod stats;

use berth_csi::v1::node_service_capability::{self, rpc::Type};
use berth_csi::v1::{
    NodeGetCapabilitiesResponse, NodeGetInfoResponse, NodeServiceCapability, Topology,
};

use super::Driver;
use crate::ability::Ability;

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
