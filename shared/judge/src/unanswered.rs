//! Creations that were never answered.
//!
//! Owns: what is reported about them at the end of the logs. Promises: a finding only if the logs
//! continue for long afterwards and the CO does not wait for the answer. Otherwise it is a note,
//! and so it is if the CO may have found the object in a list (CSI allows that). Never: knows
//! whether the object exists.

use berth_csi::Rpc;

use super::finding::{Finding, FindingKind, LogLine, ObjectKind};
use super::objects::{ObjectName, ObjectRegistry, TakenName};
use super::open_calls::{CallSlot, OpenCalls};
use super::pending::proof;
use super::rule::Rule;

/// Twice the longest backoff of a known CO (5 minutes, of Kubernetes' external-provisioner), in
/// microseconds.
const ABANDONED_AFTER_US: u64 = 600_000_000;

/// Reports creations that were abandoned, and returns a note for each other creation without an
/// answer. `end` is the time and text of the logs' last line.
pub(super) fn report_unanswered(
    objects: &ObjectRegistry,
    in_flight: &OpenCalls,
    end: &(u64, LogLine),
    found: &mut dyn FnMut(Finding),
) -> Vec<String> {
    let (end_us, last) = end;
    let mut notes = Vec::new();
    for (name, entry) in objects.doubtful() {
        let is_long = end_us.saturating_sub(entry.last_us) >= ABANDONED_AFTER_US;
        if is_long && !entry.may_be_deleted && !is_awaited(in_flight, name) {
            found(abandoned(name, entry, last));
        } else {
            notes.extend(describe(name, entry));
        }
    }
    notes
}

/// Whether the CO waits for the answer to a request for this name.
fn is_awaited(in_flight: &OpenCalls, name: &ObjectName) -> bool {
    let slot = CallSlot::Name(name.rpc, name.name.clone());
    in_flight.in_slot(&slot).any(|(_, open)| !open.is_gone)
}

fn abandoned(name: &ObjectName, entry: &TakenName, last: &LogLine) -> Finding {
    let mut proof = proof(&entry.newest, &[]);
    if !proof.contains(last) {
        proof.push(last.clone());
    }
    Finding {
        kind: FindingKind::Violation,
        rule: Rule::AbandonedCreation.into(),
        object: match name.rpc {
            Rpc::CreateSnapshot => ObjectKind::Snapshot,
            Rpc::CreateVolumeGroupSnapshot => ObjectKind::Group,
            _ => ObjectKind::Volume,
        },
        about: name.name.clone(),
        what: format!(
            "{} was not answered, and not repeated until the end of the logs; repeat it until it \
             is answered",
            name.rpc
        ),
        noticed: false,
        proof,
    }
}

fn describe(ObjectName { rpc, name }: &ObjectName, entry: &TakenName) -> Option<String> {
    let lines = entry.newest.borrow();
    let LogLine { file, number, .. } = lines.last()?;
    let file = file.display();
    Some(format!("{file}:{number}: {rpc} of {name:?} is not answered at the end of the logs"))
}
