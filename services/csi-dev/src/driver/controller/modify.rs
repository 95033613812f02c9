//! Modifying a volume.
//!
//! Owns: `ControllerModifyVolume`. Promises: changes all named parameters at once or none. Never:
//! changes a parameter that the request does not name.

use berth_csi::v1::{ControllerModifyVolumeRequest, ControllerModifyVolumeResponse};

use super::parameters::wrong_mutable;
use crate::driver::refusal::Refusal;
use crate::driver::request::RequestFields;
use crate::driver::{Driver, unknown};

pub(in crate::driver) fn modify(
    driver: &Driver,
    request: &ControllerModifyVolumeRequest,
) -> Result<ControllerModifyVolumeResponse, Refusal> {
    let ControllerModifyVolumeRequest { volume_id, mutable_parameters, .. } = request;
    let volume = driver.volume(volume_id)?;
    let mut fields = RequestFields::default();
    fields.faults(wrong_mutable(mutable_parameters));
    fields.finish()?;

    let locked = volume.lock()?;
    let mut meta = locked.meta()?.ok_or_else(|| unknown(volume_id))?;
    meta.mutable_parameters.extend(mutable_parameters.clone());
    locked.save_meta(&meta)?;
    Ok(ControllerModifyVolumeResponse {})
}
