//! Leases: keys that expire unless they are renewed.
//!
//! **Owns** acquiring, renewing and releasing by guarded writes with a TTL, in a [`LeaseStore`]: a
//! bucket, or a service that writes there for processes that may not.
//!
//! **Promises** that the holder considers the lease ended before the server does. For the holder
//! the lease ends one TTL after the last renewal was *sent*, less a tenth for the difference of the
//! clocks' rates. The clock is this host's time since boot, which continues in suspend.
//!
//! A value without a TTL ([`Entry::has_ttl`]) was written by hand. It never expires, so it is no
//! lease, and a caller may [take it over](Lease::inherit).
//!
//! **Never** fences anything: a process that was paused for a minute believes for an instant that
//! it still holds the lease. Put [`Lease::fence`] into the records that the lease protects, and let
//! the guard of that write decide. The bucket must keep one value per key: with more, the server
//! raises every TTL.

mod bucket;
mod keep;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use berth_contract::trace::TraceContext;
use berth_contract::{code::Code, problem::Problem};
use berth_host::BootTime;
use thiserror::Error;

use crate::cause::{Cause, chain};
use crate::store::bucket::Bucket;
use crate::store::read::Entry;

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

/// The problem to answer the service's caller with.
impl From<LeaseError> for Problem {
    fn from(error: LeaseError) -> Self {
        let code = match &error {
            LeaseError::Held { .. } | LeaseError::Lost { .. } => Code::Busy,
            LeaseError::Refused { .. } => Code::Internal,
            LeaseError::Unavailable { .. } => Code::BusUnavailable,
        };
        Self::new(code, chain(&error)).retryable()
    }
}

/// What is written, and for how long.
#[derive(Debug, Clone)]
pub struct LeaseTerms<V> {
    /// The key.
    pub key: String,
    /// Names the holder, for operators and for other processes that want the lease.
    pub value: V,
    /// Whole seconds, at least one.
    pub ttl: Duration,
    /// The trace that the writes belong to.
    pub trace: TraceContext,
}

/// A store of leases.
pub trait LeaseStore: Clone + fmt::Debug + Send + Sync + 'static {
    /// The value that names a holder.
    type Value: Clone + fmt::Debug + Send + Sync + 'static;

    /// Writes the key if it is still at the revision `over`, or without `over` if it has no holder,
    /// and returns its revision. Fails as held, or as lost if it has no holder any more.
    fn hold(
        &self,
        terms: &LeaseTerms<Self::Value>,
        over: Option<u64>,
        within: Duration,
    ) -> impl Future<Output = Result<u64, LeaseError>> + Send;

    /// Deletes the key, if it is still at this revision.
    fn release(
        &self,
        terms: &LeaseTerms<Self::Value>,
        revision: u64,
    ) -> impl Future<Output = Result<(), LeaseError>> + Send;
}

/// An acquired lease. It expires by itself.
#[derive(Debug)]
pub struct Lease<S: LeaseStore = Bucket> {
    store: S,
    terms: LeaseTerms<S::Value>,
    fence: u64,
    revision: u64,
    ends: BootTime,
}

impl<S: LeaseStore> Lease<S> {
    /// Takes the lease if it is free.
    pub async fn acquire(store: &S, terms: LeaseTerms<S::Value>) -> Result<Self, LeaseError> {
        Self::take(store, terms, None).await
    }

    /// Takes over the lease of a holder that is known to have ended, as [`LeaseError::Held`] showed
    /// it: a process's own lease from before its restart, or a value that was written by hand.
    /// Other processes never see the lease free.
    pub async fn inherit(
        store: &S,
        holder: &Entry,
        terms: LeaseTerms<S::Value>,
    ) -> Result<Self, LeaseError> {
        Self::take(store, terms, Some(holder.revision)).await
    }

    async fn take(
        store: &S,
        terms: LeaseTerms<S::Value>,
        over: Option<u64>,
    ) -> Result<Self, LeaseError> {
        let (ends, within) = (ends_after(terms.ttl), terms.ttl);
        let revision = store.hold(&terms, over, within).await?;
        Ok(Self { store: store.clone(), terms, fence: revision, revision, ends })
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.terms.key
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
        self.terms.ttl = Duration::from_secs(ttl.max(TTL_MIN).as_secs());
        self.renew().await
    }

    /// Renews the lease for its TTL from now.
    pub async fn renew(&mut self) -> Result<(), LeaseError> {
        let remaining = self.ends.left();
        if remaining.is_zero() {
            return Err(LeaseError::Lost { key: self.terms.key.clone() });
        }
        let ends = ends_after(self.terms.ttl);
        self.revision = self.store.hold(&self.terms, Some(self.revision), remaining).await?;
        self.ends = ends;
        Ok(())
    }

    /// Releases the lease, so that the next holder need not wait until it expires.
    pub async fn release(self) -> Result<(), LeaseError> {
        self.store.release(&self.terms, self.revision).await
    }
}

/// The end of a lease for its holder, measured from before the write is sent: the server's TTL
/// begins later.
fn ends_after(ttl: Duration) -> BootTime {
    BootTime::now().after(ttl * 9 / 10)
}
