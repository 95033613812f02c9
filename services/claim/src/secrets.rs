//! Volumes' secrets: kept sealed and apart, handed out for one plugin call (A9, safety rule 6).
//!
//! **Owns** the bucket of secrets. What is given once never changes: other secrets get another id,
//! and a volume's spec names the one in use. So a spec and its secrets change in one guarded write.
//!
//! **Promises** that a value in the bucket opens with this service's keys only; that secrets are
//! handed to the agent that hosts the plugin's controller or has a claim on the volume, sealed for
//! a key of its asking; and that what no spec names any more is removed.
//!
//! **Never** puts a secret into an error, a log line or an event.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::{Bucket, Change, Guard, Write};
use berth_contract::code::Code;
use berth_contract::decode::Unknown;
use berth_contract::message::secret::{Open, PublicKey, Sealed, Secrets};
use berth_contract::message::volume::GivenSecrets;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::{key, record};
use berth_domain::limits::WAIT_MAX;
use berth_domain::plugin::Half;
use berth_domain::{NodeId, SecretsId, VolumeKey};
use berth_service::seal::{Keys, seal};
use berth_service::{clock, process};

use crate::state::State;

/// Secrets that no spec names are removed when they are seen a second time, this much later: a
/// registration under way has been decided by then, however long its caller waits.
const SWEEP: Duration = WAIT_MAX.saturating_mul(2);

/// The bucket, and the keys its values are sealed for.
pub struct Vault {
    bucket: Bucket,
    keys: Option<Keys>,
}

/// What a registration wants of the volume's secrets.
#[derive(Debug)]
pub enum SecretsChange {
    /// Those it has.
    Kept,
    /// None.
    Removed,
    /// Those it had when they were compared: the same were given again.
    Same(SecretsId),
    /// These; they are in the bucket, and nobody else's.
    New(SecretsId),
}

impl Vault {
    /// A vault that opens nothing when it has no keys.
    pub fn new(bucket: Bucket, keys: Option<Keys>) -> Self {
        Self { bucket, keys }
    }

    /// The key that secrets are to be sealed for.
    pub fn public_key(&self) -> Result<PublicKey, Problem> {
        Ok(PublicKey { key: self.keys()?.public() })
    }

    fn keys(&self) -> Result<&Keys, Problem> {
        self.keys.as_ref().ok_or_else(|| {
            unavailable("this claim service has no key for secrets")
                .next("make one with `berth keygen FILE` and name it in `secrets.key_file`")
        })
    }

    fn opened(&self, volume: &VolumeKey, sealed: &Sealed) -> Result<Secrets, Problem> {
        self.keys()?.open(volume, sealed).map_err(unavailable)
    }

    /// Keeps secrets, sealed, under an id that was never used.
    async fn store(
        &self,
        volume: &VolumeKey,
        secrets: Secrets,
        trace: TraceContext,
    ) -> Result<SecretsId, Problem> {
        let sealed = seal(volume, secrets, &self.keys()?.public()).map_err(unavailable)?;
        let id = clock::new_secrets_id();
        let value = record::write(sealed, Some(trace.trace_id()))
            .map_err(|_| Problem::new(Code::Internal, "the sealed secrets are no record"))?;
        let (key, operation) = (key::secrets(volume, &id), clock::new_attempt());
        let write = Write {
            key: &key,
            change: Change::Put(value.into()),
            guard: Guard { filter: &key, revision: 0 },
            operation: operation.as_str(),
            trace,
        };
        self.bucket.commit(write).await.map_err(|error| error.into_problem("secret.store"))?;
        Ok(id)
    }

    /// The secrets of this id; none when there are none any more.
    async fn load(&self, volume: &VolumeKey, id: &SecretsId) -> Result<Option<Secrets>, Problem> {
        let step = "secret.load";
        let key = key::secrets(volume, id);
        let entry = self.bucket.get(&key).await;
        let entry = entry.map_err(|error| error.into_problem(step))?;
        let Some(value) = entry.and_then(|entry| entry.value) else { return Ok(None) };
        let sealed =
            record::read::<Sealed>(&value).map_err(|error| error.at(&key).problem().at(step))?;
        self.opened(volume, &sealed.body).map(Some)
    }

    /// Removes secrets; what fails is left to the sweep.
    pub async fn remove(&self, volume: &VolumeKey, id: &SecretsId, trace: TraceContext) {
        let (key, operation) = (key::secrets(volume, id), clock::new_attempt());
        let revision = match self.bucket.get(&key).await {
            Ok(Some(entry)) if entry.value.is_some() => entry.revision,
            Ok(_) => return,
            Err(error) => return not_removed(volume, &error, trace),
        };
        let write = Write {
            key: &key,
            change: Change::Delete,
            guard: Guard { filter: &key, revision },
            operation: operation.as_str(),
            trace,
        };
        if let Err(error) = self.bucket.commit(write).await {
            not_removed(volume, &error, trace);
        }
    }
}

fn not_removed(volume: &VolumeKey, error: &(dyn std::error::Error + 'static), trace: TraceContext) {
    let (error, trace) = (process::chain(error), trace.trace_id());
    tracing::warn!(%volume, trace, error, "secrets no longer used are left to the sweep");
}

fn unavailable(why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::SecretsUnavailable, format!("the volume's secrets: {why}"))
}

/// What a registration's secrets are: opened, checked, and in the bucket when they are new.
pub async fn wanted(
    state: &State,
    volume: &VolumeKey,
    given: Option<GivenSecrets>,
    trace: TraceContext,
) -> Result<SecretsChange, Problem> {
    let secrets = match given {
        None => return Ok(SecretsChange::Kept),
        Some(GivenSecrets::Plain(secrets)) => secrets,
        Some(GivenSecrets::Sealed(sealed)) => checked(state.vault.opened(volume, &sealed)?)?,
    };
    if secrets.0.is_empty() {
        return Ok(SecretsChange::Removed);
    }
    // The same again is nothing (A4).
    if let Some(current) = current(state, volume)
        && state.vault.load(volume, &current).await?.as_ref() == Some(&secrets)
    {
        return Ok(SecretsChange::Same(current));
    }
    state.vault.store(volume, secrets, trace).await.map(SecretsChange::New)
}

/// What came sealed is checked like what comes in the open.
fn checked(secrets: Secrets) -> Result<Secrets, Problem> {
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
pub fn current(state: &State, volume: &VolumeKey) -> Option<SecretsId> {
    state.volume_mirror.read(|volumes| {
        volumes.get(volume)?.volume.spec.as_ref().and_then(|spec| spec.secrets.clone())
    })
}

/// `secret.open`: seals a volume's secrets for an agent that has to make a plugin call.
pub async fn open(state: &State, node: &NodeId, request: Open) -> Result<Sealed, Problem> {
    let volume = VolumeKey::new(request.namespace, request.volume);
    let place = |problem: Problem| problem.volume(&volume).node(node);
    let readable = state.check_readable(&volume);
    readable.map_err(|error| state.problem(error, "secret.open", &volume))?;
    if !concerns(state, &volume, node, &request.secrets) {
        // Also when there is no such volume: who may not ask does not learn what there is.
        let said = format!("nothing of the volume is node {node}'s business");
        return Err(place(unavailable(said).retryable()));
    }
    let found = state.vault.load(&volume, &request.secrets).await.map_err(place)?;
    let Some(secrets) = found else {
        let said = "others were given since the call was made up; it is made up anew";
        return Err(place(unavailable(said).retryable()));
    };
    seal(&volume, secrets, &request.to).map_err(unavailable).map_err(place)
}

/// Whether a node has to do with a volume: it has a claim there, or hosts its plugin's controller.
/// Secrets that no spec names yet are of a registration under way, whose plugin is not on record:
/// then any controller's host.
fn concerns(state: &State, volume: &VolumeKey, node: &NodeId, secrets: &SecretsId) -> bool {
    let (claimed, plugin) = state.volume_mirror.read(|volumes| {
        let now = volumes.get(volume).map(|subtree| &subtree.volume);
        let claimed = now.is_some_and(|now| now.claims.held_on(node));
        let spec = now.and_then(|now| now.spec.as_ref());
        let in_use = spec.filter(|spec| spec.secrets.as_ref() == Some(secrets));
        (claimed, in_use.map(|spec| spec.plugin.clone()))
    });
    claimed
        || state.plugins.read(|plugins| {
            let hosts = |found: &berth_domain::plugin::Plugin| {
                found.instances.contains_key(&(node.clone(), Half::Controller))
            };
            match &plugin {
                Some(plugin) => plugins.get(plugin).is_some_and(hosts),
                None => plugins.iter().any(|(_, found)| hosts(found)),
            }
        })
}

/// Removes what no spec names, now and then: what a registration that ended half-way left behind.
pub async fn sweep(state: State) {
    let mut seen = BTreeSet::new();
    loop {
        tokio::time::sleep(SWEEP).await;
        match unnamed(&state).await {
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

async fn unnamed(state: &State) -> Result<BTreeSet<(VolumeKey, SecretsId)>, berth_bus::ReadError> {
    let list = state.vault.bucket.list(">").await?;
    let kept = list.entries.iter().filter_map(|entry| key::parse_secrets(&entry.key));
    // A spec that cannot be read may name them.
    let unnamed = kept.filter(|(volume, id)| {
        current(state, volume).as_ref() != Some(id) && state.check_readable(volume).is_ok()
    });
    Ok(unnamed.collect())
}
