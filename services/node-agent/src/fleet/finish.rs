//! Finishes the releases under way on this node before the shutdown begins.
//!
//! **Promises** that an operator can stop the workloads of a node and its agent right after them:
//! no volume stays mounted that only this agent could have unmounted. An agent that is restarted
//! under running workloads does not wait for them.
//!
//! **Never** waits longer than configured, nor for a claim service that is away: after
//! [`UNANSWERED_MAX`] questions without an answer the agent ends. One is not enough. The bus still
//! sends questions to a replica whose host has just lost power.

use std::time::Duration;

use berth_bus::{Bus, Call};
use berth_client::Client;
use berth_contract::message::claim::{ClaimStatus, ListClaims};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::volume::State;
use berth_domain::{Namespace, NodeId};
use berth_service::clock;
use berth_service::shutdown::{Shutdown, Trigger};
use tokio::time::{Instant, sleep};

/// Interval at which the claims of the node are counted.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Time for one answer of the claim service.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Questions without an answer, one after the other, after which the agent ends.
const UNANSWERED_MAX: u32 = 4;

/// Passes a requested shutdown on through `end` once no release is under way on the node, or after
/// `within`.
pub async fn finish_releases(
    bus: Bus,
    node: NodeId,
    within: Duration,
    requested: Shutdown,
    end: Trigger,
) {
    requested.requested().await;
    let until = Instant::now() + within;
    let mut unanswered = 0;
    while Instant::now() < until && unanswered < UNANSWERED_MAX {
        match count_leaving(&bus, &node).await {
            Ok(0) => break,
            Ok(left) => {
                unanswered = 0;
                tracing::info!(left, "serving releases before the end");
            }
            Err(problem) => {
                unanswered += 1;
                tracing::info!(%problem, "the releases under way on this node are not known");
            }
        }
        sleep(POLL_INTERVAL).await;
    }
    end.request();
}

/// Counts the node's claims that are being released. Reads one page, which holds more claims than a
/// node can mount.
pub(crate) async fn count_leaving(bus: &Bus, node: &NodeId) -> Result<usize, Problem> {
    let question = ListClaims { node: Some(node.clone()), ..ListClaims::default() };
    let call = Call::within(clock::begin_unrecorded_trace(), ANSWER_TIMEOUT);
    let client = Client::new(bus.clone());
    let claims = client.once::<verb::ClaimStatus>(&Namespace::wildcard(), &question, &call).await?;
    Ok(claims.claims.iter().filter(|claim| is_leaving(claim)).count())
}

fn is_leaving(claim: &ClaimStatus) -> bool {
    match claim.state {
        State::Unpublishing | State::NodeDetached => true,
        // A taken claim of a live alloc waits for nothing.
        State::Taken => claim.waits_for.is_some(),
        State::Waiting | State::Publishing => false,
    }
}
