//! Validating capabilities.
//!
//! Owns: `ValidateVolumeCapabilities`. Promises: confirms only what later calls accept; otherwise
//! names each field that they would not accept. Never: changes anything.

use std::collections::BTreeMap;

use berth_csi::v1::validate_volume_capabilities_response::Confirmed;
use berth_csi::v1::{ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse};

use super::parameters::mutable_faults;
use crate::ability::Ability;
use crate::backend::VolumeMeta;
use crate::capability::Capability;
use crate::driver::Driver;
use crate::driver::refusal::Refusal;
use crate::driver::request::{RequestFields, wrong_context};

pub(in crate::driver) fn validate(
    driver: &Driver,
    request: &ValidateVolumeCapabilitiesRequest,
) -> Result<ValidateVolumeCapabilitiesResponse, Refusal> {
    let mut fields = RequestFields::default();
    for (index, capability) in request.volume_capabilities.iter().enumerate() {
        fields.whole_capability(&format!("volume_capabilities[{index}]"), Some(capability));
    }
    fields.finish()?;

    let volume = driver.volume(&request.volume_id)?;
    let doubts = doubts(driver, volume.meta(), request);
    if !doubts.is_empty() {
        let message = doubts.join("; ");
        return Ok(ValidateVolumeCapabilitiesResponse { confirmed: None, message });
    }
    let confirmed = Confirmed {
        volume_context: request.volume_context.clone(),
        volume_capabilities: request.volume_capabilities.clone(),
        parameters: request.parameters.clone(),
        mutable_parameters: request.mutable_parameters.clone(),
    };
    let message = String::new();
    Ok(ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message })
}

/// What the volume does not have or offer, field by field.
fn doubts(
    driver: &Driver,
    meta: &VolumeMeta,
    request: &ValidateVolumeCapabilitiesRequest,
) -> Vec<String> {
    let mut doubts = Vec::new();
    for (index, capability) in request.volume_capabilities.iter().enumerate() {
        let faults = match Capability::supported(capability) {
            Ok(capability) => driver.unfit(meta, &capability),
            Err(faults) => faults,
        };
        doubts.extend(faults.iter().map(|fault| format!("volume_capabilities[{index}].{fault}")));
    }
    for key in wrong_context(meta, &request.volume_context) {
        doubts.push(format!("volume_context[{key:?}] is not the volume's"));
    }
    let no_parameters = BTreeMap::new();
    let own_parameters = meta.asked.as_ref().map_or(&no_parameters, |asked| &asked.parameters);
    for (key, value) in &request.parameters {
        if own_parameters.get(key) != Some(value) {
            doubts.push(format!("parameters[{key:?}] is not the volume's"));
        }
    }
    // The faults that ControllerModifyVolume would find.
    doubts.extend(mutable_faults(&request.mutable_parameters));
    if !request.mutable_parameters.is_empty() && !driver.has(Ability::Modify) {
        let modify = Ability::Modify;
        doubts.push(format!(
            "mutable_parameters: {modify} is not among the capabilities of this plugin"
        ));
    }
    doubts
}
