//! Invariants of a volume record. The property tests and the model check them after each step. They
//! look at each claim, and rely on no count.

use std::collections::{BTreeMap, BTreeSet};

use super::storage::{Snapshot, SnapshotState, Stage, StorageProgress, Work};
use super::{CallKind, CallOwner, Claim, Policy, State, Volume};
use crate::access::{Bound, Mode};
use crate::{NodeId, Timestamp};

/// The first invariant that the volume breaks, in words.
pub fn broken(volume: &Volume) -> Option<String> {
    if !volume.claims.is_summed() {
        return Some("its claims are not what they are counted as".to_owned());
    }
    if volume.spec.is_none() && !volume.claims.values().all(is_recovered) {
        return Some("there are claims on a volume that is not registered".to_owned());
    }
    let unsound = volume.claims.iter().find_map(|(alloc, claim)| Some((alloc, unsound(claim)?)));
    if let Some((alloc, what)) = unsound {
        return Some(format!("the claim of {alloc} {what}"));
    }
    too_many(volume).or_else(|| attached_unlike(volume)).or_else(|| unsound_storage(volume))
}

/// Rule 3: two calls on the record that may act now, one beside the other. Two calls of different
/// nodes may.
pub fn overlapping_calls(volume: &Volume, now: Timestamp, policy: &Policy) -> Option<String> {
    let of_claims = volume.claims.iter().map(|(alloc, claim)| {
        (CallOwner::Claim(alloc.clone()), claim.progress.attempt.as_ref(), Some(&claim.node))
    });
    let operation = volume.spec.as_ref().and_then(|spec| spec.operation());
    let of_operation = operation.map(|operation| {
        let node = match &operation.work {
            Work::Expand(expansion) => expansion.node.as_ref(),
            Work::Create { .. } | Work::Delete { .. } | Work::Modify { .. } => None,
        };
        (CallOwner::Volume, operation.progress.calls.attempt.as_ref(), node)
    });
    let of_snapshots = volume.snapshots.iter().map(|(id, snapshot)| {
        (CallOwner::Snapshot(id.clone()), snapshot.progress.calls.attempt.as_ref(), None)
    });
    let live = of_claims.chain(of_operation).chain(of_snapshots).filter_map(|(owner, call, on)| {
        let call = call.filter(|attempt| attempt.may_still_act(now, policy.clock_margin))?.call;
        Some((owner, call, on.filter(|_| !call.is_controller())))
    });
    let live: Vec<_> = live.collect();
    let pairs = live
        .iter()
        .enumerate()
        .flat_map(|(at, one)| live.iter().take(at).map(move |other| (other, one)));
    let apart = |on: Option<&NodeId>, other: Option<&NodeId>| {
        on.zip(other).is_some_and(|(on, other)| on != other)
    };
    let mut overlapping = pairs.filter(|((_, _, on), (_, _, other))| !apart(*on, *other));
    let ((owner, call, _), (other, beside, _)) = overlapping.next()?;
    Some(format!("{beside} of {other} may act beside {call} of {owner}"))
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

/// Whether the claim may have been recovered: it needs no registration, because it is being
/// released and says of which volume it is.
fn is_recovered(claim: &Claim) -> bool {
    let leaves = matches!(claim.state, State::Unpublishing | State::NodeDetached);
    leaves && claim.handle().is_some()
}

/// What is wrong with one claim by itself.
fn unsound(claim: &Claim) -> Option<&'static str> {
    let call = claim.progress.attempt.as_ref().map(|attempt| attempt.call);
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

/// Rules 19 to 24: the record keeps what may be at the storage. A volume is not used before it is
/// ready.
fn unsound_storage(volume: &Volume) -> Option<String> {
    if let Some(spec) = &volume.spec {
        let stage = spec.stage();
        let is_used = match stage {
            Stage::Ready => false,
            Stage::Deleting => !volume.claims.values().all(is_recovered),
            Stage::Unused | Stage::Creating | Stage::Failed => !volume.claims.is_empty(),
        };
        if is_used {
            return Some(format!("there are claims on a volume that is {stage}"));
        }
        if let Some(operation) = spec.operation() {
            let is_created = spec.external_id.is_some() || spec.provision().is_none();
            let creates = matches!(operation.work, Work::Create { .. });
            if creates == is_created {
                return Some(format!(
                    "{} is under way of a volume that is {stage}",
                    operation.kind()
                ));
            }
            let call = operation.progress.calls.attempt.as_ref().map(|attempt| attempt.call);
            if call.is_some_and(|call| !may_call(&operation.work, call)) {
                return Some(format!("{} has an attempt that it cannot have", operation.kind()));
            }
            if let Some(what) = unsound_progress(&operation.progress) {
                return Some(format!("{} {what}", operation.kind()));
            }
        }
    }
    volume
        .snapshots
        .iter()
        .find_map(|(id, snapshot)| Some(format!("snapshot {id} {}", unsound_snapshot(snapshot)?)))
}

/// Whether an operation may have a call on its record. A deletion, and a larger expansion, replace
/// what is under way, and keep its call until that may no longer act.
fn may_call(work: &Work, call: CallKind) -> bool {
    use CallKind::{NodeExpand, VolumeCreate, VolumeDelete, VolumeExpand, VolumeModify};
    match work {
        Work::Create { .. } => call == VolumeCreate,
        Work::Modify { .. } => call == VolumeModify,
        Work::Delete { .. } => {
            matches!(call, VolumeDelete | VolumeExpand | NodeExpand | VolumeModify)
        }
        Work::Expand(expansion) => match call {
            NodeExpand => expansion.node.is_some(),
            _ => call == VolumeExpand && !expansion.at_nodes,
        },
    }
}

/// Rule 4 asks after calls that did not succeed by the number of tries.
fn unsound_progress(progress: &StorageProgress) -> Option<&'static str> {
    let is_forgotten = progress.uncertain && progress.calls.tries == 0;
    is_forgotten.then_some("is uncertain, and no call of it failed")
}

fn unsound_snapshot(snapshot: &Snapshot) -> Option<&'static str> {
    use CallKind::{GroupCreate, GroupDelete, SnapshotCreate, SnapshotDelete};
    use SnapshotState::{Creating, Cut, Deleting, Failed, Ready};
    let state = snapshot.state;
    let (create, delete) = match snapshot.group {
        None => (SnapshotCreate, SnapshotDelete),
        Some(_) => (GroupCreate, GroupDelete),
    };
    let call = snapshot.progress.calls.attempt.as_ref().map(|attempt| attempt.call);
    let fits = call.is_none_or(|call| match state {
        Creating | Cut => call == create,
        // A snapshot that is deleted while it is polled keeps that call.
        Deleting => call == create || call == delete,
        Ready | Failed => false,
    });
    if !fits {
        return Some("has an attempt that its state cannot have");
    }
    if matches!(state, Ready | Failed) && snapshot.progress.calls.is_unsettled() {
        return Some("is at rest, and a call of it may be under way");
    }
    let of_wrong_group =
        snapshot.group.as_ref().filter(|_| snapshot.foreign && snapshot.external_id.is_none());
    if of_wrong_group.is_none()
        && snapshot.external_id.is_some() != matches!(state, Cut | Ready | Deleting)
    {
        return Some("has an id at the plugin before it was cut, or none afterwards");
    }
    if snapshot.doomed && state != Creating {
        return Some("is to be deleted as soon as it is cut, and is not being cut");
    }
    if snapshot.second_id.is_some()
        && (!matches!(state, Cut | Deleting) || snapshot.group.is_some())
    {
        return Some("has a second id at the plugin, and was not asked for by its name");
    }
    if snapshot.foreign && !matches!(state, Cut | Deleting) {
        return Some("is of another volume, and is used");
    }
    if of_wrong_group.is_some_and(|group| group.external_id.is_none()) {
        return Some("is of a group that is wrong, and cannot be deleted without the group's id");
    }
    if of_wrong_group.is_none()
        && snapshot.group.as_ref().is_some_and(|group| !group.snapshots.is_empty())
    {
        return Some("has the ids of a group that is wrong, and is not of one");
    }
    if snapshot.was_ready && state != Deleting {
        return Some("was ready before its deletion, and is not being deleted");
    }
    unsound_progress(&snapshot.progress)
}
