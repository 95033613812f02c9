//! `node.leave`: deletes the records of a node that is decommissioned, and of its instances (D3).
//!
//! **Never** deletes
//!
//! - the record of a node that was declared gone. Its claims are released without an answer of its
//!   agent. If the node comes back, its agent must be told to undo its mounts (rule 12).
//! - the record of a node that may have a mount without a claim. Only this record keeps other nodes
//!   from that volume.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::registry::{Leave, NodeLeft};
use berth_contract::problem::Problem;
use berth_domain::plugin::Node;
use berth_service::deadline;
use berth_service::record_table::{StoreError, retry_lost_races};

use crate::caller::Caller;
use crate::store::events;
use crate::store::node_records::{InstanceKey, Write};
use crate::store::state::State;

/// Deletes the node's records. The operator stops the agent first, or it reports the node again.
pub async fn leave(state: &State, request: Leave, caller: &Caller) -> Result<NodeLeft, Problem> {
    // Counts what all attempts deleted, also those that lost a race between two deletes.
    let node_left = Mutex::new(NodeLeft { known: false, instances: 0, gone: false });
    let attempt = || delete_records(state, &request, caller, &node_left);
    retry_lost_races(attempt).await.map_err(|problem| problem.node(&request.node))?;
    Ok(node_left.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Refuses while the node may have a mount without a claim. `incarnation` is that of the bucket of
/// claims, if records may be missing in it.
fn check_mounts(node: Option<&Node>, incarnation: Option<u64>) -> Result<(), Problem> {
    let Some(node) = node.filter(|node| node.gone.is_none()) else { return Ok(()) };
    if let Some(mount) = node.unaccounted.first() {
        let message = format!("{mount}; if nothing on the node can write, declare it gone instead");
        let problem = Problem::new(Code::MountUnaccounted, message);
        return Err(problem.volume(mount.volume_key()));
    }
    let is_compared = |number| node.compared_incarnation() == Some(number);
    if !node.uncompared && incarnation.is_none_or(is_compared) {
        return Ok(());
    }
    let message = "it has not said what it has mounted since its agent started, or since the \
                   records were restored; if nothing on it can write, declare it gone instead";
    Err(Problem::new(Code::MountsNotSaid, message).retryable())
}

/// Deletes the instances first: until the last one is deleted, the node is on record and the
/// operator can repeat the request.
async fn delete_records(
    state: &State,
    Leave { node, revision }: &Leave,
    caller: &Caller,
    node_left: &Mutex<NodeLeft>,
) -> Result<(), StoreError> {
    let (at, trace) = (caller.at, caller.trace);
    state.catch_up(caller.deadline).await?;
    let instances: BTreeSet<InstanceKey> =
        state.mirrored_records(node).instances.into_keys().collect();
    let snapshot = state.read_node_records(node, instances).await?;
    let record = snapshot.records.node.as_ref();
    let node_revision = snapshot.revision(&key::node(node));
    if let Some(expected) = *revision {
        let present = record.map_or(0, |_| node_revision);
        if present != expected {
            let message = format!("the node's record is at revision {present}, not {expected}");
            return Err(Problem::new(Code::Changed, message).into());
        }
        // The agent may hold its lease again before the node's record says so.
        let entry = state.leases.get_surely(&key::node_lease(node), trace).await?;
        if entry.is_some_and(|entry| entry.value.is_some()) {
            return Err(Problem::new(Code::NodeReady, "its agent holds its lease").into());
        }
    }
    check_mounts(record, state.volumes.read(&state.bus).await?)?;
    deadline::check(caller.deadline)?;
    let node_left = || node_left.lock().unwrap_or_else(PoisonError::into_inner);
    // The node half first, as in a report.
    for instance in snapshot.records.instances.keys().rev() {
        state.store(node, &snapshot, &Write::Delete(instance.clone()), trace).await?;
        let event = events::instance_left(node, instance, at, trace);
        events::publish(&state.events, &event, trace);
        node_left().instances += 1;
    }
    let Some(record) = record else { return Ok(()) };
    let is_gone = record.gone.is_some();
    node_left().known = true;
    node_left().gone = is_gone;
    if !is_gone {
        state.nodes.delete(&key::node(node), node_revision, trace).await?;
        events::publish(&state.events, &events::node_left(node, at, trace), trace);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(fields: &str) -> Node {
        let record = format!(r#"{{"state":"down","since":"2026-01-01T00:00:00Z"{fields}}}"#);
        serde_json::from_str(&record).unwrap()
    }

    #[test]
    fn a_node_that_may_have_a_mount_without_a_claim_stays_on_record() {
        let mounted =
            r#","unaccounted":[{"namespace":"default","volume":"d","alloc":"a","path":"/p"}]"#;
        let compared = r#","attributes":{"compared-incarnation":"7"}"#;
        let gone = format!(
            r#"{mounted},"gone":{{"kind":"confirmed","by":"ada","at":"2026-01-01T00:00:00Z"}}"#
        );
        for (more, incarnation, expected) in [
            ("", None, None),
            ("", Some(7), Some(Code::MountsNotSaid)),
            (compared, Some(7), None),
            (compared, Some(8), Some(Code::MountsNotSaid)),
            (r#","uncompared":true"#, None, Some(Code::MountsNotSaid)),
            (mounted, None, Some(Code::MountUnaccounted)),
            (&gone, Some(8), None),
        ] {
            let refused = check_mounts(Some(&node(more)), incarnation).err();
            assert_eq!(refused.map(|problem| problem.code), expected, "{more} {incarnation:?}");
        }
        assert_eq!(check_mounts(None, Some(8)), Ok(()));
    }
}
