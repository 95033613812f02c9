//! Where a volume's secrets are needed now (A9).
//!
//! **Owns** which calls take secrets: staging and publishing on a node, and the controller's calls.
//! Unpublishing and unstaging take none in CSI.
//!
//! **Promises** that by a record alone a node is due nothing when no such call can be made there.

use super::{Policy, Volume};
use crate::{NodeId, Timestamp};

impl Volume {
    /// Whether a call that takes the volume's secrets is due at the node.
    ///
    /// - The node mounts on a grant only, and a grant is given for a claim that is taken (rule 10).
    /// - A controller call is on the record before it is sent (rule 2), and nothing starts after
    ///   its deadline (rule 3). `hosts_controller` says whether the node may get such a call.
    pub fn owes_secrets_to(
        &self,
        node: &NodeId,
        hosts_controller: bool,
        now: Timestamp,
        policy: &Policy,
    ) -> bool {
        let mounts = self.claims.taken_on(node).next().is_some();
        mounts || (hosts_controller && self.controller_busy(now, policy).is_some())
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

    /// Which of these nodes are due: the claim's node, a host of a controller, any other node.
    fn due(volume: &Volume, now_ms: u64) -> [bool; 3] {
        let policy = Policy {
            clock_margin: std::time::Duration::from_millis(MARGIN_MS),
            ..Policy::default()
        };
        let now = Timestamp::from_unix_ms(now_ms);
        [("n1", false), ("n2", true), ("n3", false)].map(|(node, hosts)| {
            volume.owes_secrets_to(&NodeId::new(node).unwrap(), hosts, now, &policy)
        })
    }

    #[test]
    fn secrets_are_due_where_a_call_that_takes_them_can_be_made() {
        let (publish, detach) = (Some("controller.publish"), Some("agent.detach"));
        let unpublish = Some("controller.unpublish");
        for (state, call, expected) in [
            (State::Waiting, None, [false, false, false]),
            (State::Publishing, None, [false, false, false]),
            (State::Publishing, publish, [false, true, false]),
            (State::Taken, None, [true, false, false]),
            (State::Unpublishing, None, [false, false, false]),
            (State::Unpublishing, detach, [false, false, false]),
            (State::NodeDetached, None, [false, false, false]),
            (State::NodeDetached, unpublish, [false, true, false]),
        ] {
            assert_eq!(due(&volume(state, call), 1), expected, "{state} {call:?}");
        }
        assert_eq!(due(&Volume::default(), 1), [false; 3]);
    }

    #[test]
    fn a_controller_is_due_nothing_after_the_calls_deadline() {
        let volume = volume(State::Publishing, Some("controller.publish"));
        assert_eq!(due(&volume, DEADLINE_MS + MARGIN_MS), [false, true, false]);
        assert_eq!(due(&volume, DEADLINE_MS + MARGIN_MS + 1), [false; 3]);
    }
}
