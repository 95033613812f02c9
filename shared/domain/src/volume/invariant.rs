//! Invariants of a volume record. The property tests and the model check them after each step. They
//! look at each claim, and rely on no count.

use std::collections::{BTreeMap, BTreeSet};

use super::{CallKind, Claim, State, Volume};
use crate::NodeId;
use crate::access::{Bound, Mode};

/// The first invariant that the volume breaks, in words.
pub fn broken(volume: &Volume) -> Option<String> {
    if !volume.claims.is_summed() {
        return Some("its claims are not what they are counted as".to_owned());
    }
    if volume.spec.is_none() && !volume.claims.is_empty() {
        return Some("there are claims on a volume that is not registered".to_owned());
    }
    let unsound = volume.claims.iter().find_map(|(alloc, claim)| Some((alloc, unsound(claim)?)));
    if let Some((alloc, what)) = unsound {
        return Some(format!("the claim of {alloc} {what}"));
    }
    too_many(volume).or_else(|| attached_unlike(volume))
}

/// Rule 8: while claims hold a volume, a plugin's id belongs to one node, and a node has one id, if
/// the controller attaches the volume for any of these claims. [`broken`] does not check this,
/// because older versions admitted such claims: `step` has to end them safely.
pub fn ids_broken(volume: &Volume) -> Option<String> {
    let holders = || volume.holders();
    holders().filter(|(_, claim)| claim.controller).find_map(|(alloc, claim)| {
        let external = claim.external_node.as_deref()?;
        let is_unlike = |other: &Claim| {
            let held_as = other.external_node.as_deref();
            let same_id = held_as == Some(external);
            held_as.is_some()
                && same_id != (other.node == claim.node)
                && (same_id || other.node == claim.node)
        };
        holders().any(|(_, other)| is_unlike(other)).then(|| {
            format!(
                "the claim of {alloc} is attached to {external:?}, which is not its node's alone"
            )
        })
    })
}

/// What is wrong with one claim by itself.
fn unsound(claim: &Claim) -> Option<&'static str> {
    let call = claim.attempt.as_ref().map(|attempt| attempt.call);
    let fits = match claim.state {
        State::Waiting | State::Taken => call.is_none(),
        State::Publishing => matches!(call, None | Some(CallKind::ControllerPublish)),
        State::Unpublishing => matches!(call, None | Some(CallKind::NodeDetach)),
        State::NodeDetached => call != Some(CallKind::NodeDetach),
    };
    if !fits {
        return Some("has an attempt that its state cannot have");
    }
    if claim.exhausted && claim.state != State::Publishing {
        return Some("has no room at the plugin and is not being published");
    }
    let leaves = matches!(claim.state, State::Unpublishing | State::NodeDetached);
    if claim.denied && !leaves {
        return Some("was not taken down by the plugin, which is not asked yet");
    }
    if claim.unstaged_by.is_some() && !leaves {
        return Some("has a person's word that nothing is left, and does not leave its node");
    }
    if claim.proof.is_some() && claim.state != State::NodeDetached {
        return Some("left its node by a proof and is not detached from it");
    }
    if claim.place_until.is_some() && claim.state != State::Waiting {
        return Some("has a place in line and is not in line");
    }
    match claim.state {
        State::Waiting if claim.controller || !claim.publish_context.is_empty() => {
            Some("is in line and holds something")
        }
        State::Publishing | State::NodeDetached if !claim.controller => {
            Some("is between node and controller, and needs none")
        }
        _ => None,
    }
}

/// Safety rules 1 and 2: no more claims, nodes and writers than the access mode allows, and one
/// access mode at a time.
fn too_many(volume: &Volume) -> Option<String> {
    let in_use = volume.holders().next().map(|(_, claim)| claim.capability())?;
    let other = volume.holders().find(|(_, claim)| claim.capability() != in_use);
    if let Some((alloc, _)) = other {
        return Some(format!("the claim of {alloc} is of another capability than the rest"));
    }
    let claims = volume.holders().count();
    let nodes: BTreeSet<&NodeId> = volume.holders().map(|(_, claim)| &claim.node).collect();
    let writers = volume.holders().filter(|(_, claim)| claim.mode == Mode::Write).count();
    let sharing = in_use.access.sharing();
    let exceeds = |count: usize, bound: Bound| match bound {
        Bound::None => count > 0,
        Bound::One => count > 1,
        Bound::Many => false,
    };
    let table = [
        ("claims", claims, sharing.claims),
        ("nodes", nodes.len(), sharing.nodes),
        ("writers", writers, sharing.writers),
    ];
    let (what, count, _) = table.into_iter().find(|(_, count, bound)| exceeds(*count, *bound))?;
    Some(format!("{count} {what} hold the volume, more than {} allows", in_use.access))
}

/// Safety rule 3: on one node either all claims are attached by the controller or none is; and all
/// attachments are read-only or none is.
fn attached_unlike(volume: &Volume) -> Option<String> {
    let mut on_node: BTreeMap<&NodeId, (bool, bool)> = BTreeMap::new();
    volume.holders().find_map(|(alloc, claim)| {
        let attached = (claim.controller, claim.access.attaches_read_only(claim.mode));
        let first = *on_node.entry(&claim.node).or_insert(attached);
        (first != attached).then(|| {
            format!("the claim of {alloc} is attached otherwise than its neighbours on its node")
        })
    })
}
