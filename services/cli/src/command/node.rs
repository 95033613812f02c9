//! `berth node …`

use berth_contract::code::Code;
use berth_contract::message::registry::{NodeStatus, Nodes, Status};
use berth_contract::problem::Problem;
use berth_contract::subject::Global as Verb;
use berth_domain::NodeId;
use berth_service::clock;

use crate::args;
use crate::failure::Failure;
use crate::session::{Question, Session};
use crate::show;

/// Lists nodes, or shows one.
pub async fn status(args: &args::NodeStatus, session: &Session) -> Result<(), Failure> {
    if let Some(id) = &args.id {
        let node = find(session, id).await?;
        session.output.reply(&node, |node| show::node(node, clock::now()));
        return Ok(());
    }
    let nodes: Nodes =
        session.ask(&Question::global(Verb::NodeStatus), &Status::<NodeId> { id: None }).await?;
    session.output.reply(&nodes, |nodes| show::nodes(nodes, clock::now()));
    Ok(())
}

/// One node.
pub async fn find(session: &Session, id: &NodeId) -> Result<NodeStatus, Failure> {
    let body = Status { id: Some(id.clone()) };
    let nodes: Nodes = session.ask(&Question::global(Verb::NodeStatus), &body).await?;
    nodes.nodes.into_iter().find(|node| node.id == *id).ok_or_else(|| {
        let message = format!("there is no node {id}");
        Problem::new(Code::NoSuchNode, message).at("node.status").node(id).into()
    })
}
