//! The life of a volume at its storage, as lines of the volume's page.

use berth_contract::hint::{namespace_option, quoted};
use berth_contract::message::storage::{
    FailedOperation, OperationStatus, StorageStatus, StorageWait,
};
use berth_contract::message::volume::VolumeStatus;
use berth_domain::volume::storage::Reclaim;
use berth_domain::{NodeId, Timestamp};

use super::listed;
use crate::span::{ago, until};
use berth_explain::name_operation;

/// The origin, the changes and the last failure of a volume at its storage.
pub fn storage_lines(volume: &VolumeStatus, now: Timestamp) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let Some(storage) = &volume.storage else { return lines };
    let StorageStatus { stage, class, reclaim, origin, for_alloc, operation, failure, .. } =
        storage;
    lines.push(("stage", stage.to_string()));
    lines.extend(class.as_ref().map(|class| ("class", class.to_string())));
    lines.extend(reclaim.map(|reclaim| {
        let policy = match reclaim {
            Reclaim::Delete => "delete",
            Reclaim::Retain => "retain",
        };
        ("reclaim", policy.to_owned())
    }));
    lines.extend(origin.as_ref().map(|origin| {
        let snapshot_part = origin.snapshot.as_ref().map(|snapshot| format!("@{snapshot}"));
        ("copy of", format!("{}{}", origin.volume, snapshot_part.unwrap_or_default()))
    }));
    lines.extend(for_alloc.as_ref().map(|alloc| ("for the run of", alloc.to_string())));
    if let Some(operation) = operation {
        lines.extend(operation_lines(operation, now));
    }
    lines.extend(failure.as_ref().map(|failure| ("refused", refused(failure, now))));
    lines.extend(storage.faults.iter().map(|fault| ("plugin's fault", fault.clone())));
    if !storage.mutable_parameters.is_empty() {
        lines.push(("mutable", listed(&storage.mutable_parameters)));
    }
    if volume.snapshot_count > 0 {
        let list = format!(
            "{}: berth snapshot list {}{}",
            volume.snapshot_count,
            quoted(volume.id.as_str()),
            namespace_option(&volume.namespace)
        );
        lines.push(("snapshots", list));
    }
    lines
}

fn operation_lines(
    operation: &OperationStatus,
    now: Timestamp,
) -> impl Iterator<Item = (&'static str, String)> {
    let OperationStatus { since, call, calling, tries, next_try, .. } = operation;
    let state = if *calling { "is under way" } else { "is to be made" };
    let name = name_operation(operation);
    // The name says what it waits for.
    let is_at_rest = operation.waits_for == Some(StorageWait::NextStaging);
    let progress =
        if is_at_rest { name } else { format!("{name} for {}: {call} {state}", ago(*since, now)) };
    let tried = (*tries > 0 || next_try.is_some()).then(|| {
        let next = next_try.map(|at| format!(", next {}", until(at, now))).unwrap_or_default();
        format!("{tries}{next}")
    });
    let doubt = "an earlier call may have done it; it is repeated until the plugin answers";
    let nodes: Vec<&str> = operation.nodes_left.iter().map(NodeId::as_str).collect();
    let lines = [
        ("operation", Some(progress)),
        ("tries", tried),
        ("last error", operation.error().map(str::to_owned)),
        ("in doubt", operation.uncertain.then(|| doubt.to_owned())),
        (
            "waits for",
            operation.waits_for.filter(|_| !is_at_rest).map(|wait| wait.describe().to_owned()),
        ),
        ("nodes left", (!nodes.is_empty()).then(|| nodes.join(", "))),
    ];
    lines.into_iter().filter_map(|(label, text)| Some((label, text?)))
}

/// `expand 30s ago: OUT_OF_RANGE: …`
fn refused(failure: &FailedOperation, now: Timestamp) -> String {
    format!("{} {} ago: {}", failure.operation, ago(failure.at, now), failure.failure)
}
