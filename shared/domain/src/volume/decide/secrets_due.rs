//! Where a volume's secrets are needed now (A9).
//!
//! **Owns** which calls take secrets, and which of them: staging and publishing on a node, and the
//! controller's calls. Unpublishing and unstaging take none in CSI.
//!
//! **Promises** that a node is due only secrets of calls which, by the record, can be made there.

use std::collections::BTreeSet;
use std::fmt;

use crate::volume::record::Calls;
use crate::volume::{CallKind, Policy, Volume, VolumeSpec};
use crate::{NodeId, SecretsId, Timestamp};

/// A call that may have secrets of its own. A secret `create/password` goes to `CreateVolume` only,
/// as `password`. A secret without a call in its name goes to all calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretCall {
    /// `CreateVolume`.
    Create,
    /// `DeleteVolume`.
    Delete,
    /// `ControllerPublishVolume`, `ControllerUnpublishVolume` and `NodePublishVolume`.
    Publish,
    /// `NodeStageVolume`.
    Stage,
    /// `ControllerExpandVolume` and `NodeExpandVolume`.
    Expand,
    /// `ControllerModifyVolume`.
    Modify,
    /// Calls that cut or delete snapshots and groups.
    Snapshot,
}

impl SecretCall {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Create,
        Self::Delete,
        Self::Publish,
        Self::Stage,
        Self::Expand,
        Self::Modify,
        Self::Snapshot,
    ];

    /// The calls that a node makes to mount a volume and to expand it there.
    const OF_NODE: [Self; 3] = [Self::Stage, Self::Publish, Self::Expand];

    /// The part before `/` in a secret's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Publish => "publish",
            Self::Stage => "stage",
            Self::Expand => "expand",
            Self::Modify => "modify",
            Self::Snapshot => "snapshot",
        }
    }
}

impl fmt::Display for SecretCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl CallKind {
    /// Which secrets the call takes; none if CSI gives it none.
    pub const fn secrets(self) -> Option<SecretCall> {
        Some(match self {
            Self::ControllerPublish | Self::ControllerUnpublish => SecretCall::Publish,
            Self::VolumeCreate => SecretCall::Create,
            Self::VolumeDelete => SecretCall::Delete,
            Self::VolumeExpand | Self::NodeExpand => SecretCall::Expand,
            Self::VolumeModify => SecretCall::Modify,
            Self::SnapshotCreate | Self::SnapshotDelete | Self::GroupCreate | Self::GroupDelete => {
                SecretCall::Snapshot
            }
            Self::NodeDetach => return None,
        })
    }
}

impl Volume {
    /// The calls that are due at the node and take secrets, each with the secrets that it takes.
    ///
    /// - The node mounts on a grant only, and a grant is given for a claim that is taken (rule 10).
    /// - A controller call is on the record before it is sent (rule 2), and nothing starts after
    ///   its deadline (rule 3). `hosts_controller` says whether the node may get such a call. A
    ///   call of the storage that is sent to one node's controller is due at that node alone.
    pub fn secrets_due(
        &self,
        node: &NodeId,
        hosts_controller: bool,
        now: Timestamp,
        policy: &Policy,
    ) -> BTreeSet<(Option<&SecretsId>, SecretCall)> {
        let own = self.spec.as_ref().and_then(|spec| spec.secrets.as_ref());
        let mut due = BTreeSet::new();
        if self.claims.taken_on(node).next().is_some() {
            due.extend(SecretCall::OF_NODE.map(|call| (own, call)));
        }
        if !hosts_controller {
            return due;
        }
        if self.live(Calls::Controller, now, policy).is_some() {
            due.insert((own, SecretCall::Publish));
        }
        let operation = self.spec.as_ref().and_then(VolumeSpec::operation);
        let operation = operation.map(|operation| (own, &operation.progress));
        let snapshots =
            self.snapshots.values().map(|snapshot| (snapshot.secrets.as_ref(), &snapshot.progress));
        let calls = operation.into_iter().chain(snapshots).filter_map(|(secrets, progress)| {
            let attempt = progress.calls.attempt.as_ref()?;
            let acts =
                attempt.call.is_controller() && attempt.may_still_act(now, policy.clock_margin);
            let is_sent_here = progress.executor.as_ref().is_none_or(|executor| executor == node);
            Some((secrets, attempt.call.secrets().filter(|_| acts && is_sent_here)?))
        });
        due.extend(calls);
        due
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::volume::{Claim, State};

    const MARGIN_MS: u64 = 2_000;
    const DEADLINE_MS: u64 = 60_000;

    /// A volume with one claim of node `n1`.
    fn volume(state: State, call: Option<&str>) -> Volume {
        let mut claim = json!({
            "state": state, "node": "n1", "mode": "write", "since": "1970-01-01T00:00:00.000Z",
            "access": "single-node-writer", "attachment": "file-system", "controller": true,
        });
        if let Some(call) = call {
            let deadline = Timestamp::from_unix_ms(DEADLINE_MS);
            claim["attempt"] =
                json!({"id": "t1", "call": call, "worker": "w", "deadline": deadline});
        }
        let claim: Claim = serde_json::from_value(claim).unwrap();
        let claims = [("a".parse().unwrap(), claim)].into();
        Volume { claims, ..Volume::default() }
    }

    /// What these nodes are due: the claim's node, a host of a controller, any other node.
    fn due(volume: &Volume, now_ms: u64) -> [Vec<SecretCall>; 3] {
        let policy = Policy {
            clock_margin: std::time::Duration::from_millis(MARGIN_MS),
            ..Policy::default()
        };
        let now = Timestamp::from_unix_ms(now_ms);
        [("n1", false), ("n2", true), ("n3", false)].map(|(node, hosts)| {
            let due = volume.secrets_due(&NodeId::new(node).unwrap(), hosts, now, &policy);
            due.into_iter().map(|(_, call)| call).collect()
        })
    }

    #[test]
    fn secrets_are_due_where_a_call_that_takes_them_can_be_made() {
        let (publish, detach) = (Some("controller.publish"), Some("agent.detach"));
        let unpublish = Some("controller.unpublish");
        let (none, at_host) = ([[].as_slice(); 3], [&[][..], &[SecretCall::Publish], &[]]);
        let on_n1 = [&[SecretCall::Publish, SecretCall::Stage, SecretCall::Expand][..], &[], &[]];
        for (state, call, expected) in [
            (State::Waiting, None, none),
            (State::Publishing, None, none),
            (State::Publishing, publish, at_host),
            (State::Taken, None, on_n1),
            (State::Unpublishing, None, none),
            (State::Unpublishing, detach, none),
            (State::NodeDetached, None, none),
            (State::NodeDetached, unpublish, at_host),
        ] {
            assert_eq!(due(&volume(state, call), 1), expected, "{state} {call:?}");
        }
        assert_eq!(due(&Volume::default(), 1), none);
    }

    #[test]
    fn a_controller_is_due_nothing_after_the_calls_deadline() {
        let volume = volume(State::Publishing, Some("controller.publish"));
        let at = DEADLINE_MS + MARGIN_MS;
        assert_eq!(due(&volume, at)[1], [SecretCall::Publish]);
        assert_eq!(due(&volume, at + 1)[1], []);
    }

    /// The volume's secrets are not those of a snapshot that was cut before they changed.
    #[test]
    fn a_call_is_due_its_own_secrets_and_no_others() {
        let at = "1970-01-01T00:00:00.000Z";
        let progress = |call: &str| {
            let deadline = Timestamp::from_unix_ms(DEADLINE_MS);
            json!({"attempt": {"id": "t1", "call": call, "worker": "w", "deadline": deadline}})
        };
        let expansion = json!({
            "work": {"expand": {"required_bytes": 1}}, "since": at,
            "progress": progress("controller.expand"),
        });
        let spec = json!({
            "plugin": "p", "capabilities": [], "secrets": "new",
            "storage": {"stage": "ready", "since": at, "operation": expansion},
        });
        let snapshot = json!({
            "state": "deleting", "since": at, "name": "s", "plugin": "p", "source": "e",
            "secrets": "old", "progress": progress("controller.snapshot-delete"),
        });
        let volume = Volume {
            spec: Some(serde_json::from_value(spec).unwrap()),
            snapshots: serde_json::from_value(json!({"s": snapshot})).unwrap(),
            ..Volume::default()
        };
        let now = Timestamp::from_unix_ms(1);
        let host = NodeId::new("n2").unwrap();
        let due = volume.secrets_due(&host, true, now, &Policy::default());
        let due: Vec<_> = due.iter().map(|(id, call)| (id.unwrap().as_str(), *call)).collect();
        assert_eq!(due, [("new", SecretCall::Expand), ("old", SecretCall::Snapshot)]);
    }

    /// Another host of the plugin may have a storage of its own, and other people's volumes.
    #[test]
    fn a_call_that_one_controller_gets_is_due_nothing_at_the_others() {
        let at = "1970-01-01T00:00:00.000Z";
        let deadline = Timestamp::from_unix_ms(DEADLINE_MS);
        let attempt =
            json!({"id": "t1", "call": "controller.create", "worker": "w", "deadline": deadline});
        let creation = |executor: Option<&str>| {
            let progress = json!({"attempt": attempt, "executor": executor});
            let operation = json!({"work": {"create": {}}, "since": at, "progress": progress});
            let spec = json!({
                "plugin": "p", "capabilities": [], "secrets": "s",
                "storage": {"stage": "creating", "since": at, "operation": operation},
            });
            Volume { spec: Some(serde_json::from_value(spec).unwrap()), ..Volume::default() }
        };
        let now = Timestamp::from_unix_ms(1);
        let host = NodeId::new("n2").unwrap();
        for (executor, expected) in [(None, 1), (Some("n2"), 1), (Some("n3"), 0)] {
            let volume = creation(executor);
            let due = volume.secrets_due(&host, true, now, &Policy::default());
            assert_eq!(due.len(), expected, "{executor:?}");
        }
    }
}
