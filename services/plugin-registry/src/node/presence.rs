//! Ready and down: each node's record follows its lease.
//!
//! **Owns** the state of nodes: it compares each node's record with the lease and writes the
//! difference. Several replicas may do so at once: the guard lets the first write pass, and the
//! other replicas then find no difference.
//!
//! **Promises** that a node is compared after every change of its lease or record, and all nodes at
//! each rescan; and that a node that was declared gone is not ready, whatever its lease says (rule
//! 12).

use std::time::Duration;

use berth_bus::Entry;
use berth_contract::{key, trace::TraceContext};
use berth_domain::plugin::{Node, NodeState};
use berth_domain::{NodeId, Timestamp, limits};
use berth_service::projection::Nodes;
use berth_service::reconcile::{self, Next, Options, Waker};
use berth_service::record_table::StoreError;
use berth_service::{Shutdown, clock, process};
use tokio::time::{Instant, sleep, sleep_until};

use crate::store::events;
use crate::store::held_leases::HeldLeases;
use crate::store::state::State;

/// Changes within this time are handled together: leases are renewed all the time.
const BATCH_PAUSE: Duration = Duration::from_millis(50);
/// The shortest pause between a failure and the retry; the longest is twice this.
const RETRY_AFTER: Duration = Duration::from_millis(500);

const OPTIONS: Options = Options { max_in_flight: 32, drain: Duration::from_secs(5) };

/// Keeps the state of all nodes until the shutdown.
pub async fn keep(state: &State, rescan: Duration, shutdown: Shutdown) {
    let waker = Waker::default();
    let work = |node: NodeId| {
        let state = state.clone();
        async move { correct_or_retry(&state, &node).await }
    };
    tokio::select! {
        () = wake_disagreeing(state, rescan, &waker) => {}
        () = reconcile::run(waker.clone(), OPTIONS, shutdown, work) => {}
    }
}

/// Wakes each node whose record and lease disagree, after every change of a lease or a record.
async fn wake_disagreeing(state: &State, rescan: Duration, waker: &Waker<NodeId>) {
    // A change during a comparison leads to another one.
    let mut nodes = state.nodes.mirror.subscribe();
    let mut leases = state.lease_mirror.subscribe();
    let (mut compared, mut rescan_at) = (None, Instant::now());
    loop {
        if Instant::now() >= rescan_at {
            (compared, rescan_at) = (None, Instant::now() + rescan);
        }
        let (wrong, now) = state.nodes.mirror.read(|nodes| {
            state.lease_mirror.read(|leases| {
                let now =
                    Compared { nodes: nodes.arrivals().count(), leases: leases.changes().count() };
                (disagreeing_since(nodes, leases, compared), now)
            })
        });
        compared = Some(now);
        for node in wrong {
            waker.wake(node);
        }
        sleep(BATCH_PAUSE).await;
        // The mirrors live as long as the state, so neither of these can fail.
        tokio::select! {
            _ = nodes.changed() => {}
            _ = leases.changed() => {}
            () = sleep_until(rescan_at) => {}
        }
    }
}

/// How many changes of records and of leases were compared.
#[derive(Debug, Clone, Copy)]
struct Compared {
    nodes: u64,
    leases: u64,
}

/// The nodes that changed since the last comparison and disagree with their leases; of all nodes if
/// there was none, or if so much has changed since that some of it was forgotten.
fn disagreeing_since(nodes: &Nodes, leases: &HeldLeases, last: Option<Compared>) -> Vec<NodeId> {
    let is_wrong = |id: &NodeId, node: &Node| {
        node.state != state_by_lease(node, leases.is_held(id)) || leases.is_junk(id)
    };
    let changed = last.and_then(|last| {
        let records = nodes.arrivals().list_after(last.nodes)?;
        Some(records.chain(leases.changes().list_after(last.leases)?))
    });
    if let Some(changed) = changed {
        let wrong = changed.filter(|id| nodes.get(id).is_some_and(|node| is_wrong(id, node)));
        return wrong.cloned().collect();
    }
    let wrong = nodes.iter().filter(|(id, node)| is_wrong(id, node));
    wrong.map(|(id, _)| id.clone()).collect()
}

fn state_by_lease(node: &Node, is_held: bool) -> NodeState {
    if is_held && node.gone.is_none() { NodeState::Ready } else { NodeState::Down }
}

/// The record that agrees with the lease; none if the record agrees already.
fn corrected(record: &Node, is_held: bool, now: Timestamp) -> Option<Node> {
    let state = state_by_lease(record, is_held);
    (record.state != state).then(|| Node { state, since: now, ..record.clone() })
}

async fn correct_or_retry(state: &State, node: &NodeId) -> Next {
    match correct_record(state, node, clock::begin_trace()).await {
        Ok(()) => Next::AwaitChange,
        Err(StoreError::LostRace) => Next::After(BATCH_PAUSE),
        Err(error @ StoreError::Unreadable(_)) => {
            tracing::warn!(%node, error = process::chain(&error), "the state stays as it is");
            Next::AwaitChange
        }
        Err(error) => {
            tracing::warn!(%node, error = process::chain(&error), "the state is not written yet");
            Next::After(
                RETRY_AFTER + RETRY_AFTER.mul_f64(f64::from(clock::jitter()) / f64::from(u32::MAX)),
            )
        }
    }
}

/// Gives a TTL to a value that has none and would never expire. The TTL is longer than that of the
/// lease that the value may have overwritten.
async fn bound_junk(state: &State, junk: &Entry, trace: TraceContext) {
    let value = junk.value.clone().unwrap_or_default();
    let bounded = state.leases.inherit(junk, value, limits::LEASE_TTL_MAX, trace).await;
    match bounded {
        Ok(_) => {
            tracing::warn!(key = junk.key, "a value without a TTL is no lease; it has one now");
        }
        // An agent has overwritten it, or the next comparison retries.
        Err(error) => {
            tracing::debug!(key = junk.key, error = process::chain(&error), "not bounded");
        }
    }
}

/// Reads the lease and the record at the leader, and corrects the record.
///
/// The lease is read first: a later change of it wakes this node again. An absent lease is
/// confirmed at a quorum, because calls are made without asking the agent of a node that is down
/// (rule 4). After a lost race the reconcile loop, which retries every failure, runs this again.
async fn correct_record(
    state: &State,
    node: &NodeId,
    trace: TraceContext,
) -> Result<(), StoreError> {
    let lease = state.leases.get_surely(&key::node_lease(node), trace).await?;
    let is_held = lease.as_ref().is_some_and(|lease| lease.value.is_some());
    if let Some(lease) = lease.filter(|lease| is_held && !lease.has_ttl) {
        bound_junk(state, &lease, trace).await;
    }
    let key = key::node(node);
    let (revision, record) = state.nodes.read::<Node>(&key).await?;
    let now = clock::now();
    let Some(next) = record.and_then(|record| corrected(&record, is_held, now)) else {
        return Ok(());
    };
    state.nodes.put(&key, &next, revision, trace).await?;
    let new_state = next.state;
    let trace_id = trace.trace_id();
    tracing::info!(%node, state = %new_state, trace = trace_id, "the node's lease has changed");
    events::publish_in_share(state, node, &events::presence(node, new_state, now, trace), trace);
    Ok(())
}

#[cfg(test)]
mod tests {
    use berth_bus::Fold;
    use berth_contract::record;
    use berth_domain::proof::{Proof, ProofKind};
    use serde_json::json;

    use super::*;

    fn node(state: NodeState) -> Node {
        Node {
            state,
            clock_skew_ms: 7,
            version: "1".to_owned(),
            boot_id: "b".to_owned(),
            reported: Timestamp::from_unix_ms(4),
            attributes: [("zone".to_owned(), "a".to_owned())].into(),
            ..Node::unknown(Timestamp::from_unix_ms(5))
        }
    }

    #[test]
    fn a_nodes_state_follows_its_lease_and_nothing_else_changes() {
        let now = Timestamp::from_unix_ms(9);
        let (ready, down) = (node(NodeState::Ready), node(NodeState::Down));
        for (recorded, is_held, next) in [
            (&ready, true, None),
            (&down, false, None),
            (&ready, false, Some(Node { since: now, ..down.clone() })),
            (&down, true, Some(Node { since: now, ..ready.clone() })),
        ] {
            assert_eq!(
                corrected(recorded, is_held, now),
                next,
                "{} held {is_held}",
                recorded.state
            );
        }
    }

    #[test]
    fn a_node_that_is_gone_is_not_ready_whatever_its_lease_says() {
        let gone = Some(Proof {
            kind: ProofKind::Confirmed,
            by: "ada".to_owned(),
            at: Timestamp::from_unix_ms(3),
            note: String::new(),
        });
        let now = Timestamp::from_unix_ms(9);
        let down = Node { gone: gone.clone(), ..node(NodeState::Down) };
        assert_eq!(corrected(&down, true, now), None);
        assert_eq!(corrected(&down, false, now), None);
        let ready = Node { gone, ..node(NodeState::Ready) };
        assert_eq!(corrected(&ready, true, now), Some(Node { since: now, ..down }));
    }

    fn holder(node: &str) -> Vec<u8> {
        let since = Timestamp::from_unix_ms(1);
        let holder = json!({"node": node, "agent": "a", "pid": 1, "since": since});
        serde_json::to_vec(&holder).unwrap()
    }

    #[test]
    fn only_leases_that_are_gained_or_have_ended_are_changes() {
        let mut leases = HeldLeases::default();
        let key = key::node_lease(&NodeId::new("n1").unwrap());
        leases.delete(&key, 1);
        leases.put(&key, 2, &holder("n1"));
        assert_eq!(leases.changes().count(), 1);
        for renewal in 3..9 {
            leases.put(&key, renewal, &holder("n1"));
        }
        assert_eq!(leases.changes().count(), 1);
        leases.delete(&key, 9);
        leases.put(&key, 10, &holder("n1"));
        assert_eq!(leases.changes().count(), 3);
        let node = NodeId::new("n1").unwrap();
        for junk in [&b"junk"[..], &holder("n2")] {
            leases.put(&key, 11, junk);
            assert!(leases.is_held(&node) && leases.is_junk(&node));
        }
        leases.put(&key, 12, &holder("n1"));
        assert!(leases.is_held(&node) && !leases.is_junk(&node));
    }

    #[test]
    fn every_node_that_does_not_agree_with_its_lease_is_named() {
        let (mut nodes, mut leases) = (Nodes::default(), HeldLeases::default());
        for (id, state, is_held) in [
            ("ready-held", NodeState::Ready, true),
            ("ready-ended", NodeState::Ready, false),
            ("down.held", NodeState::Down, true),
            ("down-ended", NodeState::Down, false),
        ] {
            let id = NodeId::new(id).unwrap();
            nodes.put(&key::node(&id), 1, &record::write(node(state), None).unwrap());
            leases.put(&key::node_lease(&id), 1, &holder(id.as_str()));
            if !is_held {
                leases.delete(&key::node_lease(&id), 2);
            }
        }
        // A lease without a node, and a key that names no node.
        leases.put("node.other", 3, &holder("other"));
        leases.put("node.a.b", 4, &holder("a.b"));
        let named = |nodes: &Nodes, leases: &HeldLeases, last| -> Vec<String> {
            let wrong = disagreeing_since(nodes, leases, last);
            wrong.iter().map(ToString::to_string).collect()
        };
        assert_eq!(named(&nodes, &leases, None), ["down.held", "ready-ended"]);
        let last = Compared { nodes: nodes.arrivals().count(), leases: leases.changes().count() };
        assert_eq!(named(&nodes, &leases, Some(last)), [""; 0], "nothing has changed");
        let id = NodeId::new("ready-held").unwrap();
        leases.delete(&key::node_lease(&id), 5);
        assert_eq!(named(&nodes, &leases, Some(last)), ["ready-held"]);
        let down = record::write(node(NodeState::Down), None).unwrap();
        nodes.put(&key::node(&id), 2, &down);
        assert_eq!(named(&nodes, &leases, Some(last)), [""; 0]);
    }
}
