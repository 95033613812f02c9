//! The capacity of the pool.
//!
//! Owns: `GetCapacity`, and the sum of all sizes. Promises: volumes and snapshots together never
//! exceed the pool. Never: measures what is really written.

use berth_csi::Code;
use berth_csi::v1::{GetCapacityRequest, GetCapacityResponse};

use super::kind::{choose_kind, read_capabilities};
use super::parameters::VolumeParameters;
use crate::backend::{Snapshot, Volume, VolumeMeta};
use crate::driver::Driver;
use crate::driver::refusal::Refusal;
use crate::driver::request::RequestFields;
use crate::driver::size;
use crate::lock::Lock;
use crate::topology;

pub(in crate::driver) fn get(
    driver: &Driver,
    request: &GetCapacityRequest,
) -> Result<GetCapacityResponse, Refusal> {
    let mut fields = RequestFields::default();
    let capabilities = read_capabilities(&mut fields, &request.volume_capabilities);
    let mut faults = Vec::new();
    let parameters = VolumeParameters::read(&request.parameters, &mut faults);
    fields.faults(faults);
    fields.finish()?;

    let (backing, fs) = choose_kind(&parameters, &capabilities, None);
    let meta = VolumeMeta { backing, fs, ..VolumeMeta::default() };
    let possible = capabilities.iter().all(|capability| driver.unfit(&meta, capability).is_empty());
    let reachable = match &request.accessible_topology {
        Some(topology) => {
            let mut nodes = driver.backend.nodes()?.into_iter();
            nodes.any(|node| topology::is_within(&node.topology, &topology.segments))
        }
        None => true,
    };
    let available = if possible && reachable { available(driver)? } else { 0 };
    Ok(GetCapacityResponse {
        available_capacity: available,
        maximum_volume_size: Some(size::LARGEST_BYTES),
        minimum_volume_size: Some(size::smallest(backing, fs)),
    })
}

/// Refuses if less than `bytes` are available. The returned lock reserves them until they are
/// recorded.
pub(crate) fn reserve(driver: &Driver, bytes: i64) -> Result<Option<Lock>, Refusal> {
    if driver.profile.pool_bytes.is_none() {
        return Ok(None);
    }
    let counting = driver.backend.lock()?;
    let available = available(driver)?;
    if bytes <= available {
        return Ok(Some(counting));
    }
    let message = format!(
        "{bytes} bytes are wanted, and {available} are left in the pool; delete volumes or \
         snapshots, or ask for less"
    );
    Err(Refusal::new(Code::ResourceExhausted, message))
}

fn available(driver: &Driver) -> Result<i64, Refusal> {
    let Some(pool_bytes) = driver.profile.pool_bytes else {
        return Ok(driver.backend.free_bytes()?);
    };
    let home = |node: &Option<String>| driver.is_home(node.as_deref());
    let volumes = driver.backend.volumes()?;
    let volumes = volumes.iter().map(Volume::meta).filter(|meta| home(&meta.node));
    let snapshots = driver.backend.snapshots()?;
    let snapshots = snapshots.iter().map(Snapshot::meta).filter(|meta| home(&meta.node));
    let sizes =
        volumes.map(|meta| meta.capacity_bytes).chain(snapshots.map(|meta| meta.size_bytes));
    Ok(sizes.fold(pool_bytes, i64::saturating_sub).max(0))
}
