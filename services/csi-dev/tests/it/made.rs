//! Volumes that a CO has made, and takes up and down as a whole.

use std::collections::BTreeMap;
use std::path::PathBuf;

use berth_csi::v1;
use berth_csi_dev::backing::FsType;
use berth_csi_dev::capability::AccessMode;
use berth_harness::dirs::loops_beneath;
use v1::volume_capability::{AccessType, BlockVolume, MountVolume};

use crate::request::{self, Context};
use crate::world::{Node, World};

pub const MIB: i64 = 1 << 20;

pub fn mounted(mode: AccessMode, mount: MountVolume) -> v1::VolumeCapability {
    v1::VolumeCapability {
        access_type: Some(AccessType::Mount(mount)),
        ..request::capability(mode)
    }
}

pub fn with_fs(mode: AccessMode, fs: FsType) -> v1::VolumeCapability {
    mounted(mode, MountVolume { fs_type: fs.to_string(), ..MountVolume::default() })
}

pub fn block(mode: AccessMode) -> v1::VolumeCapability {
    let access_type = Some(AccessType::Block(BlockVolume {}));
    v1::VolumeCapability { access_type, ..request::capability(mode) }
}

pub fn create(
    name: &str,
    capability: &v1::VolumeCapability,
    bytes: i64,
) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        name: name.to_owned(),
        volume_capabilities: vec![capability.clone()],
        capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        secrets: BTreeMap::from([("key".to_owned(), "hunter2".to_owned())]),
        ..Default::default()
    }
}

/// Makes a volume, and returns its id.
pub async fn made(node: &Node, request: v1::CreateVolumeRequest) -> String {
    node.call(request).await.unwrap().volume.unwrap().volume_id
}

pub fn stage(
    node: &Node,
    id: &str,
    capability: &v1::VolumeCapability,
    context: &Context,
) -> v1::NodeStageVolumeRequest {
    v1::NodeStageVolumeRequest {
        volume_id: id.to_owned(),
        publish_context: context.clone(),
        staging_target_path: node.staging(id),
        volume_capability: Some(capability.clone()),
        ..Default::default()
    }
}

pub fn publish(
    node: &Node,
    id: &str,
    target: &str,
    capability: &v1::VolumeCapability,
    context: &Context,
) -> v1::NodePublishVolumeRequest {
    v1::NodePublishVolumeRequest {
        volume_id: id.to_owned(),
        publish_context: context.clone(),
        staging_target_path: node.staging(id),
        target_path: node.target(target),
        volume_capability: Some(capability.clone()),
        ..Default::default()
    }
}

/// Attaches the volume to `node`.
pub async fn attach(node: &Node, id: &str, capability: &v1::VolumeCapability) -> Context {
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id: node.id.clone(),
        volume_capability: Some(capability.clone()),
        ..Default::default()
    };
    node.call(request).await.unwrap().publish_context
}

/// Attaches, stages and publishes the volume, and returns where.
pub async fn up(node: &Node, id: &str, capability: &v1::VolumeCapability) -> PathBuf {
    let context = attach(node, id, capability).await;
    node.call(stage(node, id, capability, &context)).await.unwrap();
    let request = publish(node, id, id, capability, &context);
    node.call(request).await.unwrap();
    node.target(id).into()
}

/// Unpublishes, unstages and detaches it.
pub async fn down(node: &Node, id: &str) {
    node.call(request::unpublish(id, &node.target(id))).await.unwrap();
    node.call(request::unstage(id, &node.staging(id))).await.unwrap();
    node.call(request::detach(id, &node.id)).await.unwrap();
}

pub async fn delete(node: &Node, id: &str) {
    let request = v1::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    node.call(request).await.unwrap();
}

/// Nothing of any volume is left: no mount, no device, no file.
pub fn assert_nothing_left(world: &World) {
    assert_eq!(world.mounts(), [] as [PathBuf; 0]);
    assert!(loops_beneath(world.path()).is_empty());
    assert!(world.backend().volumes().unwrap().is_empty());
    assert!(world.backend().snapshots().unwrap().is_empty());
}
