//! Checks of the record and the context that several commands make, and the refusals by which they
//! fail.

use super::busy::BusyCall;
use crate::volume::storage::{Operation, Stage};
use crate::volume::{CallFailure, Claim, Closing, Context, Refusal, Volume, VolumeSpec};

impl Volume {
    /// The volume's spec, if its storage may be used.
    pub(super) fn ready_spec(&self) -> Result<&VolumeSpec, Refusal> {
        let spec = self.spec.as_ref().ok_or(Refusal::NoSuchVolume)?;
        spec.check_open()?;
        match spec.stage() {
            Stage::Ready => Ok(spec),
            _ => Err(Refusal::not_ready(spec)),
        }
    }

    /// The refusal to take the volume from a snapshot that is at work on it.
    pub(super) fn unfinished_snapshot(&self) -> Option<Refusal> {
        let mut snapshots = self.snapshots.iter();
        let (snapshot, of) = snapshots.find(|(_, snapshot)| snapshot.is_unfinished())?;
        let (snapshot, failure) = (snapshot.clone(), of.progress.calls.failure.clone());
        Some(Refusal::SnapshotUnfinished { snapshot, failure })
    }

    /// The refusal to use the volume's name while claims of another volume stand below it, whose
    /// registration was lost.
    pub(super) fn other_volumes_claims(&self, context: &Context) -> Refusal {
        let own = context.handle.own.as_ref();
        let of_others = self.holders().filter(|(_, claim)| claim.is_of_other_than(own));
        Refusal::OtherVolumesClaims { holders: of_others.collect() }
    }
}

impl VolumeSpec {
    /// Refuses while the volume is being deregistered.
    pub(super) fn check_open(&self) -> Result<(), Refusal> {
        match self.closing.as_deref() {
            None => Ok(()),
            Some(Closing { since, reason }) => {
                Err(Refusal::Closing { since: *since, reason: reason.clone() })
            }
        }
    }
}

impl Refusal {
    /// The refusal of another claim than the alloc has.
    pub(super) fn claim_differs(own: &Claim) -> Self {
        Self::ClaimDiffers { node: own.node.clone(), mode: own.mode }
    }

    /// The refusal of a claim before the alloc's earlier one is released.
    pub(super) fn releasing(own: &Claim) -> Self {
        let (state, since) = (own.state, own.since);
        Self::Releasing { state, since, failure: own.progress.failure.clone() }
    }

    /// The refusal of a use of a volume whose storage is not ready.
    pub(super) fn not_ready(spec: &VolumeSpec) -> Self {
        let of_operation = spec.operation().and_then(|it| it.progress.calls.failure.clone());
        let of_failure = || spec.failure().map(|it| Box::new(it.failure.clone()));
        let failure = match spec.stage() {
            Stage::Failed => of_failure(),
            // At its first use: the place before this one was refused.
            Stage::Creating => of_operation.or_else(of_failure),
            _ => of_operation,
        };
        Self::NotReady { stage: spec.stage(), failure }
    }

    /// The refusal of what must not happen beside an operation.
    pub(super) fn under_way(operation: &Operation) -> Self {
        Self::OperationUnderWay {
            operation: operation.kind(),
            since: operation.since,
            failure: operation.progress.calls.failure.clone(),
        }
    }
}

impl BusyCall {
    /// The refusal of a call that would be beside this one.
    pub(super) fn refusal(self, failure: Option<Box<CallFailure>>) -> Refusal {
        Refusal::Busy { owner: self.owner, call: self.call, until: self.until, failure }
    }
}

impl Context {
    /// Refuses while the volume is registered more than once: the guard covers the claims of one
    /// registration only.
    pub(super) fn check_registered_once(&self) -> Result<(), Refusal> {
        match self.handle.others.as_slice() {
            [] => Ok(()),
            others => Err(Refusal::RegisteredTwice { others: others.to_vec() }),
        }
    }

    /// Refuses while copies are made of the volume or snapshot.
    pub(super) fn check_not_copied(&self) -> Result<(), Refusal> {
        match self.copies.as_slice() {
            [] => Ok(()),
            copies => Err(Refusal::BeingCopied { copies: copies.to_vec() }),
        }
    }

    /// Refuses while the volume may be mounted where no claim covers it.
    pub(super) fn check_unmounted(&self) -> Result<(), Refusal> {
        match self.mounts.as_slice() {
            [] => Ok(()),
            mounts => Err(Refusal::MayBeMounted { mounts: mounts.to_vec() }),
        }
    }
}
