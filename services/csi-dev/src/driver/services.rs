//! The gRPC services of an instance: one row for each RPC.
//!
//! Owns: the function of each RPC, the ability that it needs, and the fields that CSI requires.
//! Promises: an RPC without its ability answers `UNIMPLEMENTED`, and one without a required field
//! `INVALID_ARGUMENT`; both are logged. An RPC without a row answers `UNIMPLEMENTED` and is not
//! logged. Never: does any work.

use std::sync::Arc;

use berth_csi::rpc::Unary;
use berth_csi::v1;
use tonic::{Request, Response, Status};
use v1::controller_server::Controller;
use v1::group_controller_server::GroupController;
use v1::identity_server::Identity;
use v1::node_server::Node;

use super::call::CallRules;
use super::controller::{self, validate};
use super::controller::{attach, capacity, create, expand, list, modify, snapshot, snapshots};
use super::node::{self, publish, stage, stats};
use super::request::RequestFields;
use super::{Driver, group, health, identity};
use crate::ability::Ability;

/// All services of one instance.
#[derive(Clone, Debug)]
pub struct Services(pub Arc<Driver>);

macro_rules! services {
    ($($service:ident {
        $(
            $method:ident($request:ident $(: $($field:ident),+)?) $(needs $($ability:ident)|+)?
            => $work:expr;
        )*
    })*) => { $(
        #[tonic::async_trait]
        impl $service for Services { $(
            async fn $method(
                &self,
                request: Request<v1::$request>,
            ) -> Result<Response<<v1::$request as Unary>::Response>, Status> {
                let rules = CallRules {
                    needs_one_of: &[$($(Ability::$ability),+)?],
                    check: |request: &v1::$request, fields: &mut RequestFields| {
                        // A row without required fields does not use them.
                        let _ = (request, &fields);
                        $($(fields.required(stringify!($field), &request.$field);)+)?
                    },
                };
                self.0.serve(rules, request, $work).await
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
        create_volume(CreateVolumeRequest: name, volume_capabilities) needs Create
            => create::create;
        delete_volume(DeleteVolumeRequest: volume_id) needs Create => create::delete;
        controller_publish_volume(
            ControllerPublishVolumeRequest: volume_id, node_id, volume_capability
        ) needs Attach => attach::publish;
        controller_unpublish_volume(ControllerUnpublishVolumeRequest: volume_id) needs Attach
            => attach::unpublish;
        validate_volume_capabilities(
            ValidateVolumeCapabilitiesRequest: volume_id, volume_capabilities
        ) => validate::validate;
        list_volumes(ListVolumesRequest) needs List => list::list;
        controller_get_volume(ControllerGetVolumeRequest: volume_id) needs GetVolume => list::get;
        controller_list_volume_health(ControllerListVolumeHealthRequest) needs Health
            => health::list;
        controller_get_volume_health(ControllerGetVolumeHealthRequest: volume_id) needs Health
            => health::get;
        get_capacity(GetCapacityRequest) needs Capacity => capacity::get;
        controller_expand_volume(ControllerExpandVolumeRequest: volume_id, capacity_range)
            needs Expand => expand::expand;
        controller_modify_volume(ControllerModifyVolumeRequest: volume_id, mutable_parameters)
            needs Modify => modify::modify;
        create_snapshot(CreateSnapshotRequest: source_volume_id, name) needs Snapshot
            => snapshot::create;
        delete_snapshot(DeleteSnapshotRequest: snapshot_id) needs Snapshot => snapshot::delete;
        list_snapshots(ListSnapshotsRequest) needs ListSnapshots => snapshots::list;
        get_snapshot(GetSnapshotRequest: snapshot_id) needs GetSnapshot => snapshots::get;
    }
    GroupController {
        group_controller_get_capabilities(GroupControllerGetCapabilitiesRequest) needs GroupSnapshot
            => |_, _| Ok(group::capabilities());
        create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest: name, source_volume_ids)
            needs GroupSnapshot => group::create;
        delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest: group_snapshot_id)
            needs GroupSnapshot => group::delete;
        get_volume_group_snapshot(GetVolumeGroupSnapshotRequest: group_snapshot_id)
            needs GroupSnapshot => group::get;
    }
    Node {
        node_get_info(NodeGetInfoRequest) => |driver, _| Ok(node::info(driver));
        node_get_capabilities(NodeGetCapabilitiesRequest)
            => |driver, _| Ok(node::capabilities(driver));
        node_stage_volume(NodeStageVolumeRequest: volume_id, staging_target_path, volume_capability)
            needs Stage => stage::stage;
        node_unstage_volume(NodeUnstageVolumeRequest: volume_id, staging_target_path) needs Stage
            => stage::unstage;
        node_publish_volume(NodePublishVolumeRequest: volume_id, target_path, volume_capability)
            => publish::publish;
        node_unpublish_volume(NodeUnpublishVolumeRequest: volume_id, target_path)
            => publish::unpublish;
        node_get_volume_stats(NodeGetVolumeStatsRequest: volume_id, volume_path)
            needs Stats | Condition => stats::get;
        node_get_volume_health(NodeGetVolumeHealthRequest: volume_id) needs Health
            => health::on_node;
        node_get_storage_health(NodeGetStorageHealthRequest) needs Health => health::storage;
        node_expand_volume(NodeExpandVolumeRequest: volume_id, volume_path) needs ExpandNode
            => node::expand::expand;
    }
}
