//! Learns the moment at which a claim is deleted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_bus::{Bucket, Fold, Mirror, MirrorOptions};
use berth_contract::key;
use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::Fatal;
use crate::site::PATIENCE;

/// How often the bucket is read besides. A watch that falls behind for longer than a claim lives
/// sees neither the claim nor its deletion. Seldom, so that the reads do not disturb the
/// measurement.
const READ_INTERVAL: Duration = Duration::from_secs(1);

type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// A watch over the claims of one namespace.
#[derive(Clone)]
pub struct Freed {
    waiting: Waiting,
    volumes: Bucket,
    // Followed for as long as a release may be awaited.
    _mirror: Mirror<Wake>,
}

struct Wake(Waiting);

impl Fold for Wake {
    fn put(&mut self, _key: &str, _revision: u64, _value: &[u8]) {}

    fn delete(&mut self, key: &str, _revision: u64) {
        let waiter = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(waiter) = waiter {
            // The waiter may have given up.
            let _: Result<(), ()> = waiter.send(());
        }
    }
}

/// A claim whose deletion is expected.
pub struct Expected {
    volumes: Bucket,
    key: String,
    deleted: oneshot::Receiver<()>,
}

impl Freed {
    /// Watches the claims of a namespace.
    pub async fn watch(volumes: &Bucket, namespace: &Namespace) -> Result<Self, Fatal> {
        let waiting = Waiting::default();
        let filter = format!("{}.>", namespace.as_str());
        let wake = Wake(Arc::clone(&waiting));
        let mirror = Mirror::start(volumes, &filter, wake, MirrorOptions::default()).await?;
        Ok(Self { waiting, volumes: volumes.clone(), _mirror: mirror })
    }

    /// Registers a claim before its release is requested.
    pub fn expect(
        &self,
        namespace: &Namespace,
        volume: &str,
        alloc: &str,
    ) -> Result<Expected, Fatal> {
        let volume = VolumeKey::new(namespace.clone(), VolumeId::new(volume)?);
        let key = key::claim(&volume, &AllocId::new(alloc)?);
        let (sender, deleted) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), sender);
        Ok(Expected { volumes: self.volumes.clone(), key, deleted })
    }
}

impl Expected {
    /// Waits until the claim is deleted. Call it only once the claim exists.
    pub async fn gone(mut self) -> Result<(), Fatal> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Ok(deleted) = timeout(READ_INTERVAL, &mut self.deleted).await {
                return Ok(deleted?);
            }
            if self.volumes.get(&self.key).await?.is_none_or(|entry| entry.value.is_none()) {
                return Ok(());
            }
        }
        Err(format!("{} was not freed in time", self.key).into())
    }
}
