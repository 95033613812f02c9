//! Checks the volumes that an alloc requests, before anything is stored; pure.

use std::collections::{BTreeMap, BTreeSet};

use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::problem::Problem;
use berth_domain::VolumeId;
use berth_domain::access::AttachmentMode;
use berth_domain::alloc::{Alloc, RequestFault, TaskDriverMounts, VolumeRequest};

/// Checks the volumes that a workload with this index requests. The error has every fault.
pub fn check_volume_requests(
    volumes: &[VolumeRequest],
    index: Option<u32>,
) -> Result<(), Vec<Fault>> {
    let mut faults = Vec::new();
    let mut first_requests: BTreeMap<VolumeId, &VolumeRequest> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for (at, request) in volumes.iter().enumerate() {
        let mut fault = |field: &str, problem: String| {
            let path = format!("volumes[{at}].{field}");
            faults.push(Fault { path, problem, line: None });
        };
        match request.volume(index) {
            Err(why @ RequestFault::NoIndex) => fault("per_alloc", why.to_string()),
            Err(why @ RequestFault::Id(_)) => fault("source", why.to_string()),
            Ok(volume) => {
                if let Some(first) = first_requests.get(&volume) {
                    for field in differing_claim_fields(first, request) {
                        let first = first.name();
                        let problem = format!(
                            "differs from that of {first}: an alloc has one claim on {volume}, \
                             and uses it in one way"
                        );
                        fault(field, problem);
                    }
                }
                first_requests.entry(volume).or_insert(request);
            }
        }
        if request.attachment == Some(AttachmentMode::BlockDevice) && !request.mount.is_empty() {
            fault("mount", "is of file systems, and a block device has none".to_owned());
        }
        if request.alias.as_deref().is_some_and(str::is_empty) {
            fault("alias", "is empty; leave it out to use the source".to_owned());
        } else if !names.insert(request.name()) {
            fault("alias", format!("{} is another volume's name too", request.name()));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// The fields in which two requests of one alloc for one volume differ although they must agree
/// (E6). Their names, `read_only` and mount flags may differ.
fn differing_claim_fields(first: &VolumeRequest, second: &VolumeRequest) -> Vec<&'static str> {
    [
        ("access", first.access != second.access),
        ("attachment", first.attachment != second.attachment),
        ("mount.fs_type", first.mount.fs_type != second.mount.fs_type),
        ("mount.group", first.mount.group != second.mount.group),
    ]
    .into_iter()
    .filter_map(|(field, differs)| differs.then_some(field))
    .collect()
}

/// Refuses an alloc if its runner cannot mount what it requests (E7).
pub fn check_mountable(wanted: &Alloc, mounts: TaskDriverMounts) -> Result<(), Problem> {
    let lacking = |request: &VolumeRequest| {
        let why = mounts.lacks(request.kind)?;
        Some(format!("volume {}: {why}", request.name()))
    };
    let lacking: Vec<String> = wanted.volumes.iter().filter_map(lacking).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(Problem::new(Code::RunnerCannotMount, lacking.join("; ")))
}
