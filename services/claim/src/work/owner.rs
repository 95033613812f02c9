//! The work of one owner: a claim, a volume at its storage, or a snapshot; and the facts besides
//! its record that a call depends on: whether its alloc still runs, whether its node is gone, and
//! which controller gets the call.
//!
//! **Promises** that each fact counts only for the claim, or the volume, that was read before the
//! fact: a later one of the same name may differ.
//!
//! **Never** changes a record, except for the alloc of a claim whose node is proven to be gone.

use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::proof::Proven;
use berth_domain::volume::{CallOwner, State as ClaimState, Volume};
use berth_domain::{AllocId, NodeId, SnapshotId, VolumeKey};
use tokio::time::Instant;

use crate::claim::proof;
use crate::store::state::State;
use crate::store::transact::TransactError;

/// The work of one owner, for which a worker asks.
pub(super) struct OwnerWork<'a> {
    pub state: &'a State,
    pub volume: VolumeKey,
    pub owner: CallOwner,
    /// The volumes of the snapshot's group; for any other owner, the volume alone.
    pub members: Vec<VolumeKey>,
    pub trace: TraceContext,
    pub deadline: Instant,
}

/// The facts besides the record.
pub(super) struct KnownBeside {
    /// Whether the claim's alloc wants it; true for other owners. None for a claim whose release
    /// continues in any case.
    pub wanted: Option<bool>,
    /// For a claim: the proof that its node is gone.
    pub proven: Option<Proven>,
    /// For a volume that was made for a run that is over: when it was created.
    pub run_over: Option<u64>,
}

impl KnownBeside {
    /// Whether the owner's work is wanted: a claim of an alloc that may be live is not released.
    pub fn is_wanted(&self, now: &Volume) -> bool {
        // The fact about the run does not count for a volume that was created since.
        let create_index = now.spec.as_ref().map(|spec| spec.create_index);
        self.wanted.unwrap_or(true) && self.run_over.is_none_or(|over| create_index != Some(over))
    }
}

impl OwnerWork<'_> {
    /// Reads the facts; none if no call may begin now.
    pub async fn look_beside(&self) -> Result<Option<KnownBeside>, Problem> {
        match &self.owner {
            CallOwner::Claim(alloc) => self.look_beside_claim(alloc).await,
            CallOwner::Volume | CallOwner::Snapshot(_) => {
                let run_over = self.run_over().await?;
                if run_over.is_some() || self.needs_unmounted() {
                    self.catch_up_with_nodes().await?;
                }
                Ok(Some(KnownBeside { wanted: Some(true), proven: None, run_over }))
            }
        }
    }

    async fn look_beside_claim(&self, alloc: &AllocId) -> Result<Option<KnownBeside>, Problem> {
        let (state, volume) = (self.state, &self.volume);
        // A claim's release continues, wanted or not. For other claims the leader is asked.
        let wanted = if self.is_leaving() { None } else { Some(self.is_surely_wanted().await?) };
        let proven = proof::proof_for_claim(state, volume, alloc).await?;
        if wanted == Some(true) && proven.is_none() && self.is_attach_held(alloc) {
            return Ok(None);
        }
        if let Some(proven) = &proven {
            let (namespace, trace) = (&volume.namespace, self.trace);
            proof::end_alloc_by_proof(state, namespace, alloc, proven, trace, self.deadline)
                .await?;
        }
        Ok(Some(KnownBeside { wanted, proven, run_over: None }))
    }

    /// Whether the owner is a claim that is being released.
    pub fn is_leaving(&self) -> bool {
        let CallOwner::Claim(alloc) = &self.owner else { return false };
        let state = self
            .state
            .volumes
            .mirror
            .read(|volumes| Some(volumes.get(&self.volume)?.volume.claims.get(alloc)?.state));
        matches!(state, Some(ClaimState::Unpublishing | ClaimState::NodeDetached))
    }

    /// Whether the claim's alloc still runs, according to the leader.
    pub async fn is_surely_wanted(&self) -> Result<bool, Problem> {
        let CallOwner::Claim(alloc) = &self.owner else { return Ok(true) };
        self.state.is_surely_wanted(&self.volume.namespace, alloc, self.trace).await
    }

    /// Whether the claim is to be attached although another node has a mount that no claim covers:
    /// after a restore, a mount that is younger than the backup.
    fn is_attach_held(&self, alloc: &AllocId) -> bool {
        let publishing = self.state.volumes.mirror.read(|volumes| {
            let claim = volumes.get(&self.volume)?.volume.claims.get(alloc)?;
            (claim.state == ClaimState::Publishing).then(|| claim.node.clone())
        });
        let checked = publishing.map(|node| self.state.check_mounts_elsewhere(&self.volume, &node));
        let Some(Err(problem)) = checked else { return false };
        tracing::debug!(volume = %self.volume, %alloc, %problem, "the attach waits");
        true
    }

    /// When the volume was created, if it was made for a run that is over.
    async fn run_over(&self) -> Result<Option<u64>, Problem> {
        let (state, volume) = (self.state, &self.volume);
        let made_for = state.volumes.mirror.read(|volumes| {
            let spec = volumes.get(volume)?.volume.spec.as_ref()?;
            Some((spec.create_index, spec.provision()?.for_alloc.clone()?))
        });
        let Some((made, alloc)) = made_for else { return Ok(None) };
        let record = state.read_alloc_surely(&volume.namespace, &alloc, self.trace).await?;
        let is_wanted = match record {
            Some(alloc) => !alloc.state.is_terminal(),
            // The alloc may be about to be registered.
            None => !state.is_older_than_registration(volume),
        };
        Ok((!is_wanted).then_some(made))
    }

    /// Whether the next call must wait until the volume is mounted nowhere.
    fn needs_unmounted(&self) -> bool {
        let operation = self.state.volumes.mirror.read(|volumes| {
            let operation = volumes.get(&self.volume)?.volume.spec.as_ref()?.operation()?;
            Some(operation.needs_unmounted())
        });
        self.owner == CallOwner::Volume && operation.unwrap_or(false)
    }

    async fn catch_up_with_nodes(&self) -> Result<(), Problem> {
        let caught_up = self.state.catch_up_with_nodes().await;
        caught_up.map_err(|error| self.problem((self.volume.clone(), error)))
    }

    /// The node whose controller has to get the next call. A group's call is made where its leader
    /// is. The controller for a claim's call is chosen when the call is put together.
    pub fn executor(&self, now: &Volume) -> Result<Option<NodeId>, Problem> {
        match (&self.owner, self.members.as_slice()) {
            (CallOwner::Claim(_), _) => Ok(None),
            (_, [leader, _, ..]) => self.state.volumes.mirror.read(|volumes| {
                let leader = volumes.get(leader).map_or(now, |subtree| &subtree.volume);
                self.state.storage_executor(leader, self.snapshot())
            }),
            _ => self.state.storage_executor(now, self.snapshot()),
        }
    }

    pub fn snapshot(&self) -> Option<&SnapshotId> {
        match &self.owner {
            CallOwner::Snapshot(id) => Some(id),
            CallOwner::Claim(_) | CallOwner::Volume => None,
        }
    }

    pub fn problem(&self, (volume, error): (VolumeKey, TransactError)) -> Problem {
        self.state.problem(error, &volume)
    }
}
