//! The owner's lease: taken at the start, and renewed until the scheduler ends.
//!
//! **Promises** that a lease which may have ended counts as lost before another instance can have
//! taken its allocs: the time is counted from before the last renewal.

use std::time::Duration;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::message::owner::{HoldOwner, YieldOwner};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::OwnerId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::asker::{Asker, BRIEF};

/// Interval of requests for a lease that another process holds.
const ACQUIRE_INTERVAL: Duration = Duration::from_millis(500);

/// A lease, and the task that renews it.
#[derive(Debug)]
pub(super) struct Lease {
    holder: String,
    held: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Lease {
    /// Takes the lease. The lease of an earlier process ends within its time to live.
    pub(super) async fn take(
        asker: &Asker,
        owner: &OwnerId,
        ttl: Duration,
    ) -> Result<Self, Problem> {
        let holder = format!("{}-{:016x}", std::process::id(), rand::random::<u64>());
        let ttl_s = ttl.as_secs().max(1);
        let request = HoldOwner { owner: owner.clone(), holder: holder.clone(), ttl_s };
        let give_up_at = Instant::now() + ttl * 2 + BRIEF;
        let mut since = Instant::now();
        while let Err(problem) = renew(asker, &request, ttl).await {
            if !problem.retryable || Instant::now() >= give_up_at {
                return Err(problem);
            }
            sleep(ACQUIRE_INTERVAL).await;
            since = Instant::now();
        }
        let (teller, held) = watch::channel(true);
        let task = tokio::spawn(keep(asker.clone(), request, ttl, since, teller));
        Ok(Self { holder, held, task })
    }

    /// Waits until the lease is lost.
    pub(super) async fn lost(&self) {
        let mut held = self.held.clone();
        // The task lives as long as this value.
        let _: Result<_, _> = held.wait_for(|held| !held).await;
    }

    /// Deletes it.
    pub(super) async fn give_up(&self, asker: &Asker, owner: &OwnerId) -> Result<(), Problem> {
        self.task.abort();
        let request = YieldOwner { owner: owner.clone(), holder: self.holder.clone() };
        match asker.send_brief::<verb::OwnerYield>(&request).await {
            Err(problem) if problem.code != Code::OwnerHeld => Err(problem),
            _ => Ok(()),
        }
    }
}

async fn renew(asker: &Asker, hold: &HoldOwner, ttl: Duration) -> Result<(), Problem> {
    // A lease is renewed for ever.
    let call = Call::within(TraceContext::begin_unrecorded(&mut rand::rng()), ttl / 3);
    asker.client.once::<verb::OwnerHold>(&asker.namespace, hold, &call).await.map(drop)
}

/// Renews the lease each third of its time to live.
async fn keep(
    asker: Asker,
    hold: HoldOwner,
    ttl: Duration,
    mut since: Instant,
    held_sender: watch::Sender<bool>,
) {
    loop {
        sleep(if *held_sender.borrow() { ttl / 3 } else { ACQUIRE_INTERVAL }).await;
        let sent_at = Instant::now();
        match renew(&asker, &hold, ttl).await {
            Ok(()) => {
                since = sent_at;
                held_sender.send_if_modified(|held| !std::mem::replace(held, true));
            }
            Err(problem) => {
                let is_over = problem.code == Code::OwnerHeld || since.elapsed() >= ttl;
                held_sender.send_if_modified(|held| is_over && std::mem::replace(held, false));
            }
        }
    }
}
