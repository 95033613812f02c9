//! Which reported mounts without a claim count.
//!
//! **Why.** Such a mount keeps every other node from its volume, in any namespace. So a node is
//! believed only if it can have the mount: an alloc of this node requested the volume.
//!
//! **Promises** that in doubt a mount counts, because its workload may write: if the alloc's record
//! cannot be read or may have been lost, if the alloc's node is away and may run under another
//! name, or if the mount is on the node's record already. Mounts that do not count are named in the
//! node's record.
//!
//! **Never** loses a mount because its alloc was deleted: an alloc's record stays while its node
//! has a mount of it, or has not reported its mounts ([`Nodes::may_have_mounts`]).
//!
//! [`Nodes::may_have_mounts`]: berth_service::projection::Nodes::may_have_mounts

use std::borrow::Cow;

use berth_contract::problem::Problem;
use berth_domain::plugin::{Node, UnaccountedMount};
use berth_service::deadline;
use tokio::time::Instant;

use super::decide::ReceivedReport;
use crate::store::evidence::Evidence;
use crate::store::state::StateInner;

/// The attribute that names reported mounts that do not count.
const DISBELIEVED: &str = "disbelieved-mounts";

/// The report without the mounts that do not count. `known` is the node's record.
pub async fn believed<'a>(
    state: &StateInner,
    received: &'a ReceivedReport,
    record: Option<&Node>,
    deadline: Instant,
) -> Result<Cow<'a, ReceivedReport>, Problem> {
    let is_known =
        |mount: &UnaccountedMount| record.is_some_and(|record| record.unaccounted.contains(mount));
    let report = &received.report;
    if report.unaccounted.iter().all(is_known) {
        return Ok(Cow::Borrowed(received));
    }
    let mut counted = received.clone();
    counted.report.unaccounted.clear();
    let mut disbelieved = Vec::new();
    for mount in &report.unaccounted {
        deadline::check(deadline)?;
        if is_known(mount) || may_have(state, received, record, mount).await? {
            counted.report.unaccounted.push(mount.clone());
        } else {
            disbelieved.push(mount);
        }
    }
    if let Some(first) = disbelieved.first() {
        let count = disbelieved.len();
        tracing::warn!(
            node = %report.node, count, %first,
            "no alloc of the node requested what it says is mounted there: that does not count"
        );
        let description = format!("{count}, the first: {first}; no alloc of the node requested it");
        counted.report.attributes.insert(DISBELIEVED.to_owned(), description);
    }
    Ok(Cow::Owned(counted))
}

/// Whether the node can have the mount, according to the records.
async fn may_have(
    state: &StateInner,
    received: &ReceivedReport,
    record: Option<&Node>,
    mount: &UnaccountedMount,
) -> Result<bool, Problem> {
    let evidence = state.evidence(&mount.namespace, &mount.alloc).await?;
    let volume = mount.volume_key();
    match &evidence {
        Evidence::Unreadable => return Ok(true),
        Evidence::Record(alloc) => {
            // The host of a node that is away may run under another name.
            let may_be_renamed = || state.nodes.mirror.read(|nodes| !nodes.is_ready(&alloc.node));
            let is_requested = alloc.request_for(&mount.volume).is_some();
            return Ok(is_requested && (alloc.node == received.report.node || may_be_renamed()));
        }
        Evidence::None if state.had_claim(&volume, &mount.alloc).await? => return Ok(true),
        Evidence::None => {}
    }
    // The alloc's record may have been lost: all records were, or an older backup was restored.
    let present = state.volumes.read(&state.bus).await?;
    if present.is_some() && record.and_then(Node::compared_incarnation) != present {
        return Ok(true);
    }
    match record.map_or(received.volumes, |record| record.newcomer) {
        Some(since) => state.is_newer(&volume, since).await,
        None => Ok(false),
    }
}
