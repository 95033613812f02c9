//! Expanding a volume.
//!
//! Owns: `ControllerExpandVolume`. Promises: an image grows before its size is recorded, so a
//! killed call can be repeated. Never: shrinks anything, or touches a node.

use berth_csi::Code;
use berth_csi::v1::{ControllerExpandVolumeRequest, ControllerExpandVolumeResponse};

use super::capacity;
use crate::ability::Ability;
use crate::backing::Backing;
use crate::driver::refusal::Refusal;
use crate::driver::request::read_capability;
use crate::driver::size;
use crate::driver::{Driver, unknown};

pub(in crate::driver) fn expand(
    driver: &Driver,
    request: &ControllerExpandVolumeRequest,
) -> Result<ControllerExpandVolumeResponse, Refusal> {
    let ControllerExpandVolumeRequest { volume_id, capacity_range, .. } = request;
    let capability = request.volume_capability.as_ref();
    let capability = capability.map(|capability| read_capability(Some(capability))).transpose()?;
    let volume = driver.volume(volume_id)?;
    if let Some(capability) = &capability {
        driver.check_fit(Code::InvalidArgument, volume.meta(), capability)?;
    }
    let wanted = size::choose_grown(volume.meta(), capacity_range.as_ref())?;
    let more = (wanted - volume.meta().capacity_bytes).max(0);
    let _reserved = capacity::reserve(driver, more)?;

    let locked = volume.lock()?;
    let mut meta = locked.meta()?.ok_or_else(|| unknown(volume_id))?;
    let is_image = meta.backing == Backing::Image;
    if wanted > meta.capacity_bytes {
        let node_grows =
            driver.has(Ability::OnlineExpand) && (!is_image || driver.has(Ability::ExpandNode));
        if locked.state()?.is_in_use() && !node_grows {
            return Err(in_use(volume_id));
        }
        if is_image {
            locked.grow(wanted)?;
        }
        meta.capacity_bytes = wanted;
        locked.save_meta(&meta)?;
    }
    let node_expansion_required = is_image && driver.has(Ability::ExpandNode);
    Ok(ControllerExpandVolumeResponse {
        capacity_bytes: meta.capacity_bytes,
        node_expansion_required,
    })
}

fn in_use(volume_id: &str) -> Refusal {
    let message = format!(
        "volume {volume_id:?}: in use, and expanded offline only; unpublish, unstage and detach it \
         everywhere first"
    );
    Refusal::new(Code::FailedPrecondition, message)
}
