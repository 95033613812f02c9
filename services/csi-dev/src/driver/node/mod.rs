//! What is done to volumes on the node of this instance.
//!
//! Owns: the node service. Promises: each call is in a file with the one that undoes it; a call
//! that is not offered answers UNIMPLEMENTED, and is logged all the same. Never: attaches.

mod publish;
mod stage;

use std::sync::Arc;

use berth_csi::Rpc;
use berth_csi::v1::node_server::Node;
use berth_csi::v1::node_service_capability::rpc::Type;
use berth_csi::v1::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
    NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, node_service_capability,
};
use tonic::{Request, Response, Status};

use super::{Driver, Profile};
use crate::log::Call;

/// The node service of an instance.
#[derive(Debug)]
pub struct NodeService(pub Arc<Driver>);

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let work = |driver: &Driver| {
            Ok(NodeGetInfoResponse {
                node_id: driver.profile.node_id.clone(),
                max_volumes_per_node: driver.profile.max_volumes,
                accessible_topology: None,
            })
        };
        self.0.serve(Call::about_nothing(Rpc::NodeGetInfo), work).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let work = |driver: &Driver| {
            Ok(NodeGetCapabilitiesResponse { capabilities: capabilities(&driver.profile) })
        };
        self.0.serve(Call::about_nothing(Rpc::NodeGetCapabilities), work).await
    }

    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let call = stage::describe_stage(&request);
        if !self.0.profile.stage {
            return self.0.refuse(call).await;
        }
        self.0.serve(call, move |driver| stage::stage(driver, &request)).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        let call = stage::describe_unstage(&request);
        if !self.0.profile.stage {
            return self.0.refuse(call).await;
        }
        self.0.serve(call, move |driver| stage::unstage(driver, &request)).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let call = publish::describe_publish(&request);
        self.0.serve(call, move |driver| publish::publish(driver, &request)).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let call = publish::describe_unpublish(&request);
        self.0.serve(call, move |driver| publish::unpublish(driver, &request)).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        self.0.refuse(Call::about(Rpc::NodeGetVolumeStats, &request.volume_id)).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        self.0.refuse(Call::about(Rpc::NodeExpandVolume, &request.volume_id)).await
    }
}

fn capabilities(profile: &Profile) -> Vec<NodeServiceCapability> {
    let mut kinds = vec![Type::SingleNodeMultiWriter];
    if profile.stage {
        kinds.push(Type::StageUnstageVolume);
    }
    let capability = |kind: Type| NodeServiceCapability {
        r#type: Some(node_service_capability::Type::Rpc(node_service_capability::Rpc {
            r#type: kind.into(),
        })),
    };
    kinds.into_iter().map(capability).collect()
}
