//! The decision of `volume.detach`, from facts that were read before; pure.

use berth_domain::AllocId;
use berth_domain::volume::State;

use crate::volume::running::ClaimActivity;

/// What a detach does with the node's claims.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing is released, because these allocs run with the volume.
    Refuse(Vec<AllocId>),
    /// These claims are released, each only if it still has this epoch.
    Release(Vec<(AllocId, u64)>),
}

/// Releases all claims of the node or none.
pub fn plan(activities: Vec<ClaimActivity>) -> Plan {
    let running = activities.iter().filter(|claim| claim.runs());
    let running: Vec<AllocId> = running.map(|claim| claim.alloc.clone()).collect();
    if !running.is_empty() {
        return Plan::Refuse(running);
    }
    let due = activities.into_iter().filter(|claim| match claim.state {
        // A claim in line holds nothing on the node, and a waiting workload may go on waiting.
        State::Waiting => !claim.lives,
        State::Publishing | State::Taken => true,
        // It is being released already.
        State::Unpublishing | State::NodeDetached => false,
    });
    Plan::Release(due.map(|claim| (claim.alloc, claim.epoch)).collect())
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
        let activities = STATES.map(|state| claim(state.as_str(), state, false));
        assert_eq!(plan(activities.into()), release(&["waiting", "publishing", "taken"]));
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
}
