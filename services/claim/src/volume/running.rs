//! Which workloads may be running with a volume.
//!
//! **Promises** that an alloc counts as ended only by its record at the leader, or by a proof for
//! its node. The mirror may lag behind the leader, in both directions.

use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::volume::State as ClaimState;
use berth_domain::{AllocId, NodeId, VolumeKey};
use futures_util::future::try_join_all;

use crate::claim::proof;
use crate::store::state::State;

/// Allocs that are read at once, at most.
const READS_AT_ONCE_MAX: usize = 32;

/// A claim, and whether its workload may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimActivity {
    pub alloc: AllocId,
    pub epoch: u64,
    pub state: ClaimState,
    /// Whether its workload may run: its alloc has not ended, and nothing proves its node gone.
    pub lives: bool,
}

impl ClaimActivity {
    /// Whether its workload may use the volume: the claim is neither in line nor being released.
    pub fn runs(&self) -> bool {
        self.lives && matches!(self.state, ClaimState::Publishing | ClaimState::Taken)
    }
}

/// The volume's claims for the node; none if the volume is not registered and has no claim.
pub async fn claim_activities(
    state: &State,
    volume: &VolumeKey,
    node: &NodeId,
    trace: TraceContext,
) -> Result<Option<Vec<ClaimActivity>>, Problem> {
    let claims = state.volumes.mirror.read(|volumes| {
        let now = &volumes.get(volume)?.volume;
        if now.spec.is_none() && now.claims.is_empty() {
            return None;
        }
        let matching = now.claims.iter().filter(|(_, claim)| claim.node == *node);
        let activities = matching.map(|(alloc, claim)| ClaimActivity {
            alloc: alloc.clone(),
            epoch: claim.epoch,
            state: claim.state,
            lives: true,
        });
        Some(activities.collect::<Vec<ClaimActivity>>())
    });
    let Some(mut claims) = claims else { return Ok(None) };
    for batch in claims.chunks_mut(READS_AT_ONCE_MAX) {
        try_join_all(batch.iter_mut().map(|activity| async move {
            activity.lives =
                state.is_surely_wanted(&volume.namespace, &activity.alloc, trace).await?
                    && proof::proof_for_claim(state, volume, &activity.alloc)
                        .await?
                        .is_none_or(|proven| proven.epoch != activity.epoch);
            Ok::<(), Problem>(())
        }))
        .await?;
    }
    Ok(Some(claims))
}
