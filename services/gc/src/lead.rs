//! The election of one leader by a lease. The other replicas are standbys.
//!
//! **Owns** the lease `leader.gc`. Only the leader listens for `gc.force`, so a request reaches the
//! leader, whichever replica that is. Without a leader the request gets "no responders".
//!
//! **Promises** that no request is sent once the lease may have ended, by this host's monotonic
//! clock. The leader checks the clock before each request, because it may have been paused.
//!
//! **Never** relies on being the only leader. A request of an earlier leader may arrive late, and
//! two sweeps at once do no harm: each request names the revision or time that the leader saw, and
//! its receiver refuses it after a change.

use std::sync::{Arc, Weak};
use std::time::Duration;

use berth_bus::serve::ServeError;
use berth_bus::{KeptLease, LeaseError, Listen, Service, VerbRequest};
use berth_contract::key;
use berth_contract::lease::Leader;
use berth_contract::message::collect::{Force, Kind, Sweep};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_service::clock;
use berth_service::process::{Fatal, Process, chain};
use berth_telemetry::metric::LEASES;
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::collector::{Collector, Order};

/// Most `gc.force` requests in progress at once.
const SWEEPS_MAX: u32 = 4;
/// Timeout of a sweep without a caller.
const SWEEP_MAX: Duration = Duration::from_secs(60);
/// Pause before the next sweep when a sweep could not take all candidates.
const NEXT_SWEEP_PAUSE: Duration = Duration::from_secs(1);
/// How long before a caller's deadline a sweep ends, so that its answer still arrives.
const ANSWER_BEFORE: Duration = Duration::from_millis(200);
/// Longest pause between two attempts of a standby to take the lease. A released lease is free
/// before its TTL.
const RETRY_MAX: Duration = Duration::from_secs(1);
/// How long a former leader lets the standbys try first.
const STEP_DOWN_PAUSE: Duration = Duration::from_secs(1);
/// How long a request in progress may continue after the leader stops.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Leads while no other replica does, until shutdown.
pub async fn stand_by(collector: &Arc<Collector>, process: &Process) -> Result<(), Fatal> {
    let service = process.announce().await?;
    tracing::info!("standing by");
    // A standby answers no requests, but it is ready to take over.
    process.report_ready();
    loop {
        let lease = tokio::select! {
            lease = elected(collector, process) => Arc::new(lease),
            () = process.shutdown.requested() => break,
        };
        tracing::info!(fence = lease.fence(), "leads");
        if let Err(error) = lead(collector, process, &service, &lease).await {
            tracing::warn!(error = chain(&error), "nobody could ask this leader; it steps down");
        }
        // A handler may hold the lease for a moment more; then the lease expires.
        if let Some(lease) = Arc::into_inner(lease)
            && let Err(error) = lease.release().await
        {
            tracing::info!(error = chain(&error), "the lease ends by itself");
        }
        if process.shutdown.is_requested() {
            break;
        }
        tracing::info!("leads no more; standing by");
        // A standby takes over first.
        sleep(clock::jittered(STEP_DOWN_PAUSE)).await;
    }
    service.stop(DRAIN_MAX).await;
    Ok(())
}

/// Tries to take the lease until it holds it.
async fn elected(collector: &Collector, process: &Process) -> KeptLease {
    let ttl = collector.config.lease_ttl;
    let holder = json!(Leader { holder: process.worker.clone(), since: clock::now() }).to_string();
    let key = key::leader_lease("gc");
    loop {
        let leases = &collector.leases;
        let (value, trace) = (|| holder.clone().into(), clock::begin_trace());
        let acquired = match leases.acquire(&key, value(), ttl, trace).await {
            // A lease that was written by hand has no TTL, and would never end.
            Err(LeaseError::Held { holder, .. }) if !holder.has_ttl => {
                tracing::warn!(key, "a value without a TTL is no lease; it is written over");
                leases.inherit(&holder, value(), ttl, trace).await
            }
            acquired => acquired,
        };
        match acquired {
            Ok(lease) => return lease.keep(),
            Err(LeaseError::Held { .. } | LeaseError::Lost { .. }) => {}
            Err(error) => tracing::warn!(error = chain(&error), "the lease cannot be had now"),
        }
        sleep(clock::jittered(RETRY_MAX.min(ttl / 4))).await;
    }
}

/// Sweeps at intervals and on request, until the lease is lost or the process ends.
async fn lead(
    collector: &Arc<Collector>,
    process: &Process,
    service: &Service,
    lease: &Arc<KeptLease>,
) -> Result<(), ServeError> {
    let (forced, held) = (Arc::clone(collector), Arc::downgrade(lease));
    let sweep = move |request| force(Arc::clone(&forced), held.clone(), request);
    let endpoint = service.on(Listen::All, SWEEPS_MAX, sweep).await?;
    LEASES.set(1, ["leader".into()]);
    tokio::select! {
        biased;
        () = lease.lost() => tracing::warn!("the lease is lost"),
        () = process.shutdown.requested() => {}
        () = sweep_now_and_then(collector, lease) => {}
    }
    LEASES.set(0, ["leader".into()]);
    endpoint.stop(DRAIN_MAX).await;
    Ok(())
}

/// Sweeps each kind at its own pace, and sooner if a sweep could not take all candidates.
async fn sweep_now_and_then(collector: &Collector, lease: &Arc<KeptLease>) {
    let mut due = Kind::ALL.map(|kind| (kind, Instant::now()));
    loop {
        let now = Instant::now();
        let pace = |kind| collector.config.pace(kind);
        let mut kinds = Vec::new();
        for (kind, at) in due.iter_mut().filter(|(_, at)| *at <= now) {
            kinds.push((*kind, pace(*kind).after));
            *at = now + clock::jittered(pace(*kind).interval);
        }
        let trace = clock::begin_trace();
        let (deadline, lease) = (now + SWEEP_MAX, Arc::downgrade(lease));
        let order = Order { kinds, trace, deadline, is_forced: false, lease };
        match collector.sweep(&order).await {
            Ok(swept) if swept.more => {
                let soon = Instant::now() + NEXT_SWEEP_PAUSE;
                for (kind, at) in &mut due {
                    if order.kinds.iter().any(|(swept, _)| swept == kind) {
                        *at = soon.min(*at);
                    }
                }
            }
            Ok(_) => {}
            Err(problem) => {
                let trace = trace.trace_id();
                tracing::warn!(trace, %problem, "nothing was swept");
            }
        }
        let next = due.iter().map(|(_, at)| *at).min().unwrap_or(now + SWEEP_MAX);
        sleep_until(next).await;
    }
}

/// Handles `gc.force`: sweeps at once.
async fn force(
    collector: Arc<Collector>,
    lease: Weak<KeptLease>,
    request: VerbRequest<verb::GcForce>,
) -> Result<Sweep, Problem> {
    let Force { kinds, grace_ms } = request.message()?;
    let wanted = |kind: &Kind| kinds.is_empty() || kinds.contains(kind);
    let after = |kind: Kind| match (grace_ms, kind) {
        (Some(ms), _) => Duration::from_millis(ms),
        (None, Kind::Claims) => Duration::ZERO,
        (None, Kind::Allocs | Kind::Nodes | Kind::Plugins) => collector.config.pace(kind).after,
    };
    let kinds = Kind::ALL.into_iter().filter(wanted).map(|kind| (kind, after(kind))).collect();
    let deadline = request.deadline.checked_sub(ANSWER_BEFORE).unwrap_or(request.deadline);
    let order = Order { kinds, trace: request.trace, deadline, is_forced: true, lease };
    order.check_lead().map_err(|problem| problem.next("ask again"))?;
    collector.sweep(&order).await.map(|swept| swept.sweep)
}
