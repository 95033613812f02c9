//! Recovering a claim whose record was lost, so that it is released as any other.
//!
//! **Why.** A mount that no claim covers is attached to its node by the storage. When an operator
//! has it unmounted, the attachment has to end before another node is granted the volume, and only
//! a claim makes the controller end it.
//!
//! **Promises** that the claim is recorded in release, with the ids that the node's journal has: by
//! the next step the node is asked, as for any claim. Neither a registration nor the alloc's record
//! is needed, and claims in line stay behind it.
//!
//! **Never** records it beside claims that hold the volume in a way that excludes it, or beside
//! claims of another volume that has the name now: claims of one name share what a node attached.

use super::take::{check_external_id, new_claim, route_like_neighbours};
use crate::access::{Conflict, admit};
use crate::volume::storage::Stage;
use crate::volume::{Claim, Context, LostClaim, Refusal, State, Step, Volume};

const REASON: &str = "recorded again, to be released, after its record was lost";

/// Records the claim in release.
pub(in crate::volume) fn recover(
    volume: &Volume,
    lost: &LostClaim,
    context: &Context,
) -> Result<Step, Refusal> {
    let unready =
        volume.spec.as_ref().filter(|it| !matches!(it.stage(), Stage::Ready | Stage::Deleting));
    if let Some(spec) = unready {
        return Err(Refusal::not_ready(spec));
    }
    let holders = || volume.holders();
    let is_of_other = |claim: &Claim| claim.is_of_other_than(Some(&lost.handle));
    if holders().any(|(_, claim)| is_of_other(claim)) {
        let of_others = holders().filter(|(_, claim)| is_of_other(claim));
        return Err(Refusal::OtherVolumesClaims { holders: of_others.collect() });
    }
    match volume.claims.get(&lost.alloc) {
        None | Some(Claim { state: State::Waiting, .. }) => {}
        Some(own) if own.node != lost.node => {
            return Err(Refusal::ClaimDiffers { node: own.node.clone(), mode: own.mode });
        }
        Some(own) if matches!(own.state, State::Unpublishing | State::NodeDetached) => {
            return Ok(Step::nothing());
        }
        // It was taken again meanwhile, and covers the mount.
        Some(own) => {
            let holders = [(&lost.alloc, own)].into_iter().collect();
            return Err(Refusal::Held { conflict: Conflict::OneClaim, holders });
        }
    }
    let (asked, node) = (lost.capability, &lost.node);
    let in_use = holders().map(|(_, claim)| claim.capability()).find(|used| *used != asked);
    if let Some(in_use) = in_use {
        return Err(Refusal::AccessInUse { asked, in_use, holders: holders().collect() });
    }
    let held_by = holders().map(|(_, claim)| (&claim.node, claim.mode));
    admit(asked.access, lost.mode, &node, held_by)
        .map_err(|conflict| Refusal::Held { conflict, holders: holders().collect() })?;
    let route = lost.route.as_ref().map_err(|why| Refusal::from(why.clone()))?;
    let route = route_like_neighbours(volume, node, route);
    check_external_id(volume, node, &route)?;
    let claim = new_claim(State::Unpublishing, (node, lost.mode), asked, &route, context);
    let claim = Claim { reason: Some(REASON.to_owned()), ..claim.of_volume(Some(&lost.handle)) };
    Ok(Step::put(&lost.alloc, claim, None))
}
