//! Leases that are renewed in the background.

use std::time::Duration;

use rand::RngExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{BootTime, Lease, LeaseError, LeaseStore};
use crate::cause::chain;
use crate::connection::exchange::pause;

/// The time until which a kept lease is surely held; none once it is lost.
#[derive(Debug, Clone, Copy)]
struct HeldUntil {
    until: Option<BootTime>,
}

/// Whether a kept lease is held. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LeaseHold(watch::Receiver<HeldUntil>);

impl LeaseHold {
    /// The hold of a lease without renewal, for tests.
    pub fn lasting(ttl: Duration) -> Self {
        Self(watch::channel(HeldUntil { until: Some(BootTime::now().after(ttl)) }).1)
    }

    /// Whether the lease is surely held now. True also while a renewal is late but in time.
    pub fn is_held(&self) -> bool {
        self.0.borrow().until.is_some_and(|until| !until.left().is_zero())
    }
}

/// Interval at which a lease is compared with the clock, because timers stop while the host is
/// suspended.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A lease that is renewed in the background. If it is dropped without [`release`](Self::release),
/// it expires.
#[derive(Debug)]
pub struct KeptLease {
    key: String,
    fence: u64,
    hold: LeaseHold,
    stop: CancellationToken,
    task: Option<JoinHandle<Result<(), LeaseError>>>,
}

impl<S: LeaseStore> Lease<S> {
    /// Renews the lease in the background until it is lost or released: three times in each TTL, or
    /// twice if the TTL is 30 s or more.
    pub fn keep(self) -> KeptLease {
        let (_, ttl) = watch::channel(self.terms.ttl);
        KeptLease::new(self, ttl)
    }

    /// As [`keep`](Self::keep), each time for the current value of `ttl`: whole seconds, at least
    /// one.
    pub fn keep_for(self, ttl: watch::Receiver<Duration>) -> KeptLease {
        KeptLease::new(self, ttl)
    }
}

impl KeptLease {
    fn new<S: LeaseStore>(lease: Lease<S>, ttl: watch::Receiver<Duration>) -> Self {
        let (key, fence) = (lease.key().to_owned(), lease.fence);
        let (state, holding) = watch::channel(HeldUntil { until: Some(lease.ends) });
        let stop = CancellationToken::new();
        let task = tokio::spawn(keep(lease, ttl, state, stop.clone()));
        Self { key, fence, hold: LeaseHold(holding), stop, task: Some(task) }
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// See [`Lease::fence`].
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// See [`LeaseHold::is_held`].
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// A handle that tells whether the lease is held.
    pub fn hold(&self) -> LeaseHold {
        self.hold.clone()
    }

    /// Returns when the lease is lost. Cancel-safe.
    pub async fn lost(&self) {
        let mut holding = self.hold.0.clone();
        loop {
            let Some(until) = holding.borrow_and_update().until else { return };
            // The wait also ends when the renewing task did not run in time.
            match timeout(until.left().min(CHECK_INTERVAL), holding.changed()).await {
                Ok(Err(_)) => return,
                Err(_) if !self.is_held() => return,
                _ => {}
            }
        }
    }

    /// Stops renewing and releases the lease.
    pub async fn release(mut self) -> Result<(), LeaseError> {
        self.stop.cancel();
        match self.task.take() {
            // The task can only be cancelled by the runtime, which then ends.
            Some(task) => task.await.unwrap_or(Ok(())),
            None => Ok(()),
        }
    }
}

impl Drop for KeptLease {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// From this TTL on, a lease counts as long. Half of it leaves enough time to retry a renewal.
const LONG_TTL_MIN: Duration = Duration::from_secs(30);
/// Time left when a long lease is renewed, at most: enough even during an election.
const RENEWAL_LEFT_MAX: Duration = Duration::from_secs(20);

/// Time between two renewals. Each renewal is a write, so a long lease is renewed less often.
fn renewed_after(ttl: Duration) -> Duration {
    if ttl >= LONG_TTL_MIN { (ttl / 2).max(ttl.saturating_sub(RENEWAL_LEFT_MAX)) } else { ttl / 3 }
}

/// Renews until the lease is lost, or until renewing must stop. A lost lease leaves nothing to
/// release.
async fn keep<S: LeaseStore>(
    mut lease: Lease<S>,
    ttl: watch::Receiver<Duration>,
    state: watch::Sender<HeldUntil>,
    stop: CancellationToken,
) -> Result<(), LeaseError> {
    let mut tries = 0;
    loop {
        let spread = 0.9 + 0.2 * rand::rng().random::<f64>();
        let due = renewed_after(lease.terms.ttl).mul_f64(spread);
        tokio::select! {
            () = sleep(due), if tries == 0 => {}
            () = pause(tries), if tries > 0 => {}
            () = stop.cancelled() => return lease.release().await,
        }
        let current_ttl = *ttl.borrow();
        match lease.renew_for(current_ttl).await {
            Ok(()) => {
                tries = 0;
                state.send_replace(HeldUntil { until: Some(lease.ends) });
            }
            Err(error @ LeaseError::Unavailable { .. }) if lease.is_held() => {
                tracing::debug!(key = lease.key(), why = chain(&error), "the lease is not renewed");
                tries += 1;
            }
            Err(error) => {
                tracing::warn!(key = lease.key(), why = chain(&error), "the lease is lost");
                state.send_replace(HeldUntil { until: None });
                return Ok(());
            }
        }
    }
}
