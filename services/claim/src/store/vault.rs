//! The bucket of secrets, sealed for this service's keys (A9, safety rule 6).
//!
//! **Promises** that a value in the bucket opens with this service's keys only, and that the
//! secrets of an id never change.
//!
//! **Never** puts a secret into an error, a log line or an event.

use berth_bus::{Bucket, Change, CommitError, Entry, Guard, ReadError, Write};
use berth_contract::code::Code;
use berth_contract::message::secret::{PublicKey, Sealed, Secrets, StoredSecrets, Validation};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::{key, record};
use berth_domain::{SecretsId, VolumeKey};
use berth_service::seal::{Keys, seal};
use berth_service::{clock, process};

/// The bucket of secrets, and the keys for which its values are sealed.
pub struct Vault {
    bucket: Bucket,
    keys: Option<Keys>,
}

impl Vault {
    /// A vault without keys stores and opens nothing.
    pub fn new(bucket: Bucket, keys: Option<Keys>) -> Self {
        Self { bucket, keys }
    }

    /// The key for which callers seal secrets.
    pub fn public_key(&self) -> Result<PublicKey, Problem> {
        Ok(PublicKey { key: self.keys()?.public() })
    }

    fn keys(&self) -> Result<&Keys, Problem> {
        self.keys.as_ref().ok_or_else(|| {
            unavailable("this claim service has no key for secrets")
                .next("make one with `berth keygen FILE` and name it in `secrets.key_file`")
        })
    }

    /// The secrets of a volume that a caller sealed for this service.
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
        let stored = StoredSecrets { sealed, validation: None };
        let key = key::secrets(volume, &id);
        let put = self.put(&key, 0, stored, trace).await?;
        put.map_err(|error| Problem::from(error).at_step("secret.store"))?;
        Ok(id)
    }

    /// Writes the record if its key is still at that revision.
    async fn put(
        &self,
        key: &str,
        revision: u64,
        stored: StoredSecrets,
        trace: TraceContext,
    ) -> Result<Result<u64, CommitError>, Problem> {
        let value = record::write(stored, Some(trace.trace_id()))
            .map_err(|_| Problem::new(Code::Internal, "the sealed secrets are no record"))?;
        let operation = clock::new_attempt();
        let write = Write {
            key,
            change: Change::Put(value.into()),
            guard: Guard { filter: key, revision },
            operation: operation.as_str(),
            trace,
        };
        Ok(self.bucket.commit(write).await)
    }

    /// Notes with the secrets which plugin a registration is about to ask with them. Two
    /// registrations of one volume at once may overwrite each other's note: then one of them is
    /// refused, and its caller retries.
    pub async fn note_validation(
        &self,
        volume: &VolumeKey,
        id: &SecretsId,
        validation: Validation,
        trace: TraceContext,
    ) -> Result<(), Problem> {
        let key = key::secrets(volume, id);
        let Some((revision, stored)) = self.read(&key).await? else {
            let message = "they were replaced or removed at the same time";
            return Err(unavailable(message).retryable().next("register the volume again"));
        };
        let stored = StoredSecrets { validation: Some(validation), ..stored };
        let put = self.put(&key, revision, stored, trace).await?;
        put.map(drop).map_err(|error| Problem::from(error).at_step("secret.store").retryable())
    }

    /// Removes the note of a registration that was answered.
    pub async fn end_validation(
        &self,
        volume: &VolumeKey,
        id: &SecretsId,
        validation: Validation,
        trace: TraceContext,
    ) -> Result<(), Problem> {
        let key = key::secrets(volume, id);
        match self.read(&key).await? {
            Some((revision, stored)) if stored.validation.as_ref() == Some(&validation) => {
                let stored = StoredSecrets { validation: None, ..stored };
                let put = self.put(&key, revision, stored, trace).await?;
                put.map(drop).map_err(|error| Problem::from(error).at_step("secret.store"))
            }
            _ => Ok(()),
        }
    }

    /// The secrets of this id; none if they were removed.
    pub async fn load(
        &self,
        volume: &VolumeKey,
        id: &SecretsId,
    ) -> Result<Option<Secrets>, Problem> {
        let Some((_, stored)) = self.read(&key::secrets(volume, id)).await? else {
            return Ok(None);
        };
        self.unseal(volume, &stored.sealed).map(Some)
    }

    /// Whether these are the secrets of this id, sealed for the newest key.
    pub async fn has(
        &self,
        volume: &VolumeKey,
        id: &SecretsId,
        secrets: &Secrets,
    ) -> Result<bool, Problem> {
        let Some((_, stored)) = self.read(&key::secrets(volume, id)).await? else {
            return Ok(false);
        };
        let are_same = self.unseal(volume, &stored.sealed)? == *secrets;
        Ok(are_same && self.keys()?.is_sealed_for_first(&stored.sealed))
    }

    /// The registration that last asked a plugin with these secrets. An unreadable record names
    /// none.
    pub async fn validation(
        &self,
        volume: &VolumeKey,
        id: &SecretsId,
    ) -> Result<Option<Validation>, Problem> {
        match self.read(&key::secrets(volume, id)).await {
            Ok(entry) => Ok(entry.and_then(|(_, stored)| stored.validation)),
            Err(Problem { code: Code::DamagedRecord | Code::NewerRecord, .. }) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// The record at the key, and its revision.
    async fn read(&self, key: &str) -> Result<Option<(u64, StoredSecrets)>, Problem> {
        let step = "secret.load";
        let entry = self.bucket.get(key).await;
        let entry = entry.map_err(|error| Problem::from(error).at_step(step))?;
        let Some(Entry { revision, value: Some(value), .. }) = entry else { return Ok(None) };
        let stored = record::read::<StoredSecrets>(&value)
            .map_err(|error| error.unreadable_at(key).problem().at_step(step))?;
        Ok(Some((revision, stored.body)))
    }

    /// The ids of all secrets in the bucket, with their volumes.
    pub async fn list(&self) -> Result<Vec<(VolumeKey, SecretsId)>, ReadError> {
        let list = self.bucket.list(">").await?;
        Ok(list.entries.iter().filter_map(|entry| key::parse_secrets(&entry.key)).collect())
    }

    /// Removes secrets. If this fails, the sweep does it.
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

/// The problem of secrets that cannot be opened or stored.
pub fn unavailable(why: impl std::fmt::Display) -> Problem {
    Problem::new(Code::SecretsUnavailable, format!("the volume's secrets: {why}"))
}
