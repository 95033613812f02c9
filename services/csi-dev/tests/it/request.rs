//! Requests as a CO makes them.

use std::collections::BTreeMap;

use berth_csi::v1;
use berth_csi_dev::capability::AccessMode;
use v1::volume_capability::access_mode::Mode;
use v1::volume_capability::{AccessType, MountVolume};

pub type Context = BTreeMap<String, String>;

/// The context of every volume of these tests.
pub fn volume_context() -> Context {
    BTreeMap::from([("pool".to_owned(), "fast".to_owned())])
}

pub fn capability(mode: AccessMode) -> v1::VolumeCapability {
    let mode = Mode::from_str_name(&mode.to_string()).unwrap().into();
    v1::VolumeCapability {
        access_mode: Some(v1::volume_capability::AccessMode { mode }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

pub fn attach(volume: &str, node: &str, mode: AccessMode) -> v1::ControllerPublishVolumeRequest {
    v1::ControllerPublishVolumeRequest {
        volume_id: volume.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(capability(mode)),
        volume_context: volume_context(),
        ..Default::default()
    }
}

pub fn detach(volume: &str, node: &str) -> v1::ControllerUnpublishVolumeRequest {
    v1::ControllerUnpublishVolumeRequest {
        volume_id: volume.to_owned(),
        node_id: node.to_owned(),
        ..Default::default()
    }
}

pub fn stage(
    volume: &str,
    path: &str,
    mode: AccessMode,
    context: &Context,
) -> v1::NodeStageVolumeRequest {
    v1::NodeStageVolumeRequest {
        volume_id: volume.to_owned(),
        publish_context: context.clone(),
        staging_target_path: path.to_owned(),
        volume_capability: Some(capability(mode)),
        volume_context: volume_context(),
        ..Default::default()
    }
}

pub fn unstage(volume: &str, path: &str) -> v1::NodeUnstageVolumeRequest {
    v1::NodeUnstageVolumeRequest {
        volume_id: volume.to_owned(),
        staging_target_path: path.to_owned(),
    }
}

pub fn publish(
    volume: &str,
    (staging, target): (&str, &str),
    mode: AccessMode,
    context: &Context,
) -> v1::NodePublishVolumeRequest {
    v1::NodePublishVolumeRequest {
        volume_id: volume.to_owned(),
        publish_context: context.clone(),
        staging_target_path: staging.to_owned(),
        target_path: target.to_owned(),
        volume_capability: Some(capability(mode)),
        volume_context: volume_context(),
        ..Default::default()
    }
}

pub fn unpublish(volume: &str, target: &str) -> v1::NodeUnpublishVolumeRequest {
    v1::NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path: target.to_owned() }
}
