//! The words for a change of the storage.

use berth_contract::hint::{namespace_option, quoted};
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::storage::{OperationStatus, StorageWait};
use berth_domain::size::describe_bytes;
use berth_domain::volume::storage::OperationKind;

/// `creating`, `creating, then deleting`, `expanding to 20GiB`, `grows to 20GiB at its next mount`
pub fn name_operation(operation: &OperationStatus) -> String {
    if operation.waits_for == Some(StorageWait::NextStaging) {
        let to = operation.to_bytes.map(|bytes| format!(" to {}", describe_bytes(bytes)));
        return format!("grows{} at its next mount", to.unwrap_or_default());
    }
    match (operation.operation, operation.to_bytes) {
        (OperationKind::Create, _) if operation.then_deleted => {
            "creating, then deleting".to_owned()
        }
        (OperationKind::Create, _) => "creating".to_owned(),
        (OperationKind::Delete, _) => "deleting".to_owned(),
        (OperationKind::Modify, _) => "modifying".to_owned(),
        (OperationKind::Expand, Some(bytes)) => format!("expanding to {}", describe_bytes(bytes)),
        (OperationKind::Expand, None) => "expanding".to_owned(),
    }
}

/// The command that deletes a snapshot, or its group.
pub fn delete_command(snapshot: &SnapshotStub) -> String {
    let SnapshotStub { namespace, volume, snapshot: id, group, .. } = snapshot;
    let (volume, id) = (quoted(volume.as_str()), quoted(id.as_str()));
    let namespace = namespace_option(namespace);
    if group.is_empty() {
        format!("berth snapshot delete {volume}@{id}{namespace}")
    } else {
        format!("berth snapshot group delete {volume}@{id}{namespace}")
    }
}
