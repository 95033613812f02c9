//! The calls for volumes that any instance can serve.
//!
//! Owns: the work of the controller service. Promises: each call is in one file with the call that
//! undoes it. Never: mounts.

pub(super) mod answer;
pub(super) mod attach;
pub(super) mod capacity;
pub(super) mod create;
pub(super) mod expand;
mod kind;
pub(super) mod list;
pub(super) mod modify;
mod origin;
pub(super) mod page;
mod parameters;
pub(super) mod snapshot;
pub(super) mod snapshots;
pub(super) mod validate;

use berth_csi::v1::controller_service_capability::{self, rpc::Type};
use berth_csi::v1::{ControllerGetCapabilitiesResponse, ControllerServiceCapability};

use super::Driver;
use crate::ability::Ability;

pub(super) fn capabilities(driver: &Driver) -> ControllerGetCapabilitiesResponse {
    let kinds = [
        (Ability::Create, Type::CreateDeleteVolume),
        (Ability::Attach, Type::PublishUnpublishVolume),
        (Ability::PublishReadonly, Type::PublishReadonly),
        (Ability::List, Type::ListVolumes),
        (Ability::PublishedNodes, Type::ListVolumesPublishedNodes),
        (Ability::Capacity, Type::GetCapacity),
        (Ability::Snapshot, Type::CreateDeleteSnapshot),
        (Ability::ListSnapshots, Type::ListSnapshots),
        (Ability::Clone, Type::CloneVolume),
        (Ability::Expand, Type::ExpandVolume),
        (Ability::Modify, Type::ModifyVolume),
        (Ability::GetVolume, Type::GetVolume),
        (Ability::GetSnapshot, Type::GetSnapshot),
        (Ability::Health, Type::GetVolumeHealth),
        (Ability::SingleNodeMultiWriter, Type::SingleNodeMultiWriter),
    ];
    // Only the answers of these two calls have a condition.
    let has_condition = driver.has(Ability::Condition)
        && (driver.has(Ability::List) || driver.has(Ability::GetVolume));
    let capability = |kind: Type| ControllerServiceCapability {
        r#type: Some(controller_service_capability::Type::Rpc(
            controller_service_capability::Rpc { r#type: kind.into() },
        )),
    };
    let on = kinds.into_iter().filter(|(ability, _)| driver.has(*ability)).map(|(_, kind)| kind);
    let lists_health = driver.has(Ability::Health) && driver.has(Ability::List);
    let on = on.chain(lists_health.then_some(Type::ListVolumeHealth));
    let on = on.chain(has_condition.then_some(Type::VolumeCondition));
    let capabilities = on.map(capability).collect();
    ControllerGetCapabilitiesResponse { capabilities }
}
