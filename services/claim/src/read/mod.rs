//! Queries: volumes, claims and allocs with all that is derived from them.
//!
//! **Promises**
//!
//! - A reply shows everything that any replica stored before the request. The stream's leader is
//!   asked each time; if it does not answer, the request fails.
//! - A list shows one revision, and names it.
//! - Derived facts are in the reply's type only, and never stored (D8).

mod alloc;
mod alloc_wait;
mod claim;
mod history;
mod placement;
pub mod plan;
mod reach;
mod records;
mod refusal;
mod storage;
mod volume;
mod volume_health;
pub mod volume_requests;
mod wait;

use berth_bus::Fold;
use berth_contract::code::Code;
use berth_contract::message::query::LongPoll;
use berth_contract::message::registry::{InstanceStatus, NodeStatus};
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_domain::NodeId;
use berth_domain::limits::UNREADABLE_MAX;
use berth_service::newer::{Until, await_newer};
use berth_service::projection::Nodes;
use berth_service::record_table::RecordTable;
use berth_service::registry_status::node_status;
use tokio::time::{Instant, timeout_at};

use crate::store::state::StateInner;

pub use alloc::{alloc_status, build_alloc_status, list_allocs};
pub use alloc_wait::wait_for_alloc;
pub use claim::{list_claims, show_claims};
pub use history::list_events;
pub use placement::{list_placements, place_many};
pub use storage::{show_snapshot, show_storage};
pub use volume::{list_volumes, volume_status};
pub use wait::{ClaimContext, VolumeQueue};

/// The node's record, with these of its instances; or why there is none.
pub fn read_node(
    nodes: &Nodes,
    id: &NodeId,
    instances: Vec<InstanceStatus>,
) -> Result<NodeStatus, Problem> {
    if let Some(record) = nodes.unreadable().get(id) {
        return Err(record.problem());
    }
    let absent = || Problem::new(Code::NoSuchNode, format!("no node {id} is on record"));
    let node = nodes.get(id).ok_or_else(absent)?;
    Ok(node_status(id, (node, nodes.revision(id)), instances))
}

/// A reader, and how long it waits.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    newer: LongPoll,
    until: Until,
}

impl Reader {
    pub fn new(newer: LongPoll, deadline: Instant) -> Self {
        Self { newer, until: Until::for_request(newer, deadline) }
    }
}

/// The unreadable records that fit in one reply.
fn first_unreadable<'a>(all: impl Iterator<Item = &'a UnreadableRecord>) -> Vec<UnreadableRecord> {
    all.take(UNREADABLE_MAX).cloned().collect()
}

impl StateInner {
    /// Reads all of a table at one revision, after a change that concerns the reader or the end of
    /// the wait. `concerns` says whether there was such a change after a revision.
    pub async fn snapshot<F: Fold, T>(
        &self,
        reader: Reader,
        table: &RecordTable<F>,
        concerns: impl Fn(&F, u64) -> bool,
        show: impl FnOnce(&F) -> T,
    ) -> Result<(u64, T), Problem> {
        let mirror = &table.mirror;
        let Reader { newer, until } = reader;
        let mut changes = mirror.subscribe();
        let has_changed = |than: u64| mirror.read(|fold| concerns(fold, than));
        let arrival = |than: u64| async move {
            let mut than = than;
            loop {
                // The changes so far are tested now, and need not be tested again.
                let applied = mirror.applied();
                if has_changed(than) || changes.changed().await.is_err() {
                    return;
                }
                than = than.max(applied);
            }
        };
        await_newer(newer, until, has_changed, arrival).await?;
        self.catch_up_with_leader(reader, table, ">").await?;
        let snapshot = mirror.snapshot(until.answer, show).await;
        snapshot.map_err(Problem::from)
    }

    /// Waits until the object has a newer revision than the reader has seen, or the wait is over. A
    /// deleted object is newer than any revision. An object that never existed is waited for.
    async fn wait_for_newer<F: Fold>(
        &self,
        reader: Reader,
        RecordTable { mirror, .. }: &RecordTable<F>,
        revision: impl Fn(&F) -> Option<u64>,
    ) -> Result<(), Problem> {
        let is_newer =
            |than: u64| mirror.read(&revision).map_or(than > 0, |revision| revision > than);
        let mut changes = mirror.subscribe();
        let arrival =
            |than| async move { while !is_newer(than) && changes.changed().await.is_ok() {} };
        await_newer(reader.newer, reader.until, is_newer, arrival).await
    }

    /// Waits until the mirror has everything that the leader has below the filter; fails if that
    /// takes longer than the reader waits.
    pub async fn catch_up_with_leader<F: Fold>(
        &self,
        reader: Reader,
        RecordTable { bucket, mirror }: &RecordTable<F>,
        filter: &str,
    ) -> Result<(), Problem> {
        let until = reader.until;
        let head = async {
            // The bucket's own head falls when a marker is purged; a volume's does not.
            if filter == ">" { bucket.newest().await } else { bucket.head(filter).await }
        };
        let Ok(head) = timeout_at(until.answer, head).await else {
            let message = format!(
                "the leader of bucket {} did not answer in time, and without it nobody knows \
                 whether what is known here still holds",
                bucket.name()
            );
            return Err(Problem::new(Code::BusUnavailable, message).retryable());
        };
        let head = head?;
        let reached = mirror.reach(head, until.answer).await;
        reached.map_err(Problem::from)
    }
}
