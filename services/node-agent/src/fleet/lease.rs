//! The node's lease: it shows that this agent lives.
//!
//! **Owns** who holds the key `node.<node>` in the leases bucket. The registry writes the key for
//! the agent, which may write no stream (decision 0042), and reads the node's presence from it
//! alone.
//!
//! **Promises** that one agent at a time answers for a node. A second agent of the same node name
//! waits at its start. An agent whose lease another agent took ends. A restarted agent takes over
//! its own earlier lease, so the registry does not see a crash that ends in time.
//!
//! **Never** fences: what is mounted here stays mounted when the lease ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_bus::lease::{LeaseStore, LeaseTerms};
use berth_bus::{Bus, Call, Cause, Entry, KeptLease, Lease, LeaseError, RequestError};
use berth_contract::key;
pub use berth_contract::lease::Holder;
use berth_contract::message::node::{FoundLease, Hold, LeaseAnswer, Yield};
use berth_contract::verb;
use berth_domain::retry::Schedule;
use berth_domain::{NodeId, Timestamp};
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::fleet::gate::Gate;

/// Pauses between attempts to get the lease.
const RETRY: Schedule = Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };

/// How long one answer may take. A lease is renewed several times within its TTL.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// How long a replica of the registry has before the request is sent again. Until nats-server drops
/// a replica that hangs, the queue group gives it its share of the requests.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(700);
/// How often one request is sent. With one of two replicas hung, one of eight goes unanswered.
const SENT_MAX: usize = 3;

/// Numbers the requests of this process: the registry drops one that comes late.
static RENEWALS: AtomicU64 = AtomicU64::new(0);

/// Another agent answers for the node.
#[derive(Debug, Error)]
#[error(
    "another agent has taken the lease of node {node}: {other}; two agents must not bear one name"
)]
pub struct LeaseTaken {
    node: NodeId,
    other: String,
}

/// The lease's TTL: as configured, or longer if the registry says that the fleet is large. Cheap to
/// clone.
#[derive(Debug, Clone)]
pub struct LeaseTtl {
    configured: Duration,
    now: watch::Sender<Duration>,
}

impl LeaseTtl {
    /// As configured, until the registry asks for more.
    pub fn new(configured: Duration) -> Self {
        Self { configured, now: watch::Sender::new(configured) }
    }

    /// Sets the TTL that the registry asks for at least.
    pub fn at_least(&self, pace: Duration) {
        let ttl = self.configured.max(pace);
        self.now.send_if_modified(|now| std::mem::replace(now, ttl) != ttl);
    }

    /// The TTL from the next renewal on.
    pub fn now(&self) -> Duration {
        *self.now.borrow()
    }

    fn follow(&self) -> watch::Receiver<Duration> {
        self.now.subscribe()
    }
}

/// Acquires and keeps the lease of one node.
#[derive(Debug, Clone)]
pub struct NodeLease {
    /// The bus.
    pub bus: Bus,
    /// What is written into it.
    pub holder: Holder,
    /// How long the lease lives without renewal.
    pub ttl: LeaseTtl,
    /// Closed while the lease is not held.
    pub gate: Gate,
    /// The incarnation of the volumes bucket, as the registry tells it; 0 while unknown.
    pub volumes: watch::Sender<u64>,
}

/// Leases of nodes, which the registry writes.
#[derive(Debug, Clone)]
struct RegistryLeases {
    bus: Bus,
    volumes: watch::Sender<u64>,
}

impl LeaseStore for RegistryLeases {
    type Value = Holder;

    async fn hold(
        &self,
        terms: &LeaseTerms<Holder>,
        over: Option<u64>,
        within: Duration,
    ) -> Result<u64, LeaseError> {
        let request = Hold {
            holder: terms.value.clone(),
            ttl_s: terms.ttl.as_secs(),
            over,
            renewal: Some(RENEWALS.fetch_add(1, Ordering::Relaxed) + 1),
        };
        // A lease is renewed for ever.
        let call = Call::within(clock::begin_unrecorded_trace(), within.min(ANSWER_WITHIN));
        let key = terms.key.clone();
        let answer = self.request_hold(&request, &call).await;
        if let Ok(LeaseAnswer { volumes: Some(volumes), .. }) = &answer {
            let is_new = |known: &mut u64| std::mem::replace(known, *volumes) != *volumes;
            self.volumes.send_if_modified(is_new);
        }
        match answer {
            Ok(LeaseAnswer { revision: Some(revision), .. }) => Ok(revision),
            Ok(LeaseAnswer { found: Some(found), .. }) => {
                let holder = Box::new(read_entry(&key, found));
                Err(LeaseError::Held { key, holder })
            }
            Ok(_) => Err(LeaseError::Lost { key }),
            Err(error) => Err(unavailable(key, error)),
        }
    }

    async fn release(&self, terms: &LeaseTerms<Holder>, revision: u64) -> Result<(), LeaseError> {
        let request = Yield { node: terms.value.node.clone(), revision };
        let call = Call::within(terms.trace, ANSWER_WITHIN);
        let yielded = self.bus.ask_service::<verb::NodeYield>(&(), &request, &call).await;
        yielded.map(drop).map_err(|error| unavailable(terms.key.clone(), error))
    }
}

impl RegistryLeases {
    /// Sends the request, and sends it again while no answer has come. All copies have one number,
    /// so one of them is written.
    async fn request_hold(&self, request: &Hold, call: &Call) -> Result<LeaseAnswer, RequestError> {
        let ask = || self.bus.ask_service::<verb::NodeHold>(&(), request, call);
        let mut sent = FuturesUnordered::from_iter([ask()]);
        let mut copies = 1;
        loop {
            tokio::select! {
                Some(answer) = sent.next() => {
                    if answer.is_ok() || sent.is_empty() {
                        return answer;
                    }
                }
                () = sleep(SEND_AGAIN_AFTER), if copies < SENT_MAX => {
                    sent.push(ask());
                    copies += 1;
                }
            }
        }
    }
}

fn read_entry(key: &str, found: FoundLease) -> Entry {
    Entry {
        key: key.to_owned(),
        revision: found.revision,
        value: Some(found.value.into()),
        operation: None,
        has_ttl: found.has_ttl,
        created: Timestamp::default(),
    }
}

fn unavailable(key: String, error: RequestError) -> LeaseError {
    LeaseError::Unavailable { key, source: Cause::new(error) }
}

/// The result of one attempt to get the lease.
enum LeaseAttempt {
    Held(KeptLease),
    /// Another agent holds it. The value of its lease.
    Other(String),
    /// The key was written by hand.
    Junk(Box<Entry>),
    /// The bus did not answer, or the key changed meanwhile.
    NotNow(LeaseError),
}

impl NodeLease {
    /// Waits until the lease is held. Returns `None` if the shutdown comes first.
    pub async fn acquire(&self, shutdown: &Shutdown) -> Option<KeptLease> {
        let mut tries = 0;
        let mut junk: Option<(u64, Instant)> = None;
        loop {
            tries += 1;
            let mut asked = self.try_acquire().await;
            if let LeaseAttempt::Junk(entry) = &asked {
                let seen = junk.filter(|(revision, _)| *revision == entry.revision);
                let (_, since) = *junk.insert(seen.unwrap_or((entry.revision, Instant::now())));
                // An agent whose lease it overwrote notices within the TTL.
                if since.elapsed() > 2 * self.ttl.now() {
                    asked = self.try_inherit(entry).await;
                }
            }
            match asked {
                LeaseAttempt::Held(lease) => {
                    self.gate.lease_gained(lease.hold());
                    return Some(lease);
                }
                LeaseAttempt::Junk(entry) => {
                    let node = &self.holder.node;
                    let key = &entry.key;
                    tracing::warn!(%node, key, "the lease's value is no agent's; waiting");
                }
                LeaseAttempt::Other(other) => {
                    let node = &self.holder.node;
                    tracing::warn!(%node, other, "another agent holds this node's lease; waiting");
                }
                LeaseAttempt::NotNow(error) => self.log(tries, &error),
            }
            tokio::select! {
                () = sleep(RETRY.wait(tries, clock::jitter())) => {}
                () = shutdown.requested() => return None,
            }
        }
    }

    /// Keeps the lease until the shutdown, and returns it for [`Self::give_up`]. A lost lease is
    /// acquired again. Fails if another agent has it by then.
    pub async fn keep(
        &self,
        lease: KeptLease,
        shutdown: &Shutdown,
    ) -> Result<Option<KeptLease>, LeaseTaken> {
        let mut held = lease;
        loop {
            tokio::select! {
                () = held.lost() => {}
                () = shutdown.requested() => return Ok(Some(held)),
            }
            self.gate.lease_lost();
            tracing::warn!(node = %self.holder.node, "the node's lease is lost");
            match self.regain(shutdown).await? {
                Some(lease) => held = lease,
                None => return Ok(None),
            }
            tracing::info!(node = %self.holder.node, "the node's lease is held again");
        }
    }

    async fn regain(&self, shutdown: &Shutdown) -> Result<Option<KeptLease>, LeaseTaken> {
        let mut tries = 0;
        loop {
            tries += 1;
            let asked = match self.try_acquire().await {
                // The junk overwrote our own lease.
                LeaseAttempt::Junk(entry) => self.try_inherit(&entry).await,
                asked => asked,
            };
            match asked {
                LeaseAttempt::Held(lease) => {
                    self.gate.lease_gained(lease.hold());
                    return Ok(Some(lease));
                }
                LeaseAttempt::Junk(_) => {}
                LeaseAttempt::Other(other) => {
                    return Err(LeaseTaken { node: self.holder.node.clone(), other });
                }
                LeaseAttempt::NotNow(error) => self.log(tries, &error),
            }
            tokio::select! {
                () = sleep(RETRY.wait(tries, clock::jitter())) => {}
                () = shutdown.requested() => return Ok(None),
            }
        }
    }

    async fn try_acquire(&self) -> LeaseAttempt {
        match Lease::acquire(&self.store(), self.terms()).await {
            Ok(lease) => LeaseAttempt::Held(lease.keep_for(self.ttl.follow())),
            Err(LeaseError::Held { holder: entry, .. }) => self.check_holder(entry).await,
            Err(error) => LeaseAttempt::NotNow(error),
        }
    }

    async fn check_holder(&self, entry: Box<Entry>) -> LeaseAttempt {
        let value = entry.value.clone().unwrap_or_default();
        match serde_json::from_slice::<Holder>(&value) {
            Ok(holder) if entry.has_ttl => {
                // The lease of an earlier process of this agent.
                if holder.agent == self.holder.agent && holder.boot_id == self.holder.boot_id {
                    return self.try_inherit(&entry).await;
                }
                LeaseAttempt::Other(String::from_utf8_lossy(&value).into_owned())
            }
            _ => LeaseAttempt::Junk(entry),
        }
    }

    async fn try_inherit(&self, entry: &Entry) -> LeaseAttempt {
        match Lease::inherit(&self.store(), entry, self.terms()).await {
            Ok(lease) => LeaseAttempt::Held(lease.keep_for(self.ttl.follow())),
            Err(error) => LeaseAttempt::NotNow(error),
        }
    }

    fn store(&self) -> RegistryLeases {
        RegistryLeases { bus: self.bus.clone(), volumes: self.volumes.clone() }
    }

    fn terms(&self) -> LeaseTerms<Holder> {
        let (key, value) = (key::node_lease(&self.holder.node), self.holder.clone());
        LeaseTerms { key, value, ttl: self.ttl.now(), trace: clock::begin_trace() }
    }

    /// Releases the lease, so that the node is gone at once and not after the TTL.
    pub async fn give_up(&self, lease: KeptLease) {
        if let Err(error) = lease.release().await {
            let why = berth_service::process::chain(&error);
            tracing::warn!(why, "the node's lease was not given up; it ends by itself");
        }
    }

    fn log(&self, tries: u32, error: &LeaseError) {
        let why = berth_service::process::chain(error);
        if tries <= 1 {
            tracing::warn!(node = %self.holder.node, why, "the node's lease is not held yet");
        } else {
            let node = &self.holder.node;
            tracing::debug!(%node, why, tries, "the node's lease is not held yet");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_lives_as_configured_and_longer_where_the_fleet_is_large() {
        let seconds = Duration::from_secs;
        for (configured, paces) in
            [(10, [(0, 10), (30, 30), (15, 15), (0, 10)]), (120, [(60, 120); 4])]
        {
            let ttl = LeaseTtl::new(seconds(configured));
            let followed = ttl.clone().follow();
            for (pace, lives) in paces {
                ttl.at_least(seconds(pace));
                assert_eq!((ttl.now(), *followed.borrow()), (seconds(lives), seconds(lives)));
            }
        }
    }
}
