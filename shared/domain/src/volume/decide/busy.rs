//! Rules 3 and 4: which calls of a volume may still act, or be at work at their executor.

use crate::volume::record::Calls;
use crate::volume::storage::{Expansion, Work};
use crate::volume::{CallKind, CallOwner, Policy, Progress, State, Volume, VolumeSpec};
use crate::{NodeId, Timestamp};

impl Volume {
    /// Rule 3 for controller calls: a call of the volume that may still act.
    pub(super) fn busy(&self, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let of_claim = self.live(Calls::All, now, policy);
        of_claim.or_else(|| self.busy_at_storage(now, policy))
    }

    /// The call of the volume's operation or of a snapshot, if it may still act.
    pub fn busy_at_storage(&self, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let calls = self.storage_progress();
        let busy =
            calls.filter_map(|(owner, calls)| BusyCall::find_live(owner, calls, now, policy));
        busy.max_by_key(|busy| busy.until)
    }

    /// The calls of the volume's operation, and of each snapshot that needs one.
    fn storage_progress(&self) -> impl Iterator<Item = (CallOwner, &Progress)> {
        let operation = self.spec.as_ref().and_then(VolumeSpec::operation);
        let operation = operation.map(|operation| (CallOwner::Volume, &operation.progress.calls));
        let snapshots = self.snapshots.iter().filter(|(_, snapshot)| snapshot.call().is_some());
        operation
            .into_iter()
            .chain(snapshots.map(|(id, it)| (CallOwner::Snapshot(id.clone()), &it.progress.calls)))
    }

    /// The controller's call of an expansion that must not be beside a claim, if it may still act.
    pub(super) fn expands_offline(&self, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let operation = self.spec.as_ref().and_then(VolumeSpec::operation)?;
        let Work::Expand(Expansion { offline: true, at_nodes: false, .. }) = &operation.work else {
            return None;
        };
        self.busy_operation(now, policy)
    }

    /// The call of the volume's operation, if it may still act.
    pub(super) fn busy_operation(&self, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let operation = self.spec.as_ref().and_then(VolumeSpec::operation)?;
        BusyCall::find_live(CallOwner::Volume, &operation.progress.calls, now, policy)
    }

    /// Whether a controller call of the volume's operation or of a snapshot, other than the one of
    /// `calling`, did not succeed. Its executor may still work on it, after every deadline.
    pub fn is_storage_unsettled(&self, calling: &CallOwner) -> bool {
        self.storage_progress()
            .any(|(owner, calls)| calls.tries > 0 || (calls.attempt.is_some() && owner != *calling))
    }

    /// Rule 3 for node calls: a controller call anywhere, or a node call on this node.
    pub(super) fn busy_on(
        &self,
        node: &NodeId,
        now: Timestamp,
        policy: &Policy,
    ) -> Option<BusyCall> {
        let expands_here = |busy: &BusyCall| {
            let operation = self.spec.as_ref().and_then(VolumeSpec::operation);
            let work = operation.map(|operation| &operation.work);
            busy.call.is_controller()
                || matches!(work, Some(Work::Expand(expansion))
                    if expansion.node.as_ref() == Some(node))
        };
        let controller = self.live(Calls::Controller, now, policy);
        controller
            .or_else(|| self.live(Calls::Node(node), now, policy))
            .or_else(|| self.busy_at_storage(now, policy).filter(expands_here))
    }

    /// The nodes of claims whose last controller call did not succeed. The executor of that call
    /// may still work on it, after every deadline.
    pub fn unsettled(&self, calling: &CallOwner) -> impl Iterator<Item = &NodeId> {
        let unsettled = self.claims.moving().filter(move |(alloc, claim)| {
            let unheard =
                claim.progress.attempt.as_ref().is_some_and(|last| last.call.is_controller());
            let own = matches!(calling, CallOwner::Claim(calling) if calling == *alloc);
            claim.controller
                && matches!(claim.state, State::Publishing | State::NodeDetached)
                && (claim.progress.tries > 0 || (unheard && !own))
        });
        unsettled.map(|(_, claim)| &claim.node)
    }

    /// The call with the latest deadline, if it may still act. If it may not, none of them may.
    pub(super) fn live(&self, of: Calls<'_>, now: Timestamp, policy: &Policy) -> Option<BusyCall> {
        let (alloc, claim) = self.claims.get_key_value(self.claims.last_call(of)?)?;
        BusyCall::find_live(CallOwner::Claim(alloc.clone()), &claim.progress, now, policy)
    }
}

/// A call that may still act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusyCall {
    /// Whose call it is.
    pub owner: CallOwner,
    /// The call.
    pub call: CallKind,
    /// When it can no longer act.
    pub until: Timestamp,
}

impl BusyCall {
    /// The last of these calls, if it may still act.
    pub(super) fn find_live(
        owner: CallOwner,
        calls: &Progress,
        now: Timestamp,
        policy: &Policy,
    ) -> Option<Self> {
        let attempt = calls.attempt.as_ref()?;
        let until = attempt.free_at(policy.clock_margin);
        let acts = attempt.may_still_act(now, policy.clock_margin);
        acts.then_some(Self { owner, call: attempt.call, until })
    }
}
