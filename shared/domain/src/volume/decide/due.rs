//! Whether a call of a claim, of the volume's operation or of a snapshot is due, by the record and
//! what is known beside it.
//!
//! **Owns** when the next call may begin: rules 3, 9, 13 and 14. [`step`](super::step()) begins no
//! call that is not due, and a volumewatcher asks for no other.
//!
//! **Promises** that what is due for a claim costs the same however many claims the volume has.
//!
//! **Never** knows what only the claim service looks up: other names of the volume, and mounts
//! without a claim. A call that is due may wait for these.

use super::claim::{self, Detachment};
use crate::volume::storage::{OperationKind, Snapshot, Stage, Work};
use crate::volume::{
    Begin, CallOwner, Claim, Context, NextStorageCall, Policy, Progress, State, Volume, VolumeSpec,
};
use crate::{AllocId, NodeId, Timestamp};

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// The record changes now. Whose call is next, with that write or after it.
    Now(DueCall),
    /// Nothing before then, unless something changes.
    At(Timestamp),
    /// Nothing, unless something changes.
    Rest,
}

/// Whose call is next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DueCall {
    /// Nobody's: the record goes, or its work is done.
    Nobody,
    /// The controller's.
    Controller,
    /// That of the plugin on this node.
    Node(NodeId),
}

/// What is known beside the record.
#[derive(Debug, Clone, Copy)]
pub struct DueFacts<'a> {
    /// The present time.
    pub now: Timestamp,
    /// Timeouts.
    pub policy: &'a Policy,
    /// The alloc that has the claim, or that the volume was created for, still runs.
    pub wanted: bool,
    /// The claim's node is gone: a proof says that nothing there can write any more (rule 12).
    pub gone: bool,
    /// Something changed that the last failed call may have waited for.
    pub early: bool,
}

impl Volume {
    /// What is due for this owner; nothing for one that is not there.
    pub fn due(&self, owner: &CallOwner, facts: &DueFacts<'_>) -> Due {
        let due = match owner {
            CallOwner::Claim(alloc) => {
                self.claims.get(alloc).map(|claim| self.due_for_claim(alloc, claim, facts))
            }
            CallOwner::Volume => Some(self.due_for_operation(facts)),
            CallOwner::Snapshot(id) => {
                self.snapshots.get(id).map(|snapshot| self.due_for_snapshot(snapshot, facts))
            }
        };
        due.unwrap_or(Due::Rest)
    }

    fn due_for_claim(&self, alloc: &AllocId, claim: &Claim, facts: &DueFacts<'_>) -> Due {
        let is_kept = facts.wanted && !facts.gone;
        match claim.state {
            // A record without `place_until` keeps its place in line.
            State::Waiting if is_kept => match claim.place_until {
                Some(until) => facts.after(until, DueCall::Nobody),
                None => Due::Rest,
            },
            State::Waiting => Due::Now(DueCall::Nobody),
            State::Publishing if is_kept => {
                facts.after(abandoned_at(claim, facts), DueCall::Controller)
            }
            State::Publishing => Due::Now(DueCall::Controller),
            State::Taken if is_kept => Due::Rest,
            // A node that is gone is not asked.
            State::Taken | State::Unpublishing if facts.gone => Due::Now(DueCall::Controller),
            // Also while rule 3 forbids the call: the record shows that it is being released.
            State::Taken => Due::Now(DueCall::Node(claim.node.clone())),
            State::Unpublishing => facts.next_try(&claim.progress).unwrap_or_else(|| {
                let busy = self.busy_on(&claim.node, facts.now, facts.policy);
                let call = || DueCall::Node(claim.node.clone());
                busy.map_or_else(|| Due::Now(call()), |busy| Due::At(busy.until))
            }),
            State::NodeDetached => facts.next_try(&claim.progress).unwrap_or_else(|| {
                match claim::detachment(self, alloc, claim, facts.now, facts.policy) {
                    Detachment::Free => Due::Now(DueCall::Nobody),
                    Detachment::Call => Due::Now(DueCall::Controller),
                    Detachment::Busy(until) => Due::At(until),
                    Detachment::InUse => Due::Rest,
                }
            }),
        }
    }

    /// What is due for the volume's operation, or for a volume whose run is over.
    fn due_for_operation(&self, facts: &DueFacts<'_>) -> Due {
        if self.is_run_over(facts.wanted) {
            return Due::Now(DueCall::Controller);
        }
        let operation = self.spec.as_ref().and_then(|spec| spec.operation());
        let Some(operation) = operation else { return Due::Rest };
        // Its own call, too: the node of a call that may act must stay on the record.
        if let Some(busy) = self.busy_at_storage(facts.now, facts.policy) {
            return Due::At(busy.until);
        }
        let (busy, call) = match self.next_storage_call(operation) {
            NextStorageCall::Await => return Due::Rest,
            NextStorageCall::Finish => return Due::Now(DueCall::Nobody),
            NextStorageCall::Controller => {
                (self.busy(facts.now, facts.policy), DueCall::Controller)
            }
            NextStorageCall::Node(node) => {
                (self.busy_on(&node, facts.now, facts.policy), DueCall::Node(node))
            }
        };
        let waits = busy.map(|busy| Due::At(busy.until));
        waits.or_else(|| facts.next_try(&operation.progress.calls)).unwrap_or(Due::Now(call))
    }

    fn due_for_snapshot(&self, snapshot: &Snapshot, facts: &DueFacts<'_>) -> Due {
        if snapshot.call().is_none() {
            return Due::Rest;
        }
        let busy = self.busy(facts.now, facts.policy).map(|busy| Due::At(busy.until));
        let waits = busy.or_else(|| facts.next_try(&snapshot.progress.calls));
        waits.unwrap_or(Due::Now(DueCall::Controller))
    }

    /// Whether the run that a volume was created for is over: its alloc has ended, and no claim is
    /// left. `wanted` says whether the alloc runs.
    pub fn is_run_over(&self, wanted: bool) -> bool {
        let over = |spec: &VolumeSpec| {
            let made_for_run =
                spec.provision().is_some_and(|provision| provision.for_alloc.is_some());
            made_for_run
                && spec.closing.is_none()
                && match spec.stage() {
                    Stage::Deleting => false,
                    Stage::Creating => spec.operation().is_some_and(|operation| {
                        !matches!(operation.work, Work::Create { doomed: true })
                    }),
                    // A refused deletion waits for an operator.
                    Stage::Ready | Stage::Failed => spec
                        .failure()
                        .is_none_or(|failure| failure.operation != OperationKind::Delete),
                    Stage::Unused => true,
                }
        };
        !wanted && self.claims.is_empty() && self.spec.as_ref().is_some_and(over)
    }
}

impl Begin {
    /// What the worker knows beside the record.
    pub(super) fn facts<'a>(&self, context: &'a Context) -> DueFacts<'a> {
        let Self { wanted, early, .. } = *self;
        DueFacts { now: context.now, policy: &context.policy, wanted, gone: false, early }
    }
}

impl DueFacts<'_> {
    fn after(&self, at: Timestamp, call: DueCall) -> Due {
        if self.now > at { Due::Now(call) } else { Due::At(at) }
    }

    /// The wait for the next try of a failed call, if that is ahead. A call that ends the plugin's
    /// process is never early: the plugin that comes back is what an early try waits for.
    fn next_try(&self, progress: &Progress) -> Option<Due> {
        let early = self.early && !progress.ends_plugin();
        progress.ahead(self.now).filter(|_| !early).map(Due::At)
    }
}

/// When a reservation counts as abandoned: by then its caller would have sent the request again.
fn abandoned_at(claim: &Claim, facts: &DueFacts<'_>) -> Timestamp {
    let last_sign = claim.last_sign(facts.now);
    last_sign.after(facts.policy.clock_margin).after(facts.policy.abandoned_after)
}
