//! Records that none of our services wrote.

use std::time::Duration;

use berth_bus::{Bucket, Change, Guard, Write};
use berth_contract::key;
use berth_domain::{AllocId, Namespace, VolumeKey};
use berth_service::clock;
use tokio::time::sleep;

use super::Run;
use super::client::volume_id;

/// How long a person tries to mend a record.
const MENDS: Duration = Duration::from_secs(60);

impl Run {
    /// Writes a value that is no record among a volume's claims. An operator removes it
    /// afterwards.
    pub(super) async fn junk(&self, volume: usize, text: &'static str, lasts: Duration) {
        let volume = VolumeKey::new(Namespace::default(), volume_id(volume));
        let alloc = AllocId::new("junk").expect("the id is valid");
        let key = key::claim(&volume, &alloc);
        if let Err(error) = write(&self.volumes, &key, Change::Put(text.into())).await {
            return self.ledger.note(format!("{key} could not be written: {error}"));
        }
        sleep(lasts).await;
        let end = tokio::time::Instant::now() + MENDS;
        while let Err(error) = write(&self.volumes, &key, Change::Delete).await {
            if tokio::time::Instant::now() > end {
                return self
                    .ledger
                    .violated("a record cannot be removed", format!("{key}: {error}"));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Writes a key as a person does with the stock CLI: without a check of its revision.
pub(super) async fn write(bucket: &Bucket, key: &str, change: Change) -> Result<(), String> {
    let revision = bucket.head(key).await.map_err(|error| error.to_string())?;
    let guard = Guard { filter: key, revision };
    let trace = clock::begin_trace();
    let write = Write { key, change, guard, operation: "chaos", trace };
    bucket.commit(write).await.map(drop).map_err(|error| error.to_string())
}
