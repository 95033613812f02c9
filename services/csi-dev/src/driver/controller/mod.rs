//! What is done to volumes from anywhere.
//!
//! Owns: the controller service. Promises: each call is in a file with the one that undoes it; a
//! call that is not offered answers UNIMPLEMENTED, and is logged all the same. Never: mounts.

pub(crate) mod answer;
mod attach;
pub(crate) mod capacity;
mod create;
mod expand;
mod list;
mod modify;
mod origin;
mod page;
mod parameters;
pub(crate) mod size;
pub(crate) mod snapshot;
mod snapshots;
mod validate;

use std::sync::Arc;

use berth_csi::v1::controller_server::Controller;
use berth_csi::v1::controller_service_capability::rpc::Type;
use berth_csi::v1::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse,
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerModifyVolumeRequest,
    ControllerModifyVolumeResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerServiceCapability, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse,
    GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse,
    ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse, controller_service_capability,
};
use tonic::{Request, Response, Status};

use super::{Driver, Profile};
use crate::ability::Ability;

/// The controller service of an instance.
#[derive(Debug)]
pub struct ControllerService(pub Arc<Driver>);

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn controller_get_capabilities(
        &self,
        request: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let work = |driver: &Driver, _: &_| {
            Ok(ControllerGetCapabilitiesResponse { capabilities: capabilities(&driver.profile) })
        };
        self.0.serve(request, work).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        self.0.offer(Ability::Attach, request, attach::publish).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        self.0.offer(Ability::Attach, request, attach::unpublish).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        self.0.serve(request, validate::validate).await
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        self.0.offer(Ability::Create, request, create::create).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        self.0.offer(Ability::Create, request, create::delete).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        self.0.offer(Ability::List, request, list::list).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        self.0.offer(Ability::Get, request, list::get).await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        self.0.offer(Ability::Capacity, request, capacity::get).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        self.0.offer(Ability::Expand, request, expand::expand).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        self.0.offer(Ability::Modify, request, modify::modify).await
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        self.0.offer(Ability::Snapshot, request, snapshot::create).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        self.0.offer(Ability::Snapshot, request, snapshot::delete).await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        self.0.offer(Ability::ListSnapshots, request, snapshots::list).await
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<GetSnapshotResponse>, Status> {
        self.0.offer(Ability::GetSnapshot, request, snapshots::get).await
    }
}

fn capabilities(profile: &Profile) -> Vec<ControllerServiceCapability> {
    let kinds = [
        (Ability::Create, Type::CreateDeleteVolume),
        (Ability::Attach, Type::PublishUnpublishVolume),
        (Ability::PublishReadonly, Type::PublishReadonly),
        (Ability::List, Type::ListVolumes),
        (Ability::PublishedNodes, Type::ListVolumesPublishedNodes),
        (Ability::Get, Type::GetVolume),
        (Ability::Capacity, Type::GetCapacity),
        (Ability::Snapshot, Type::CreateDeleteSnapshot),
        (Ability::ListSnapshots, Type::ListSnapshots),
        (Ability::GetSnapshot, Type::GetSnapshot),
        (Ability::Clone, Type::CloneVolume),
        (Ability::Expand, Type::ExpandVolume),
        (Ability::Modify, Type::ModifyVolume),
        (Ability::Condition, Type::VolumeCondition),
        (Ability::SingleNodeMultiWriter, Type::SingleNodeMultiWriter),
    ];
    let capability = |kind: Type| ControllerServiceCapability {
        r#type: Some(controller_service_capability::Type::Rpc(
            controller_service_capability::Rpc { r#type: kind.into() },
        )),
    };
    let on = kinds.into_iter().filter(|(ability, _)| profile.has(*ability));
    on.map(|(_, kind)| capability(kind)).collect()
}
