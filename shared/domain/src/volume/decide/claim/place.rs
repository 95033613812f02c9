//! Keeping a place in line: rule 13.
//!
//! **Owns** when the time of a place is written again.
//!
//! **Never** changes who is ahead of whom: a claim keeps its epoch for as long as it waits.

use crate::AllocId;
use crate::volume::{Claim, Context, Refusal, State, Step, Take, Volume, Write};

impl Volume {
    /// The write that keeps the place in line of a caller that is there. None while the alloc is
    /// not in line, or more than half of the place's time is left.
    pub fn renew_place(&self, alloc: &AllocId, context: &Context) -> Option<Write> {
        let own = self.claims.get(alloc).filter(|own| own.state == State::Waiting)?;
        renewed(own, context).map(|claim| Write::PutClaim(alloc.clone(), claim))
    }

    /// Whether this write of the volume only keeps a place in line, and may be left to
    /// [`renew_place`](Self::renew_place): more than a quarter of the place's time is left. The
    /// request of a claim with less was not open when places were renewed.
    pub fn is_early_renewal(&self, write: &Write, context: &Context) -> bool {
        let Write::PutClaim(alloc, claim) = write else { return false };
        let waits = |claim: &Claim| claim.state == State::Waiting;
        let soon = context.now.after(context.policy.place_kept / 4);
        let is_kept = |own: &Claim| own.place_until.is_some_and(|until| until > soon);
        waits(claim) && self.claims.get(alloc).is_some_and(|own| waits(own) && is_kept(own))
    }
}

/// Keeps the place in line of a caller that asks again (B11), or begins it.
pub(super) fn keep_place(own: &Claim, take: &Take, context: &Context) -> Step {
    match renewed(own, context) {
        Some(claim) => Step::put(&take.alloc, claim, None),
        None => Step::nothing(),
    }
}

/// Keeps the place in line if the refusal may pass by itself.
pub(super) fn keep_place_unless_final(
    refusal: Refusal,
    own: &Claim,
    take: &Take,
    context: &Context,
) -> Result<Step, Refusal> {
    let passes = matches!(refusal, Refusal::Busy { .. }) || refusal.may_pass();
    let kept = keep_place(own, take, context);
    if passes && kept.write.is_some() { Ok(kept) } else { Err(refusal) }
}

/// The claim with a new time for its place. Only when half of the time is used up: thousands may be
/// in line.
fn renewed(own: &Claim, context: &Context) -> Option<Claim> {
    let kept = context.policy.place_kept;
    if own.place_until.is_some_and(|until| until.since(context.now) > kept / 2) {
        return None;
    }
    Some(Claim { place_until: Some(context.now.after(kept)), ..own.clone() })
}
