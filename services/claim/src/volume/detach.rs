//! `volume.detach`: an operator has a volume released from a node (C6).
//!
//! **Promises**
//!
//! - The operator needs no alloc's id, and neither the alloc's record nor the node's has to exist.
//! - The node's claims of the volume are released by the same steps as any claim. The reply names
//!   the state of each claim and what the operator has to do.
//! - The request may be repeated; the reply then shows the present state of the release.
//!
//! **Never** releases a claim of an alloc that may be live: then nothing is written. A node that
//! does not answer proves nothing: only a [proof](crate::claim::proof) replaces its answer. An
//! operator's confirmation replaces the answer of a plugin that returned an error (rules 16, 18).

mod plan;

use std::time::Duration;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::message::agent::{self};
use berth_contract::message::volume::{Detach, Detached};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::plugin::UnaccountedMount;
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::volume::{CallKind, Claim, Command, Refusal, State as ClaimState};
use berth_domain::{AllocId, Namespace, NodeId, VolumeKey, limits};
use berth_explain::{Cause, Facts, Finding};
use berth_service::clock;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::claim::locate;
use crate::read;
use crate::store::mounts;
use crate::store::refuse;
use crate::store::state::State;
use crate::store::transact::TransactError;
use crate::volume::deregister;
use crate::volume::running;
use plan::Plan;

/// How long the node's agent may take to list its mounts.
const AGENT_TIMEOUT: Duration = Duration::from_secs(3);
/// The hint for an operator whose confirmation (rule 16) came too early.
const TOO_EARLY: &str = "that the storage has it detached counts once the controller has answered \
    with an error, or is gone: until then it may be at a call that attaches it again. Say it again \
    later; if the plugin does not answer, restart it first";
/// The hint for an operator whose confirmation (rule 18) came too early.
const TOO_EARLY_ON_NODE: &str = "that nothing of the volume is left on the node counts once the \
    plugin there has answered with an error and the node's agent has found nothing mounted: see \
    the last error, and say it again later";

/// Releases the node's claims of the volume, or names the allocs that still run with it.
pub async fn detach(
    state: &State,
    namespace: &Namespace,
    request: Detach,
    caller: &Caller,
) -> Result<Detached, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.id.clone());
    let with_volume_and_node = |problem: Problem| problem.volume(&volume).node(&request.node);
    let fail = |error: TransactError| with_volume_and_node(state.problem(error, &volume));
    state.catch_up(&volume).await.map_err(fail)?;
    state.check_readable(&volume).map_err(fail)?;
    for alloc in locate::claims_without_node(state, &volume) {
        locate::store_missing_node(state, &volume, &alloc, trace)
            .await
            .map_err(with_volume_and_node)?;
    }
    let no_volume =
        || with_volume_and_node(Problem::new(Code::NoSuchVolume, format!("no volume {volume}")));
    let activities = running::claim_activities(state, &volume, &request.node, trace)
        .await
        .map_err(with_volume_and_node)?;
    let due = match plan::plan(activities.ok_or_else(no_volume)?) {
        Plan::Release(due) => due,
        Plan::Refuse(allocs) => {
            return Err(with_volume_and_node(refuse_running(
                state,
                &volume,
                &request.node,
                allocs,
            )));
        }
    };
    let reason = match request.reason.as_str() {
        "" => "detached by hand",
        reason => reason,
    };
    for (alloc, epoch) in due {
        let release = Command::Release { alloc, epoch: Some(epoch), reason: reason.to_owned() };
        match state.transact_until(&volume, trace, deadline, |_| Ok(release.clone())).await {
            // A claim that is gone by now is released.
            Ok(_) | Err(TransactError::Refused(Refusal::NoSuchClaim(_))) => {}
            Err(error) => return Err(fail(error)),
        }
    }
    let mut too_early = None;
    for confirm in confirmations(state, &volume, &request) {
        match state.transact_until(&volume, trace, deadline, |_| Ok(confirm.clone())).await {
            Ok(_) | Err(TransactError::Refused(Refusal::NoSuchClaim(_))) => {}
            Err(TransactError::Refused(Refusal::NotDue { .. })) => {
                let on_node =
                    matches!(confirm, Command::Confirm { call: CallKind::NodeDetach, .. });
                too_early = Some(if on_node { TOO_EARLY_ON_NODE } else { TOO_EARLY });
            }
            Err(error) => return Err(fail(error)),
        }
    }
    deregister::finish_closing(state, &volume, trace).await;
    let mut detached = release_progress(state, &volume, request.node.clone());
    if detached.gone {
        let mounts = unaccounted_mounts(state, &volume, &request.node, trace, deadline).await;
        state.catch_up_surely(&volume, trace).await.map_err(fail)?;
        // A claim may have been created since, and a mount may belong to it.
        detached = release_progress(state, &volume, request.node);
        match mounts {
            _ if !detached.gone => {}
            Ok(mounts) if mounts.is_empty() => {}
            Ok(mounts) => {
                detached.gone = false;
                detached.hint = Some(hint::unmount(&volume, &detached.node));
                detached.unaccounted = mounts;
            }
            Err(why) => {
                detached.gone = false;
                detached.hint = Some(why);
            }
        }
    }
    if let Some(why) = too_early.filter(|_| !detached.gone) {
        detached.hint.get_or_insert_with(|| why.to_owned());
    }
    Ok(detached)
}

/// The node's mounts of a volume that has no claim there, from its agent, otherwise from the
/// agent's last report; or why they are unknown. An unknown node has none, nor has one that was
/// declared gone.
async fn unaccounted_mounts(
    state: &State,
    volume: &VolumeKey,
    node: &NodeId,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Vec<String>, String> {
    let handle = state
        .volumes
        .mirror
        .read(|volumes| mounts::handle_of(volume, &volumes.get(volume)?.volume));
    let reported = state.nodes.mirror.read(|nodes| {
        let is_gone = nodes.get(node).is_some_and(|record| record.gone.is_some());
        let is_unknown = nodes.get(node).is_none() && !nodes.unreadable().contains_key(node);
        let mounts = nodes.unaccounted_of(volume, handle.as_ref());
        let mounts = mounts.filter(|(mount_node, _)| *mount_node == node);
        let mounts: Vec<String> = mounts.map(|(_, mount)| mount.to_string()).collect();
        (!is_gone && !is_unknown).then_some(mounts)
    });
    let Some(reported) = reported else { return Ok(Vec::new()) };
    let within = AGENT_TIMEOUT.min(deadline.saturating_duration_since(Instant::now()) / 2);
    let call = Call::within(trace, within);
    let everything = verb::NodeAndNamespace::any_of(node.clone());
    let reply =
        state.bus.ask_service::<verb::AgentStatus>(&everything, &agent::AgentQuery {}, &call).await;
    let status = match reply {
        Ok(status) => status,
        Err(_) if !reported.is_empty() => return Ok(reported),
        Err(error) => {
            let why = berth_service::process::chain(&error);
            return Err(format!(
                "no claim of it is left there, but the agent of node {node} does not say whether \
                 it is mounted: {why}"
            ));
        }
    };
    let live_mounts = status.mounts.into_iter().filter(|mount| mount.mounted || mount.staged);
    let mounts = live_mounts.map(|mount| UnaccountedMount {
        namespace: mount.namespace,
        volume: mount.volume,
        alloc: mount.alloc,
        path: if mount.mounted { mount.path } else { mount.staging.unwrap_or_default() },
        plugin: mount.plugin,
        external_id: mount.external_id,
        used: None,
    });
    // If the volume's registration was lost, only its name is known.
    let is_of = |mount: &UnaccountedMount| match &handle {
        Some(handle) => mount.may_be_of(volume, Some(handle)),
        None => mount.is_named(volume),
    };
    let mounts = mounts.filter(is_of).take(limits::LIST_MAX);
    Ok(mounts.map(|mount| mount.to_string()).collect())
}

fn refuse_running(
    state: &State,
    volume: &VolumeKey,
    node: &NodeId,
    allocs: Vec<AllocId>,
) -> Problem {
    let refused = refuse::to_problem(volume, &Refusal::StillRunning { allocs });
    let next = match kept_by_node(state, node).and_then(|finding| finding.hint()) {
        Some(hint) => format!("{}; {hint}", refused.next),
        None => return refused,
    };
    refused.next(next)
}

/// What keeps the node's agent from reporting that the volume is unmounted, from the node's record.
fn kept_by_node(state: &State, node: &NodeId) -> Option<Finding> {
    let record = state.nodes.mirror.read(|nodes| read::read_node(nodes, node, Vec::new()));
    let facts = Facts { now: clock::now(), ..Facts::default() };
    berth_explain::keeps_unmount(&facts, node, &record)
}

/// The operator's confirmations, one for each claim that they apply to: for the controller if the
/// claim has left the node, for the node's plugin if the node has yet to unmount the volume.
fn confirmations(state: &State, volume: &VolumeKey, request: &Detach) -> Vec<Command> {
    let confirmation = |by: &String| Proof {
        kind: ProofKind::Confirmed,
        by: by.clone(),
        at: clock::now(),
        note: request.reason.clone(),
    };
    let at_storage = request.confirmed_by.as_ref().map(confirmation);
    let on_node = request.unstaged_by.as_ref().map(confirmation);
    let confirm = |alloc: &AllocId, claim: &Claim| {
        let (call, confirmation) = match claim.state {
            ClaimState::NodeDetached => (CallKind::ControllerUnpublish, at_storage.clone()?),
            ClaimState::Unpublishing => (CallKind::NodeDetach, on_node.clone()?),
            ClaimState::Waiting | ClaimState::Publishing | ClaimState::Taken => return None,
        };
        Some(Command::Confirm { alloc: alloc.clone(), epoch: claim.epoch, call, confirmation })
    };
    state.volumes.mirror.read(|volumes| {
        let claims = volumes.get(volume).into_iter().flat_map(|subtree| subtree.volume.holders());
        let on_node = claims.filter(|(_, claim)| claim.node == request.node);
        on_node.filter_map(|(alloc, claim)| confirm(alloc, claim)).collect()
    })
}

/// The claims that still hold the volume on the node, and the hint.
fn release_progress(state: &State, volume: &VolumeKey, node: NodeId) -> Detached {
    let (remaining, claims, on_node) = state.volumes.mirror.read(|volumes| {
        let Some(subtree) = volumes.get(volume) else { return Default::default() };
        let holding = subtree.volume.holders().filter(|(_, claim)| claim.node == node);
        let holding: Vec<(&AllocId, ClaimState)> =
            holding.map(|(alloc, claim)| (alloc, claim.state)).collect();
        let first = &holding[..holding.len().min(limits::LIST_MAX)];
        let allocs = first.iter().map(|(alloc, _)| *alloc);
        let on_node = holding.iter().any(|(_, state)| *state == ClaimState::Unpublishing);
        (holding.len(), read::show_claims(state, volumes, volume, subtree, allocs), on_node)
    });
    let kept_mounted = kept_by_node(state, &node);
    let hint = match remaining {
        // So that the operator notices a typing error.
        0 => kept_mounted
            .filter(|finding| finding.cause == Cause::NodeUnknown)
            .map(|finding| finding.sentence),
        _ => kept_mounted.filter(|_| on_node).and_then(|finding| finding.hint()),
    };
    let (id, unaccounted) = (volume.volume.clone(), Vec::new());
    Detached { id, node, gone: remaining == 0, left: remaining, claims, hint, unaccounted }
}
