//! `volume.deregister` (A5), and the deregistration of a closing volume after its last claim.

use berth_contract::code::Code;
use berth_contract::message::volume::{Deregister, Deregistered};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::volume::{Claim, Command, Refusal, Volume, VolumeSpec, Write};
use berth_domain::{AllocId, Namespace, SecretsId, VolumeKey};

use crate::caller::Caller;
use crate::storage;
use crate::store::mount_lookup;
use crate::store::secrets;
use crate::store::state::State;
use crate::store::transact::{Committed, TransactError};
use crate::volume::running::{self, ClaimActivity};

/// Deregisters a volume. By force, the volume closes and is deregistered after its last claim.
pub async fn deregister(
    state: &State,
    namespace: &Namespace,
    request: Deregister,
    caller: &Caller,
) -> Result<Deregistered, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.id.clone());
    let reason = match request.reason.as_str() {
        "" if request.force => "deregistered by force",
        reason => reason,
    };
    let with_volume = |problem: Problem| problem.volume(&volume);
    state.check_readable(&volume).map_err(|error| state.problem(error, &volume))?;
    let activities = running::claim_activities(state, &volume, None, trace)
        .await
        .map_err(with_volume)?
        .unwrap_or_default();
    let secrets = secrets::current_secrets(state, &volume);
    let caught_up = state.catch_up_with_nodes().await;
    caught_up.map_err(|error| state.problem(error, &volume))?;
    let command = |now: &Volume| {
        let registered = now.spec.as_ref().map(|spec| spec.create_index);
        if let (Some(meant), Some(registered)) = (request.create_index, registered)
            && meant != registered
        {
            let message = format!("it was registered anew at {registered}, and {meant} was meant");
            return Err(Problem::new(Code::NoSuchVolume, message));
        }
        let runs = |(alloc, claim): &(&AllocId, &Claim)| {
            let activity = activities
                .iter()
                .find(|activity| activity.alloc == **alloc && activity.epoch == claim.epoch);
            // A claim that was created since belongs to a live alloc.
            activity.is_none_or(ClaimActivity::runs)
        };
        let running = now.claims.iter().filter(runs).map(|(alloc, _)| alloc.clone()).collect();
        let reason = reason.to_owned();
        Ok(Command::Deregister { force: request.force, reason, running })
    };
    let mounts = mount_lookup::current_mounts(state, &volume);
    match state.transact_until(&volume, trace, deadline, command).await {
        Ok(done) => remove_secrets(state, &volume, &done, secrets.as_ref(), trace).await,
        // The caller forces the volume away, and it is away already.
        Err(TransactError::Refused(Refusal::NoSuchVolume)) if request.force => {}
        Err(error) => return Err(state.problem(error, &volume)),
    }
    let releasing: Vec<AllocId> = state.volumes.mirror.read(|volumes| {
        let claims = volumes.get(&volume).map(|subtree| &subtree.volume.claims);
        claims.map(|claims| claims.keys().cloned().collect()).unwrap_or_default()
    });
    Ok(Deregistered { id: request.id, gone: releasing.is_empty(), releasing, mounts })
}

/// Deregisters a closing volume once its last claim is gone. If this fails, gc does it later.
pub async fn finish_closing(state: &State, volume: &VolumeKey, trace: TraceContext) {
    let due = state.volumes.mirror.read(|volumes| {
        let now = volumes.get(volume).map(|subtree| &subtree.volume);
        now.is_some_and(|now| {
            now.claims.is_empty() && now.spec.as_ref().is_some_and(|spec| spec.closing.is_some())
        })
    });
    if !due {
        return;
    }
    let secrets = secrets::current_secrets(state, volume);
    let command = |now: &Volume| match &now.spec {
        Some(VolumeSpec { closing: Some(closing), .. }) => Ok(Command::Deregister {
            force: true,
            reason: closing.reason.clone(),
            running: Vec::new(),
        }),
        _ => Err(Problem::new(Code::NotDue, "the volume is not closing")),
    };
    match state.transact(volume, trace, command).await {
        Ok(done) => remove_secrets(state, volume, &done, secrets.as_ref(), trace).await,
        Err(error) => {
            let trace = trace.trace_id();
            tracing::warn!(%volume, trace, %error, "a closing volume was left to the collector");
        }
    }
}

/// Removes the secrets of a volume that was deregistered.
async fn remove_secrets(
    state: &State,
    volume: &VolumeKey,
    done: &Committed,
    secrets: Option<&SecretsId>,
    trace: TraceContext,
) {
    if let Some(Write::DeleteSpec) = &done.step.write {
        storage::remove_secrets(state, volume, secrets, trace).await;
    }
}
