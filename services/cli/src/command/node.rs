//! `berth node …`

use berth_contract::code::Code;
use berth_contract::message::registry::{
    Declared, Gone, Leave, Left, NodeQuery, NodeStatus, Nodes,
};
use berth_contract::problem::Problem;
use berth_contract::subject::Global as Verb;
use berth_domain::NodeId;
use berth_service::clock;

use crate::args;
use crate::failure::Failure;
use crate::output::{more, say};
use crate::session::{Question, Session};
use crate::show;

/// Lists nodes, or shows one.
pub async fn status(args: &args::NodeStatus, session: &Session) -> Result<(), Failure> {
    if let Some(id) = &args.id {
        let node = find(session, id).await?;
        session.output.reply(&node, |node| show::node(node, clock::now()));
        return Ok(());
    }
    let body = NodeQuery {
        prefix: args.prefix.clone(),
        plugin: args.plugin.clone(),
        state: args.state,
        limit: args.page.limit,
        after: args.page.after.clone(),
        ..NodeQuery::default()
    };
    let nodes: Nodes = session.ask(&Question::global(Verb::NodeStatus), &body).await?;
    session.output.reply(&nodes, |nodes| show::nodes(nodes, clock::now()));
    more(nodes.next.as_ref());
    Ok(())
}

/// Refuses what was not said with `--yes`, and says what would be.
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

/// Says that a node is gone.
pub async fn gone(args: &args::NodeGone, session: &Session) -> Result<(), Failure> {
    let by = args.by.clone().unwrap_or_else(user_and_host);
    let node = args.id.clone();
    let body = Gone { node: node.clone(), kind: args.kind, by, note: args.note.clone() };
    let declared: Declared = session.ask(&Question::global(Verb::NodeGone), &body).await?;
    session.output.reply(&declared, |declared| show::declared(&node, declared));
    say(format_args!(
        "its claims are released now: `berth claim status` shows those that are left"
    ));
    Ok(())
}

/// Forgets a node.
pub async fn leave(args: &args::NodeLeave, session: &Session) -> Result<(), Failure> {
    let body = Leave { node: args.id.clone(), revision: None };
    let left: Left = session.ask(&Question::global(Verb::NodeLeave), &body).await?;
    session.output.reply(&left, |left| show::left(&args.id, left));
    Ok(())
}

/// Who answers, when nobody was named.
fn user_and_host() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let user = user.filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| format!("uid {}", nix::unistd::getuid()));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => user,
        host => format!("{user}@{host}"),
    }
}

/// One node.
pub async fn find(session: &Session, id: &NodeId) -> Result<NodeStatus, Failure> {
    let body = NodeQuery::of(id.clone());
    let nodes: Nodes = session.ask(&Question::global(Verb::NodeStatus), &body).await?;
    nodes.nodes.into_iter().find(|node| node.id == *id).ok_or_else(|| {
        let message = format!("there is no node {id}");
        Problem::new(Code::NoSuchNode, message).at("node.status").node(id).into()
    })
}
