//! Asking for a grant.

use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_contract::code::Code;
use berth_contract::message::agent::Mount;
use berth_contract::message::claim::{Grant, Take};
use berth_contract::problem::Problem;
use berth_contract::subject::Namespaced;
use berth_contract::trace::TraceContext;
use berth_domain::retry::Schedule;
use berth_domain::{NodeId, Timestamp};
use berth_service::clock;
use tokio::time::{Instant, sleep};

const STEP: &str = "claim.take";
/// How long one request waits for its answer; the first the shortest, each later one twice as long
/// as the one before. A service that was killed under the request never answers; another replica,
/// or the next start of the same, joins the call that is under way.
const TRY: Schedule = Schedule { first: Duration::from_millis(1_200), max: Duration::from_secs(5) };
/// When it is asked again.
const AGAIN: Schedule = Schedule { first: Duration::from_millis(100), max: Duration::from_secs(1) };

/// The same after an answer that the request came too late: one of the two clocks is wrong, and
/// three hundred mounts would ask in vain four hundred times a second.
const AGAIN_LATE: Schedule =
    Schedule { first: Duration::from_secs(1), max: Duration::from_secs(15) };

/// What is left of the caller's time for telling it why there is no grant.
const TO_ANSWER: Duration = Duration::from_millis(200);

/// Asks for the claim until it is granted, refused for good, or the deadline has come. Asking again
/// is asking for the same (B4).
pub(super) async fn take_claim(
    bus: &Bus,
    node: &NodeId,
    mount: &Mount,
    deadline: Timestamp,
    trace: TraceContext,
) -> Result<Grant, Problem> {
    let subject = Namespaced::ClaimTake.subject(&mount.namespace);
    let request = Take {
        alloc: mount.alloc.clone(),
        volume: mount.volume.clone(),
        node: node.clone(),
        mode: None,
        wait: mount.wait,
        alias: mount.alias.clone(),
    };
    let (mut tries, mut requests) = (0, 0);
    let mut last = None;
    loop {
        let left = time_left(deadline);
        if left.is_zero() {
            let late = || Problem::new(Code::Late, "there was no time left to ask").retryable();
            return Err(last.unwrap_or_else(late).at(STEP));
        }
        requests += 1;
        let given = left.min(TRY.longest(requests));
        let call = Call::within(trace, given);
        let asked = Instant::now();
        let problem = match bus.request::<Grant>(&subject, &request, &call).await {
            Ok(grant) => return Ok(grant),
            Err(error) => error.into_problem(STEP),
        };
        if !problem.retryable {
            return Err(problem);
        }
        tracing::debug!(
            volume = %mount.volume,
            alloc = %mount.alloc,
            trace = trace.trace_id(),
            %problem,
            "not granted yet"
        );
        let is_late = problem.code == Code::Late;
        last = Some(problem.or_reason(last, given >= AGAIN.max));
        // Who was kept waiting for the answer asks again at once, so as to miss nothing.
        tries = if asked.elapsed() > AGAIN.max { 1 } else { tries + 1 };
        let again = if is_late { AGAIN_LATE } else { AGAIN };
        sleep(again.wait(tries, clock::jitter()).min(time_left(deadline))).await;
    }
}

/// How long it may still be asked.
pub(super) fn time_left(deadline: Timestamp) -> Duration {
    deadline.since(clock::now()).saturating_sub(TO_ANSWER)
}
