//! The bucket of secrets, sealed for this service's keys (A9, safety rule 6).
//!
//! **Promises** that a value in the bucket opens with this service's keys only, and that the
//! secrets of an id never change.
//!
//! **Never** puts a secret into an error, a log line or an event.

use berth_bus::{Bucket, Change, Guard, ReadError, Write};
use berth_contract::code::Code;
use berth_contract::message::secret::{PublicKey, Sealed, Secrets};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::{key, record};
use berth_domain::{SecretsId, VolumeKey};
use berth_service::seal::{Keys, seal};
use berth_service::{clock, process};

/// The bucket of secrets, and the keys that its values are sealed for.
pub struct Vault {
    bucket: Bucket,
    keys: Option<Keys>,
}

impl Vault {
    /// A vault without keys stores and opens nothing.
    pub fn new(bucket: Bucket, keys: Option<Keys>) -> Self {
        Self { bucket, keys }
    }

    /// The key that callers seal secrets for.
    pub fn public_key(&self) -> Result<PublicKey, Problem> {
        Ok(PublicKey { key: self.keys()?.public() })
    }

    fn keys(&self) -> Result<&Keys, Problem> {
        self.keys.as_ref().ok_or_else(|| {
            unavailable("this claim service has no key for secrets")
                .next("make one with `berth keygen FILE` and name it in `secrets.key_file`")
        })
    }

    /// The secrets of a volume that were sealed for this service.
    pub fn unseal(&self, volume: &VolumeKey, sealed: &Sealed) -> Result<Secrets, Problem> {
        self.keys()?.open(volume, sealed).map_err(unavailable)
    }

    /// Stores secrets, sealed, under an id that was never used.
    pub async fn store(
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

    /// The secrets of this id; none when they were removed.
    pub async fn load(
        &self,
        volume: &VolumeKey,
        id: &SecretsId,
    ) -> Result<Option<Secrets>, Problem> {
        let step = "secret.load";
        let key = key::secrets(volume, id);
        let entry = self.bucket.get(&key).await;
        let entry = entry.map_err(|error| error.into_problem(step))?;
        let Some(value) = entry.and_then(|entry| entry.value) else { return Ok(None) };
        let sealed = record::read::<Sealed>(&value)
            .map_err(|error| error.unreadable_at(&key).problem().at_step(step))?;
        self.unseal(volume, &sealed.body).map(Some)
    }

    /// The ids of all secrets in the bucket, with their volumes.
    pub async fn list(&self) -> Result<Vec<(VolumeKey, SecretsId)>, ReadError> {
        let list = self.bucket.list(">").await?;
        Ok(list.entries.iter().filter_map(|entry| key::parse_secrets(&entry.key)).collect())
    }

    /// Removes secrets. What fails is left to the sweep.
    pub async fn remove(&self, volume: &VolumeKey, id: &SecretsId, trace: TraceContext) {
        let (key, operation) = (key::secrets(volume, id), clock::new_attempt());
        let revision = match self.bucket.get(&key).await {
            Ok(Some(entry)) if entry.value.is_some() => entry.revision,
            Ok(_) => return,
            Err(error) => return warn_not_removed(volume, &error, trace),
        };
        let write = Write {
            key: &key,
            change: Change::Delete,
            guard: Guard { filter: &key, revision },
            operation: operation.as_str(),
            trace,
        };
        if let Err(error) = self.bucket.commit(write).await {
            warn_not_removed(volume, &error, trace);
        }
    }
}

fn warn_not_removed(
    volume: &VolumeKey,
    error: &(dyn std::error::Error + 'static),
    trace: TraceContext,
) {
    let (error, trace) = (process::chain(error), trace.trace_id());
    tracing::warn!(%volume, trace, error, "secrets no longer used are left to the sweep");
}

/// The problem of secrets that cannot be had.
pub fn unavailable(why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::SecretsUnavailable, format!("the volume's secrets: {why}"))
}
