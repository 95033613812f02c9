//! What this node asks the claim service for.

use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_client::{Client, FailedTry, Retry};
use berth_contract::code::Code;
use berth_contract::message::agent::Mount;
use berth_contract::message::alloc::{AllocQuery, AllocStatus};
use berth_contract::message::claim::{Grant, Take};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::limits::{HELD_MAX, WAIT_MAX};
use berth_domain::retry::Schedule;
use berth_domain::{AllocId, Namespace, NodeId, Timestamp};
use berth_service::clock;

use crate::caller::RequestContext;

/// A replica that was killed during a request never answers it. The next try goes to another
/// replica, or to the restarted one, which joins the call under way.
const RETRY: Retry = Retry {
    tries: Schedule { first: Duration::from_millis(1_200), max: Duration::from_secs(5) },
    pauses: Schedule { first: Duration::from_millis(100), max: Duration::from_secs(1) },
};

/// Time before the caller's deadline at which the agent answers why there is no grant.
const ANSWER_BEFORE_DEADLINE: Duration = Duration::from_millis(200);

/// The claim service, as the agent of this node asks it. Cheap to clone.
#[derive(Clone)]
pub struct ClaimService {
    pub bus: Bus,
    pub node: NodeId,
}

impl ClaimService {
    pub(super) fn client(&self) -> Client {
        Client::new(self.bus.clone())
    }

    /// Takes the claim. Retries until it is granted, refused for good, or the deadline is near.
    /// Taking a claim is idempotent (B4).
    pub(super) async fn take_claim(
        &self,
        mount: &Mount,
        RequestContext { deadline, trace }: RequestContext,
    ) -> Result<Grant, Problem> {
        let request = Take {
            alloc: mount.alloc.clone(),
            volume: mount.volume.clone(),
            node: self.node.clone(),
            mode: None,
            wait: mount.wait,
            alias: mount.alias.clone(),
        };
        let client = self.client();
        let call = Call::within(trace, time_left(deadline));
        let granted =
            client.persist::<verb::ClaimTake>(&mount.namespace, &request, &call, RETRY, |failed| {
                let FailedTry { problem, failures, .. } = *failed;
                tracing::debug!(
                    volume = %mount.volume,
                    alloc = %mount.alloc,
                    trace = trace.trace_id(),
                    failures,
                    %problem,
                    "not granted yet"
                );
                problem.retryable
            });
        granted.await.map_err(|problem| match problem.code {
            Code::NoSuchAlloc => not_placed(problem, &mount.alloc, &self.node),
            _ => problem,
        })
    }

    /// An alloc that may run on this node.
    pub(super) async fn live_alloc(
        &self,
        namespace: &Namespace,
        id: &AllocId,
        RequestContext { deadline, trace }: RequestContext,
    ) -> Result<AllocStatus, Problem> {
        let node = &self.node;
        let call = Call::within(trace, time_left(deadline));
        let status = AllocQuery::current(id.clone());
        let asked = self.client().once::<verb::AllocStatus>(namespace, &status, &call).await;
        let alloc = asked.map_err(|problem| match problem.code {
            // An agent knows of what is on its own node alone. A claim service of the last release
            // says so in another way.
            Code::NoSuchAlloc | Code::NotAllowed => not_placed(problem, id, node),
            _ => problem.node(node),
        })?;
        if alloc.state.is_terminal() {
            let message = format!("alloc {id} is {} since {}", alloc.state, alloc.since);
            return Err(Problem::new(Code::AllocTerminal, message).node(node));
        }
        Ok(alloc)
    }
}

/// Until when a request with this deadline is held. A caller that waits for its turn, and is still
/// there, asks again.
pub(super) fn held_until(wait: bool, deadline: Timestamp) -> Timestamp {
    let longest = if wait { HELD_MAX } else { WAIT_MAX };
    deadline.min(clock::now().after(longest))
}

/// Time left for requests to the claim service.
pub(super) fn time_left(deadline: Timestamp) -> Duration {
    deadline.since(clock::now()).saturating_sub(ANSWER_BEFORE_DEADLINE)
}

/// The claim service tells the agent nothing of allocs of other nodes. The user who asks the agent
/// may see where the alloc is placed.
fn not_placed(problem: Problem, id: &AllocId, node: &NodeId) -> Problem {
    let message = format!("no alloc {id} is placed on node {node}");
    let next = format!("see with `berth alloc status {id}` whether there is one, and where");
    Problem { code: Code::NoSuchAlloc, message, ..problem }.node(node).next(next)
}
