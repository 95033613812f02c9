//! `berth node …`

use berth_contract::code::Code;
use berth_contract::message::registry::{Nodes, Status};
use berth_contract::problem::Problem;
use berth_contract::subject::Global as Verb;
use berth_service::clock;

use crate::args::NodeStatus;
use crate::failure::Failure;
use crate::session::{Question, Session};
use crate::show;

/// Lists nodes, or shows one.
pub async fn status(args: &NodeStatus, session: &Session) -> Result<(), Failure> {
    let body = Status { id: args.id.clone() };
    let nodes: Nodes = session.ask(&Question::global(Verb::NodeStatus), &body).await?;
    let Some(id) = &args.id else {
        session.output.reply(&nodes, |nodes| show::nodes(nodes, clock::now()));
        return Ok(());
    };
    let Some(node) = nodes.nodes.into_iter().find(|node| node.id == *id) else {
        let message = format!("there is no node {id}");
        return Err(Problem::new(Code::NoSuchNode, message).at("node.status").node(id).into());
    };
    session.output.reply(&node, |node| show::node(node, clock::now()));
    Ok(())
}
