//! `node.hold` and `node.yield`: the leases of nodes, written for their agents.
//!
//! **Owns** the keys `node.<node>` in the bucket of leases. Agents may not write there themselves
//! (decision 0042).
//!
//! **Promises** that an agent may ask again: a lease that this very process wrote, by a request
//! whose answer was lost, counts as its own. Any replica answers; the guard of the write lets one
//! of two requests pass.
//!
//! **Never** decides who may take over a lease: the agent reads who holds it, and names the
//! revision that it saw.

use std::time::Duration;

use berth_bus::lease::{LeaseStore as _, LeaseTerms};
use berth_bus::{Bucket, Entry, LeaseError};
use berth_contract::key;
use berth_contract::lease::Holder;
use berth_contract::message::node::{FoundLease, Hold, LeaseAnswer, Yield, Yielded};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::{self, Verb as _};
use serde_json::json;

/// How long a write may take. The caller asks again, for as long as it holds the lease.
const WRITE_WITHIN: Duration = Duration::from_secs(2);

/// Writes the lease.
pub async fn hold(
    leases: &Bucket,
    request: Hold,
    trace: TraceContext,
) -> Result<LeaseAnswer, Problem> {
    const STEP: &str = verb::NodeHold::STEP;
    let node = &request.holder.node;
    let faults = request.faults();
    if !faults.is_empty() {
        return Err(Problem::bad_input(STEP, faults).node(node));
    }
    let terms = LeaseTerms {
        key: key::node_lease(node),
        value: json!(request.holder).to_string().into(),
        ttl: Duration::from_secs(request.ttl_s),
        trace,
    };
    let mut answer = leases.hold(&terms, request.over, WRITE_WITHIN).await;
    if let Err(LeaseError::Held { holder, .. }) = &answer
        && is_by(holder, &request.holder)
    {
        answer = leases.hold(&terms, Some(holder.revision), WRITE_WITHIN).await;
    }
    match answer {
        Ok(revision) => Ok(LeaseAnswer { revision: Some(revision), found: None }),
        Err(LeaseError::Held { holder, .. }) => {
            Ok(LeaseAnswer { revision: None, found: Some(found(&holder)) })
        }
        Err(LeaseError::Lost { .. }) => Ok(LeaseAnswer::default()),
        Err(error) => Err(error.into_problem(STEP).node(node)),
    }
}

/// Whether this process wrote the lease.
fn is_by(entry: &Entry, holder: &Holder) -> bool {
    let value = entry.value.as_deref().unwrap_or_default();
    entry.has_ttl && serde_json::from_slice::<Holder>(value).is_ok_and(|found| found == *holder)
}

fn found(entry: &Entry) -> FoundLease {
    let value = String::from_utf8_lossy(entry.value.as_deref().unwrap_or_default()).into_owned();
    FoundLease { revision: entry.revision, value, has_ttl: entry.has_ttl }
}

/// Deletes the lease, if the agent still holds it.
pub async fn give_up(
    leases: &Bucket,
    request: Yield,
    trace: TraceContext,
) -> Result<Yielded, Problem> {
    let Yield { node, revision } = request;
    let ttl = WRITE_WITHIN;
    let terms = LeaseTerms { key: key::node_lease(&node), value: Vec::new().into(), ttl, trace };
    let released = leases.release(&terms, revision).await;
    released.map_err(|error| error.into_problem(verb::NodeYield::STEP).node(&node))?;
    Ok(Yielded {})
}
