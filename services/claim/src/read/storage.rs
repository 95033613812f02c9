//! The stage, operation and snapshots of a volume at its storage, as replies show them.

use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::storage::{
    FailedOperation, OperationStatus, StorageStatus, StorageWait,
};
use berth_domain::limits::CLOCK_MARGIN;
use berth_domain::volume::storage::{Operation, Snapshot, SnapshotState, Work};
use berth_domain::volume::{Attempt, CallKind, State as ClaimState, Volume, VolumeSpec};
use berth_domain::{NodeId, SnapshotId, VolumeKey};
use berth_service::clock;
use berth_service::projection::Volumes;

use crate::store::state::State;

/// The volume's stage, operation and last failure at its storage.
pub fn show_storage(volume: &Volume, spec: &VolumeSpec) -> StorageStatus {
    let provision = spec.provision();
    let storage = spec.storage.as_deref();
    StorageStatus {
        stage: spec.stage(),
        class: provision.and_then(|provision| provision.class.clone()),
        reclaim: provision.map(|provision| provision.reclaim),
        requested_bytes: provision
            .map(|provision| provision.required_bytes)
            .filter(|bytes| *bytes > 0),
        plugin_name: provision.map(|provision| provision.name.clone()),
        origin: provision.and_then(|provision| provision.origin.clone()),
        for_alloc: provision.and_then(|provision| provision.for_alloc.clone()),
        operation: spec.operation().map(|operation| show_operation(volume, operation)),
        failure: spec.failure().map(|failure| FailedOperation {
            operation: failure.operation,
            at: failure.at,
            failure: failure.failure.clone(),
        }),
        faults: storage.map(|storage| storage.faults.clone()).unwrap_or_default(),
        mutable_parameters: storage.map(|storage| storage.mutable.clone()).unwrap_or_default(),
    }
}

fn show_operation(volume: &Volume, operation: &Operation) -> OperationStatus {
    let progress = &operation.progress;
    let (to_bytes, nodes_left) = match &operation.work {
        Work::Expand(expansion) => {
            let taken = volume.claims.values().filter(|claim| claim.state == ClaimState::Taken);
            let nodes_left = taken.map(|claim| &claim.node);
            let mut nodes_left: Vec<NodeId> =
                nodes_left.filter(|node| !expansion.expanded.contains(*node)).cloned().collect();
            nodes_left.sort();
            nodes_left.dedup();
            let nodes_left = if expansion.is_at_nodes() { nodes_left } else { Vec::new() };
            (Some(expansion.required_bytes), nodes_left)
        }
        Work::Create { .. } | Work::Delete { .. } | Work::Modify { .. } => (None, Vec::new()),
    };
    let waits_for = waits_for(volume, operation, &nodes_left);
    let is_at_rest = waits_for == Some(StorageWait::NextStaging);
    OperationStatus {
        operation: operation.kind(),
        since: operation.since,
        call: operation.call().to_string(),
        calling: progress.calls.attempt.is_some() && !is_at_rest,
        tries: progress.calls.tries,
        next_try: progress.calls.next_try.filter(|_| !is_at_rest),
        failure: progress.calls.failure.as_deref().cloned(),
        uncertain: progress.uncertain,
        to_bytes,
        then_deleted: matches!(operation.work, Work::Create { doomed: true }),
        waits_for,
        nodes_left,
    }
}

/// What the operation waits for, unless a time or a retry ends the wait.
fn waits_for(volume: &Volume, operation: &Operation, nodes_left: &[NodeId]) -> Option<StorageWait> {
    // A call or a next try on the record is of a node where no claim is any more.
    let calls = &operation.progress.calls;
    let may_act = |call: &Attempt| call.may_still_act(clock::now(), CLOCK_MARGIN);
    if operation.call() == CallKind::NodeExpand
        && nodes_left.is_empty()
        && !calls.attempt.as_ref().is_some_and(may_act)
    {
        return Some(StorageWait::NextStaging);
    }
    // Set only when a call is due, so a call or next try on the record is over.
    if operation.mounted.is_some() {
        return Some(StorageWait::Unmounted);
    }
    if operation.progress.calls.attempt.is_some() || operation.progress.calls.next_try.is_some() {
        return None;
    }
    let Work::Expand(expansion) = &operation.work else { return None };
    if !expansion.is_at_nodes() {
        let is_held = volume.holders().next().is_some();
        return (expansion.offline && is_held).then_some(StorageWait::VolumeFree);
    }
    let is_refused = nodes_left.iter().all(|node| expansion.refused.contains_key(node));
    is_refused.then_some(StorageWait::StagedAgain)
}

/// A snapshot; none if it is unknown. `waits_for` is not stored, because the wait may end at any
/// moment.
pub fn show_snapshot(
    state: &State,
    volumes: &Volumes,
    volume: &VolumeKey,
    id: &SnapshotId,
) -> Option<SnapshotStub> {
    let subtree = volumes.get(volume)?;
    let snapshot = subtree.volume.snapshots.get(id)?;
    let leader = VolumeKey::new(volume.namespace.clone(), snapshot.leader(&volume.volume).clone());
    let lacks_controller = is_call_due(snapshot)
        && volumes
            .get(&leader)
            .is_some_and(|leader| state.storage_executor(&leader.volume, Some(id)).is_err());
    Some(SnapshotStub {
        namespace: volume.namespace.clone(),
        volume: volume.volume.clone(),
        snapshot: id.clone(),
        state: snapshot.state,
        since: snapshot.since,
        plugin: snapshot.plugin.clone(),
        external_id: snapshot.external_id.clone(),
        second_id: snapshot.second_id.clone(),
        foreign: snapshot.foreign,
        size_bytes: snapshot.size_bytes,
        cut_at: snapshot.cut_at,
        usable_from: snapshot.usable_from.clone(),
        group: snapshot.group.as_ref().map(|group| group.members.clone()).unwrap_or_default(),
        tries: snapshot.progress.calls.tries,
        next_try: snapshot.progress.calls.next_try,
        failure: snapshot.progress.calls.failure.as_deref().cloned(),
        uncertain: snapshot.progress.uncertain,
        waits_for: lacks_controller.then_some(StorageWait::Controller),
        create_index: snapshot.create_index,
        modify_index: subtree.head,
    })
}

fn is_call_due(snapshot: &Snapshot) -> bool {
    let needs_call = match snapshot.state {
        SnapshotState::Creating | SnapshotState::Deleting => true,
        SnapshotState::Cut => !snapshot.can_only_be_deleted(),
        SnapshotState::Ready | SnapshotState::Failed => false,
    };
    needs_call && snapshot.progress.calls.attempt.is_none()
}

#[cfg(test)]
mod tests {
    use berth_domain::volume::MountDoubt;
    use serde_json::{Value, json};

    use super::*;

    const AT: &str = "2026-11-21T20:00:00.000Z";

    fn show(work: &Value, progress: &Value, held_on: Option<&str>) -> StorageStatus {
        let spec: VolumeSpec = serde_json::from_value(json!({
            "plugin": "p", "capabilities": [], "storage": {
                "provision": {"name": "n", "requested": AT, "required_bytes": 10},
                "operation": {"work": work, "since": AT, "progress": progress},
            },
        }))
        .unwrap();
        let mut volume = Volume { spec: Some(spec.clone()), ..Volume::default() };
        if let Some(node) = held_on {
            let claim = serde_json::from_value(json!({
                "state": "taken", "node": node, "mode": "write", "since": AT, "controller": true,
                "access": "single-node-writer", "attachment": "file-system",
            }));
            volume.claims.insert("a".parse().unwrap(), claim.unwrap());
        }
        show_storage(&volume, &spec)
    }

    fn wait(expansion: &Value, held_on: Option<&str>) -> Option<StorageWait> {
        let mut whole = json!({"required_bytes": 20});
        whole.as_object_mut().unwrap().extend(expansion.as_object().unwrap().clone());
        let status = show(&json!({"expand": whole}), &json!({}), held_on);
        status.operation.unwrap().waits_for
    }

    #[test]
    fn a_deletion_that_was_requested_shows_beside_the_next_try_of_the_creation() {
        let progress = json!({"tries": 2, "next_try": AT, "error": "no"});
        let status = show(&json!({"create": {"doomed": true}}), &progress, None);
        assert_eq!(status.requested_bytes, Some(10));
        let operation = status.operation.unwrap();
        assert!(operation.then_deleted && operation.next_try.is_some(), "{operation:?}");
        let status = show(&json!({"create": {}}), &progress, None);
        assert!(!status.operation.unwrap().then_deleted);
    }

    #[test]
    fn a_deletion_says_that_it_waits_for_a_mount_whatever_its_last_try_left_on_the_record() {
        let attempt =
            json!({"id": "x", "call": "controller.delete", "worker": "w", "deadline": AT});
        for progress in
            [json!({}), json!({"tries": 2, "next_try": AT}), json!({"attempt": attempt})]
        {
            let mut operation: Operation = serde_json::from_value(json!({
                "work": {"delete": {"reason": "asked"}}, "since": AT, "progress": progress,
            }))
            .unwrap();
            assert_ne!(
                waits_for(&Volume::default(), &operation, &[]),
                Some(StorageWait::Unmounted)
            );
            let node = NodeId::new("n1").unwrap();
            operation.mounted = Some(Box::new(MountDoubt::not_said(&node)));
            let wait = waits_for(&Volume::default(), &operation, &[]);
            assert_eq!(wait, Some(StorageWait::Unmounted), "{progress}");
        }
    }

    #[test]
    fn an_expansion_says_what_it_waits_for() {
        let offline = json!({"offline": true});
        assert_eq!(wait(&offline, Some("n1")), Some(StorageWait::VolumeFree));
        assert_eq!(wait(&offline, None), None);
        let at_nodes = json!({"at_nodes": true});
        assert_eq!(wait(&at_nodes, None), Some(StorageWait::NextStaging));
        assert_eq!(wait(&at_nodes, Some("n1")), None, "the node is called next");
        let refused = json!({"at_nodes": true, "refused": {"n1": 1}});
        assert_eq!(wait(&refused, Some("n1")), Some(StorageWait::StagedAgain));
    }
}
