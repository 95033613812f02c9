//! `node.hold` and `node.yield`: the leases of nodes, written for their agents.
//!
//! **Owns** the keys `node.<node>` in the bucket of leases. Agents may not write there themselves
//! (decision 0042).
//!
//! **Promises**
//!
//! - An agent may retry. A lease that the same process wrote counts as its own, also if the answer
//!   to that request was lost. Any replica answers; the guard of the write lets one of two requests
//!   pass.
//! - A late request does not shorten the lease that a later request of the same process wrote. An
//!   agent numbers its requests, and a lower number overwrites nothing. If an agent does not number
//!   them, a request past its deadline overwrites only a revision that it names.
//! - A renewal waits for others, so that they are stored together ([`Bucket::renew`]). A lease that
//!   is acquired, or that a restarted agent takes over, waits for nothing.
//!
//! **Never** decides who may take over a lease: the agent reads who holds it, and names the
//! revision that it saw.

use std::time::Duration;

use berth_bus::lease::{LeaseStore as _, LeaseTerms};
use berth_bus::{Bucket, Entry, LeaseError};
use berth_contract::key;
use berth_contract::lease::NodeLeaseRecord;
use berth_contract::message::node::{FoundLease, Hold, LeaseAnswer, Yield, Yielded};
use berth_contract::problem::Problem;
use berth_service::deadline;
use serde_json::json;

use crate::caller::Caller;
use crate::store::state::State;

/// How long a write may take. The agent retries for as long as it wants the lease.
const WRITE_WITHIN: Duration = Duration::from_secs(2);

/// Writes the lease.
pub async fn hold(state: &State, request: Hold, caller: &Caller) -> Result<LeaseAnswer, Problem> {
    let is_renewal = state.lease_mirror.read(|leases| leases.is_held_by(&request.holder));
    let answer = write_lease(&state.leases, request, is_renewal, caller).await?;
    Ok(LeaseAnswer { volumes: state.volumes.number(), ..answer })
}

async fn write_lease(
    leases: &Bucket,
    request: Hold,
    is_renewal: bool,
    caller: &Caller,
) -> Result<LeaseAnswer, Problem> {
    let node = &request.holder.node;
    let faults = request.faults();
    if !faults.is_empty() {
        return Err(Problem::bad_input(faults).node(node));
    }
    let wanted = NodeLeaseRecord { holder: request.holder.clone(), renewal: request.renewal };
    let terms = LeaseTerms {
        key: key::node_lease(node),
        value: json!(wanted).to_string().into(),
        ttl: Duration::from_secs(request.ttl_s),
        trace: caller.trace,
    };
    let within = || WRITE_WITHIN.min(caller.left());
    let mut answer = match request.over {
        Some(over) if is_renewal => leases.renew(&terms, over, within()).await,
        over => leases.hold(&terms, over, within()).await,
    };
    if let Err(LeaseError::Held { holder: entry, .. }) = &answer {
        match compare(entry, &wanted, caller.is_late) {
            LeaseRelation::Written => {
                let revision = Some(entry.revision);
                return Ok(LeaseAnswer { revision, ..LeaseAnswer::default() });
            }
            LeaseRelation::Renewable => {
                deadline::check(caller.deadline).map_err(|problem| problem.node(node))?;
                answer = leases.hold(&terms, Some(entry.revision), within()).await;
            }
            LeaseRelation::Kept => {}
        }
    }
    match answer {
        Ok(revision) => Ok(LeaseAnswer { revision: Some(revision), ..LeaseAnswer::default() }),
        Err(LeaseError::Held { holder, .. }) => {
            Ok(LeaseAnswer { found: Some(found(&holder)), ..LeaseAnswer::default() })
        }
        Err(LeaseError::Lost { .. }) => Ok(LeaseAnswer::default()),
        Err(error) => Err(Problem::from(error).node(node)),
    }
}

/// How an existing lease relates to a request that does not name its revision.
#[derive(Debug, PartialEq, Eq)]
enum LeaseRelation {
    /// This very request wrote it: its answer was lost, or it was sent twice.
    Written,
    /// An earlier request of the same process wrote it.
    Renewable,
    /// Another process wrote it, a later request of this one did, or its writer is unknown.
    Kept,
}

fn compare(entry: &Entry, wanted: &NodeLeaseRecord, is_late: bool) -> LeaseRelation {
    let value = entry.value.as_deref().unwrap_or_default();
    let stored = serde_json::from_slice::<NodeLeaseRecord>(value);
    let Some(stored) = stored.ok().filter(|stored| entry.has_ttl && stored.holder == wanted.holder)
    else {
        return LeaseRelation::Kept;
    };
    match (stored.renewal, wanted.renewal) {
        (Some(stored), Some(wanted)) if stored == wanted => LeaseRelation::Written,
        (Some(stored), Some(wanted)) if stored < wanted => LeaseRelation::Renewable,
        (Some(_), Some(_)) => LeaseRelation::Kept,
        // An agent or a registry of the last release wrote one of the two.
        _ if is_late => LeaseRelation::Kept,
        _ => LeaseRelation::Renewable,
    }
}

fn found(entry: &Entry) -> FoundLease {
    let value = String::from_utf8_lossy(entry.value.as_deref().unwrap_or_default()).into_owned();
    FoundLease { revision: entry.revision, value, has_ttl: entry.has_ttl }
}

/// Deletes the lease, if the agent still holds it.
pub async fn give_up(state: &State, request: Yield, caller: &Caller) -> Result<Yielded, Problem> {
    let Yield { node, revision } = request;
    let (ttl, trace) = (WRITE_WITHIN, caller.trace);
    let terms = LeaseTerms { key: key::node_lease(&node), value: Vec::new().into(), ttl, trace };
    let released = state.leases.release(&terms, revision).await;
    released.map_err(|error| Problem::from(error).node(&node))?;
    Ok(Yielded {})
}

#[cfg(test)]
mod tests {
    use berth_contract::lease::Holder;
    use berth_domain::{NodeId, Timestamp};

    use super::LeaseRelation::{Kept, Renewable, Written};
    use super::*;

    fn record(pid: u32, renewal: Option<u64>) -> NodeLeaseRecord {
        let holder = Holder {
            node: NodeId::new("n1").unwrap(),
            agent: "a".to_owned(),
            hostname: String::new(),
            boot_id: "b".to_owned(),
            pid,
            since: Timestamp::from_unix_ms(1),
        };
        NodeLeaseRecord { holder, renewal }
    }

    #[test]
    fn only_a_later_request_of_the_same_process_writes_over_its_lease() {
        let stored = |value: String, has_ttl| Entry {
            key: "node.n1".to_owned(),
            revision: 7,
            value: Some(value.into()),
            operation: None,
            has_ttl,
            created: Timestamp::default(),
        };
        for (stored_lease, wanted, is_late, standing) in [
            (record(1, Some(3)), record(1, Some(4)), false, Renewable),
            // If a node's clock is behind, every request is late: its number counts.
            (record(1, Some(3)), record(1, Some(4)), true, Renewable),
            (record(1, Some(3)), record(1, Some(3)), true, Written),
            (record(1, Some(4)), record(1, Some(3)), false, Kept),
            (record(2, Some(3)), record(1, Some(4)), false, Kept),
            (record(1, None), record(1, None), false, Renewable),
            (record(1, None), record(1, None), true, Kept),
            (record(1, None), record(1, Some(1)), false, Renewable),
            (record(1, Some(9)), record(1, None), true, Kept),
        ] {
            let entry = stored(json!(stored_lease).to_string(), true);
            assert_eq!(compare(&entry, &wanted, is_late), standing, "{stored_lease:?} {wanted:?}");
            let endless = stored(json!(stored_lease).to_string(), false);
            assert_eq!(compare(&endless, &wanted, is_late), Kept);
        }
        assert_eq!(compare(&stored("junk".to_owned(), true), &record(1, None), false), Kept);
    }
}
