//! The decisions of `volume.detach`, from what was looked up before; pure.

use berth_domain::plugin::{Node, NodeState};
use berth_domain::volume::State;
use berth_domain::{AllocId, NodeId};

use crate::running::ClaimActivity;

/// What a detach does with the node's claims.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing is released, because these allocs run with the volume.
    Refuse(Vec<AllocId>),
    /// These claims are released, each only if it still has this epoch.
    Release(Vec<(AllocId, u64)>),
}

/// Releases all claims of the node or none.
pub fn plan(seen: Vec<ClaimActivity>) -> Plan {
    let running = seen.iter().filter(|claim| claim.runs());
    let running: Vec<AllocId> = running.map(|claim| claim.alloc.clone()).collect();
    if !running.is_empty() {
        return Plan::Refuse(running);
    }
    let due = seen.into_iter().filter(|claim| match claim.state {
        // A claim in line holds nothing on the node, and a waiting workload may go on waiting.
        State::Waiting => !claim.lives,
        State::Publishing | State::Taken => true,
        // It is being released already.
        State::Unpublishing | State::NodeDetached => false,
    });
    Plan::Release(due.map(|claim| (claim.alloc, claim.epoch)).collect())
}

/// The condition of a node by its record.
#[derive(Debug, PartialEq, Eq)]
pub enum NodeCondition {
    /// It has no record: no agent has reported it, or it left.
    Unknown,
    /// Its record cannot be read, for this reason.
    Unreadable(String),
    Down,
    /// It was declared gone.
    Gone,
    Ready,
}

impl NodeCondition {
    pub fn by_record(node: &Node) -> Self {
        match (&node.gone, node.state) {
            (Some(_), _) => Self::Gone,
            (None, NodeState::Down) => Self::Down,
            (None, NodeState::Ready) => Self::Ready,
        }
    }
}

/// What the operator has to do before the last claim can be released. `unmounting` is whether a
/// claim still waits for the node, and `off` is what to do when the host is off for good.
pub fn hint(
    node: &NodeId,
    condition: &NodeCondition,
    left: usize,
    unmounting: bool,
    off: &str,
) -> Option<String> {
    match condition {
        NodeCondition::Unknown if left == 0 => {
            Some(format!("nothing there holds the volume, and nobody knows a node {node}"))
        }
        NodeCondition::Unreadable(why) if unmounting => Some(format!(
            "{why}; only the agent of node {node} can say that the volume is unmounted there"
        )),
        NodeCondition::Unknown if unmounting => Some(format!(
            "nobody knows node {node}, and only its agent can say that the volume is unmounted \
             there: start it; {off}"
        )),
        NodeCondition::Down if unmounting => Some(format!(
            "the agent of node {node} is not there, and only it can say that the volume is \
             unmounted: start it; {off}"
        )),
        NodeCondition::Unknown
        | NodeCondition::Unreadable(_)
        | NodeCondition::Down
        | NodeCondition::Gone
        | NodeCondition::Ready => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 5] =
        [State::Waiting, State::Publishing, State::Taken, State::Unpublishing, State::NodeDetached];

    fn claim(alloc: &str, state: State, lives: bool) -> ClaimActivity {
        ClaimActivity { alloc: AllocId::new(alloc).unwrap(), epoch: 7, state, lives }
    }

    fn release(allocs: &[&str]) -> Plan {
        Plan::Release(allocs.iter().map(|id| (AllocId::new(*id).unwrap(), 7)).collect())
    }

    #[test]
    fn what_ended_goes_and_what_goes_already_is_left_to_it() {
        let seen = STATES.map(|state| claim(state.as_str(), state, false));
        assert_eq!(plan(seen.into()), release(&["waiting", "publishing", "taken"]));
        assert_eq!(plan(Vec::new()), release(&[]), "again, when nothing is left");
    }

    #[test]
    fn one_that_runs_keeps_all_of_the_node() {
        for state in STATES {
            let planned = plan(vec![claim("ended", State::Taken, false), claim("b", state, true)]);
            let expected = match state {
                State::Publishing | State::Taken => Plan::Refuse(vec![AllocId::new("b").unwrap()]),
                // Given up already, or not holding anything yet.
                _ => release(&["ended"]),
            };
            assert_eq!(planned, expected, "{state}");
        }
    }

    #[test]
    fn a_person_is_told_only_what_a_person_must_do() {
        let node = NodeId::new("n7").unwrap();
        for condition in [NodeCondition::Unknown, NodeCondition::Down] {
            let advice = hint(&node, &condition, 1, true, "OFF").unwrap();
            assert!(advice.ends_with("OFF"), "{advice}");
            assert_eq!(hint(&node, &condition, 1, false, ""), None, "the controller needs no node");
        }
        for condition in [NodeCondition::Gone, NodeCondition::Ready] {
            assert_eq!(hint(&node, &condition, 1, true, ""), None);
        }
        let advice = hint(&node, &NodeCondition::Unknown, 0, false, "").unwrap();
        assert!(advice.contains("nobody knows a node n7"), "a typing error is seen: {advice}");
        assert_eq!(hint(&node, &NodeCondition::Down, 0, false, ""), None);
    }
}
