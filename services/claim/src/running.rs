//! Who runs with a volume, as far as anybody knows.
//!
//! **Promises** that an alloc counts as ended only when the leader says so, or when a proof stands
//! in for its node: this replica may be behind, both ways.

use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::volume::State as ClaimState;
use berth_domain::{AllocId, NodeId, VolumeKey};
use futures_util::future::try_join_all;

use crate::proof;
use crate::state::State;

/// How many allocs are read at once.
const READS_AT_ONCE_MAX: usize = 32;

/// A claim, and whether its workload may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimActivity {
    /// Whose.
    pub alloc: AllocId,
    /// Which of the alloc's.
    pub epoch: u64,
    /// How far it is.
    pub state: ClaimState,
    /// Whether its workload may run: its alloc has not ended, and nothing proves its node gone.
    pub lives: bool,
}

impl ClaimActivity {
    /// Whether its workload may be at work on the volume: not in line for it, and not giving it up.
    pub fn runs(&self) -> bool {
        self.lives && matches!(self.state, ClaimState::Publishing | ClaimState::Taken)
    }
}

/// The volume's claims, those of the node if one is named; none when it is not registered.
pub async fn claims(
    state: &State,
    volume: &VolumeKey,
    node: Option<&NodeId>,
    trace: TraceContext,
) -> Result<Option<Vec<ClaimActivity>>, Problem> {
    let claims = state.volumes.mirror.read(|volumes| {
        let now = &volumes.get(volume)?.volume;
        now.spec.as_ref()?;
        let meant = now.claims.iter().filter(|(_, claim)| node.is_none_or(|n| claim.node == *n));
        let seen = meant.map(|(alloc, claim)| ClaimActivity {
            alloc: alloc.clone(),
            epoch: claim.epoch,
            state: claim.state,
            lives: true,
        });
        Some(seen.collect::<Vec<ClaimActivity>>())
    });
    let Some(mut claims) = claims else { return Ok(None) };
    for some in claims.chunks_mut(READS_AT_ONCE_MAX) {
        try_join_all(some.iter_mut().map(|seen| async move {
            seen.lives = state.is_surely_wanted(&volume.namespace, &seen.alloc, trace).await?
                && proof::proof_for_claim(state, volume, &seen.alloc)
                    .await?
                    .is_none_or(|proven| proven.epoch != seen.epoch);
            Ok::<(), Problem>(())
        }))
        .await?;
    }
    Ok(Some(claims))
}
