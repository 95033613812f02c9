//! `volume.deregister` (A5), and the deregistration of a closing volume once nothing uses it.

use berth_contract::code::Code;
use berth_contract::message::volume::{Deregister, Deregistered};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::volume::{Claims, Command, Refusal, Volume, VolumeSpec, Write};
use berth_domain::{AllocId, Namespace, SecretsId, VolumeKey};

use crate::caller::Caller;
use crate::storage;
use crate::store::mount_lookup;
use crate::store::secrets;
use crate::store::state::State;
use crate::store::transact::{Committed, TransactError};

/// How many claims and mounts an answer names. There may be thousands, and several volumes.
const NAMED_MAX: usize = 16;

/// Deregisters a volume. By force it closes if it is in use, and is deregistered once it is not.
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
    state.check_readable(&volume).map_err(|error| state.problem(error, &volume))?;
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
        Ok(Command::Deregister { force: request.force, reason: reason.to_owned() })
    };
    let mounts = mount_lookup::current_mounts(state, &volume);
    let is_removed = match state.transact_until(&volume, trace, deadline, command).await {
        Ok(done) => remove_secrets(state, &volume, &done, secrets.as_ref(), trace).await,
        // The caller forces the volume away, and it is away already.
        Err(TransactError::Refused(Refusal::NoSuchVolume)) if request.force => true,
        Err(error) => return Err(state.problem(error, &volume)),
    };
    let (claims, releasing): (usize, Vec<AllocId>) = state.volumes.mirror.read(|volumes| {
        let claims = volumes.get(&volume).map(|subtree| &subtree.volume.claims);
        let named = |claims: &Claims| claims.keys().take(NAMED_MAX).cloned().collect();
        claims.map(|claims| (claims.len(), named(claims))).unwrap_or_default()
    });
    let gone = is_removed && claims == 0;
    let mut mounts = if is_removed { Vec::new() } else { mounts };
    mounts.truncate(NAMED_MAX);
    Ok(Deregistered { id: request.id, gone, claims, releasing, mounts })
}

/// Deregisters a closing volume once its last claim is gone. If this fails, or the volume may be
/// mounted still, gc does it later.
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
        Some(VolumeSpec { closing: Some(closing), .. }) => {
            Ok(Command::Deregister { force: false, reason: closing.reason.clone() })
        }
        _ => Err(Problem::new(Code::NotDue, "the volume is not closing")),
    };
    let done = match state.catch_up_with_nodes().await {
        Ok(()) => state.transact(volume, trace, command).await,
        Err(error) => Err(error),
    };
    match done {
        Ok(done) => {
            remove_secrets(state, volume, &done, secrets.as_ref(), trace).await;
        }
        Err(error) => {
            let trace = trace.trace_id();
            tracing::warn!(%volume, trace, %error, "a closing volume was left to the collector");
        }
    }
}

/// Removes the secrets of a volume if it was deregistered, and says whether it was.
async fn remove_secrets(
    state: &State,
    volume: &VolumeKey,
    done: &Committed,
    secrets: Option<&SecretsId>,
    trace: TraceContext,
) -> bool {
    let is_removed = matches!(done.step.write, Some(Write::DeleteSpec));
    if is_removed {
        storage::remove_secrets(state, volume, secrets, trace).await;
    }
    is_removed
}
