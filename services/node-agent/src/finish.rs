//! Told to end: releases that are under way on this node are served to their end first.
//!
//! **Promises** that whoever drains a node, workloads first and its agent right after them, leaves
//! no volume behind that only this agent could have unmounted; and that an agent that is to be
//! restarted under workloads that run does not wait for them.
//!
//! **Never** waits longer than it was told, nor for a claim service that does not answer.

use std::time::Duration;

use berth_bus::{Bus, Call, RequestError};
use berth_contract::message::claim::{ClaimStatus, Status};
use berth_contract::verb;
use berth_domain::volume::State;
use berth_domain::{Namespace, NodeId};
use berth_service::clock;
use berth_service::process::chain;
use berth_service::shutdown::{Shutdown, Trigger};
use tokio::time::{Instant, sleep};

/// How often it is looked.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long one answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Passes the shutdown on once nothing on the node is being released any more, or `within` of it.
pub async fn finish_releases(
    bus: Bus,
    node: NodeId,
    within: Duration,
    requested: Shutdown,
    end: Trigger,
) {
    requested.requested().await;
    let until = Instant::now() + within;
    while Instant::now() < until {
        match count_leaving(&bus, &node).await {
            Ok(0) => break,
            Ok(left) => tracing::info!(left, "serving releases before the end"),
            Err(error) => {
                let why = chain(&error);
                tracing::info!(why, "nobody says whether something is being released here");
                break;
            }
        }
        sleep(POLL_INTERVAL).await;
    }
    end.request();
}

/// How many claims of the node's are on their way out. One page is looked at: as many claims as it
/// shows are more than a node can mount.
pub(crate) async fn count_leaving(bus: &Bus, node: &NodeId) -> Result<usize, RequestError> {
    let question = Status { node: Some(node.clone()), ..Status::default() };
    let call = Call::within(clock::begin_trace(), ANSWER_TIMEOUT);
    let claims = bus.ask::<verb::ClaimStatus>(&Namespace::all(), &question, &call).await?;
    Ok(claims.claims.iter().filter(|claim| is_leaving(claim)).count())
}

fn is_leaving(claim: &ClaimStatus) -> bool {
    match claim.state {
        State::Unpublishing | State::NodeDetached => true,
        // At rest it waits for nothing; else its alloc has ended.
        State::Taken => claim.waits_for.is_some(),
        State::Waiting | State::Publishing => false,
    }
}
