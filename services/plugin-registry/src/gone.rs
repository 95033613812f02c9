//! `node.gone`: an operator declares that nothing on a node can write any more (rule 12, C7).
//!
//! **Promises**
//!
//! - A node whose agent holds its lease is not declared gone. The write is guarded by a record that
//!   says that the node is down, and that was read *before* the lease. So the declaration cannot
//!   overtake an agent that was told that its node is ready and has held its lease since: the
//!   record had to say first that the lease ended.
//! - The first declaration stays. Declaring the node gone again changes nothing.
//! - Evidence counts only for the absence in which it was gathered: the record must still be at the
//!   revision that the operator saw before. While a node is down, only two things change its
//!   record: its agent's return, and a declaration.
//!
//! **Never** checks whether the declaration is true. No service can.

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
use berth_service::record_table::{StoreError, retry_lost_races};
use tokio::time::Instant;

use crate::decide::Write;
use crate::events;
use crate::state::State;

const STEP: &str = verb::NodeGone::STEP;
/// Claims that the reply shows.
const CLAIMS_SHOWN_MAX: u32 = 20;
/// How long a claim service may take to list the claims that are left.
const CLAIMS_TIMEOUT: Duration = Duration::from_secs(2);

/// Writes the declaration to the node's record.
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
    let attempt = || declare(state, &node, &proof, seen, trace, deadline);
    let proof = retry_lost_races(STEP, attempt).await.map_err(|problem| problem.node(&node))?;
    let claims = claims_left(state, &node, trace, deadline).await;
    Ok(Declared { proof, claims })
}

/// The first claims of the node, each with what it waits for; none when no claim service answers in
/// time.
async fn claims_left(
    state: &State,
    node: &NodeId,
    trace: TraceContext,
    deadline: Instant,
) -> Option<Vec<ClaimStatus>> {
    let page = Page { limit: Some(CLAIMS_SHOWN_MAX), ..Page::default() };
    let wanted = claim::Status { node: Some(node.clone()), page, ..claim::Status::default() };
    let within = CLAIMS_TIMEOUT.min(deadline.saturating_duration_since(Instant::now()) / 2);
    let call = Call::within(trace, within);
    let asked =
        state.bus.ask_service::<verb::ClaimStatus>(&Namespace::wildcard(), &wanted, &call).await;
    asked.ok().map(|claims| claims.claims)
}

/// Reads the record first and then the lease, for the reason that the module gives.
async fn declare(
    state: &State,
    node: &NodeId,
    proof: &Proof,
    seen: u64,
    trace: TraceContext,
    deadline: Instant,
) -> Result<Proof, StoreError> {
    let snapshot = state.read_node_records(node, BTreeSet::new()).await?;
    let known = snapshot.records.node.as_ref();
    if let Some(proof) = known.and_then(|known| known.gone.clone()) {
        return Ok(proof);
    }
    let lease = state.leases.get(&key::node_lease(node)).await?;
    let held = lease.is_some_and(|lease| lease.value.is_some());
    check_down(node, known, held)?;
    // The revision of a deleted record's marker counts as 0.
    let revision = known.map_or(0, |_| snapshot.revision(&key::node(node)));
    if revision != seen {
        return Err(record_changed(node, seen).into());
    }
    deadline::check(deadline)?;
    let known = known.cloned().unwrap_or_else(|| unknown_node(proof));
    let next = Node { gone: Some(proof.clone()), ..known };
    state.store(node, &snapshot, &Write::Node(next), trace).await?;
    let trace_id = trace.trace_id();
    tracing::warn!(
        %node, %proof, trace = trace_id,
        "the node counts as gone, which frees its claims"
    );
    events::publish(&state.events, &events::node_gone(node, proof, trace), trace);
    Ok(proof.clone())
}

/// Refuses unless the node's lease has ended and its record says so.
fn check_down(node: &NodeId, known: Option<&Node>, held: bool) -> Result<(), Problem> {
    if held {
        let message = format!("the agent of node {node} holds its lease");
        return Err(Problem::new(Code::NodeReady, message));
    }
    if known.is_some_and(|known| known.state == NodeState::Ready) {
        let message = format!("the lease of node {node} has ended only now");
        return Err(Problem::new(Code::NodeReady, message).retryable());
    }
    Ok(())
}

/// The record has changed since the evidence was gathered. The message does not name the present
/// revision: the operator has to gather the evidence again, and not only to replace the number.
fn record_changed(node: &NodeId, seen: u64) -> Problem {
    let message = format!(
        "the record of node {node} is not at revision {seen} any more: the node may have been back \
         since, and what was made sure of before says nothing of now"
    );
    let next = format!(
        "see with `berth node status {node}` how it is now, make sure again that nothing there can \
         write, and say it with the revision that is shown"
    );
    Problem::new(Code::Changed, message).next(next)
}

/// The record of a node that has none. Claims may still name the node, and only its proof releases
/// them.
fn unknown_node(proof: &Proof) -> Node {
    Node {
        state: NodeState::Down,
        since: proof.at,
        clock_skew_ms: 0,
        version: String::new(),
        boot_id: String::new(),
        reported: Timestamp::default(),
        attributes: BTreeMap::new(),
        unaccounted: Vec::new(),
        sealing_key: None,
        gone: None,
        back: None,
    }
}
