//! The words for a change of the storage, and for a snapshot.

use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::storage::{OperationStatus, StorageWait};
use berth_domain::Timestamp;
use berth_domain::volume::storage::SnapshotState;
use berth_explain::name_operation;

use crate::table::plain;
use crate::wait::WaitStep;

/// A change as a step: `creating; try 2 failed: no room, next in 3.0s`.
pub fn describe_operation(operation: &OperationStatus, now: Timestamp) -> WaitStep {
    let name = name_operation(operation);
    let OperationStatus { call, calling, tries, next_try, waits_for, .. } = operation;
    match waits_for {
        // The name says it.
        Some(StorageWait::NextStaging) => return name.into(),
        Some(waits_for) => return describe_wait(&name, *waits_for, operation.error()).into(),
        None => {}
    }
    if let Some(failed) = WaitStep::failed_try(&name, *tries, operation.error(), *next_try, now) {
        return failed;
    }
    let left = match operation.nodes_left.as_slice() {
        [] => String::new(),
        nodes => {
            let nodes: Vec<&str> = nodes.iter().map(AsRef::as_ref).collect();
            format!(", left: {}", plain(&nodes.join(", ")))
        }
    };
    let state = if *calling { "under way" } else { "due" };
    format!("{name}: {call} is {state}{left}").into()
}

fn describe_wait(name: &str, waits_for: StorageWait, error: Option<&str>) -> String {
    let error = error.map(|error| format!("; the last answer: {}", plain(error)));
    format!("{name}; waits for {}{}", waits_for.describe(), error.unwrap_or_default())
}

/// `data@monday: creating; try 2 failed: no room, next in 3.0s`
pub fn describe_snapshot(snapshot: &SnapshotStub, now: Timestamp) -> WaitStep {
    let SnapshotStub { state, tries, next_try, waits_for, .. } = snapshot;
    let name = format!("{}: {state}", plain(&name_snapshot(snapshot)));
    if let Some(waits_for) = waits_for {
        return describe_wait(&name, *waits_for, snapshot.error()).into();
    }
    let failed = WaitStep::failed_try(&name, *tries, snapshot.error(), *next_try, now);
    failed.unwrap_or_else(|| match state {
        SnapshotState::Cut => format!("{name}; the plugin still works on it").into(),
        _ => name.into(),
    })
}

/// `data@monday`; a group is named by all its volumes.
pub fn name_snapshot(snapshot: &SnapshotStub) -> String {
    let SnapshotStub { volume, snapshot: id, group, .. } = snapshot;
    let volumes = if group.is_empty() { std::slice::from_ref(volume) } else { group };
    let names: Vec<String> = volumes.iter().map(|volume| format!("{volume}@{id}")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use berth_contract::message::storage::StorageWait;
    use berth_domain::volume::storage::OperationKind;
    use berth_domain::{Namespace, NodeId, PluginId, SnapshotId, VolumeId};

    use super::*;

    fn operation(kind: OperationKind) -> OperationStatus {
        OperationStatus {
            operation: kind,
            since: Timestamp::default(),
            call: "controller.create".to_owned(),
            calling: false,
            tries: 0,
            next_try: None,
            failure: None,
            uncertain: false,
            to_bytes: None,
            nodes_left: Vec::new(),
            then_deleted: false,
            waits_for: None,
        }
    }

    #[test]
    fn a_change_names_its_call_its_error_or_what_it_waits_for() {
        let now = Timestamp::from_unix_ms(1000);
        let text = |operation: &OperationStatus| describe_operation(operation, now).to_string();
        let create = operation(OperationKind::Create);
        assert_eq!(text(&create), "creating: controller.create is due");
        let calls = OperationStatus { calling: true, ..create.clone() };
        assert_eq!(text(&calls), "creating: controller.create is under way");
        let next_try = Some(Timestamp::from_unix_ms(4000));
        let fails = OperationStatus { tries: 2, failure: Some("no\n".into()), next_try, ..create };
        assert_eq!(text(&fails), "creating; try 2 failed: no\\n, next in 3.0s");
        let doomed = OperationStatus { then_deleted: true, ..fails };
        assert_eq!(text(&doomed), "creating, then deleting; try 2 failed: no\\n, next in 3.0s");
        let grows = OperationStatus {
            to_bytes: Some(20 << 30),
            nodes_left: vec![NodeId::new("n1").unwrap(), NodeId::new("n2").unwrap()],
            calling: true,
            call: "agent.expand".to_owned(),
            ..operation(OperationKind::Expand)
        };
        assert_eq!(text(&grows), "expanding to 20GiB: agent.expand is under way, left: n1, n2");
        let waits = OperationStatus { waits_for: Some(StorageWait::NextStaging), ..grows };
        assert_eq!(text(&waits), "grows to 20GiB at its next mount");
    }

    #[test]
    fn a_snapshot_says_what_the_plugin_still_does() {
        let snapshot = |state, tries, error: Option<&str>| SnapshotStub {
            namespace: Namespace::default(),
            volume: VolumeId::new("data").unwrap(),
            snapshot: SnapshotId::new("monday").unwrap(),
            state,
            since: Timestamp::default(),
            plugin: PluginId::new("p").unwrap(),
            external_id: None,
            second_id: None,
            foreign: false,
            size_bytes: None,
            cut_at: None,
            usable_from: Vec::new(),
            group: Vec::new(),
            tries,
            next_try: None,
            failure: error.map(Into::into),
            uncertain: false,
            waits_for: None,
            create_index: 5,
            modify_index: 7,
        };
        let text = |of| describe_snapshot(&of, Timestamp::default()).to_string();
        let cut = snapshot(SnapshotState::Cut, 3, None);
        assert_eq!(text(cut), "data@monday: cut; the plugin still works on it");
        let fails = snapshot(SnapshotState::Creating, 1, Some("busy"));
        assert_eq!(text(fails), "data@monday: creating; try 1 failed: busy");
    }
}
