//! The node's report of a claim is stored with it. No decision depends on it.

use crate::volume::{Claim, NodeMount, Refusal, State, Step, Volume};
use crate::{AllocId, NodeId};

/// Stores a report of `node` with the granted claim that it describes. `None` is a sender that may
/// report for any node.
pub(in crate::volume) fn observe(
    volume: &Volume,
    alloc: &AllocId,
    epoch: u64,
    mount: &NodeMount,
    node: Option<&NodeId>,
) -> Result<Step, Refusal> {
    let claim = volume
        .claims
        .get(alloc)
        .filter(|claim| claim.epoch == epoch && claim.state == State::Taken)
        .filter(|claim| node.is_none_or(|node| claim.node == *node))
        .ok_or_else(|| Refusal::NoSuchClaim(alloc.clone()))?;
    if claim.mount.as_ref() == Some(mount) {
        return Ok(Step::nothing());
    }
    Ok(Step::put(alloc, Claim { mount: Some(mount.clone()), ..claim.clone() }, None))
}
