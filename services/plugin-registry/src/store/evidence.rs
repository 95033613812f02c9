//! Evidence that a node can have a mount that it reports, or cause an event that it tells.
//!
//! **Why.** Every node may report and tell, and its identity can be stolen. A mount that it reports
//! keeps other nodes from the volume; an event that it tells is shown to the users of a namespace.
//! So a node is believed only for the allocs that were placed on it, and for the volumes that they
//! requested.
//!
//! **Promises** that the records are read at their leader.
//!
//! **Never** takes a missing record for a proof that there was none: [`Evidence::None`] is a case
//! of its own.

use berth_bus::{Bucket, Entry};
use berth_contract::problem::Problem;
use berth_contract::{key, record};
use berth_domain::alloc::Alloc;
use berth_domain::volume::VolumeSpec;
use berth_domain::{AllocId, Namespace, VolumeKey};

use super::state::StateInner;

/// The record of an alloc that a node names.
#[derive(Debug, Clone)]
pub enum Evidence {
    /// Its record.
    Record(Alloc),
    /// A newer version wrote it, or it is damaged.
    Unreadable,
    /// There is no record: it was never written, or it was deleted.
    None,
}

impl StateInner {
    /// Reads the alloc's record.
    pub async fn evidence(
        &self,
        namespace: &Namespace,
        alloc: &AllocId,
    ) -> Result<Evidence, Problem> {
        let entry = newest(&self.allocs, &key::alloc(namespace, alloc)).await?;
        let Some(value) = entry.and_then(|entry| entry.value) else { return Ok(Evidence::None) };
        let read = record::read::<Alloc>(&value);
        Ok(read.map_or(Evidence::Unreadable, |read| Evidence::Record(read.body)))
    }

    /// The newest revision of the bucket of volumes.
    pub async fn newest_of_volumes(&self) -> Result<u64, Problem> {
        self.volume_records.newest().await.map_err(Problem::from)
    }

    /// Whether the volume was registered after that revision. True also for a volume that is not
    /// registered, and for one whose record cannot be read.
    pub async fn is_newer(&self, volume: &VolumeKey, revision: u64) -> Result<bool, Problem> {
        let Some(entry) = newest(&self.volume_records, &key::spec(volume)).await? else {
            return Ok(true);
        };
        let Some(Ok(read)) = entry.value.map(|value| record::read::<VolumeSpec>(&value)) else {
            return Ok(true);
        };
        // The first write does not know its own revision.
        let registered = match read.body.create_index {
            0 => entry.revision,
            index => index,
        };
        Ok(registered > revision)
    }

    /// Whether the alloc has a claim on the volume, or had one whose marker is still there.
    pub async fn had_claim(&self, volume: &VolumeKey, alloc: &AllocId) -> Result<bool, Problem> {
        let entry = newest(&self.volume_records, &key::claim(volume, alloc)).await?;
        Ok(entry.is_some())
    }
}

async fn newest(bucket: &Bucket, key: &str) -> Result<Option<Entry>, Problem> {
    bucket.get(key).await.map_err(Problem::from)
}
