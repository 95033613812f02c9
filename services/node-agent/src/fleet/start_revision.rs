//! The revision of the claim bucket at which this agent became an executor.

use std::time::Duration;

use berth_bus::{Bus, Call, KeptLease};
use berth_client::Client;
use berth_contract::message::claim::ListClaims;
use berth_contract::message::query::Page;
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::retry::Schedule;
use berth_domain::{Namespace, NodeId};
use berth_service::clock;
use berth_service::fault_report::FaultReport;
use tokio::time::sleep;

/// Time for one answer. The claim service asks the stream's leader, which may have to be elected.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between requests.
const RETRY: Schedule = Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };

/// Calls that were issued up to this revision of the claim bucket are not for this process
/// (rule 4).
#[derive(Debug, Clone, Copy)]
pub struct StartRevision(pub u64);

impl StartRevision {
    /// Asks the claim service for the newest revision, until it answers.
    ///
    /// Takes the node's lease, because the revision must be asked for while it is held: until then
    /// an earlier agent of the node may execute calls. The answer is not older than the question,
    /// because `claim.status` first catches up with the stream's leader (decision 0040).
    ///
    /// `missing` says meanwhile why the agent has not started.
    pub async fn read(bus: &Bus, node: &NodeId, _lease: &KeptLease, missing: &FaultReport) -> Self {
        let mut tries = 0;
        loop {
            let problem = match ask_revision(bus, node).await {
                Ok(revision) => {
                    missing.set(None);
                    return Self(revision);
                }
                Err(problem) => problem,
            };
            tries += 1;
            let why = "waits for the claim service to say at which revision this agent starts";
            missing.set(Some(format!("{why}: {}", problem.message)));
            tracing::warn!(%node, %problem, tries, "{why}");
            sleep(RETRY.wait(tries, clock::jitter())).await;
        }
    }
}

/// The revision as of which the claim service answers. The claims themselves are not needed.
async fn ask_revision(bus: &Bus, node: &NodeId) -> Result<u64, Problem> {
    let page = Page { limit: Some(1), after: None };
    let of_node = ListClaims { node: Some(node.clone()), page, ..ListClaims::default() };
    let call = Call::within(clock::begin_trace(), TIMEOUT);
    let client = Client::new(bus.clone());
    let claims = client.once::<verb::ClaimStatus>(&Namespace::wildcard(), &of_node, &call).await?;
    Ok(claims.index)
}
