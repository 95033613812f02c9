//! Volumes at their storage: they are created, deleted, expanded and modified.
//!
//! **Owns** how a request becomes a command: the class, the secrets, the name for the plugin, and
//! what the plugin must be able to do.
//!
//! **Promises**
//!
//! - A request is answered after it is stored. The volumewatcher makes the calls, whether the
//!   caller waits or not ([`work`](crate::work)).
//! - A request that the plugin cannot serve is refused before anything is stored, and the refusal
//!   names the missing ability.
//! - A repeated request changes nothing.

mod ability;
mod call;
mod capacity;
mod class;
mod create;
mod cursor;
mod external;
mod group;
mod listing;
mod registered;
mod rooms;
mod snapshot;
mod snapshot_id;

pub use capacity::list_capacities;
pub use class::{delete_class, list_classes, put_class};
pub use create::create;
pub use group::{GroupCommitted, check_members, members_of, transact_members};
pub use listing::list_externals;
pub use rooms::ask_when_due;
pub use snapshot::{adopt_snapshot, create_snapshots, delete_snapshots, list_snapshots};
pub use snapshot_id::check_ids;

use berth_contract::code::Code;
use berth_contract::message::storage::{DeleteVolume, Expand, Modify, StorageChanged};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::size::Size;
use berth_domain::volume::{Command, Volume, VolumeSpec, Write};
use berth_domain::{Namespace, PluginId, VolumeKey};

use crate::alloc::made::check_made_volume;
use crate::caller::Caller;
use crate::read::show_storage;
use crate::store::secrets;
use crate::store::state::State;
use crate::store::transact::{Committed, TransactError};
use ability::{Ability, ExpansionWay};

/// `volume.delete`: deletes the volume at its storage (rules 20 and 21).
pub async fn delete(
    state: &State,
    namespace: &Namespace,
    request: DeleteVolume,
    caller: &Caller,
) -> Result<StorageChanged, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.id.clone());
    let secrets = secrets::current_secrets(state, &volume);
    state.catch_up_with_nodes().await.map_err(|error| state.problem(error, &volume))?;
    let command = |now: &Volume| {
        let Some(spec) = &now.spec else { return Ok(delete_command(&request)) };
        if let Some(meant) = request.create_index.filter(|meant| *meant != spec.create_index) {
            let registered = spec.create_index;
            let message = format!("it was made again at {registered}, and {meant} was meant");
            return Err(Problem::new(Code::NoSuchVolume, message));
        }
        check_made_volume(caller.actor.as_ref(), spec)?;
        // A volume that was never created needs no plugin.
        if may_be_at_storage(spec) {
            state.require(&spec.plugin, Ability::CreateDeleteVolume)?;
        }
        Ok(delete_command(&request))
    };
    match state.transact_until(&volume, trace, deadline, command).await {
        Ok(done) => {
            if matches!(done.step.write, Some(Write::DeleteSpec)) {
                remove_secrets(state, &volume, secrets.as_ref(), trace).await;
            }
            Ok(changed(state, &volume, &done))
        }
        Err(error) => {
            let next = match &error {
                TransactError::Refused(refusal) => {
                    berth_explain::next_of_deletion(&volume, refusal)
                }
                _ => None,
            };
            let problem = state.problem(error, &volume);
            Err(match next {
                Some(next) => problem.next(next),
                None => problem,
            })
        }
    }
}

fn delete_command(request: &DeleteVolume) -> Command {
    let reason = match request.reason.as_str() {
        "" => "its deletion was requested",
        reason => reason,
    };
    Command::Delete { reason: reason.to_owned() }
}

fn may_be_at_storage(spec: &VolumeSpec) -> bool {
    spec.provision().is_none() || spec.external_id.is_some()
}

/// Removes the secrets of a volume that is gone, unless a snapshot of it needs them. If this fails,
/// the sweep does it.
pub async fn remove_secrets(
    state: &State,
    volume: &VolumeKey,
    id: Option<&berth_domain::SecretsId>,
    trace: TraceContext,
) {
    let Some(id) = id else { return };
    if !secrets::is_named(state, volume, id) {
        state.vault.remove(volume, id, trace).await;
    }
}

/// `volume.expand` (rule 22).
pub async fn expand(
    state: &State,
    namespace: &Namespace,
    request: Expand,
    caller: &Caller,
) -> Result<StorageChanged, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.id.clone());
    let command = |now: &Volume| {
        let way = match &now.spec {
            Some(spec) => state.require_expansion(&spec.plugin)?,
            None => ExpansionWay::default(),
        };
        Ok(Command::Expand {
            required_bytes: request.size.bytes(),
            limit_bytes: request.limit.map(Size::bytes),
            offline: way.offline,
            node_only: way.node_only,
            when_free: request.when_free,
        })
    };
    let done = state.transact_until(&volume, trace, deadline, command).await;
    let done = done.map_err(|error| state.problem(error, &volume))?;
    Ok(changed(state, &volume, &done))
}

/// `volume.modify`.
pub async fn modify(
    state: &State,
    namespace: &Namespace,
    request: Modify,
    caller: &Caller,
) -> Result<StorageChanged, Problem> {
    let (trace, deadline) = (caller.trace, caller.deadline);
    let volume = VolumeKey::new(namespace.clone(), request.id.clone());
    let command = |now: &Volume| {
        if let Some(spec) = &now.spec {
            state.require(&spec.plugin, Ability::ModifyVolume)?;
        }
        Ok(Command::Modify { parameters: request.parameters.clone() })
    };
    let done = state.transact_until(&volume, trace, deadline, command).await;
    let done = done.map_err(|error| state.problem(error, &volume))?;
    Ok(changed(state, &volume, &done))
}

/// The answer to a request that changed a volume at its storage, or found it changed already.
fn changed(state: &State, volume: &VolumeKey, done: &Committed) -> StorageChanged {
    let gone = matches!(done.step.write, Some(Write::DeleteSpec));
    let storage = (!gone).then(|| {
        state.volumes.mirror.read(|volumes| {
            let now = &volumes.get(volume)?.volume;
            Some(show_storage(now, now.spec.as_ref()?))
        })
    });
    StorageChanged {
        id: volume.volume.clone(),
        namespace: volume.namespace.clone(),
        changed: done.step.write.is_some(),
        gone,
        index: done.revision,
        storage: storage.flatten(),
        secrets: None,
    }
}

/// Names the plugin in the problem of a request whose volume is not stored yet.
fn of_plugin(
    error: TransactError,
    state: &State,
    volume: &VolumeKey,
    plugin: &PluginId,
) -> Problem {
    let problem = state.problem(error, volume);
    match problem.plugin {
        Some(_) => problem,
        None => problem.plugin(plugin),
    }
}
