//! Modifying a volume.
//!
//! Owns: `ControllerModifyVolume`, and which mutable parameters are in effect. Promises: all
//! parameters of a request take effect, or none. Never: changes the content of a volume.

use std::collections::BTreeMap;

use berth_csi::v1::{ControllerModifyVolumeRequest, ControllerModifyVolumeResponse};

use super::parameters::mutable_faults;
use crate::driver::refusal::Refusal;
use crate::driver::request::RequestFields;
use crate::driver::{Driver, unknown};

pub(in crate::driver) fn modify(
    driver: &Driver,
    request: &ControllerModifyVolumeRequest,
) -> Result<ControllerModifyVolumeResponse, Refusal> {
    let ControllerModifyVolumeRequest { volume_id, mutable_parameters: wanted, .. } = request;
    let mut fields = RequestFields::default();
    fields.faults(mutable_faults(wanted));
    fields.finish()?;

    let volume = driver.volume(volume_id)?;
    let locked = volume.lock()?;
    let mut meta = locked.meta()?.ok_or_else(|| unknown(volume_id))?;
    let merged = merge_mutable(meta.mutable_parameters.clone(), wanted);
    if merged != meta.mutable_parameters {
        meta.mutable_parameters = merged;
        locked.save_meta(&meta)?;
    }
    Ok(ControllerModifyVolumeResponse {})
}

/// The parameters in effect: those in `wanted` win, and the others stay.
pub(super) fn merge_mutable(
    mut before: BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    before.extend(wanted.clone());
    before
}
