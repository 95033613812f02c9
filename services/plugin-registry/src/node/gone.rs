//! `node.gone`: an operator declares that nothing on a node can write any more (rule 12, C7).
//!
//! **Promises**
//!
//! - A node whose agent holds its lease is not declared gone. That the lease is absent is confirmed
//!   at a quorum (decision 0031). The write is guarded by a record that
//!   says that the node is down, and that was read *before* the lease. So the declaration cannot
//!   overtake an agent that was told that its node is ready and has held its lease since: the
//!   record had to say first that the lease ended.
//! - The first declaration stays. Declaring the node gone again changes nothing.
//! - Evidence counts only for the absence in which it was gathered: the record must still be at the
//!   revision that the operator saw before. While a node is down, only two things change its
//!   record: its agent's return, and a declaration.
//! - A node is not declared gone while another node that is there reports what belongs to this one:
//!   the id of its agent, its boot, or a mount of a volume that it holds. Then its agent was
//!   started under another name, and may write.
//! - The claims of mounts that the node reported without a claim are recorded again, in release
//!   ([`lost_claims`]).
//!
//! **Never** checks otherwise whether the declaration is true. No service can.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::decode::Fault;
use berth_contract::key;
use berth_contract::message::claim::{self, ClaimStatus};
use berth_contract::message::query::Page;
use berth_contract::message::registry::{AGENT_ID, AGENT_MADE, Declared, Gone};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::{Node, NodeState, UnaccountedMount};
use berth_domain::proof::Proof;
use berth_domain::volume::Handle;
use berth_domain::{Namespace, NodeId, Timestamp, VolumeKey};
use berth_service::deadline;
use berth_service::record_table::{StoreError, retry_lost_races};

use super::lost_claims;
use crate::caller::Caller;
use crate::store::events;
use crate::store::node_records::Write;
use crate::store::state::State;

/// Claims that the reply lists, at most.
const CLAIMS_SHOWN_MAX: u32 = 20;
/// How long a claim service may take to list the remaining claims.
const CLAIMS_TIMEOUT: Duration = Duration::from_secs(2);
/// Pages of the node's claims that are read. A node has a few hundred claims.
const PAGES_MAX: usize = 16;

/// Writes the declaration to the node's record.
pub async fn gone(state: &State, request: Gone, caller: &Caller) -> Result<Declared, Problem> {
    let Gone { node, kind, by, note, seen } = request;
    if by.trim().is_empty() {
        let problem = "is empty; say who answers for it".to_owned();
        let fault = Fault { path: "by".to_owned(), problem, line: None };
        return Err(Problem::bad_input(vec![fault]).node(&node));
    }
    let proof = Proof { kind, by, at: caller.at, note };
    let attempt = || declare(state, &node, &proof, seen, caller);
    let proof = retry_lost_races(attempt).await.map_err(|problem| problem.node(&node))?;
    lost_claims::recover(state, &node, caller).await.map_err(|problem| problem.node(&node))?;
    let claims = claims_left(state, &node, caller).await;
    Ok(Declared { proof, claims })
}

/// The first claims of the node, each with what it waits for; none when no claim service answers in
/// time.
async fn claims_left(state: &State, node: &NodeId, caller: &Caller) -> Option<Vec<ClaimStatus>> {
    let page = Page { limit: Some(CLAIMS_SHOWN_MAX), ..Page::default() };
    let wanted =
        claim::ListClaims { node: Some(node.clone()), page, ..claim::ListClaims::default() };
    let within = CLAIMS_TIMEOUT.min(caller.left() / 2);
    let call = Call::within(caller.trace, within);
    let reply =
        state.bus.ask_service::<verb::ClaimStatus>(&Namespace::wildcard(), &wanted, &call).await;
    reply.ok().map(|claims| claims.claims)
}

/// Reads the record first and then the lease, for the reason that the module gives.
async fn declare(
    state: &State,
    node: &NodeId,
    proof: &Proof,
    seen: u64,
    caller: &Caller,
) -> Result<Proof, StoreError> {
    let trace = caller.trace;
    let snapshot = state.read_node_records(node, BTreeSet::new()).await?;
    let record = snapshot.records.node.as_ref();
    if let Some(proof) = record.and_then(|record| record.gone.clone()) {
        return Ok(proof);
    }
    // A deposed leader does not have a lease that its successor stored.
    let lease = state.leases.get_surely(&key::node_lease(node), trace).await?;
    let is_held = lease.is_some_and(|lease| lease.value.is_some());
    check_down(node, record, is_held)?;
    // The revision of a deleted record's marker counts as 0.
    let revision = record.map_or(0, |_| snapshot.revision(&key::node(node)));
    if revision != seen {
        return Err(record_changed(node, seen).into());
    }
    if let Some(record) = record {
        check_not_renamed(state, node, record)?;
    }
    check_mounted_nowhere(state, node, caller).await?;
    deadline::check(caller.deadline)?;
    // Claims may name a node without a record, and only its proof releases them.
    let record = record.cloned().unwrap_or_else(|| Node::unknown(proof.at));
    let next = Node { gone: Some(proof.clone()), ..record };
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
fn check_down(node: &NodeId, record: Option<&Node>, is_held: bool) -> Result<(), Problem> {
    if is_held {
        let message = format!("the agent of node {node} holds its lease");
        return Err(Problem::new(Code::NodeReady, message));
    }
    if record.is_some_and(|record| record.state == NodeState::Ready) {
        let message = format!("the lease of node {node} has ended only now");
        return Err(Problem::new(Code::NodeReady, message).retryable());
    }
    Ok(())
}

/// Refuses while another node that is there has this node's agent or boot. All nodes are searched:
/// only an operator asks for this, and rarely.
fn check_not_renamed(state: &State, node: &NodeId, down_node: &Node) -> Result<(), Problem> {
    let is_there = |other: &NodeId, record: &Node| {
        record.state == NodeState::Ready || state.lease_mirror.read(|leases| leases.is_held(other))
    };
    let renamed = state.nodes.mirror.read(|nodes| {
        let mut others = nodes.iter().filter(|(other, _)| *other != node);
        others.find_map(|(other, record)| {
            let why = what_is_shared(down_node, record)?;
            is_there(other, record).then(|| (other.clone(), why))
        })
    });
    let Some((other, why)) = renamed else { return Ok(()) };
    Err(elsewhere(node, format!("node {other} is there, and {why} node {node}")))
}

/// How the other node shows that it is this node under another name, in words.
///
/// Several nodes may share a host, as those of `berth dev` do. So the same boot counts only for an
/// agent whose state directory was made after this node went down.
fn what_is_shared(down_node: &Node, other: &Node) -> Option<&'static str> {
    let agent = down_node.attributes.get(AGENT_ID);
    if agent.is_some() && agent == other.attributes.get(AGENT_ID) {
        return Some("its agent has the state directory of");
    }
    let agent_made = Timestamp::try_from(other.attributes.get(AGENT_MADE)?.clone()).ok()?;
    let is_same_boot = !down_node.boot_id.is_empty() && down_node.boot_id == other.boot_id;
    (is_same_boot && agent_made > down_node.since)
        .then_some("it is new on the host, and in the boot, of")
}

/// Refuses while another node reports a mount without a claim of a volume that this node holds: it
/// may be this node's mount, and its workload may write.
async fn check_mounted_nowhere(
    state: &State,
    node: &NodeId,
    caller: &Caller,
) -> Result<(), Problem> {
    let mounts: Vec<(NodeId, UnaccountedMount)> = state.nodes.mirror.read(|nodes| {
        let others = nodes.unaccounted().filter(|(other, _)| *other != node);
        others.map(|(other, mount)| (other.clone(), mount.clone())).collect()
    });
    if mounts.is_empty() {
        return Ok(());
    }
    let within = CLAIMS_TIMEOUT.min(caller.left() / 2);
    let call = Call::within(caller.trace, within);
    let mut wanted = claim::ListClaims { node: Some(node.clone()), ..claim::ListClaims::default() };
    for _page in 0..PAGES_MAX {
        let everywhere = Namespace::wildcard();
        let reply = state.bus.ask_service::<verb::ClaimStatus>(&everywhere, &wanted, &call).await;
        let page = reply.map_err(|error| error.into_problem(verb::ClaimStatus::STEP))?;
        let held_elsewhere = page.claims.iter().find_map(|claim| {
            let mount = mounts.iter().find(|(_, mount)| may_be_of_claim(mount, claim))?;
            Some((mount, claim))
        });
        if let Some(((other, mount), claim)) = held_elsewhere {
            let message = format!(
                "node {other} has volume {} mounted at {} without a claim, and node {node} holds \
                 that volume as {}/{}",
                mount.volume_key(),
                mount.path,
                claim.namespace,
                claim.volume
            );
            return Err(elsewhere(node, message));
        }
        let Some(next) = page.next else { return Ok(()) };
        wanted.page.after = Some(next);
    }
    let message = format!("node {node} has too many claims to be looked through");
    Err(Problem::new(Code::Overloaded, message))
}

/// Whether the mount is, or may be, of the volume that the claim was granted for. The volume's name
/// may have changed since the mount (decision 0052).
fn may_be_of_claim(mount: &UnaccountedMount, claim: &ClaimStatus) -> bool {
    let volume = VolumeKey::new(claim.namespace.clone(), claim.volume.clone());
    match (claim.plugin.clone(), claim.external_id.clone()) {
        (Some(plugin), Some(external_id)) => {
            mount.may_be_of(&volume, Some(&Handle { plugin, external_id }))
        }
        // An older version wrote the claim.
        _ => mount.is_named(&volume),
    }
}

fn elsewhere(node: &NodeId, message: String) -> Problem {
    let next = format!(
        "end the workloads there, and start that agent as node {node} again with its old state \
         directory; it answers for its mounts then"
    );
    Problem::new(Code::NodeElsewhere, message).next(next)
}

/// The error of a record that has changed since the evidence was gathered. Its message does not
/// name the present revision: the operator has to gather the evidence again, not only replace the
/// number.
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

#[cfg(test)]
mod tests {

    use super::*;

    fn node(since: u64, boot: &str, agent: &str, made_at_ms: u64) -> Node {
        let agent_made = Timestamp::from_unix_ms(made_at_ms).to_string();
        let attributes = [(AGENT_ID, agent.to_owned()), (AGENT_MADE, agent_made)];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value)).into();
        Node {
            boot_id: boot.to_owned(),
            attributes,
            ..Node::unknown(Timestamp::from_unix_ms(since))
        }
    }

    #[test]
    fn a_mount_is_one_of_a_claim_by_what_is_mounted() {
        let mount = |volume: &str, ids: &str| {
            let record = format!(
                r#"{{"namespace":"default","volume":"{volume}","alloc":"a","path":"/p"{ids}}}"#
            );
            serde_json::from_str::<UnaccountedMount>(&record).unwrap()
        };
        let claim = |ids: &str| {
            let record = format!(
                r#"{{"namespace":"default","volume":"new","alloc":"b","state":"taken","node":"n1",
                    "mode":"write","since":"2026-01-01T00:00:00Z","epoch":7{ids}}}"#
            );
            serde_json::from_str::<ClaimStatus>(&record).unwrap()
        };
        let (x, y) = (r#","plugin":"p","external_id":"x""#, r#","plugin":"p","external_id":"y""#);
        for (mount, claim, expected) in [
            // The volume was registered under another name since.
            (mount("old", x), claim(x), true),
            // Another volume that has the old name.
            (mount("new", y), claim(x), false),
            // An agent or a claim of an earlier version: in doubt there may be a writer.
            (mount("new", ""), claim(x), true),
            (mount("new", x), claim(r#","plugin":"p""#), true),
            (mount("old", x), claim(r#","plugin":"p""#), false),
        ] {
            assert_eq!(may_be_of_claim(&mount, &claim), expected, "{mount:?} {claim:?}");
        }
    }

    #[test]
    fn a_node_under_another_name_is_told_from_another_node_of_the_same_host() {
        let down = node(1_000, "boot-1", "id-1", 10);
        for (other, is_shared) in [
            (node(0, "boot-1", "id-1", 10), true),
            (node(0, "boot-2", "id-1", 10), true),
            // As the nodes of `berth dev`, and as a host that got a new name.
            (node(0, "boot-1", "id-2", 10), false),
            (node(0, "boot-1", "id-2", 2_000), true),
            (node(0, "boot-2", "id-2", 2_000), false),
            // An agent of an earlier version.
            (Node { attributes: [].into(), ..down.clone() }, false),
        ] {
            assert_eq!(what_is_shared(&down, &other).is_some(), is_shared, "{other:?}");
        }
        let unknown = Node { attributes: [].into(), ..node(1_000, "", "", 10) };
        assert_eq!(what_is_shared(&unknown, &node(0, "", "id-2", 2_000)), None);
    }
}
