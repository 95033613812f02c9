//! Volumes' secrets: registered with a volume, handed out for one plugin call (A9, safety rule 6).
//!
//! **Owns** which secrets a volume has. The volume's spec names the id of its secrets, and changed
//! secrets get another id. So a spec and its secrets change in one guarded write.
//!
//! **Promises** that secrets are handed only to an agent that hosts the plugin's controller or has
//! a claim on the volume, sealed for the agent's key; and that secrets that no spec names are
//! removed.
//!
//! **Never** puts a secret into an error, a log line or an event.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::decode::Unknown;
use berth_contract::message::secret::{Open, Sealed, Secrets};
use berth_contract::message::volume::GivenSecrets;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::limits::WAIT_MAX;
use berth_domain::plugin::Half;
use berth_domain::{NodeId, SecretsId, VolumeKey};
use berth_service::seal::seal;
use berth_service::{clock, process};

use crate::state::State;
use crate::vault::unavailable;

/// Secrets that no spec names are removed when a second sweep, this much later, finds them too. By
/// then a registration under way has ended, however long its caller waits.
const SWEEP_INTERVAL: Duration = WAIT_MAX.saturating_mul(2);

/// What a registration wants of the volume's secrets.
#[derive(Debug)]
pub enum SecretsChange {
    /// The volume keeps its secrets.
    Kept,
    /// The volume has no secrets from now on.
    Removed,
    /// The request has the same secrets as the volume had when they were compared.
    Same(SecretsId),
    /// New secrets. They are in the bucket, and no spec names them yet.
    New(SecretsId),
}

/// Opens and checks the secrets of a registration, and stores them when they are new.
pub async fn prepare_secrets(
    state: &State,
    volume: &VolumeKey,
    given: Option<GivenSecrets>,
    trace: TraceContext,
) -> Result<SecretsChange, Problem> {
    let secrets = match given {
        None => return Ok(SecretsChange::Kept),
        Some(GivenSecrets::Plain(secrets)) => secrets,
        Some(GivenSecrets::Sealed(sealed)) => check_opened(state.vault.unseal(volume, &sealed)?)?,
    };
    if secrets.0.is_empty() {
        return Ok(SecretsChange::Removed);
    }
    // The same secrets again change nothing (A4).
    if let Some(current) = current_secrets(state, volume)
        && state.vault.load(volume, &current).await?.as_ref() == Some(&secrets)
    {
        return Ok(SecretsChange::Same(current));
    }
    state.vault.store(volume, secrets, trace).await.map(SecretsChange::New)
}

/// Checks secrets that came sealed as those that come in the open are checked.
fn check_opened(secrets: Secrets) -> Result<Secrets, Problem> {
    let bytes = serde_json::to_vec(&secrets)
        .map_err(|_| Problem::new(Code::Internal, "opened secrets are no JSON"))?;
    berth_contract::decode::message(&bytes, Unknown::Fault).map_err(|mut faults| {
        for fault in &mut faults {
            let of = if fault.path.is_empty() { "secrets" } else { "secrets." };
            fault.path.insert_str(0, of);
        }
        Problem::bad_input("volume.register", faults)
    })
}

/// The id of the volume's secrets, as far as this replica knows.
pub fn current_secrets(state: &State, volume: &VolumeKey) -> Option<SecretsId> {
    state.volumes.mirror.read(|volumes| {
        volumes.get(volume)?.volume.spec.as_ref().and_then(|spec| spec.secrets.clone())
    })
}

/// `secret.open`: seals a volume's secrets for an agent that has to make a plugin call.
pub async fn open(state: &State, node: &NodeId, request: Open) -> Result<Sealed, Problem> {
    let volume = VolumeKey::new(request.namespace, request.volume);
    let place = |problem: Problem| problem.volume(&volume).node(node);
    let readable = state.check_readable(&volume);
    readable.map_err(|error| state.problem(error, "secret.open", &volume))?;
    if !may_open(state, &volume, node, &request.secrets) {
        // The answer is the same for a volume that does not exist, so that it tells nothing.
        let message = format!("nothing of the volume is node {node}'s business");
        return Err(place(unavailable(message).retryable()));
    }
    let found = state.vault.load(&volume, &request.secrets).await.map_err(place)?;
    let Some(secrets) = found else {
        let message = "others were given since the call was made up; it is made up anew";
        return Err(place(unavailable(message).retryable()));
    };
    seal(&volume, secrets, &request.to).map_err(unavailable).map_err(place)
}

/// Whether the node may open the secrets: it has a claim on the volume, or hosts a controller of
/// its plugin. Secrets that no spec names yet belong to a registration under way. Its plugin is not
/// on record, so a host of any controller may open them.
fn may_open(state: &State, volume: &VolumeKey, node: &NodeId, secrets: &SecretsId) -> bool {
    let (claimed, plugin) = state.volumes.mirror.read(|volumes| {
        let now = volumes.get(volume).map(|subtree| &subtree.volume);
        let claimed = now.is_some_and(|now| now.claims.held_on(node));
        let spec = now.and_then(|now| now.spec.as_ref());
        let in_use = spec.filter(|spec| spec.secrets.as_ref() == Some(secrets));
        (claimed, in_use.map(|spec| spec.plugin.clone()))
    });
    claimed
        || state.plugins.mirror.read(|plugins| {
            let hosts = |found: &berth_domain::plugin::Plugin| {
                found.instances.contains_key(&(node.clone(), Half::Controller))
            };
            match &plugin {
                Some(plugin) => plugins.get(plugin).is_some_and(hosts),
                None => plugins.iter().any(|(_, found)| hosts(found)),
            }
        })
}

/// Removes, again and again, secrets that no spec names: a registration that ended half-way left
/// them behind.
pub async fn sweep_unnamed(state: State) {
    let mut seen = BTreeSet::new();
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        match unnamed_secrets(&state).await {
            Ok(unnamed) => {
                for (volume, id) in unnamed.intersection(&seen) {
                    state.vault.remove(volume, id, clock::begin_trace()).await;
                }
                seen = unnamed;
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
        current_secrets(state, volume).as_ref() != Some(id) && state.check_readable(volume).is_ok()
    });
    Ok(unnamed.collect())
}
