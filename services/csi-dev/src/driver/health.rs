//! What the plugin says of the health of volumes and of its storage (CSI 1.13).
//!
//! Owns: the four calls about health. Promises: a volume is as unwell as its condition says. Never:
//! changes anything.

use berth_csi::v1::node_get_storage_health_response::StorageBackendHealth;
use berth_csi::v1::volume_health::VolumeHealthEntry;
use berth_csi::v1::{self, StorageHealthErrorType, VolumeHealthErrorType};

use super::Driver;
use super::controller::page;
use super::node::stats;
use super::refusal::Refusal;
use crate::backend::Volume;

pub(super) fn list(
    driver: &Driver,
    request: &v1::ControllerListVolumeHealthRequest,
) -> Result<v1::ControllerListVolumeHealthResponse, Refusal> {
    let mut unwell = Vec::new();
    for volume in driver.backend.volumes()? {
        if driver.is_home(volume.meta().node.as_deref()) {
            unwell.push(describe(
                &volume,
                VolumeHealthErrorType::Degraded,
                volume.read_abnormal()?,
            ));
        }
    }
    unwell.retain(|health| !health.health_statuses.is_empty());
    let asked = (request.starting_token.as_str(), request.max_entries);
    let pages = driver.profile.list_pages;
    let (entries, next_token) =
        page::page(unwell, |health| health.volume_id.as_str(), asked, pages)?;
    Ok(v1::ControllerListVolumeHealthResponse { entries, next_token })
}

pub(super) fn get(
    driver: &Driver,
    request: &v1::ControllerGetVolumeHealthRequest,
) -> Result<v1::ControllerGetVolumeHealthResponse, Refusal> {
    let volume = driver.volume(&request.volume_id)?;
    let health = describe(&volume, VolumeHealthErrorType::Degraded, volume.read_abnormal()?);
    Ok(v1::ControllerGetVolumeHealthResponse { volume_health: Some(health) })
}

pub(super) fn on_node(
    driver: &Driver,
    request: &v1::NodeGetVolumeHealthRequest,
) -> Result<v1::NodeGetVolumeHealthResponse, Refusal> {
    let volume = driver.volume(&request.volume_id)?;
    let mut health = describe(&volume, VolumeHealthErrorType::Degraded, volume.read_abnormal()?);
    let path = &request.volume_publish_path;
    if let Some(gone) = stats::absence(driver, &volume, path)? {
        let entry = describe(&volume, VolumeHealthErrorType::Inaccessible, vec![gone]);
        health.health_statuses.extend(entry.health_statuses);
    }
    Ok(v1::NodeGetVolumeHealthResponse { volume_health: Some(health) })
}

pub(super) fn storage(
    driver: &Driver,
    _: &v1::NodeGetStorageHealthRequest,
) -> Result<v1::NodeGetStorageHealthResponse, Refusal> {
    let record = driver.backend.node(driver.node_id())?;
    let Some(said) = record.and_then(|record| record.trouble) else {
        return Ok(v1::NodeGetStorageHealthResponse::default());
    };
    let (status, message) = match said.split_once(' ') {
        Some(("degraded", message)) => (StorageHealthErrorType::StorageDegraded, message),
        _ => (StorageHealthErrorType::StorageUnreachable, said.as_str()),
    };
    let health = StorageBackendHealth {
        status: status.into(),
        reason: "Trouble".to_owned(),
        message: message.to_owned(),
        volume_capability: None,
    };
    Ok(v1::NodeGetStorageHealthResponse { backend_health: vec![health] })
}

fn describe(
    volume: &Volume,
    status: VolumeHealthErrorType,
    reasons: Vec<String>,
) -> v1::VolumeHealth {
    let entry = |message| VolumeHealthEntry {
        status: status.into(),
        reason: "Abnormal".to_owned(),
        message,
    };
    v1::VolumeHealth {
        volume_id: volume.meta().volume_id.clone(),
        health_statuses: reasons.into_iter().map(entry).collect(),
    }
}
