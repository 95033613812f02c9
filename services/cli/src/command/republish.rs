//! `berth volume republish`

use std::time::Duration;

use berth_contract::message::agent::Republish as Message;
use berth_contract::verb;

use crate::args::Republish;
use crate::failure::Failure;
use crate::session::Session;

/// How long the node may take: a plugin unmounts, unstages, stages and publishes.
const REPUBLISH_PATIENCE: Duration = Duration::from_secs(60);

/// Has a node unmount the dead mounts of a volume, and mount them again.
pub async fn republish(args: &Republish, session: &Session) -> Result<(), Failure> {
    let body = Message {
        namespace: session.namespace.clone(),
        volume: args.id.clone(),
        alloc: args.alloc.clone(),
        force: args.force,
    };
    // Sent once: a failure is shown to the operator, and not retried.
    let until = session.patience(REPUBLISH_PATIENCE).until;
    let republished = session.once::<verb::AgentRepublish>(&args.node, &body, until).await?;
    session.output.reply(&republished, |republished| {
        let lines = republished.mounts.iter().map(|mount| {
            format!("volume {} is mounted again for {} at {}\n", args.id, mount.alloc, mount.path)
        });
        lines.collect()
    });
    Ok(())
}
