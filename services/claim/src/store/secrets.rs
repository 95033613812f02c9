//! Volumes' secrets: registered with a volume, handed out for one plugin call (A9, safety rule 6).
//!
//! **Owns** which secrets a volume has. The volume's spec names the id of its secrets, and changed
//! secrets get another id. So a spec and its secrets change in one guarded write.
//!
//! **Promises** that secrets are only handed to the agent of a node where a call with them is due,
//! sealed for the key that this agent reported; and that secrets that no spec names are removed
//! (decision 0041).
//!
//! **Never** puts a secret into an error, a log line or an event.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::decode::Unknown;
use berth_contract::hint::volume_argument;
use berth_contract::key;
use berth_contract::message::secret::{Open, Sealed, Secrets, Validation};
use berth_contract::message::volume::GivenSecrets;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::limits::WAIT_MAX;
use berth_domain::plugin::{Half, Instance};
use berth_domain::volume::{SecretCall, Volume, VolumeSpec};
use berth_domain::{ClassId, NodeId, PluginId, SecretsId, VolumeKey};
use berth_service::seal::seal;
use berth_service::{clock, process};
use tokio::time::Instant;

use crate::store::state::State;
use crate::store::vault::unavailable;

/// Interval between two sweeps. Secrets are removed if two sweeps in a row find that no spec names
/// them. By then a registration under way has ended, however long its caller waits.
const SWEEP_INTERVAL: Duration = WAIT_MAX.saturating_mul(2);

/// What a registration changes in the volume's secrets.
#[derive(Debug)]
pub enum SecretsChange {
    /// The volume keeps its secrets.
    Kept,
    /// The volume has no secrets from now on.
    Removed,
    /// The request has the secrets that the volume had when they were compared.
    Same(SecretsId),
    /// New secrets. They are in the bucket, but no spec names them yet.
    New(SecretsId),
}

/// Opens and checks the secrets of a registration or creation, and stores them if they are new.
pub async fn prepare_secrets(
    state: &State,
    volume: &VolumeKey,
    given: Option<GivenSecrets>,
    trace: TraceContext,
) -> Result<SecretsChange, Problem> {
    let Some(given) = given else { return Ok(SecretsChange::Kept) };
    if let Some(class) = ClassId::from_secrets_key(volume) {
        let message = format!("a volume of this namespace has the secrets of class {class}");
        let next = "choose another namespace: this one is Berth's own";
        return Err(Problem::new(Code::BadInput, message).next(next));
    }
    let secrets = open_given(state, volume, given)?;
    if secrets.0.is_empty() {
        return Ok(SecretsChange::Removed);
    }
    // Repeated secrets change nothing (A4), unless they are sealed for an older key.
    if let Some(current) = current_secrets(state, volume)
        && state.vault.has(volume, &current, &secrets).await?
    {
        return Ok(SecretsChange::Same(current));
    }
    state.vault.store(volume, secrets, trace).await.map(SecretsChange::New)
}

/// The secrets of a request. Sealed ones are opened, and checked as the decoder checks plain ones.
pub fn open_given(state: &State, key: &VolumeKey, given: GivenSecrets) -> Result<Secrets, Problem> {
    match given {
        GivenSecrets::Plain(secrets) => Ok(secrets),
        GivenSecrets::Sealed(sealed) => check_opened(state.vault.unseal(key, &sealed)?),
    }
}

fn check_opened(secrets: Secrets) -> Result<Secrets, Problem> {
    let bytes = serde_json::to_vec(&secrets)
        .map_err(|_| Problem::new(Code::Internal, "opened secrets are no JSON"))?;
    berth_contract::decode::message(&bytes, Unknown::Fault).map_err(|mut faults| {
        for fault in &mut faults {
            let path_prefix = if fault.path.is_empty() { "secrets" } else { "secrets." };
            fault.path.insert_str(0, path_prefix);
        }
        Problem::bad_input(faults)
    })
}

/// The id of the volume's secrets, as far as this replica knows.
pub fn current_secrets(state: &State, volume: &VolumeKey) -> Option<SecretsId> {
    state.volumes.mirror.read(|volumes| {
        volumes.get(volume)?.volume.spec.as_ref().and_then(|spec| spec.secrets.clone())
    })
}

/// Whether a volume, one of its snapshots or a class has these secrets, as far as this replica
/// knows.
pub fn is_named(state: &State, volume: &VolumeKey, id: &SecretsId) -> bool {
    state.volumes.mirror.read(|volumes| {
        if let Some(class) = ClassId::from_secrets_key(volume) {
            // An unreadable class may name them.
            return volumes.classes().get(&class).is_some_and(|stored| match &stored.class {
                Ok(class) => class.secrets.as_ref() == Some(id),
                Err(_) => true,
            });
        }
        volumes.get(volume).is_some_and(|subtree| names(&subtree.volume, id))
    })
}

/// Whether the volume or one of its snapshots has these secrets.
fn names(volume: &Volume, id: &SecretsId) -> bool {
    let own = volume.spec.iter().map(|spec| &spec.secrets);
    own.chain(volume.snapshots.values().map(|snapshot| &snapshot.secrets))
        .any(|secrets| secrets.as_ref() == Some(id))
}

/// Asks a plugin's controllers about the volume with its secrets. Until they have answered, the
/// hosts of these controllers may open the secrets.
pub async fn while_validating<T>(
    state: &State,
    volume: &VolumeKey,
    spec: &VolumeSpec,
    (trace, deadline): (TraceContext, Instant),
    ask: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let Some(id) = &spec.secrets else { return ask.await };
    let until = clock::now().after(deadline.saturating_duration_since(Instant::now()));
    let validation = Validation { plugin: spec.plugin.clone(), until };
    state.vault.note_validation(volume, id, validation.clone(), trace).await?;
    let answer = ask.await;
    if let Err(problem) = state.vault.end_validation(volume, id, validation, trace).await {
        tracing::debug!(%volume, %problem, "the note of a validation ends by its deadline");
    }
    answer
}

/// `secret.open`: seals a volume's secrets for an agent that has to make a plugin call.
///
/// Everything is read at the leader: a lagging mirror would refuse a call that is due, or serve a
/// node that has none any more.
pub async fn open(state: &State, node: &NodeId, request: Open) -> Result<Sealed, Problem> {
    let volume = VolumeKey::new(request.namespace, request.volume);
    let opened = open_for_call(state, &volume, node, &request.secrets, &request.to).await;
    opened.map_err(|problem| problem.volume(&volume).node(node))
}

async fn open_for_call(
    state: &State,
    volume: &VolumeKey,
    node: &NodeId,
    id: &SecretsId,
    reported: &str,
) -> Result<Sealed, Problem> {
    let calls = match due(state, volume, node, id).await? {
        Due::Now(calls) => calls,
        Due::WithOthers => {
            let message = "others were given since the call was made up; it is made up anew";
            return Err(unavailable(message).retryable());
        }
        Due::Nothing => return Err(not_due(volume, node)),
    };
    state.check_readable(volume).map_err(|error| state.problem(error, volume))?;
    let key = state.read_node(node).await?.and_then(|record| record.sealing_key);
    let Some(key) = key.filter(|key| key == reported) else {
        let message = format!(
            "the registry has not recorded the key that the agent of node {node} made when it \
             started, and secrets are sealed for no other"
        );
        return Err(Problem::new(Code::SealingKeyUnknown, message));
    };
    let Some(secrets) = state.vault.load(volume, id).await? else {
        let message = "they were replaced or removed since the call was made up";
        return Err(unavailable(message).retryable());
    };
    seal(volume, secrets.for_calls(&calls), &key).map_err(unavailable)
}

/// Whether the node has to make a call with the secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Due {
    /// These calls are due.
    Now(BTreeSet<SecretCall>),
    /// A call is due there, but the volume has other secrets by now.
    WithOthers,
    Nothing,
}

async fn due(
    state: &State,
    volume: &VolumeKey,
    node: &NodeId,
    id: &SecretsId,
) -> Result<Due, Problem> {
    // The error must not name the volume's plugin to a sender that may not know it.
    let fail = |error| Problem { plugin: None, ..state.problem(error, volume) };
    state.catch_up(volume).await.map_err(fail)?;
    let validation = state.vault.validation(volume, id).await?;
    let (now, margin) = (clock::now(), state.policy.clock_margin);
    if let Some(Validation { plugin, until }) = validation
        && now <= until.after(margin)
        && hosts_controller(state, &plugin, node).await?
    {
        // A question about the volume has no secrets of its own.
        return Ok(Due::Now(BTreeSet::new()));
    }
    let plugin = state.volumes.mirror.read(|volumes| {
        let volume = &volumes.get(volume)?.volume;
        // A snapshot outlives its volume, and a later volume of this name may be at another plugin.
        let cut = volume.snapshots.values().find(|snapshot| snapshot.secrets.as_ref() == Some(id));
        let of_spec = || volume.spec.as_ref().map(|spec| &spec.plugin);
        cut.map(|snapshot| &snapshot.plugin).or_else(of_spec).cloned()
    });
    let Some(plugin) = plugin else { return Ok(Due::Nothing) };
    let hosts = hosts_controller(state, &plugin, node).await?;
    Ok(state.volumes.mirror.read(|volumes| {
        let Some(subtree) = volumes.get(volume) else { return Due::Nothing };
        let due = subtree.volume.secrets_due(node, hosts, now, &state.policy);
        if due.is_empty() {
            return Due::Nothing;
        }
        let with_these = due.into_iter().filter(|(secrets, _)| *secrets == Some(id));
        let calls: BTreeSet<SecretCall> = with_these.map(|(_, call)| call).collect();
        if calls.is_empty() { Due::WithOthers } else { Due::Now(calls) }
    }))
}

async fn hosts_controller(
    state: &State,
    plugin: &PluginId,
    node: &NodeId,
) -> Result<bool, Problem> {
    let key = key::instance(plugin, node, Half::Controller);
    let read = state.plugins.read::<Instance>(&key).await;
    let (_, instance) = read.map_err(|error| Problem { plugin: None, ..Problem::from(error) })?;
    Ok(instance.is_some())
}

/// The refusal is the same for a volume that does not exist, so that it reveals nothing.
fn not_due(volume: &VolumeKey, node: &NodeId) -> Problem {
    let message = format!("no call that takes them is due at node {node}");
    let argument = volume_argument(volume);
    unavailable(message).retryable().next(format!(
        "see with `berth volume status {argument}` whether an alloc of this node has the volume, \
         or whether its plugin's controller here has a call to make"
    ))
}

/// Removes, at intervals, secrets that no spec names: a registration that was interrupted left
/// them.
pub async fn sweep_unnamed(state: State) {
    let mut unnamed_before = BTreeSet::new();
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        match unnamed_secrets(&state).await {
            Ok(unnamed) => {
                for (volume, id) in unnamed.intersection(&unnamed_before) {
                    state.vault.remove(volume, id, clock::begin_trace()).await;
                }
                unnamed_before = unnamed;
            }
            Err(error) => {
                let error = process::chain(&error);
                tracing::debug!(error, "secrets could not be looked through");
            }
        }
    }
}

async fn unnamed_secrets(
    state: &State,
) -> Result<BTreeSet<(VolumeKey, SecretsId)>, berth_bus::ReadError> {
    let stored = state.vault.list().await?.into_iter();
    // An unreadable spec may name them.
    let unnamed = stored.filter(|(volume, id)| {
        !is_named(state, volume, id) && state.check_readable(volume).is_ok()
    });
    Ok(unnamed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_secrets_are_checked_as_plain_ones_are() {
        let secrets = |name: &str| Secrets([(name.to_owned(), "hunter2".to_owned())].into());
        let sound = secrets("create/password");
        assert_eq!(check_opened(sound.clone()), Ok(sound));
        for (name, expected) in
            [("a b", "is no name for a secret"), ("mount/password", "names no call before its `/`")]
        {
            let problem = check_opened(secrets(name)).unwrap_err();
            assert_eq!(problem.code, Code::BadInput);
            assert!(problem.faults[0].path.starts_with("secrets."), "{problem}");
            assert!(problem.message.contains(expected), "{problem}");
            assert!(!problem.message.contains("hunter2"), "{problem}");
        }
    }
}
