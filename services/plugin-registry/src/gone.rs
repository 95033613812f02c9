//! `node.gone`: somebody says that nothing on a node can write any more (rule 12, C7).
//!
//! **Promises** that nobody says so of a node that is there: it is refused while the node's agent
//! holds its lease, and what is written is guarded by a record that says that the node is down, as
//! it stood *before* the lease was looked at. So an agent that was told that its node counts as
//! there, and has held its lease ever since, cannot be overtaken: for that the record had to say
//! first that the lease ended. What was said first stands; saying it again changes nothing.
//! And that no evidence counts for a later absence than the one it was gathered in: the record must
//! be as it was seen before. While a node is down nothing changes its record; whoever writes it
//! tells that the node's agent was there, or that somebody said that it is gone.
//!
//! **Never** checks whether it is true. No service can.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::key;
use berth_contract::message::claim::{self, ClaimStatus};
use berth_contract::message::query::Page;
use berth_contract::message::registry::{Declared, Gone};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::{Node, NodeState};
use berth_domain::proof::Proof;
use berth_domain::{Namespace, NodeId, Timestamp};
use berth_service::deadline;
use tokio::time::Instant;

use crate::decide::Write;
use crate::events;
use crate::state::State;
use crate::store::{LostRaces, StoreError};

const STEP: &str = verb::NodeGone::STEP;
/// Claims that the reply shows.
const CLAIMS_SHOWN: u32 = 20;
/// How long a claim service may take to say which claims are left.
const CLAIMS_MAX: Duration = Duration::from_secs(2);

/// Puts on record that the node is gone.
pub async fn gone(
    state: &State,
    request: Gone,
    at: Timestamp,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Declared, Problem> {
    let Gone { node, kind, by, note, seen } = request;
    if by.trim().is_empty() {
        let problem = "is empty; say who answers for it".to_owned();
        let fault = Fault { path: "by".to_owned(), problem, line: None };
        return Err(Problem::bad_input(STEP, vec![fault]).node(&node));
    }
    let proof = Proof { kind, by, at, note };
    let mut races = LostRaces::default();
    let declared = loop {
        let attempt = declare(state, &node, &proof, seen, trace, deadline).await;
        if let Some(outcome) = races.outcome(STEP, attempt) {
            break outcome;
        }
    };
    let proof = declared.map_err(|problem| problem.node(&node))?;
    let claims = claims_left(state, &node, trace, deadline).await;
    Ok(Declared { proof, claims })
}

/// The first claims of the node, each with what it waits for; none when nobody says so in time.
async fn claims_left(
    state: &State,
    node: &NodeId,
    trace: TraceContext,
    deadline: Instant,
) -> Option<Vec<ClaimStatus>> {
    let page = Page { limit: Some(CLAIMS_SHOWN), ..Page::default() };
    let wanted = claim::Status { node: Some(node.clone()), page, ..claim::Status::default() };
    let within = CLAIMS_MAX.min(deadline.saturating_duration_since(Instant::now()) / 2);
    let call = Call::within(trace, within);
    let asked = state.bus.ask::<verb::ClaimStatus>(&Namespace::all(), &wanted, &call).await;
    asked.ok().map(|claims| claims.claims)
}

/// The record first, then the lease: see the module.
async fn declare(
    state: &State,
    node: &NodeId,
    proof: &Proof,
    seen_at: u64,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Proof, StoreError> {
    let seen = state.look(node, BTreeSet::new()).await?;
    let known = seen.standing.node.as_ref();
    if let Some(proof) = known.and_then(|known| known.gone.clone()) {
        return Ok(proof);
    }
    let lease = state.leases.get(&key::node_lease(node)).await?;
    let held = lease.is_some_and(|lease| lease.value.is_some());
    if let Some(there) = there(node, known, held) {
        return Err(there.into());
    }
    // Where there is no record the marker of a deleted one does not count.
    let stands = known.map_or(0, |_| seen.revision(&key::node(node)));
    if stands != seen_at {
        return Err(changed(node, seen_at).into());
    }
    deadline::check(deadline)?;
    let known = known.cloned().unwrap_or_else(|| unknown(proof));
    let next = Node { gone: Some(proof.clone()), ..known };
    state.store(node, &seen, &Write::Node(next), trace).await?;
    let told = trace.trace_id();
    tracing::warn!(%node, %proof, trace = told, "the node counts as gone, which frees its claims");
    events::tell(&state.events, &events::node_gone(node, proof, trace), trace);
    Ok(proof.clone())
}

/// Why the node is not gone; none when nothing speaks against it.
fn there(node: &NodeId, known: Option<&Node>, held: bool) -> Option<Problem> {
    if held {
        let said = format!("the agent of node {node} holds its lease");
        return Some(Problem::new(Code::NodeReady, said));
    }
    known.filter(|known| known.state == NodeState::Ready).map(|_| {
        let said = format!("the lease of node {node} has ended only now");
        Problem::new(Code::NodeReady, said).retryable()
    })
}

/// The record is another than was seen before the evidence was gathered. Which one it is now is not
/// said: the evidence has to be gathered again after a look, and not only the number changed.
fn changed(node: &NodeId, seen: u64) -> Problem {
    let said = format!(
        "the record of node {node} is not at revision {seen} any more: the node may have been back \
         since, and what was made sure of before says nothing of now"
    );
    let next = format!(
        "see with `berth node status {node}` how it is now, make sure again that nothing there can \
         write, and say it with the revision that is shown"
    );
    Problem::new(Code::Changed, said).next(next)
}

/// The record of a node that nobody knows (any more): claims may name it, and they are released by
/// nothing else.
fn unknown(proof: &Proof) -> Node {
    Node {
        state: NodeState::Down,
        since: proof.at,
        clock_skew_ms: 0,
        version: String::new(),
        boot_id: String::new(),
        reported: Timestamp::default(),
        attributes: BTreeMap::new(),
        unaccounted: Vec::new(),
        gone: None,
        back: None,
    }
}
