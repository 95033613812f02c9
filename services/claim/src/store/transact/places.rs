//! Places in line, of many claims of one volume, stored in one atomic batch.
//!
//! **Promises** that a batch is decided on one state of the volume and guarded by it, as each
//! transition is; and that it waits behind takes, which wait behind everything else.

use berth_contract::trace::TraceContext;
use berth_domain::volume::Write;
use berth_domain::{AllocId, VolumeKey};
use berth_service::clock;
use berth_service::projection::{Subtree, Volumes};

use super::batch::GuardedWrite;
use super::{RACES_MAX, TransactError, claim_before};
use crate::store::state::StateInner;
use crate::store::trail::ClaimChange;

/// Places that are written in one batch. A batch that is larger takes longer, and a release of the
/// volume waits for it.
const PLACES_MAX: usize = 128;

impl StateInner {
    /// Keeps the places of these allocs, as far as half of their time is used up.
    pub async fn renew_places(
        &self,
        volume: &VolumeKey,
        allocs: &[AllocId],
    ) -> Result<(), TransactError> {
        let context = self.decision_context();
        let due: Vec<AllocId> = self.volumes.mirror.read(|volumes| {
            let now = volumes.get(volume).map(|subtree| &subtree.volume);
            let is_due = |alloc: &&AllocId| now?.renew_place(alloc, &context).map(drop);
            allocs.iter().filter(|alloc| is_due(alloc).is_some()).cloned().collect()
        });
        for allocs in due.chunks(PLACES_MAX) {
            let _turn = self.take_turns.lock(volume).await;
            let _lock = self.volume_locks.lock(volume).await;
            let (mut head, trace) = (None, clock::begin_trace());
            for _ in 0..RACES_MAX {
                let writes = self
                    .volumes
                    .mirror
                    .read(|volumes| self.place_writes(volumes, volume, allocs, head, trace))?;
                if writes.is_empty() || self.store_all(&writes, trace).await?.is_some() {
                    break;
                }
                head = Some(self.catch_up(volume).await?);
            }
        }
        Ok(())
    }

    /// The writes that keep the places, on the mirror's state of the volume. `head` is the guard's
    /// revision if the leader was asked for it.
    fn place_writes(
        &self,
        volumes: &Volumes,
        volume: &VolumeKey,
        allocs: &[AllocId],
        head: Option<u64>,
        trace: TraceContext,
    ) -> Result<Vec<GuardedWrite>, TransactError> {
        let readable = |subtree: &&Subtree| subtree.first_unreadable().is_none();
        let Some(subtree) = volumes.get(volume).filter(readable) else { return Ok(Vec::new()) };
        let context = self.decision_context();
        let renew = |alloc: &AllocId| subtree.volume.renew_place(alloc, &context);
        let renewals = allocs.iter().filter_map(renew).map(|write| {
            let before = claim_before(Some(subtree), &write);
            let trail = before.as_ref().and_then(|before| {
                let Write::PutClaim(alloc, after) = &write else { return None };
                let (before, after) = (Some(before), Some(after));
                Some(ClaimChange { volume, alloc, before, after }.trail(trace, context.now))
            });
            let head = head.unwrap_or(subtree.head);
            Ok(GuardedWrite::own(volume, &write, trail, head, trace)?)
        });
        renewals.collect()
    }
}
