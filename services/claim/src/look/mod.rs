//! What is shown: volumes, claims and allocs with all that is derived from them.
//!
//! **Promises** that an answer shows all that was stored before it was asked for, whichever replica
//! stored it, or is no answer: the stream's leader is asked each time. A list is a picture of one
//! revision, which it names. What is derived is of the reply's type, and never stored (D8).

mod alloc;
mod claim;
mod node_mount;
mod placement;
mod refusal;
mod volume;
mod wait;

use berth_bus::{Bucket, Fold, Mirror};
use berth_contract::code::Code;
use berth_contract::message::query::Newer;
use berth_contract::problem::Problem;
use berth_contract::record::UnreadableRecord;
use berth_domain::limits::UNREADABLE_MAX;
use berth_domain::plugin::NodeState;
use berth_domain::{Namespace, NodeId};
use berth_service::newer::Until;
use berth_service::projection::Nodes;
use tokio::time::{Instant, timeout_at};

use crate::state::StateInner;

pub use alloc::{alloc, allocs, status as alloc_status};
pub use claim::{claims, claims_in};
pub use placement::placement;
pub use volume::{volume, volumes};
pub use wait::{ClaimContext, VolumeQueue};

/// The revision of a node's record, where it says that the node is down; 0 for a node without one.
pub fn seen_down(nodes: &Nodes, node: &NodeId) -> Option<u64> {
    let is_down = nodes.get(node).is_none_or(|known| known.state == NodeState::Down);
    (is_down && !nodes.unreadable().contains_key(node)).then(|| nodes.revision(node))
}

/// Whether a query for a namespace covers another: `*` covers all.
fn covers(asked: &Namespace, theirs: &Namespace) -> bool {
    covers_all(asked) || asked == theirs
}

fn covers_all(asked: &Namespace) -> bool {
    asked.as_str() == "*"
}

/// A reader, and the time it has.
#[derive(Debug, Clone, Copy)]
struct Reader<'a> {
    step: &'a str,
    newer: Newer,
    until: Until,
}

impl<'a> Reader<'a> {
    fn new(step: &'a str, newer: Newer, deadline: Instant) -> Self {
        Self { step, newer, until: Until::of(newer, deadline) }
    }
}

/// As many of the records that cannot be read as an answer names.
fn first_unreadable<'a>(all: impl Iterator<Item = &'a UnreadableRecord>) -> Vec<UnreadableRecord> {
    all.take(UNREADABLE_MAX).cloned().collect()
}

impl StateInner {
    /// Looks at a bucket as the reader asks: when something in it is newer or the wait is over, and
    /// then at one revision with all that was stored before.
    async fn picture<F: Fold, T>(
        &self,
        reader: Reader<'_>,
        bucket: &Bucket,
        mirror: &Mirror<F>,
        look: impl FnOnce(&F) -> T,
    ) -> Result<(u64, T), Problem> {
        let Reader { step, newer, until } = reader;
        let arrival = |than: u64| mirror.reach(than.saturating_add(1), until.wait);
        self.readers.wait(newer, until, |than| mirror.applied() > than, arrival).await?;
        self.abreast(reader, bucket, mirror, ">").await?;
        let seen = mirror.snapshot(until.answer, look).await;
        seen.map_err(|error| error.into_problem(step))
    }

    /// Waits until the mirror shows all that the leader has below the filter, or says that it does
    /// not.
    async fn abreast<F: Fold>(
        &self,
        reader: Reader<'_>,
        bucket: &Bucket,
        mirror: &Mirror<F>,
        filter: &str,
    ) -> Result<(), Problem> {
        let Reader { step, until, .. } = reader;
        let asked = async {
            // The bucket's own head falls when a marker is purged; that of a volume does not.
            if filter == ">" { bucket.newest().await } else { bucket.head(filter).await }
        };
        let Ok(head) = timeout_at(until.answer, asked).await else {
            let said = format!(
                "the leader of bucket {} did not answer in time, and without it nobody knows \
                 whether what is known here still holds",
                bucket.name()
            );
            return Err(Problem::new(Code::BusUnavailable, said).retryable());
        };
        let head = head.map_err(|error| error.into_problem(step))?;
        let reached = mirror.reach(head, until.answer).await;
        reached.map_err(|error| error.into_problem(step))
    }
}
