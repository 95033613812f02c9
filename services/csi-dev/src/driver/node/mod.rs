//! What is done to volumes on the node of this instance.
//!
//! Owns: the node service. Promises: each call is in a file with the one that undoes it; a call
//! that is not offered answers UNIMPLEMENTED, and is logged all the same. Never: attaches.

pub(crate) mod device;
mod expand;
mod mount;
mod publish;
mod stage;

use std::sync::Arc;

use berth_csi::v1::node_server::Node;
use berth_csi::v1::node_service_capability::rpc::Type;
use berth_csi::v1::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, Topology, node_service_capability,
};
use tonic::{Request, Response, Status};

use super::{Driver, Profile};
use crate::ability::Ability;

/// The node service of an instance.
#[derive(Debug)]
pub struct NodeService(pub Arc<Driver>);

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_get_info(
        &self,
        request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let work = |driver: &Driver, _: &_| {
            Ok(NodeGetInfoResponse {
                node_id: driver.profile.node_id.clone(),
                max_volumes_per_node: driver.profile.max_volumes,
                accessible_topology: driver
                    .has(Ability::Topology)
                    .then(|| Topology { segments: driver.profile.topology() }),
            })
        };
        self.0.serve(request, work).await
    }

    async fn node_get_capabilities(
        &self,
        request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let work = |driver: &Driver, _: &_| {
            Ok(NodeGetCapabilitiesResponse { capabilities: capabilities(&driver.profile) })
        };
        self.0.serve(request, work).await
    }

    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        self.0.offer(Ability::Stage, request, stage::stage).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        self.0.offer(Ability::Stage, request, stage::unstage).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        self.0.serve(request, publish::publish).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        self.0.serve(request, publish::unpublish).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        self.0.offer(Ability::ExpandNode, request, expand::expand).await
    }
}

fn capabilities(profile: &Profile) -> Vec<NodeServiceCapability> {
    let kinds = [
        (Ability::Stage, Type::StageUnstageVolume),
        (Ability::ExpandNode, Type::ExpandVolume),
        (Ability::SingleNodeMultiWriter, Type::SingleNodeMultiWriter),
        (Ability::MountGroup, Type::VolumeMountGroup),
    ];
    let capability = |kind: Type| NodeServiceCapability {
        r#type: Some(node_service_capability::Type::Rpc(node_service_capability::Rpc {
            r#type: kind.into(),
        })),
    };
    let on = kinds.into_iter().filter(|(ability, _)| profile.has(*ability));
    on.map(|(_, kind)| capability(kind)).collect()
}
