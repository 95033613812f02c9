//! Asks Berth's services, as any client of the bus may.
//!
//! **Owns** how a request is pursued: how long one try waits for its answer, which failed tries are
//! followed by another, how long the pauses are, and which of several errors the caller gets.
//!
//! **Promises** that every request ends by its deadline, that the caller sees each failed try with
//! its number before the next one begins, and that the error names the verb, the trace and, for a
//! node's agent, the node.
//!
//! **Never** repeats a request that may call a plugin unless the caller says so. Repeating is safe:
//! every request of Berth's is idempotent.
//!
//! An example, `examples/volume.rs`:
//!
//! ```ignore
#![doc = include_str!("../examples/volume.rs")]
//! ```

mod page;
mod poll;
mod retry;
pub mod scheduler;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::service::{NODE_AGENT, READERS};
use berth_contract::verb::{Address as _, Effect, Sender, Verb};
use berth_domain::retry::Schedule;
use tokio::time::{Instant, sleep};

pub use poll::poll;
pub use retry::{FailedTry, Retry};

/// Most tries of a request while replicas answer that they are too old for it or for a record. With
/// two replicas, one of them older, thirty-one of thirty-two requests reach the newer one.
const OTHER_REPLICA_TRIES: u32 = 5;
const OTHER_REPLICA_PAUSES: Schedule =
    Schedule { first: Duration::from_millis(20), max: Duration::from_millis(200) };

/// Sends the requests of verbs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    bus: Bus,
    requests: Arc<AtomicU64>,
}

impl Client {
    /// A client of this bus.
    pub fn new(bus: Bus) -> Self {
        Self { bus, requests: Arc::default() }
    }

    /// The bus that it uses.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// The number of requests sent so far, by this client and its clones.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Sends one request. A stalled or killed replica does not delay the caller: the request is
    /// also sent to another replica, if the verb's row allows that. If a replica is too old to read
    /// the request or a record, the request is sent again a few times, because another replica may
    /// be newer.
    pub async fn once<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        call: &Call,
    ) -> Result<V::Reply, Problem> {
        let mut tries = 0;
        loop {
            let answer = self.send::<V>(to, request, call).await;
            tries += 1;
            let pause = OTHER_REPLICA_PAUSES.wait(tries, rand::random());
            match &answer {
                Err(problem)
                    if is_of_older_replica::<V>(problem)
                        && tries < OTHER_REPLICA_TRIES
                        && Instant::now() + pause < call.deadline =>
                {
                    sleep(pause).await;
                }
                _ => return answer,
            }
        }
    }

    async fn send<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        call: &Call,
    ) -> Result<V::Reply, Problem> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let is_brief = V::ROW.effect == Effect::BriefChange;
        let call = call.hedged(V::ROW.any_replica_answers()).sent_again_early(is_brief);
        self.bus.ask_service::<V>(to, request, &call).await.map_err(|error| {
            let problem = error.into_problem(V::STEP).trace(call.trace.trace_id());
            let mut problem = with_capability::<V>(problem);
            // Services of the last release answer that it is not retryable.
            problem.retryable |= is_of_older_replica::<V>(&problem);
            match to.node().filter(|_| V::ROW.service == NODE_AGENT) {
                Some(node) => with_node(problem, node.as_str()),
                None => problem,
            }
        })
    }
}

/// Whether a replica could not read the request or a record, and another replica of the service
/// might. An agent also passes on such an answer of a claim service's replica.
fn is_of_older_replica<V: Verb>(problem: &Problem) -> bool {
    let has_replicas = READERS.contains(&V::ROW.service);
    match problem.code {
        Code::NewerRecord => has_replicas || V::ROW.service == NODE_AGENT,
        _ => has_replicas && problem.is_of_older_service(),
    }
}

/// Names the capability that the caller's credentials lack.
fn with_capability<V: Verb>(problem: Problem) -> Problem {
    if problem.code != Code::NotAllowed || !V::ROW.is_for_clients() {
        return problem;
    }
    let senders = V::ROW.senders.iter().filter(|sender| matches!(sender, Sender::Holder(_)));
    let needed: Vec<String> = senders.map(ToString::to_string).collect();
    problem.next(format!(
        "ask the fleet's operator for the capability {}; `berth access show NAME` says in words \
         what an identity may do",
        needed.join(" or ")
    ))
}

/// Names the node of an agent that did not answer. The bus knows only the agent's subject.
fn with_node(problem: Problem, node: &str) -> Problem {
    let is_away = matches!(problem.code, Code::NoResponder | Code::NoAnswer);
    let problem = if is_away && problem.node.is_none() {
        problem.next(format!(
            "see with `berth node status {node}` how it is; start berth-node-agent there, or look \
             at its log"
        ))
    } else {
        problem
    };
    problem.node(node)
}
