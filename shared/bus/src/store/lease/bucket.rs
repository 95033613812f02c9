//! Leases in a bucket.
//!
//! The client library drops the TTL when the key's last message is an expiry marker, so the second
//! holder of a lease would hold it for ever. Here every write has a TTL.

use std::time::Duration;

use berth_contract::trace::TraceContext;
use bytes::Bytes;
use tokio::time::Instant;

use super::{Lease, LeaseError, LeaseStore, LeaseTerms, TTL_MIN};
use crate::cause::{Cause, chain};
use crate::store::bucket::Bucket;
use crate::store::commit::{Pace, Terms};
use crate::store::read::{Entry, ReadError};
use crate::store::ticks::TICK;
use crate::store::write::{Change, CommitError, Guard, Write};

impl Bucket {
    /// See [`Lease::acquire`].
    pub async fn acquire(
        &self,
        key: &str,
        value: Bytes,
        ttl: Duration,
        trace: TraceContext,
    ) -> Result<Lease<Self>, LeaseError> {
        Lease::acquire(self, LeaseTerms { key: key.to_owned(), value, ttl, trace }).await
    }

    /// See [`Lease::inherit`].
    pub async fn inherit(
        &self,
        holder: &Entry,
        value: Bytes,
        ttl: Duration,
        trace: TraceContext,
    ) -> Result<Lease<Self>, LeaseError> {
        Lease::inherit(self, holder, LeaseTerms { key: holder.key.clone(), value, ttl, trace })
            .await
    }

    /// As [`LeaseStore::hold`] over a revision, for a renewal that nobody waits for: while many
    /// renewals come, it is held back for up to 250 ms and stored with others.
    pub async fn renew(
        &self,
        terms: &LeaseTerms<Bytes>,
        over: u64,
        within: Duration,
    ) -> Result<u64, LeaseError> {
        self.check_terms(terms)?;
        let pace = if within > 2 * TICK { Pace::AtTick } else { Pace::Alone };
        self.write_lease(terms, over, within, pace).await
    }

    async fn write_lease(
        &self,
        terms: &LeaseTerms<Bytes>,
        over: u64,
        within: Duration,
        pace: Pace,
    ) -> Result<u64, LeaseError> {
        let write = Write {
            key: &terms.key,
            change: Change::Put(terms.value.clone()),
            guard: Guard { filter: &terms.key, revision: over },
            operation: "lease.hold",
            trace: terms.trace,
        };
        match self.commit_within(&write, Terms { ttl: Some(terms.ttl), pace }, within).await {
            Ok(revision) => Ok(revision),
            Err(CommitError::Conflict { .. }) => {
                self.read_holder(&terms.key).await?;
                Err(LeaseError::Lost { key: terms.key.clone() })
            }
            Err(error) => Err(failed(&terms.key, error)),
        }
    }

    /// The revision that a write over the key must guard: that of the key's marker, or 0. Fails if
    /// the key has a value.
    async fn read_holder(&self, key: &str) -> Result<u64, LeaseError> {
        match self.get(key).await.map_err(|error| unreadable(key, error))? {
            Some(entry) if entry.value.is_some() => {
                Err(LeaseError::Held { key: key.to_owned(), holder: Box::new(entry) })
            }
            // A guard with revision 0 fails if there is a marker.
            marker => Ok(marker.map_or(0, |marker| marker.revision)),
        }
    }

    fn check_terms(&self, terms: &LeaseTerms<Bytes>) -> Result<(), LeaseError> {
        let refuse =
            |why: &str| Err(LeaseError::Refused { key: terms.key.clone(), why: why.to_owned() });
        if terms.ttl < TTL_MIN || terms.ttl.subsec_nanos() != 0 {
            return refuse("its TTL must be whole seconds, at least one");
        }
        if self.shape.history != 1 {
            return refuse("its bucket keeps more than one value per key");
        }
        Ok(())
    }
}

impl LeaseStore for Bucket {
    type Value = Bytes;

    async fn hold(
        &self,
        terms: &LeaseTerms<Bytes>,
        over: Option<u64>,
        within: Duration,
    ) -> Result<u64, LeaseError> {
        self.check_terms(terms)?;
        let began = Instant::now();
        let revision = match over {
            Some(revision) => revision,
            None => self.read_holder(&terms.key).await?,
        };
        // After that time the caller may ask another replica, and a later write here would undo
        // that one's.
        let left = within.saturating_sub(began.elapsed());
        if left.is_zero() {
            let source = Cause::new("the read before the write took all the time there was");
            return Err(LeaseError::Unavailable { key: terms.key.clone(), source });
        }
        self.write_lease(terms, revision, left, Pace::Alone).await
    }

    async fn release(&self, terms: &LeaseTerms<Bytes>, revision: u64) -> Result<(), LeaseError> {
        let write = Write {
            key: &terms.key,
            change: Change::Delete,
            guard: Guard { filter: &terms.key, revision },
            operation: "lease.release",
            trace: terms.trace,
        };
        match self.commit(write).await {
            // Another process took the lease meanwhile, so it is released already.
            Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
            Err(error) => Err(failed(&terms.key, error)),
        }
    }
}

fn failed(key: &str, error: CommitError) -> LeaseError {
    let key = key.to_owned();
    match error {
        error @ CommitError::Refused { .. } => LeaseError::Refused { key, why: chain(&error) },
        error => LeaseError::Unavailable { key, source: Cause::new(error) },
    }
}

fn unreadable(key: &str, error: ReadError) -> LeaseError {
    LeaseError::Unavailable { key: key.to_owned(), source: Cause::new(error) }
}
