//! The gRPC services of an instance: one row for each RPC.
//!
//! Owns: which function does the work of an RPC, and which ability it needs. Promises: an RPC
//! without its ability answers UNIMPLEMENTED, and is logged all the same. Never: does any work.

use std::sync::Arc;

use berth_csi::rpc::Unary;
use berth_csi::v1;
use tonic::{Request, Response, Status};
use v1::controller_server::Controller;
use v1::group_controller_server::GroupController;
use v1::identity_server::Identity;
use v1::node_server::Node;

use super::controller::{self, validate};
use super::controller::{attach, capacity, create, expand, list, modify, snapshot, snapshots};
use super::node::{self, publish, stage};
use super::{Driver, group, identity};
use crate::ability::Ability;

/// All services of one instance.
#[derive(Clone, Debug)]
pub struct Services(pub Arc<Driver>);

macro_rules! services {
    ($($service:ident {
        $($method:ident($request:ident) $(needs $ability:ident)? => $work:expr;)*
    })*) => { $(
        #[tonic::async_trait]
        impl $service for Services { $(
            async fn $method(
                &self,
                request: Request<v1::$request>,
            ) -> Result<Response<<v1::$request as Unary>::Response>, Status> {
                self.0.serve(&[$(Ability::$ability)?], request, $work).await
            }
        )* }
    )* };
}

services! {
    Identity {
        get_plugin_info(GetPluginInfoRequest) => |driver, _| Ok(identity::plugin_info(driver));
        get_plugin_capabilities(GetPluginCapabilitiesRequest)
            => |driver, _| Ok(identity::capabilities(driver));
        probe(ProbeRequest) => |_, _| Ok(v1::ProbeResponse { ready: Some(true) });
    }
    Controller {
        controller_get_capabilities(ControllerGetCapabilitiesRequest)
            => |driver, _| Ok(controller::capabilities(driver));
        create_volume(CreateVolumeRequest) needs Create => create::create;
        delete_volume(DeleteVolumeRequest) needs Create => create::delete;
        controller_publish_volume(ControllerPublishVolumeRequest) needs Attach => attach::publish;
        controller_unpublish_volume(ControllerUnpublishVolumeRequest) needs Attach
            => attach::unpublish;
        validate_volume_capabilities(ValidateVolumeCapabilitiesRequest) => validate::validate;
        list_volumes(ListVolumesRequest) needs List => list::list;
        controller_get_volume(ControllerGetVolumeRequest) needs Get => list::get;
        get_capacity(GetCapacityRequest) needs Capacity => capacity::get;
        controller_expand_volume(ControllerExpandVolumeRequest) needs Expand => expand::expand;
        controller_modify_volume(ControllerModifyVolumeRequest) needs Modify => modify::modify;
        create_snapshot(CreateSnapshotRequest) needs Snapshot => snapshot::create;
        delete_snapshot(DeleteSnapshotRequest) needs Snapshot => snapshot::delete;
        list_snapshots(ListSnapshotsRequest) needs ListSnapshots => snapshots::list;
        get_snapshot(GetSnapshotRequest) needs GetSnapshot => snapshots::get;
    }
    GroupController {
        group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest)
            needs GroupSnapshot => |_, _| Ok(group::capabilities());
        create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest) needs GroupSnapshot
            => group::create;
        delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest) needs GroupSnapshot
            => group::delete;
        get_volume_group_snapshot(GetVolumeGroupSnapshotRequest) needs GroupSnapshot => group::get;
    }
    Node {
        node_get_info(NodeGetInfoRequest) => |driver, _| Ok(node::info(driver));
        node_get_capabilities(NodeGetCapabilitiesRequest)
            => |driver, _| Ok(node::capabilities(driver));
        node_stage_volume(NodeStageVolumeRequest) needs Stage => stage::stage;
        node_unstage_volume(NodeUnstageVolumeRequest) needs Stage => stage::unstage;
        node_publish_volume(NodePublishVolumeRequest) => publish::publish;
        node_unpublish_volume(NodeUnpublishVolumeRequest) => publish::unpublish;
        node_expand_volume(NodeExpandVolumeRequest) needs ExpandNode => node::expand::expand;
    }
}
