//! Leases: keys that go by themselves unless they are renewed.
//!
//! **Owns** acquiring, renewing and releasing by guarded writes with a TTL. The client library's
//! own way drops the TTL when the key's last message is an expiry marker, so that the second holder
//! of a lease would hold it for ever; here every write carries it.
//!
//! **Promises** that a holder counts itself out before the server can: the lease ends, by this
//! host's clock since boot, which goes on in suspend, a TTL after the last renewal was *sent*, less
//! a tenth for the clocks' rates. A value without a TTL ([`Entry::has_ttl`]) was written by hand.
//! It never expires, so it is no lease, and a caller may [take it over](Bucket::inherit).
//!
//! **Never** fences anything: a process that was stopped for a minute believes for an instant that
//! it still holds. Put [`Lease::fence`] into what the lease guards, and let the guard of that write
//! decide. The bucket must keep one value per key: with more, the server raises every TTL.

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

/// Why a lease was not got or kept.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// Somebody else holds it.
    #[error("{key} is held by another since revision {}", holder.revision)]
    Held {
        /// The key.
        key: String,
        /// What the holder wrote.
        holder: Box<Entry>,
    },
    /// It was ours, and is not any more: it ran out, or somebody else has it.
    #[error("{key} is lost: it was not renewed in time, or was taken")]
    Lost {
        /// The key.
        key: String,
    },
    /// It cannot be asked for like this.
    #[error("{key} cannot be a lease: {why}")]
    Refused {
        /// The key.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// The bus does not answer. Acquired or not, it ends by itself after its TTL.
    #[error("{key} cannot be asked for now")]
    Unavailable {
        /// The key.
        key: String,
        /// What the last try ended with.
        #[source]
        source: Cause,
    },
}

impl LeaseError {
    /// What a caller of ours is told.
    pub fn into_problem(self, step: &str) -> Problem {
        let code = match &self {
            Self::Held { .. } | Self::Lost { .. } => Code::Busy,
            Self::Refused { .. } => Code::Internal,
            Self::Unavailable { .. } => Code::BusUnavailable,
        };
        Problem::new(code, chain(&self)).retryable().at_step(step)
    }
}

/// A lease that was got, and that ends by itself.
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
    /// Takes the lease `key` for `ttl` (whole seconds, at least one), if nobody holds it. `value`
    /// says who holds it, for people and for whoever finds it taken.
    pub async fn acquire(
        &self,
        key: &str,
        value: Bytes,
        ttl: Duration,
        trace: TraceContext,
    ) -> Result<Lease, LeaseError> {
        let revision = match self.get(key).await.map_err(|error| unreadable(key, error))? {
            Some(entry) if entry.value.is_some() => return Err(held(entry)),
            // A guard on nothing does not hold over a marker.
            marker => marker.map_or(0, |marker| marker.revision),
        };
        self.hold(key, value, ttl, trace, revision).await
    }

    /// Takes over the lease of a holder that is known to have ended, as [`LeaseError::Held`] showed
    /// it. A process takes over its own lease of before its restart, or a value that was written by
    /// hand. Other processes never see the lease unheld.
    pub async fn inherit(
        &self,
        holder: &Entry,
        value: Bytes,
        ttl: Duration,
        trace: TraceContext,
    ) -> Result<Lease, LeaseError> {
        self.hold(&holder.key, value, ttl, trace, holder.revision).await
    }

    /// Writes a lease over the revision that was seen.
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

    /// The revision at which it was acquired: higher than every earlier holder's, the same for as
    /// long as it is held. This is what the records that the lease guards should carry.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// The revision of the last renewal.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether it is surely held now.
    pub fn is_held(&self) -> bool {
        !self.ends.left().is_zero()
    }

    /// Holds it for another TTL from now, which may be another than before.
    async fn renew_for(&mut self, ttl: Duration) -> Result<(), LeaseError> {
        self.ttl = Duration::from_secs(ttl.max(TTL_MIN).as_secs());
        self.renew().await
    }

    /// Holds it for another TTL from now.
    pub async fn renew(&mut self) -> Result<(), LeaseError> {
        let left = self.ends.left();
        if left.is_zero() {
            return Err(LeaseError::Lost { key: self.key.clone() });
        }
        self.write(left).await
    }

    /// Gives it up, so that the next holder need not wait for its end.
    pub async fn release(self) -> Result<(), LeaseError> {
        let write = Write {
            key: &self.key,
            change: Change::Delete,
            guard: Guard { filter: &self.key, revision: self.revision },
            operation: "lease.release",
            trace: self.trace,
        };
        match self.bucket.commit(write).await {
            // Taken by another meanwhile: it is given up all the same.
            Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Renews it in the background, three times in each TTL, twice in one of 30 s or more, until it
    /// is lost or released.
    pub fn keep(self) -> KeptLease {
        let (_, ttl) = watch::channel(self.ttl);
        KeptLease::new(self, ttl)
    }

    /// The same, each time for the TTL that `ttl` says then: whole seconds, at least one.
    pub fn keep_for(self, ttl: watch::Receiver<Duration>) -> KeptLease {
        KeptLease::new(self, ttl)
    }

    async fn write(&mut self, within: Duration) -> Result<(), LeaseError> {
        // Counted from before the write is sent: the server's count begins later.
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
