//! Leases: keys that expire unless they are renewed.
//!
//! **Owns** acquiring, renewing and releasing by guarded writes with a TTL. The client library
//! drops the TTL when the key's last message is an expiry marker, so the second holder of a lease
//! would hold it for ever. Here every write carries the TTL.
//!
//! **Promises** that the holder considers the lease ended before the server does. For the holder
//! the lease ends one TTL after the last renewal was *sent*, less a tenth for the difference of the
//! clocks' rates. The clock is this host's time since boot, which continues in suspend.
//!
//! A value without a TTL ([`Entry::has_ttl`]) was written by hand. It never expires, so it is no
//! lease, and a caller may [take it over](Bucket::inherit).
//!
//! **Never** fences anything: a process that was paused for a minute believes for an instant that
//! it still holds the lease. Put [`Lease::fence`] into the records that the lease protects, and let
//! the guard of that write decide. The bucket must keep one value per key: with more, the server
//! raises every TTL.

mod keep;

use std::time::Duration;

use berth_contract::trace::TraceContext;
use berth_contract::{code::Code, problem::Problem};
use berth_host::BootTime;
use bytes::Bytes;
use thiserror::Error;
use tokio::sync::watch;

use crate::bucket::Bucket;
use crate::cause::{Cause, chain};
use crate::read::{Entry, ReadError};
use crate::write::{Change, CommitError, Guard, Write};

pub use keep::{KeptLease, LeaseHold};

/// The shortest TTL, which is also the server's.
const TTL_MIN: Duration = Duration::from_secs(1);

/// Why a lease was not acquired or kept.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// Another process holds it.
    #[error("{key} is held by another process since revision {}", holder.revision)]
    Held {
        /// The key.
        key: String,
        /// What the holder wrote.
        holder: Box<Entry>,
    },
    /// The lease is no longer held by this process: it expired, or another process took it.
    #[error("{key} is lost: it was not renewed in time, or another process took it")]
    Lost {
        /// The key.
        key: String,
    },
    /// The request for the lease is not valid.
    #[error("{key} cannot be a lease: {why}")]
    Refused {
        /// The key.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// The bus does not answer. If the lease was acquired, it expires after its TTL.
    #[error("{key} cannot be acquired, renewed or released now")]
    Unavailable {
        /// The key.
        key: String,
        /// What the last try ended with.
        #[source]
        source: Cause,
    },
}

impl LeaseError {
    /// The problem to answer the service's caller with.
    pub fn into_problem(self, step: &str) -> Problem {
        let code = match &self {
            Self::Held { .. } | Self::Lost { .. } => Code::Busy,
            Self::Refused { .. } => Code::Internal,
            Self::Unavailable { .. } => Code::BusUnavailable,
        };
        Problem::new(code, chain(&self)).retryable().at_step(step)
    }
}

/// An acquired lease. It expires by itself.
#[derive(Debug)]
pub struct Lease {
    bucket: Bucket,
    key: String,
    value: Bytes,
    ttl: Duration,
    trace: TraceContext,
    fence: u64,
    revision: u64,
    ends: BootTime,
}

impl Bucket {
    /// Takes the lease `key` for `ttl` (whole seconds, at least one) if it is free. `value` names
    /// the holder, for operators and for other processes that want the lease.
    pub async fn acquire(
        &self,
        key: &str,
        value: Bytes,
        ttl: Duration,
        trace: TraceContext,
    ) -> Result<Lease, LeaseError> {
        let revision = match self.get(key).await.map_err(|error| unreadable(key, error))? {
            Some(entry) if entry.value.is_some() => return Err(held(entry)),
            // A guard with revision 0 fails if there is a marker.
            marker => marker.map_or(0, |marker| marker.revision),
        };
        self.hold(key, value, ttl, trace, revision).await
    }

    /// Takes over the lease of a holder that is known to have ended, as [`LeaseError::Held`] showed
    /// it: a process's own lease from before its restart, or a value that was written by hand.
    /// Other processes never see the lease free.
    pub async fn inherit(
        &self,
        holder: &Entry,
        value: Bytes,
        ttl: Duration,
        trace: TraceContext,
    ) -> Result<Lease, LeaseError> {
        self.hold(&holder.key, value, ttl, trace, holder.revision).await
    }

    /// Writes the lease, guarded by the revision that was read.
    async fn hold(
        &self,
        key: &str,
        value: Bytes,
        ttl: Duration,
        trace: TraceContext,
        revision: u64,
    ) -> Result<Lease, LeaseError> {
        let refuse = |why: &str| LeaseError::Refused { key: key.to_owned(), why: why.to_owned() };
        if ttl < TTL_MIN || ttl.subsec_nanos() != 0 {
            return Err(refuse("its TTL must be whole seconds, at least one"));
        }
        if self.shape.history != 1 {
            return Err(refuse("its bucket keeps more than one value per key"));
        }
        let mut lease = Lease {
            bucket: self.clone(),
            key: key.to_owned(),
            value,
            ttl,
            trace,
            fence: 0,
            revision,
            ends: BootTime::now(),
        };
        match lease.write(ttl).await {
            Ok(()) => {
                lease.fence = lease.revision;
                Ok(lease)
            }
            Err(LeaseError::Lost { .. }) => {
                match self.get(key).await.map_err(|error| unreadable(key, error))? {
                    Some(entry) if entry.value.is_some() => Err(held(entry)),
                    _ => Err(LeaseError::Lost { key: key.to_owned() }),
                }
            }
            Err(error) => Err(error),
        }
    }
}

impl Lease {
    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The revision at which the lease was acquired: higher than every earlier holder's, and
    /// constant while the lease is held. Records that the lease protects should carry it.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// The revision of the last renewal.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the lease is surely held now.
    pub fn is_held(&self) -> bool {
        !self.ends.left().is_zero()
    }

    /// Renews the lease for this TTL from now, which may differ from the previous one.
    async fn renew_for(&mut self, ttl: Duration) -> Result<(), LeaseError> {
        self.ttl = Duration::from_secs(ttl.max(TTL_MIN).as_secs());
        self.renew().await
    }

    /// Renews the lease for its TTL from now.
    pub async fn renew(&mut self) -> Result<(), LeaseError> {
        let left = self.ends.left();
        if left.is_zero() {
            return Err(LeaseError::Lost { key: self.key.clone() });
        }
        self.write(left).await
    }

    /// Releases the lease, so that the next holder need not wait until it expires.
    pub async fn release(self) -> Result<(), LeaseError> {
        let write = Write {
            key: &self.key,
            change: Change::Delete,
            guard: Guard { filter: &self.key, revision: self.revision },
            operation: "lease.release",
            trace: self.trace,
        };
        match self.bucket.commit(write).await {
            // Another process took it meanwhile, so it is released already.
            Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Renews the lease in the background until it is lost or released: three times in each TTL, or
    /// twice if the TTL is 30 s or more.
    pub fn keep(self) -> KeptLease {
        let (_, ttl) = watch::channel(self.ttl);
        KeptLease::new(self, ttl)
    }

    /// As [`keep`](Self::keep), each time for the current value of `ttl`: whole seconds, at least
    /// one.
    pub fn keep_for(self, ttl: watch::Receiver<Duration>) -> KeptLease {
        KeptLease::new(self, ttl)
    }

    async fn write(&mut self, within: Duration) -> Result<(), LeaseError> {
        // Measured from before the write is sent: the server's TTL begins later.
        let ends = BootTime::now().after(self.ttl * 9 / 10);
        let write = Write {
            key: &self.key,
            change: Change::Put(self.value.clone()),
            guard: Guard { filter: &self.key, revision: self.revision },
            operation: "lease.hold",
            trace: self.trace,
        };
        let stored = self.bucket.commit_within(&write, Some(self.ttl), within).await;
        self.revision = stored.map_err(|error| self.failed(error))?;
        self.ends = ends;
        Ok(())
    }

    fn failed(&self, error: CommitError) -> LeaseError {
        let key = self.key.clone();
        match error {
            CommitError::Conflict { .. } => LeaseError::Lost { key },
            error @ CommitError::Refused { .. } => LeaseError::Refused { key, why: chain(&error) },
            error => LeaseError::Unavailable { key, source: Cause::new(error) },
        }
    }
}

fn held(entry: Entry) -> LeaseError {
    LeaseError::Held { key: entry.key.clone(), holder: Box::new(entry) }
}

fn unreadable(key: &str, error: ReadError) -> LeaseError {
    LeaseError::Unavailable { key: key.to_owned(), source: Cause::new(error) }
}
