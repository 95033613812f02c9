//! One leader, by lease; the others stand by.
//!
//! **Owns** the lease `leader.gc`. The leader alone listens for `gc.force`, so that a request finds
//! it whichever replica it is; when nobody leads, nobody answers.
//!
//! **Never** relies on being the only one: a leader that was stopped for a while may believe for an
//! instant that it still leads, and two sweeps at once do no harm.

use std::sync::{Arc, Weak};
use std::time::Duration;

use berth_bus::serve::ServeError;
use berth_bus::{EndpointSpec, KeptLease, LeaseError, Request, Service};
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::collect::{Force, Sweep};
use berth_contract::problem::Problem;
use berth_contract::subject::Global;
use berth_service::clock;
use berth_service::process::{Fatal, Process, chain};
use berth_telemetry::metric::LEASES;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::collector::Collector;

/// How long a sweep may take when nobody waits for it.
const SWEEP_MAX: Duration = Duration::from_secs(60);
/// How far ahead of a caller's deadline a sweep ends, so that its answer still arrives.
const ANSWER_BEFORE: Duration = Duration::from_millis(200);
/// The longest pause between two tries of one that stands by: a lease that was given up is not
/// waited out.
const TRY_MAX: Duration = Duration::from_secs(1);
/// How long one that led lets others go first.
const STEPPED_DOWN: Duration = Duration::from_secs(1);
/// How long a request under way may go on when the leader ends.
const DRAIN: Duration = Duration::from_secs(5);

/// Leads whenever nobody else does, until told to end.
pub async fn stand_by(collector: &Collector, process: &Process) -> Result<(), Fatal> {
    let service = process.announce().await?;
    tracing::info!("standing by");
    loop {
        let lease = tokio::select! {
            lease = elected(collector, process) => Arc::new(lease),
            () = process.shutdown.requested() => break,
        };
        tracing::info!(fence = lease.fence(), "leads");
        if let Err(error) = lead(collector, process, &service, &lease).await {
            tracing::warn!(error = chain(&error), "nobody could ask this leader; it steps down");
        }
        // A handler may hold it for a moment more; then it ends by itself.
        if let Some(lease) = Arc::into_inner(lease)
            && let Err(error) = lease.release().await
        {
            tracing::info!(error = chain(&error), "the lease ends by itself");
        }
        if process.shutdown.is_requested() {
            break;
        }
        tracing::info!("leads no more; standing by");
        // Another one's turn.
        sleep(jittered(STEPPED_DOWN)).await;
    }
    service.stop(DRAIN).await;
    Ok(())
}

/// Tries until it holds the lease.
async fn elected(collector: &Collector, process: &Process) -> KeptLease {
    let ttl = collector.config.lease_ttl;
    let holder = json!({ "holder": process.worker, "since": clock::now() }).to_string();
    let key = key::leader_lease("gc");
    loop {
        let asked =
            collector.leases.acquire(&key, holder.clone().into(), ttl, clock::begin_trace());
        match asked.await {
            Ok(lease) => return lease.keep(),
            Err(LeaseError::Held { .. } | LeaseError::Lost { .. }) => {}
            Err(error) => tracing::warn!(error = chain(&error), "the lease cannot be had now"),
        }
        sleep(jittered(TRY_MAX.min(ttl / 4))).await;
    }
}

/// Sweeps now and then, and when asked, until the lease is lost or the process is to end.
async fn lead(
    collector: &Collector,
    process: &Process,
    service: &Service,
    lease: &Arc<KeptLease>,
) -> Result<(), ServeError> {
    let spec = EndpointSpec::of(Global::GcForce, Global::GcForce.subject(), 4);
    let (asked, held) = (collector.clone(), Arc::downgrade(lease));
    let endpoint =
        service.endpoint(spec, move |request| force(asked.clone(), held.clone(), request)).await?;
    LEASES.set(1, ["leader".into()]);
    tokio::select! {
        () = sweep_now_and_then(collector) => {}
        () = lease.lost() => tracing::warn!("the lease is lost"),
        () = process.shutdown.requested() => {}
    }
    LEASES.set(0, ["leader".into()]);
    endpoint.stop(DRAIN).await;
    Ok(())
}

async fn sweep_now_and_then(collector: &Collector) {
    loop {
        let deadline = Instant::now() + SWEEP_MAX;
        let trace = clock::begin_trace();
        if let Err(problem) = collector.sweep(collector.config.grace, trace, deadline).await {
            tracing::warn!(%problem, "nothing was swept");
        }
        sleep(jittered(collector.config.interval)).await;
    }
}

/// `gc.force`: sweeps at once, and leaves nobody time to see things first.
async fn force(
    collector: Collector,
    lease: Weak<KeptLease>,
    request: Request,
) -> Result<Sweep, Problem> {
    const STEP: &str = "gc.force";
    let Force {} = request.decode(STEP)?;
    if !lease.upgrade().is_some_and(|lease| lease.is_held()) {
        let said = "this collector has just lost its place to another";
        return Err(Problem::new(Code::NoResponder, said).retryable().at(STEP).next("ask again"));
    }
    let deadline = request.deadline.checked_sub(ANSWER_BEFORE).unwrap_or(request.deadline);
    collector.sweep(Duration::ZERO, request.trace, deadline).await
}

/// The time give or take a quarter, so that replicas do not all act at once.
fn jittered(every: Duration) -> Duration {
    every.mul_f64(0.75 + 0.5 * f64::from(clock::jitter()) / f64::from(u32::MAX))
}
