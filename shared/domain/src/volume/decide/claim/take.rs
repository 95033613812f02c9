//! Taking a claim: rules 7, 8, 10 and 13.

use super::place::{keep_place, keep_place_unless_final};
use crate::access::{Bound, Capability, Conflict, Mode, admit};
use crate::volume::record::Newcomer;
use crate::volume::storage::{Operation, Stage};
use crate::volume::{
    CallKind, CallOwner, Claim, Claims, Context, Holder, Refusal, Route, State, Step, Take, Volume,
    VolumeSpec,
};
use crate::{AllocId, NodeId, limits};

/// Grants a claim, reserves it, puts it in line, or says why not.
pub(in crate::volume) fn take(
    volume: &Volume,
    take: &Take,
    context: &Context,
) -> Result<Step, Refusal> {
    let spec = volume.spec.as_ref().ok_or(Refusal::NoSuchVolume)?;
    // Neither registration is granted, not even its own claim again: the guard covers the claims of
    // one registration only.
    context.check_registered_once()?;
    match volume.claims.get(&take.alloc) {
        None => take_new(volume, spec, take, None, context),
        Some(own) if own.node != take.node || (own.is_wanted() && take.differs_from(own)) => {
            Err(Refusal::claim_differs(own))
        }
        // The name was another volume's when the claim was granted.
        Some(own) if own.is_held() && own.is_of_other_than(context.handle.own.as_ref()) => {
            Err(volume.other_volumes_claims(context))
        }
        Some(own) => match own.state {
            State::Waiting => take_new(volume, spec, take, Some(own), context)
                .or_else(|refusal| keep_place_unless_final(refusal, own, take, context)),
            State::Publishing => publish_again(volume, own, take, context),
            // A retry gets the same claim with the same publish context (B4).
            State::Taken => Ok(Step::nothing()),
            State::Unpublishing | State::NodeDetached => Err(Refusal::releasing(own)),
        },
    }
}

/// Decides for an alloc that has no claim, or a waiting one. Each of these can refuse, in this
/// order:
///
/// 1. claims that hold the volume, and claims or an expansion ahead in line;
/// 2. the route: the node, or the plugin on it;
/// 3. any call that may still act: where the controller attaches, each call for the volume;
///    elsewhere, an expansion that the plugin makes only while the volume is not in use (rule 22).
pub(super) fn take_new(
    volume: &Volume,
    spec: &VolumeSpec,
    take: &Take,
    in_line: Option<&Claim>,
    context: &Context,
) -> Result<Step, Refusal> {
    spec.check_open()?;
    let capability = choose_capability(spec, take)?;
    if take.mode == Mode::Write && capability.access.sharing().writers == Bound::None {
        return Err(Refusal::NoWriters { asked: capability });
    }
    if let Some(step) = first_use(spec, take, context)? {
        return Ok(step);
    }
    if in_line.is_none() {
        check_room(&volume.claims)?;
    }
    let expansion = volume.expansion_ahead(in_line);
    if expansion.is_some() || !is_admitted(volume, take, capability, in_line) {
        match in_line {
            Some(own) => return Ok(keep_place(own, take, context)),
            None if take.wait => {
                let (at, route) = ((&take.node, take.mode), Route::default());
                let claim = new_claim(State::Waiting, at, capability, &route, context);
                return Ok(keep_place(&claim, take, context));
            }
            // The slower check names the claims that conflict.
            None => {
                admitted_by_each(volume, take, capability, None)?;
                expansion.map_or(Ok(()), |expansion| Err(behind(volume, expansion, context)))?;
            }
        }
    }
    let route = take.route.as_ref().map_err(|why| Refusal::from(why.clone()))?;
    // A claim that was in line keeps its ticket.
    let epoch = in_line.map_or(0, |own| own.epoch);
    let route = route_like_neighbours(volume, &take.node, route);
    check_external_id(volume, &take.node, &route)?;
    let claim = new_claim(State::Taken, (&take.node, take.mode), capability, &route, context);
    let mut claim = Claim { epoch, ..claim };
    if let Some(busy) = volume.expands_offline(context.now, &context.policy) {
        return Err(busy.refusal(None));
    }
    if !claim.controller {
        // Nothing is attached to this node, so no controller call can detach it. The node's agent
        // keeps the node calls of different allocs apart (rule 11).
        return Ok(Step::put(&take.alloc, claim, None));
    }
    if let Some(busy) = volume.busy(context.now, &context.policy) {
        return Err(busy.refusal(None));
    }
    // Rule 8: the volume is published on this node already, and no pending call can undo that.
    let beside = volume.claims.taken_on(&take.node).find(|other| other.controller);
    if let Some(beside) = beside {
        claim.publish_context.clone_from(&beside.publish_context);
        return Ok(Step::put(&take.alloc, claim, None));
    }
    let attempt = context.new_attempt(CallKind::ControllerPublish, &take.worker);
    claim.state = State::Publishing;
    claim.progress.attempt = Some(attempt.clone());
    Ok(Step::put(&take.alloc, claim, Some(attempt)))
}

/// The refusal of a claim behind an expansion: for as long as other claims hold the volume, or for
/// the call, which is about to be made.
fn behind(volume: &Volume, expansion: &Operation, context: &Context) -> Refusal {
    if volume.holders().next().is_some() {
        return Refusal::under_way(expansion);
    }
    let (owner, call) = (CallOwner::Volume, expansion.call());
    let until = context.now.after(context.policy.call_timeout);
    Refusal::Busy { owner, call, until, failure: None }
}

/// Refuses more claims than a volume may have.
fn check_room(claims: &Claims) -> Result<(), Refusal> {
    if claims.len() >= limits::CLAIMS_MAX {
        return Err(Refusal::TooManyClaims(claims.len()));
    }
    Ok(())
}

/// Rule 24: no claim is granted before the volume is ready. The first claim of a volume that is
/// created at its first use says where; the claim itself comes afterwards.
fn first_use(spec: &VolumeSpec, take: &Take, context: &Context) -> Result<Option<Step>, Refusal> {
    match spec.stage() {
        Stage::Ready => Ok(None),
        Stage::Unused => {
            let route = take.route.as_ref().map_err(|why| Refusal::from(why.clone()))?;
            let refused = spec.provision().and_then(|asked| asked.refused_until(&route.topology));
            if let Some(until) = refused.filter(|until| *until > context.now) {
                let failure = spec.failure().map(|refused| Box::new(refused.failure.clone()));
                return Err(Refusal::PlaceRefused { until, failure });
            }
            Ok(Some(Step::put_spec(spec.created_at(&route.topology, context.now))))
        }
        Stage::Creating | Stage::Failed | Stage::Deleting => Err(Refusal::not_ready(spec)),
    }
}

/// Rules 7 and 13: whether the claim conflicts neither with claims that hold the volume, in any
/// state, nor with claims ahead of it in line. An alloc that is not in line yet is behind the whole
/// line. A7: while the plugin has no room for one claim, no other claim is published. A claim next
/// to a published one on the same node needs no room.
///
/// Decided from the summary, because a volume may have thousands of claims. [`admitted_by_each`]
/// decides the same from each claim.
fn is_admitted(
    volume: &Volume,
    take: &Take,
    capability: Capability,
    in_line: Option<&Claim>,
) -> bool {
    let claims = &volume.claims;
    let has_room = || {
        claims.taken_on(&take.node).next().is_some()
            || claims.exhausted().all(|(alloc, _)| *alloc == take.alloc)
    };
    let newcomer = Newcomer { node: &take.node, mode: take.mode, capability };
    let admitted = has_room() && claims.admit(&newcomer, in_line);
    debug_assert_eq!(admitted, admitted_by_each(volume, take, capability, in_line).is_ok());
    admitted
}

/// Decides as [`is_admitted`] does, claim by claim, and names the claims that conflict.
fn admitted_by_each(
    volume: &Volume,
    take: &Take,
    capability: Capability,
    in_line: Option<&Claim>,
) -> Result<(), Refusal> {
    let others = || volume.claims.iter().filter(|(alloc, _)| **alloc != take.alloc);
    let ahead = || {
        others().filter(|(_, claim)| {
            claim.state != State::Waiting || in_line.is_none_or(|own| claim.epoch < own.epoch)
        })
    };
    let in_use = ahead().map(|(_, claim)| claim.capability()).find(|used| *used != capability);
    if let Some(in_use) = in_use {
        return Err(Refusal::AccessInUse { asked: capability, in_use, holders: ahead().collect() });
    }
    let held_by = ahead().map(|(_, claim)| (&claim.node, claim.mode));
    admit(capability.access, take.mode, &&take.node, held_by).map_err(|conflict| {
        Refusal::Held { conflict, holders: conflicting(ahead(), take, conflict).collect() }
    })?;
    if others().any(|(_, claim)| claim.node == take.node && claim.state == State::Taken) {
        return Ok(());
    }
    let full = others().find(|(_, claim)| claim.exhausted);
    full.map_or(Ok(()), |(alloc, claim)| {
        Err(Refusal::Exhausted {
            holder: Holder::from_claim(alloc, claim),
            failure: claim.progress.failure.clone(),
            next_try: claim.progress.next_try,
        })
    })
}

fn conflicting<'a>(
    ahead: impl Iterator<Item = (&'a AllocId, &'a Claim)>,
    take: &Take,
    conflict: Conflict,
) -> impl Iterator<Item = (&'a AllocId, &'a Claim)> {
    ahead.filter(move |(_, claim)| match conflict {
        Conflict::OneClaim | Conflict::NoWriters => true,
        Conflict::OneNode => claim.node != take.node,
        Conflict::OneWriter => claim.mode == Mode::Write,
        Conflict::OneModePerNode => claim.node == take.node && claim.mode != take.mode,
    })
}

/// Rule 8: the storage attaches a volume to the plugin's id of a node. While claims hold the
/// volume, an id belongs to one node, and a node has one id. Otherwise the unpublish of one claim
/// would detach the volume from another claim (safety rule 3). Claims without an attachment do not
/// conflict.
pub(super) fn check_external_id(
    volume: &Volume,
    node: &NodeId,
    route: &Route,
) -> Result<(), Refusal> {
    let Some(external) = &route.external_node else { return Ok(()) };
    let Some((alloc, holder)) = volume.claims.attached_unlike(node, external, route.controller)
    else {
        return Ok(());
    };
    Err(Refusal::AttachedAs {
        node: node.clone(),
        external: external.clone(),
        held_as: holder.external_node.clone().unwrap_or_default(),
        holder: Holder::from_claim(alloc, holder),
    })
}

/// All claims of one node use the controller, or none does, even if the plugin reports a change
/// meanwhile. Otherwise the unpublish of one claim would detach the volume from another claim
/// (safety rule 3).
pub(super) fn route_like_neighbours(volume: &Volume, node: &NodeId, route: &Route) -> Route {
    let beside = volume.claims.on(node).filter(|beside| beside.is_held());
    let controller = beside.map_or(route.controller, |beside| beside.attached > 0);
    Route { controller, ..route.clone() }
}

/// Rule 6: after a failed publish, the claim is either published again or undone.
fn publish_again(
    volume: &Volume,
    own: &Claim,
    take: &Take,
    context: &Context,
) -> Result<Step, Refusal> {
    if let Some(busy) = volume.busy(context.now, &context.policy) {
        return Err(busy.refusal(own.progress.failure.clone()));
    }
    if let Some(next_try) = own.progress.next_try.filter(|next_try| *next_try > context.now) {
        return Err(Refusal::Busy {
            owner: CallOwner::Claim(take.alloc.clone()),
            call: CallKind::ControllerPublish,
            until: next_try,
            failure: own.progress.failure.clone(),
        });
    }
    if let Err(why) = &take.route {
        return Err(why.clone().into());
    }
    let attempt = context.new_attempt(CallKind::ControllerPublish, &take.worker);
    Ok(Step::put(&take.alloc, own.clone().attempting(&attempt), Some(attempt)))
}

/// The requested capability, or the volume's first.
fn choose_capability(spec: &VolumeSpec, take: &Take) -> Result<Capability, Refusal> {
    let (asked, offered) = (take.capability, &spec.capabilities);
    let refusal = || Refusal::CapabilityNotOffered { asked, offered: offered.to_value() };
    asked.first_of(offered).ok_or_else(refusal)
}

/// A claim that begins, for this node and in this mode.
pub(super) fn new_claim(
    state: State,
    (node, mode): (&NodeId, Mode),
    capability: Capability,
    route: &Route,
    context: &Context,
) -> Claim {
    Claim {
        controller: route.controller,
        external_node: route.external_node.clone(),
        ..Claim::new(state, node.clone(), mode, capability, context.now)
    }
    .of_volume(context.handle.own.as_ref())
}
