//! `berth node …`

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use berth_client::poll;
use berth_contract::code::Code;
use berth_contract::message::agent;
use berth_contract::message::claim::{self, ClaimStatus};
use berth_contract::message::query::LongPoll;
use berth_contract::message::registry::{Declared, Gone, Leave, ListNodes, NodeStatus, Nodes};
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_contract::verb;
use berth_domain::{Namespace, NodeId};
use berth_service::clock;
use tokio::time::{Instant, sleep};

use super::listing::{self, PollAnswer};
use crate::args;
use crate::failure::Failure;
use crate::session::Session;
use crate::show::{self, NodeOverview};

/// How long a node's agent may take to answer one request.
const AGENT_READ_MAX: Duration = Duration::from_secs(3);
/// Interval at which a watched node is read.
const OVERVIEW_POLL: Duration = Duration::from_secs(2);
/// How long the claims of a node that is gone are followed: most are released immediately.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);
/// Pause between the reads of those claims.
const RELEASE_POLL: Duration = Duration::from_millis(300);
/// How long a plugin may take to unpublish and unstage.
const UNMOUNT_PATIENCE: Duration = Duration::from_secs(60);
/// The most pages of claims that are read: a node has a few hundred volumes at most.
const PAGES_MAX: usize = 100;

/// Lists nodes, or shows one.
pub async fn status(args: &args::NodeStatus, session: &Session) -> Result<(), Failure> {
    if let Some(id) = &args.id {
        let ask = async |newer: LongPoll| {
            if newer.than.is_some() {
                // The agent's mounts have no revision: they are read at intervals.
                sleep(OVERVIEW_POLL).await;
            }
            let shown = read_overview(session, id).await?;
            Ok(PollAnswer { index: shown.node.revision, shown, next: None })
        };
        let table = |overview: &NodeOverview| show::node_overview(overview, clock::now());
        return listing::show(session, args.view.watch, ask, table).await;
    }
    let query = ListNodes {
        prefix: args.prefix.clone(),
        plugin: args.plugin.clone(),
        state: args.state,
        page: (&args.page).into(),
        ..ListNodes::default()
    };
    let filtered = query != ListNodes::default();
    let none_text = filtered.then_some("no such nodes; without a filter all are listed");
    let request = |newer| ListNodes { newer, ..query.clone() };
    listing::list::<verb::NodeStatus>(session, &(), &args.view, none_text, request).await
}

/// Reads what the registry, the node's agent and the claim service know of a node. The requests are
/// sent in parallel, and an unanswered one does not hide the other answers.
async fn read_overview(session: &Session, id: &NodeId) -> Result<NodeOverview, Failure> {
    // A node's agent may be away: it gets one request without a retry.
    let deadline = Instant::now() + AGENT_READ_MAX;
    let everything = verb::NodeAndNamespace::any_of(id.clone());
    let agent = session.once::<verb::AgentStatus>(&everything, &agent::AgentQuery {}, deadline);
    let (node, agent, claims) = tokio::join!(query(session, id), agent, claims(session, id));
    let (agent, agent_error) = match agent {
        Ok(agent) => (Some(agent), None),
        Err(problem) => (None, Some(problem.to_string())),
    };
    let mut nodes = node?;
    let node = take_node(&mut nodes, id)?;
    let (claims, unread) = claims.ok().unzip();
    let unreadable = nodes.unreadable.into_iter().chain(unread.unwrap_or_default()).collect();
    Ok(NodeOverview { node, agent, agent_error, claims, unreadable })
}

/// Every claim for a node, in all namespaces, and the unreadable claims: each of those may be for
/// this node.
async fn claims(
    session: &Session,
    id: &NodeId,
) -> Result<(Vec<ClaimStatus>, Vec<UnreadableRecord>), Failure> {
    let of_node = claim::ListClaims { node: Some(id.clone()), ..claim::ListClaims::default() };
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    let namespaces = Namespace::wildcard();
    let pages = session.pages::<verb::ClaimStatus>(&namespaces, of_node, PAGES_MAX, |page| {
        found.extend(page.claims);
        // Each page names all unreadable claims.
        unreadable = page.unreadable;
    });
    pages.await?;
    Ok((found, unreadable))
}

/// Refuses a command without `--yes`, and says what it would do.
pub fn affirm(args: &args::NodeGone) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let node = &args.id;
    Err(Failure::usage(
        format_args!(
            "with this you say: nothing on {node} can write any more; volumes may be attached \
             elsewhere at once. If anything there still writes, data is lost"
        ),
        format_args!("make sure that it is so, then say it again with --yes"),
    ))
}

/// Declares a node gone.
pub async fn gone(args: &args::NodeGone, session: &Session) -> Result<(), Failure> {
    let by = args.by.clone().unwrap_or_else(user_and_host);
    let node = args.id.clone();
    let body =
        Gone { node: node.clone(), kind: args.kind, by, note: args.note.clone(), seen: args.seen };
    let declared = session.ask_service::<verb::NodeGone>(&(), &body).await?;
    let claims = await_released(session, &node).await.or(declared.claims);
    let declared = Declared { claims, ..declared };
    session.output.reply(&declared, |declared| show::declared(&node, declared, clock::now()));
    Ok(())
}

/// The node's claims that are left once each is released or has failed, or after a while. None when
/// the claim service does not answer.
async fn await_released(session: &Session, node: &NodeId) -> Option<Vec<ClaimStatus>> {
    let mut unfinished_claims = None;
    // The last read is the answer, whether the time or the claims ran out.
    let _ = poll(Instant::now() + RELEASE_PATIENCE, RELEASE_POLL, async || {
        let Ok((claims, _)) = claims(session, node).await else { return Continue(()) };
        let is_over = claims.iter().all(|claim| claim.tries > 0);
        unfinished_claims = Some(claims);
        if is_over { Break(()) } else { Continue(()) }
    })
    .await;
    unfinished_claims
}

/// Has a node unmount mounts that no claim covers.
pub async fn unmount(args: &args::NodeUnmount, session: &Session) -> Result<(), Failure> {
    let body = agent::Unmount {
        namespace: session.namespace.clone(),
        volume: args.volume.clone(),
        alloc: args.alloc.clone(),
    };
    // Sent once: a failure is shown to the operator, and not retried.
    let until = session.patience(UNMOUNT_PATIENCE).until;
    let unmounted = session.once::<verb::AgentUnmount>(&args.node, &body, until).await?;
    session.output.reply(&unmounted, |unmounted| {
        let lines = unmounted.mounts.iter().map(|mount| {
            let (volume, alloc) = (&args.volume, &mount.alloc);
            format!("volume {volume} of alloc {alloc} is no longer mounted at {}\n", mount.path)
        });
        lines.collect()
    });
    Ok(())
}

/// Removes a node's record.
pub async fn leave(args: &args::NodeLeave, session: &Session) -> Result<(), Failure> {
    let body = Leave { node: args.id.clone(), revision: None };
    let left = session.ask_service::<verb::NodeLeave>(&(), &body).await?;
    session.output.reply(&left, |left| show::departed(&args.id, left));
    Ok(())
}

/// The user and host that count as the author of a command without `--by`.
pub fn user_and_host() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let user = user.filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| format!("uid {}", nix::unistd::getuid()));
    match host_name().as_str() {
        "" => user,
        host => format!("{user}@{host}"),
    }
}

/// This host's name; empty when it is unknown.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Reads the status of one node; fails if there is no such node.
pub async fn find(session: &Session, id: &NodeId) -> Result<NodeStatus, Failure> {
    Ok(take_node(&mut query(session, id).await?, id)?)
}

async fn query(session: &Session, id: &NodeId) -> Result<Nodes, Failure> {
    let body = ListNodes::by_id(id.clone());
    session.ask_service::<verb::NodeStatus>(&(), &body).await
}

fn take_node(nodes: &mut Nodes, id: &NodeId) -> Result<NodeStatus, Problem> {
    let index = nodes.nodes.iter().position(|node| node.id == *id);
    index.map(|index| nodes.nodes.swap_remove(index)).ok_or_else(|| {
        let message = format!("there is no node {id}");
        Problem::new(Code::NoSuchNode, message).at_step("node.status").node(id)
    })
}
