//! Buckets that a running process has read and that are gone.
//!
//! **Owns** the list of lost buckets of one connection. A bucket is added when its stream is
//! deleted or is not the known one ([`standing`](crate::incarnation::standing)). It is taken off
//! the list when the stream may be served and every mirror has read all keys.
//!
//! **Promises** that no endpoint of the process answers a request meanwhile: each request gets
//! [`Code::BucketLost`]. A decision from memory would acknowledge what is not stored anywhere.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use thiserror::Error;

/// A bucket that cannot be trusted, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("bucket {bucket} {why}")]
pub struct BucketLoss {
    /// The bucket's name.
    pub bucket: String,
    /// What was found in its place.
    pub why: String,
}

impl BucketLoss {
    /// The answer to a caller. The caller may retry: the bucket may be restored meanwhile.
    pub fn problem(&self) -> Problem {
        Problem::new(Code::BucketLost, self).retryable()
    }
}

/// The lost buckets of one connection, by name.
#[derive(Debug, Default)]
pub(crate) struct Losses(RwLock<BTreeMap<String, BucketLoss>>);

impl Losses {
    /// The first lost bucket, if there is one.
    pub(crate) fn any(&self) -> Option<BucketLoss> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().next().cloned()
    }

    /// Every lost bucket.
    pub(crate) fn list_all(&self) -> Vec<BucketLoss> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Why this bucket is lost, if it is.
    pub(crate) fn find_loss(&self, bucket: &str) -> Option<BucketLoss> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(bucket).cloned()
    }

    /// Records that a bucket is lost; logs it if the reason is new. Returns whether the bucket was
    /// not lost before.
    pub(crate) fn record_loss(&self, loss: BucketLoss) -> bool {
        let mut losses = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if losses.get(&loss.bucket) == Some(&loss) {
            return false;
        }
        let (code, next) = (Code::BucketLost.as_str(), Code::BucketLost.next());
        tracing::error!(code, bucket = loss.bucket, why = loss.why, next, "a bucket is lost");
        losses.insert(loss.bucket.clone(), loss).is_none()
    }

    /// Records that a bucket is there and was read.
    pub(crate) fn clear(&self, bucket: &str) {
        if self.find_loss(bucket).is_some() {
            self.0.write().unwrap_or_else(PoisonError::into_inner).remove(bucket);
            tracing::warn!(bucket, "the bucket is there again; requests are answered");
        }
    }
}
