//! What must hold of every volume record, whatever happened: checked after each step by the
//! property tests and the model, and by a service before it writes (a defect must not reach the
//! bucket).

use super::{State, Volume};
use crate::access::{Mode, admit};

/// The first rule a volume breaks, in words; none for a sound one.
pub fn broken(volume: &Volume) -> Option<String> {
    let holders: Vec<_> = volume.holders().collect();
    for (at, (alloc, claim)) in holders.iter().enumerate() {
        // Safety rules 1 and 2, as the access table says them: each holder could join the others.
        let others = holders
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .map(|(_, (_, other))| (&other.node, other.mode));
        if let Err(conflict) = admit(claim.access, claim.mode, &&claim.node, others) {
            return Some(format!("the claim of {alloc} should not be: {conflict}"));
        }
        if holders.iter().any(|(_, other)| other.capability() != claim.capability()) {
            return Some(format!("the claim of {alloc} is of another capability than the rest"));
        }
    }
    for (alloc, claim) in &volume.claims {
        let attempt = claim.attempt.as_ref();
        let sound = match claim.state {
            State::Waiting | State::Taken => attempt.is_none(),
            State::Publishing => {
                claim.controller && attempt.is_none_or(|attempt| attempt.call.is_controller())
            }
            State::Unpublishing => attempt.is_none_or(|attempt| !attempt.call.is_controller()),
            State::NodeDetached => attempt.is_none_or(|attempt| attempt.call.is_controller()),
        };
        if !sound {
            return Some(format!("the claim of {alloc} has an attempt its state cannot have"));
        }
    }
    if volume.spec.is_none() && !volume.claims.is_empty() {
        return Some("there are claims on a volume that is not registered".to_owned());
    }
    let writers = holders.iter().filter(|(_, claim)| claim.mode == Mode::Write).count();
    let one_writer = holders
        .first()
        .is_some_and(|(_, claim)| claim.access.sharing().writers == crate::access::Bound::One);
    (one_writer && writers > 1).then(|| format!("{writers} writers hold a single-writer volume"))
}
