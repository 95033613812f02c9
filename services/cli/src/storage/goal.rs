//! The goals of changes of a volume at its storage, and whether they are reached; pure.

use std::collections::BTreeMap;

use berth_contract::message::storage::{StorageStatus, StorageWait};
use berth_contract::message::volume::VolumeStatus;
use berth_domain::volume::storage::{OperationKind, Stage};

/// The state of the volume that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageGoal {
    /// The volume is created.
    Created,
    /// The volume that was made at this revision is gone.
    Deleted {
        /// The revision.
        create_index: u64,
    },
    /// The volume has at least so many bytes.
    Expanded {
        /// The bytes.
        bytes: u64,
    },
    /// The volume has these mutable parameters.
    Modified(BTreeMap<String, String>),
}

/// The progress of a request towards its goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalState {
    /// The change goes on.
    Open,
    /// The goal is reached.
    Reached,
    /// The storage refused, with these words.
    Refused(String),
    /// The change cannot end before a person acts.
    Blocked(StorageWait),
    /// Another change ended it.
    Overtaken(Stage),
}

impl StorageGoal {
    /// The operation that leads to this goal.
    pub const fn operation(&self) -> OperationKind {
        match self {
            Self::Created => OperationKind::Create,
            Self::Deleted { .. } => OperationKind::Delete,
            Self::Expanded { .. } => OperationKind::Expand,
            Self::Modified(_) => OperationKind::Modify,
        }
    }

    /// Judges the progress of the volume towards the goal. `index` is the revision of the request:
    /// an older status does not contain the request yet.
    pub fn judge(&self, volume: &VolumeStatus, index: u64) -> GoalState {
        if let Self::Deleted { create_index } = self
            && volume.create_index != *create_index
        {
            return GoalState::Reached;
        }
        let Some(storage) = volume.storage.as_ref().filter(|_| volume.modify_index >= index) else {
            return GoalState::Open;
        };
        let refused = || {
            let failure = storage.failure.as_ref();
            let of_this = failure.filter(|failure| failure.operation == self.operation());
            of_this.map(|failure| GoalState::Refused(failure.failure.message.clone()))
        };
        match (self, storage.stage) {
            (Self::Created, Stage::Ready | Stage::Unused) => GoalState::Reached,
            (Self::Deleted { .. }, Stage::Deleting) if is_mounted(storage) => {
                GoalState::Blocked(StorageWait::Unmounted)
            }
            (Self::Created | Self::Deleted { .. }, Stage::Creating)
            | (Self::Deleted { .. }, Stage::Deleting) => GoalState::Open,
            (Self::Created, Stage::Failed) | (Self::Deleted { .. }, _) => {
                refused().unwrap_or(GoalState::Open)
            }
            (Self::Expanded { bytes }, Stage::Ready) => {
                let is_large = volume.capacity_bytes.is_some_and(|capacity| capacity >= *bytes);
                judge_expansion(storage, is_large, refused)
            }
            (Self::Modified(parameters), Stage::Ready) => {
                let is_set = |(key, value)| storage.mutable_parameters.get(key) == Some(value);
                if is_under_way(storage, OperationKind::Modify) {
                    GoalState::Open
                } else if parameters.iter().all(is_set) {
                    GoalState::Reached
                } else {
                    refused().unwrap_or(GoalState::Open)
                }
            }
            (_, stage) => GoalState::Overtaken(stage),
        }
    }
}

fn judge_expansion(
    storage: &StorageStatus,
    is_large: bool,
    refused: impl FnOnce() -> Option<GoalState>,
) -> GoalState {
    let operation = storage.operation.as_ref().filter(|of| of.operation == OperationKind::Expand);
    match operation {
        None if is_large => GoalState::Reached,
        // A plugin that gave less than requested has a fault: there is nothing to wait for.
        None => refused().unwrap_or(GoalState::Reached),
        Some(operation) => match operation.waits_for {
            // Nothing is left to do before a node mounts it.
            Some(StorageWait::NextStaging) => GoalState::Reached,
            // The remaining nodes expand their file systems when they mount the volume.
            Some(_) if is_large && operation.nodes_left.is_empty() => GoalState::Reached,
            Some(waits_for) if is_large => GoalState::Blocked(waits_for),
            _ => GoalState::Open,
        },
    }
}

/// Whether the change waits until an operator has had the volume unmounted.
fn is_mounted(storage: &StorageStatus) -> bool {
    let operation = storage.operation.as_ref();
    operation.is_some_and(|of| of.waits_for == Some(StorageWait::Unmounted))
}

fn is_under_way(storage: &StorageStatus, kind: OperationKind) -> bool {
    storage.operation.as_ref().is_some_and(|operation| operation.operation == kind)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(storage: &Value, capacity: u64) -> VolumeStatus {
        serde_json::from_value(json!({
            "id": "data", "namespace": "default", "plugin": "p", "external_id": "x",
            "capabilities": [], "claims": [], "create_index": 40, "modify_index": 44,
            "capacity_bytes": capacity, "storage": storage,
            "health": {"healthy": true, "description": "", "nodes": {"healthy": 1, "expected": 1}},
        }))
        .unwrap()
    }

    fn operation(kind: &str, more: &Value) -> Value {
        let mut operation = json!({"operation": kind, "since": "2026-11-21T20:00:00.000Z",
            "call": "controller.x"});
        operation.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        operation
    }

    fn failure(kind: &str) -> Value {
        json!({"operation": kind, "at": "2026-11-21T20:00:00.000Z", "error": "no"})
    }

    fn judge(goal: &StorageGoal, storage: &Value) -> GoalState {
        goal.judge(&volume(storage, 20), 44)
    }

    #[test]
    fn a_creation_ends_as_ready_as_failed_or_with_its_first_use() {
        let of = |storage: &Value| judge(&StorageGoal::Created, storage);
        let creating = json!({"stage": "creating", "operation": operation("create", &json!({}))});
        assert_eq!(of(&creating), GoalState::Open);
        assert_eq!(of(&json!({"stage": "ready"})), GoalState::Reached);
        assert_eq!(of(&json!({"stage": "unused"})), GoalState::Reached);
        let failed = json!({"stage": "failed", "failure": failure("create")});
        assert_eq!(of(&failed), GoalState::Refused("no".to_owned()));
        let deleting = json!({"stage": "deleting"});
        assert_eq!(of(&deleting), GoalState::Overtaken(Stage::Deleting));
    }

    #[test]
    fn a_status_from_before_the_request_says_nothing() {
        let failed = volume(&json!({"stage": "ready", "failure": failure("expand")}), 10);
        let goal = StorageGoal::Expanded { bytes: 20 };
        assert_eq!(goal.judge(&failed, 45), GoalState::Open);
        assert_eq!(goal.judge(&failed, 44), GoalState::Refused("no".to_owned()));
    }

    #[test]
    fn a_deletion_that_was_refused_leaves_the_volume_ready() {
        let goal = StorageGoal::Deleted { create_index: 40 };
        let refused = json!({"stage": "ready", "failure": failure("delete")});
        assert_eq!(judge(&goal, &refused), GoalState::Refused("no".to_owned()));
        let other = json!({"stage": "ready", "failure": failure("expand")});
        assert_eq!(judge(&goal, &other), GoalState::Open);
        let of_old = StorageGoal::Deleted { create_index: 39 };
        assert_eq!(judge(&of_old, &other), GoalState::Reached, "another volume has the id");
    }

    #[test]
    fn an_expansion_ends_where_only_a_mount_or_a_person_can_go_on() {
        let goal = StorageGoal::Expanded { bytes: 20 };
        let with = |more: Value| {
            let operation = operation("expand", &more);
            judge(&goal, &json!({"stage": "ready", "operation": operation}))
        };
        assert_eq!(with(json!({"nodes_left": ["n1"]})), GoalState::Open);
        assert_eq!(with(json!({"waits_for": "next-staging"})), GoalState::Reached);
        let refused = with(json!({"waits_for": "staged-again", "nodes_left": ["n1"]}));
        assert_eq!(refused, GoalState::Blocked(StorageWait::StagedAgain));
        assert_eq!(judge(&goal, &json!({"stage": "ready"})), GoalState::Reached);
        let larger = StorageGoal::Expanded { bytes: 21 };
        let when_free = json!({"stage": "ready",
            "operation": operation("expand", &json!({"waits_for": "volume-free"}))});
        assert_eq!(judge(&larger, &when_free), GoalState::Open);
    }

    #[test]
    fn a_modification_is_done_when_the_parameters_are_set() {
        let goal = StorageGoal::Modified([("iops".to_owned(), "6000".to_owned())].into());
        let set = json!({"stage": "ready", "mutable_parameters": {"iops": "6000"}});
        assert_eq!(judge(&goal, &set), GoalState::Reached);
        let again = json!({"stage": "ready", "mutable_parameters": {"iops": "6000"},
            "operation": operation("modify", &json!({}))});
        assert_eq!(judge(&goal, &again), GoalState::Open);
        let refused = json!({"stage": "ready", "failure": failure("modify")});
        assert_eq!(judge(&goal, &refused), GoalState::Refused("no".to_owned()));
    }
}
