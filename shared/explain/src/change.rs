//! The words for a change of the storage.

use berth_contract::hint::{namespace_option, quoted};
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::storage::OperationStatus;
use berth_domain::size::describe_bytes;
use berth_domain::volume::storage::OperationKind;

/// `creating`, `creating, then deleting`, `expanding to 20GiB`
pub fn name_operation(operation: &OperationStatus) -> String {
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
