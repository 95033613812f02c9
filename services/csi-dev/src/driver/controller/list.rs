//! All volumes, and one of them.
//!
//! Owns: `ListVolumes` and `ControllerGetVolume`. Promises: a list is ordered by id, in pages.
//! Never: changes anything.

use berth_csi::Code;
use berth_csi::v1::list_volumes_response::{Entry, VolumeStatus};
use berth_csi::v1::{
    self, ControllerGetVolumeRequest, ControllerGetVolumeResponse, ListVolumesRequest,
    ListVolumesResponse, VolumeCondition, controller_get_volume_response,
};

use super::{answer, page};
use crate::backend::Volume;
use crate::driver::Driver;
use crate::driver::refusal::Refusal;

pub(in crate::driver) fn list(
    driver: &Driver,
    request: &ListVolumesRequest,
) -> Result<ListVolumesResponse, Refusal> {
    let mut volumes = driver.backend.volumes()?;
    volumes.retain(|volume| driver.is_home(volume.meta().node.as_deref()));
    let ListVolumesRequest { max_entries, starting_token } = request;
    let asked = (starting_token.as_str(), *max_entries);
    let (volumes, next_token) = page::page(volumes, id, asked, driver.profile.list_pages)?;
    let entry = |volume: &Volume| -> Result<Entry, Refusal> {
        let published_node_ids = answer::published_nodes(driver, volume)?;
        let volume_condition = answer::condition(driver, volume)?;
        let status = VolumeStatus { published_node_ids, volume_condition };
        let volume = answer::volume(driver, volume.meta());
        Ok(Entry { volume: Some(volume), status: Some(status) })
    };
    let entries = volumes.iter().map(entry).collect::<Result<_, _>>()?;
    Ok(ListVolumesResponse { entries, next_token })
}

pub(in crate::driver) fn get(
    driver: &Driver,
    request: &ControllerGetVolumeRequest,
) -> Result<ControllerGetVolumeResponse, Refusal> {
    let volume = match driver.volume(&request.volume_id) {
        Err(refusal) if driver.profile.get_anything && refusal.code == Code::NotFound => {
            return Ok(abnormal(&request.volume_id));
        }
        volume => volume?,
    };
    let published_node_ids = answer::published_nodes(driver, &volume)?;
    let volume_condition = answer::condition(driver, &volume)?;
    #[rustfmt::skip]
    let status = controller_get_volume_response::VolumeStatus {
        published_node_ids, volume_condition,
    };
    let volume = answer::volume(driver, volume.meta());
    Ok(ControllerGetVolumeResponse { volume: Some(volume), status: Some(status) })
}

/// An answer about a volume that is not here.
fn abnormal(id: &str) -> ControllerGetVolumeResponse {
    let condition = VolumeCondition { abnormal: true, message: "there is no such volume".into() };
    ControllerGetVolumeResponse {
        volume: Some(v1::Volume { volume_id: id.to_owned(), ..v1::Volume::default() }),
        status: Some(controller_get_volume_response::VolumeStatus {
            volume_condition: Some(condition),
            ..controller_get_volume_response::VolumeStatus::default()
        }),
    }
}

fn id(volume: &Volume) -> &str {
    &volume.meta().volume_id
}
