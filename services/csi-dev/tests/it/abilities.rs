//! What is switched off is neither advertised nor answered; the rest is both.

use berth_csi::rpc::Unary;
use berth_csi::{Code, v1};
use v1::controller_service_capability::rpc::Type as ControllerRpc;
use v1::node_service_capability::rpc::Type as NodeRpc;
use v1::plugin_capability::service::Type as Service;
use v1::plugin_capability::volume_expansion::Type as Expansion;

use crate::world::{Node, World};

/// What an instance says of itself.
#[derive(PartialEq, Debug)]
struct Advertised {
    services: Vec<Service>,
    expansion: Option<Expansion>,
    controller: Vec<ControllerRpc>,
    node: Vec<NodeRpc>,
}

async fn advertised(node: &Node) -> Advertised {
    use v1::plugin_capability::Type;
    let plugin = node.call(v1::GetPluginCapabilitiesRequest {}).await.unwrap().capabilities;
    let (mut services, mut expansion) = (Vec::new(), None);
    for capability in plugin {
        match capability.r#type.unwrap() {
            Type::Service(service) => services.push(service.r#type()),
            Type::VolumeExpansion(kind) => expansion = Some(kind.r#type()),
        }
    }
    let mut controller = Vec::new();
    if services.contains(&Service::ControllerService) {
        let answer = node.call(v1::ControllerGetCapabilitiesRequest {}).await.unwrap();
        controller = answer.capabilities.into_iter().map(controller_rpc).collect();
    }
    let answer = node.call(v1::NodeGetCapabilitiesRequest {}).await.unwrap();
    let node = answer.capabilities.into_iter().map(node_rpc).collect();
    Advertised { services, expansion, controller, node }
}

fn controller_rpc(capability: v1::ControllerServiceCapability) -> ControllerRpc {
    match capability.r#type.unwrap() {
        v1::controller_service_capability::Type::Rpc(rpc) => rpc.r#type(),
    }
}

fn node_rpc(capability: v1::NodeServiceCapability) -> NodeRpc {
    match capability.r#type.unwrap() {
        v1::node_service_capability::Type::Rpc(rpc) => rpc.r#type(),
    }
}

#[tokio::test]
async fn everything_is_on_until_it_is_switched_off() {
    let Some(world) = World::start("all", &["--topology", "zone=a"]).await else { return };
    let advertised_by_n1 = advertised(&world.n1).await;
    assert_eq!(
        advertised_by_n1.services,
        [
            Service::ControllerService,
            Service::VolumeAccessibilityConstraints,
            Service::GroupControllerService
        ]
    );
    assert_eq!(
        (advertised_by_n1.expansion, advertised_by_n1.controller.len()),
        (Some(Expansion::Online), 17)
    );
    assert_eq!(advertised_by_n1.node.len(), 8);
    let info = world.n1.call(v1::GetPluginInfoRequest {}).await.unwrap();
    assert!(info.name == "dev.berth" && !info.vendor_version.is_empty(), "{info:?}");
    let info = world.n1.call(v1::NodeGetInfoRequest {}).await.unwrap();
    assert_eq!((&*info.node_id, info.max_volumes_per_node), ("n1", 0));
    assert_eq!(info.accessible_topology.unwrap().segments["zone"], "a");
}

#[tokio::test]
async fn a_condition_needs_a_call_that_answers_it() {
    let flags = ["--without", "list,get-volume,stats"];
    let Some(world) = World::start("condition", &flags).await else { return };
    let advertised = advertised(&world.n1).await;
    assert!(!advertised.controller.contains(&ControllerRpc::VolumeCondition), "{advertised:?}");
    assert!(!advertised.node.contains(&NodeRpc::GetVolumeStats), "{advertised:?}");
    // It is offered for its condition alone.
    assert!(advertised.node.contains(&NodeRpc::VolumeCondition), "{advertised:?}");
    world.n1.refused(v1::NodeGetVolumeStatsRequest::default(), Code::InvalidArgument).await;
}

/// That the call is refused as one that the plugin does not have, and that this is in the log.
async fn off<R: Unary>(node: &Node)
where
    R::Response: std::fmt::Debug,
{
    node.refused(R::default(), Code::Unimplemented).await;
    assert_eq!((node.last_end().call.rpc, node.last_end().code), (R::RPC, Code::Unimplemented));
}

#[tokio::test]
async fn what_is_off_takes_its_calls_along() {
    let flags = [
        "--without",
        "create,list,capacity,snapshot,expand,single-node-multi-writer",
        "--without",
        "expand-node,mount-group,online-expand",
        "--without",
        "modify,get-volume,stats,condition,health",
        "--no-attach",
        "--no-stage",
    ];
    let Some(world) = World::start("off", &flags).await else { return };
    let node = &world.n1;
    let nothing = Advertised {
        services: vec![Service::ControllerService],
        expansion: None,
        controller: Vec::new(),
        node: Vec::new(),
    };
    assert_eq!(advertised(node).await, nothing);
    off::<v1::CreateVolumeRequest>(node).await;
    off::<v1::DeleteVolumeRequest>(node).await;
    off::<v1::ControllerPublishVolumeRequest>(node).await;
    off::<v1::ControllerUnpublishVolumeRequest>(node).await;
    off::<v1::ListVolumesRequest>(node).await;
    off::<v1::GetCapacityRequest>(node).await;
    off::<v1::CreateSnapshotRequest>(node).await;
    off::<v1::DeleteSnapshotRequest>(node).await;
    off::<v1::ListSnapshotsRequest>(node).await;
    off::<v1::ControllerExpandVolumeRequest>(node).await;
    off::<v1::ControllerModifyVolumeRequest>(node).await;
    off::<v1::ControllerGetVolumeRequest>(node).await;
    off::<v1::GetSnapshotRequest>(node).await;
    off::<v1::NodeStageVolumeRequest>(node).await;
    off::<v1::NodeUnstageVolumeRequest>(node).await;
    off::<v1::NodeExpandVolumeRequest>(node).await;
    off::<v1::NodeGetVolumeStatsRequest>(node).await;
    off::<v1::ControllerGetVolumeHealthRequest>(node).await;
    off::<v1::ControllerListVolumeHealthRequest>(node).await;
    off::<v1::NodeGetVolumeHealthRequest>(node).await;
    off::<v1::NodeGetStorageHealthRequest>(node).await;
    // A service that the plugin does not have is not there at all.
    node.refused(v1::CreateVolumeGroupSnapshotRequest::default(), Code::Unimplemented).await;
}

#[tokio::test]
async fn a_part_of_the_plugin_says_what_the_whole_can_do() {
    let Some(node) = World::start("node", &["--serve", "node"]).await else { return };
    let Some(whole) = World::start("whole", &[]).await else { return };
    let services = node.n1.call(v1::GetPluginCapabilitiesRequest {}).await.unwrap();
    let reply = whole.n1.call(v1::GetPluginCapabilitiesRequest {}).await.unwrap();
    assert_eq!(services, reply);
    node.n1.refused(v1::CreateVolumeRequest::default(), Code::Unimplemented).await;

    let controller = World::start("controller", &["--serve", "controller"]).await.unwrap();
    controller.n1.refused(v1::NodeGetInfoRequest {}, Code::Unimplemented).await;
    controller.n1.refused(v1::CreateVolumeRequest::default(), Code::InvalidArgument).await;
    // It has nothing to say about a node.
    assert_eq!(controller.backend().nodes().unwrap(), []);
    assert_eq!(whole.backend().nodes().unwrap().len(), 2);
}
