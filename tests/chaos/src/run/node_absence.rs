//! A node goes, a person fences it and declares it gone, and it comes back.
//!
//! Owns: the order of `docs/failover.md`: fence, declare, and lift the fence only when the node has
//! undone its mounts. Promises: the fence is lifted at the end, whatever happened. Never: declares
//! a node gone whose storage is not fenced. That would be a lie, which no system can see through.

use std::time::Duration;

use berth_contract::message::registry::{Declared, NodeStatus, Nodes};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::NodeState;
use berth_harness::proxy::Proxy;
use serde_json::json;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use super::Run;
use super::client::node_id;
use super::strike::each;
use crate::plan::{Absence, Target};

/// How long the registry may take to notice that a node is down.
const NOTICED: Duration = Duration::from_secs(30);
/// How long a person repeats the declaration.
const DECLARED: Duration = Duration::from_secs(20);
/// How long a node may take to come back. A plugin that hangs delays it, and other faults go
/// on.
const UNDONE: Duration = Duration::from_secs(140);

impl Run {
    /// Makes the node absent, has it declared gone, and brings it back after `lasts`.
    pub(super) async fn gone(&self, node: usize, absence: Absence, lasts: Duration) {
        let agent = Target::Agent(node);
        let cables = self.site.cables(agent);
        match absence {
            Absence::Killed => {
                self.down().insert(agent);
                block_in_place(|| self.site.daemon(agent).kill9());
            }
            Absence::Stopped => block_in_place(|| self.site.daemon(agent).pause()),
            Absence::CutOff => each(cables, Proxy::half_open),
        }
        let declared = self.fence_and_declare(node).await;
        self.ledger.note(format!("{agent} declared gone: {declared:?}"));
        sleep(lasts).await;
        match absence {
            Absence::Killed => self.up(agent),
            Absence::Stopped => self.site.daemon(agent).resume(),
            Absence::CutOff => each(cables, Proxy::heal),
        }
        match declared {
            Ok(()) => self.undone(node).await,
            Err(_) => self.unmounted(node).await,
        }
        self.site.fence(node, false);
    }

    /// Fences the node and declares it gone. If its record has changed since it was seen to be
    /// down, a person looks at it again, and so does this.
    async fn fence_and_declare(&self, node: usize) -> Result<(), String> {
        let end = Instant::now() + DECLARED;
        loop {
            let seen = self.noticed(node).await?;
            self.site.fence(node, true);
            let declared = self.declared(node, seen).await;
            let is_old = declared.as_ref().is_err_and(|message| message.contains("BERTH0009"));
            if !is_old || Instant::now() > end {
                return declared;
            }
        }
    }

    /// Waits until nothing is mounted on a fenced node that does not count as gone. Its
    /// workloads end, and it mounts nothing new while it is fenced.
    async fn unmounted(&self, node: usize) {
        let end = Instant::now() + UNDONE;
        while !self.site.mounts(Some(node)).is_empty() {
            if Instant::now() > end {
                let mounts = self.site.mounts(Some(node));
                return self.ledger.note(format!("n{} is fenced and keeps {mounts:?}", node + 1));
            }
            sleep(Duration::from_millis(300)).await;
        }
    }

    async fn status(&self, node: usize) -> Result<NodeStatus, String> {
        let nodes = self.ask::<Nodes>(&verb::NodeStatus::subject(&()), &json!({})).await;
        let nodes = nodes.map_err(|problem| problem.to_string())?.nodes;
        let listed = format!("{nodes:?}");
        nodes.into_iter().find(|one| one.id == node_id(node)).ok_or(listed)
    }

    /// Waits until the node is down; returns the revision of its record then.
    async fn noticed(&self, node: usize) -> Result<u64, String> {
        let end = Instant::now() + NOTICED;
        loop {
            let seen = match self.status(node).await {
                Ok(status) if status.state == NodeState::Down => return Ok(status.revision),
                other => format!("{other:?}"),
            };
            if Instant::now() > end {
                return Err(format!("not seen to be down: {seen}"));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn declared(&self, node: usize, seen: u64) -> Result<(), String> {
        // The node's claims may be freed from the moment of the request on.
        self.ledger.node_changes(node, true);
        let gone = json!({
            "node": node_id(node), "kind": "storage-fenced", "by": "chaos@console", "note": "",
            "seen": seen,
        });
        let subject = verb::NodeGone::subject(&());
        let answer =
            self.pursue::<Declared>(&subject, &gone, DECLARED, |problem| problem.retryable);
        answer.await.map(drop).map_err(|problem: Problem| problem.to_string())
    }

    /// Waits until the node is back and has undone its mounts. It is a violation if it does
    /// not.
    async fn undone(&self, node: usize) {
        let end = self.stuck_at(UNDONE);
        loop {
            let mounts = self.site.mounts(Some(node));
            let status = self.status(node).await;
            let back = status
                .as_ref()
                .is_ok_and(|status| status.gone.is_none() && status.state == NodeState::Ready);
            if back {
                self.ledger.node_changes(node, false);
                return self.ledger.note(format!("n{} is back", node + 1));
            }
            if Instant::now() > end {
                let what = format!("n{} is not back: {status:?}, mounts {mounts:?}", node + 1);
                return self.ledger.violated("stuck", what);
            }
            sleep(Duration::from_millis(300)).await;
        }
    }
}
