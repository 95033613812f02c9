//! The events of allocs and of each transition. Fire and forget: no request waits for an event.

use berth_contract::event::{Event, EventName};
use berth_contract::service::CLAIM;
use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_domain::alloc::Alloc;
use berth_domain::proof::Proof;
use berth_domain::volume::storage::{OperationKind, Snapshot, SnapshotState, Work};
use berth_domain::volume::{
    Begin, CallFailure, Claim, Command, Outcome, Policy, State, VolumeSpec, Write,
};
use berth_domain::{AllocId, Namespace, SnapshotId, Timestamp, VolumeKey};
use berth_service::clock;

use crate::store::trail::{TrailedClaim, recorded_at};

/// The event of an alloc's record, with the alloc's note as its detail.
pub fn alloc_event(
    name: EventName,
    namespace: &Namespace,
    id: &AllocId,
    alloc: &Alloc,
    trace: TraceContext,
) -> Event {
    Event {
        namespace: Some(namespace.clone()),
        alloc: Some(id.clone()),
        node: Some(alloc.node.clone()),
        detail: alloc.note.clone(),
        by: alloc.by.clone(),
        trace: Some(trace.trace_id()),
        ..Event::new(name, clock::now(), CLAIM)
    }
}

/// A stored transition, with what its event says.
pub struct StoredTransition<'a> {
    pub volume: &'a VolumeKey,
    pub command: &'a Command,
    pub write: &'a Write,
    /// The claim before the write.
    pub before: Option<&'a TrailedClaim>,
    /// The spec before the write.
    pub spec_before: Option<&'a VolumeSpec>,
    /// The claim's trail with the write.
    pub trail: Option<Trail>,
    /// The request that made the write.
    pub trace: TraceContext,
    /// The time of the decision.
    pub now: Timestamp,
    /// Who registered or adopted the claim's alloc.
    pub by: Option<String>,
}

impl StoredTransition<'_> {
    /// The span that the event belongs to.
    pub fn context(&self) -> TraceContext {
        self.trail.map_or(self.trace, |trail| trail.now())
    }

    /// Whether the transition has an event. A repeated request of a waiting claim has none. The
    /// event of a mount report is the agent's.
    pub fn has_event(&self) -> bool {
        if matches!(self.command, Command::Observe { .. }) {
            return false;
        }
        let old_state = self.before.map(|before| before.claim.state);
        !matches!(
            (old_state, self.write),
            (Some(State::Waiting), Write::PutClaim(_, Claim { state: State::Waiting, .. }))
        )
    }

    pub fn event(&self, policy: &Policy) -> Event {
        let event = match self.write {
            Write::PutSpec(spec) => self.spec_event(spec),
            Write::DeleteSpec => self.deregistration_event(),
            Write::PutClaim(alloc, claim) => self.claim_event(alloc, claim, policy),
            Write::DeleteClaim(alloc) => self.freed_event(alloc),
            Write::PutSnapshot(id, snapshot) => self.snapshot_event(id, snapshot),
            Write::DeleteSnapshot(id) => {
                let is_forgotten =
                    matches!(self.command, Command::DeleteSnapshot { forget: true, .. });
                let detail = "forgotten: what is at the storage stays there".to_owned();
                Event {
                    snapshot: Some(id.clone()),
                    detail: is_forgotten.then_some(detail),
                    ..self.new_event(EventName::SnapshotDeleted)
                }
            }
        };
        let released_trail = self.trail.filter(|trail| trail.released.is_some());
        Event {
            trace: Some(self.context().trace_id()),
            claim_trace: released_trail.map(|trail| trail.claim.trace_id()),
            by: self.by.clone(),
            ..event
        }
    }

    fn new_event(&self, name: EventName) -> Event {
        Event {
            namespace: Some(self.volume.namespace.clone()),
            volume: Some(self.volume.volume.clone()),
            ..Event::new(name, self.now, CLAIM)
        }
    }

    fn was(&self, state: State) -> bool {
        self.before.is_some_and(|before| before.claim.state == state)
    }

    fn spec_event(&self, spec: &VolumeSpec) -> Event {
        let name = match (&spec.closing, spec.create_index) {
            (Some(_), _) => EventName::VolumeClosing,
            _ if spec.storage != self.spec_before.and_then(|before| before.storage.clone()) => {
                return self.storage_event(spec);
            }
            (None, 0) => EventName::VolumeRegistered,
            (None, _) => EventName::VolumeUpdated,
        };
        Event {
            plugin: Some(spec.plugin.clone()),
            detail: spec.closing.as_ref().map(|closing| closing.reason.clone()),
            ..self.new_event(name)
        }
    }

    /// The event of a change at the storage, or of a call for one.
    fn storage_event(&self, spec: &VolumeSpec) -> Event {
        let before = self.spec_before;
        let old_operation = before.and_then(VolumeSpec::operation);
        let operation = spec.operation();
        let failure =
            spec.failure().filter(|_| spec.failure() != before.and_then(VolumeSpec::failure));
        let faults = |spec: &VolumeSpec| {
            spec.storage.as_ref().map(|storage| storage.faults.clone()).unwrap_or_default()
        };
        let retried = operation.filter(|operation| {
            old_operation.is_some_and(|old_operation| {
                old_operation.kind() == operation.kind()
                    && operation.progress.calls.tries > old_operation.progress.calls.tries
            })
        });
        let (name, detail) = match (old_operation, operation) {
            _ if failure.is_some() => {
                (EventName::VolumeFailed, failure.map(|failed| failed.failure.message.clone()))
            }
            (_, Some(operation)) if retried.is_some() => {
                (EventName::VolumeRetried, words(operation.progress.calls.failure.as_deref()))
            }
            (_, Some(operation)) => {
                let name = match operation.work {
                    Work::Create { .. } => EventName::VolumeCreating,
                    Work::Delete { .. } => EventName::VolumeDeleting,
                    Work::Expand(_) => EventName::VolumeExpanding,
                    Work::Modify { .. } => EventName::VolumeModifying,
                };
                let attempt = operation.progress.calls.attempt.as_ref();
                let attempt =
                    attempt.map(|attempt| format!("{} by {}", attempt.call, attempt.worker));
                let waits =
                    operation.mounted.as_ref().map(|mounted| format!("it waits: {mounted}"));
                (name, waits.or(attempt))
            }
            (Some(old_operation), None) => {
                let name = match old_operation.kind() {
                    OperationKind::Create => EventName::VolumeCreated,
                    // A deletion ends here only if it is refused, which is the first arm's event.
                    OperationKind::Delete | OperationKind::Modify => EventName::VolumeModified,
                    OperationKind::Expand => EventName::VolumeExpanded,
                };
                let faults = faults(spec);
                let faults = (!faults.is_empty()).then(|| faults.join("; "));
                (name, faults)
            }
            // The volume is created at its first use.
            (None, None) => (EventName::VolumeRegistered, None),
        };
        let attempt = operation
            .or(old_operation)
            .and_then(|operation| operation.progress.calls.attempt.as_ref());
        let took = old_operation
            .filter(|_| operation.is_none())
            .map(|old_operation| self.now.since(old_operation.since));
        Event {
            plugin: Some(spec.plugin.clone()),
            detail,
            attempt: attempt.map(|attempt| attempt.id.clone()),
            took_us: took.and_then(|took| u64::try_from(took.as_micros()).ok()),
            ..self.new_event(name)
        }
    }

    fn snapshot_event(&self, id: &SnapshotId, snapshot: &Snapshot) -> Event {
        let failed = matches!(
            self.command,
            Command::Answer {
                outcome: Outcome::Failed(_)
                    | Outcome::NotDone(_)
                    | Outcome::Exhausted(_)
                    | Outcome::Unasked(_)
                    | Outcome::Unanswered(_),
                ..
            }
        );
        let refused = snapshot.call().is_none() && snapshot.progress.calls.failure.is_some();
        let name = match snapshot.state {
            _ if refused => EventName::SnapshotFailed,
            _ if failed => EventName::SnapshotRetried,
            SnapshotState::Creating => EventName::SnapshotCreating,
            SnapshotState::Cut => EventName::SnapshotCut,
            SnapshotState::Ready => EventName::SnapshotReady,
            SnapshotState::Failed => EventName::SnapshotFailed,
            SnapshotState::Deleting => EventName::SnapshotDeleting,
        };
        Event {
            snapshot: Some(id.clone()),
            plugin: Some(snapshot.plugin.clone()),
            detail: words(snapshot.progress.calls.failure.as_deref()),
            attempt: snapshot.progress.calls.attempt.as_ref().map(|attempt| attempt.id.clone()),
            ..self.new_event(name)
        }
    }

    fn deregistration_event(&self) -> Event {
        let reason = match self.command {
            Command::Deregister { reason, .. } if !reason.is_empty() => Some(reason.clone()),
            _ => None,
        };
        let name = match self.command {
            Command::Deregister { .. } => EventName::VolumeDeregistered,
            _ => EventName::VolumeDeleted,
        };
        Event { detail: reason, ..self.new_event(name) }
    }

    fn claim_event(&self, alloc: &AllocId, claim: &Claim, policy: &Policy) -> Event {
        let failed = matches!(
            self.command,
            Command::Answer {
                outcome: Outcome::Failed(_)
                    | Outcome::Exhausted(_)
                    | Outcome::Unasked(_)
                    | Outcome::Unanswered(_)
                    | Outcome::Refused(_),
                ..
            }
        );
        let name = match claim.state {
            _ if failed => EventName::ClaimFailed,
            State::Waiting => EventName::ClaimWaiting,
            State::Publishing => EventName::ClaimPublishing,
            State::Taken => EventName::ClaimTaken,
            State::Unpublishing => EventName::ClaimUnpublishing,
            State::NodeDetached => EventName::ClaimNodeDetached,
        };
        let proof = match self.command {
            Command::Begin(Begin { proven: Some(_), .. }) => claim.proof.as_ref(),
            _ => None,
        };
        let detail = match (&claim.progress.failure, &claim.progress.attempt) {
            (Some(failure), _) if failed => words(Some(failure)),
            _ if proof.is_some() => proof.map(|proof| format!("its node is gone: {proof}")),
            _ if claim.unstaged_by.is_some() => {
                claim.unstaged_by.as_ref().map(describe_unstaged_by)
            }
            (_, Some(attempt)) => Some(format!("{} by {}", attempt.call, attempt.worker)),
            _ => claim.reason.clone(),
        };
        let answered = self.before.and_then(|before| before.claim.progress.attempt.as_ref());
        let took = match claim.state {
            State::Taken => self.trail.map(|trail| self.now.since(trail.since)),
            _ if failed => answered.map(|attempt| self.now.since(recorded_at(attempt, policy))),
            _ => None,
        };
        let attempt = if failed { answered } else { claim.progress.attempt.as_ref() };
        Event {
            alloc: Some(alloc.clone()),
            node: Some(claim.node.clone()),
            detail,
            attempt: attempt.map(|attempt| attempt.id.clone()),
            took_us: took.and_then(|took| u64::try_from(took.as_micros()).ok()),
            ..self.new_event(name)
        }
    }

    fn freed_event(&self, alloc: &AllocId) -> Event {
        let detail = match self.command {
            Command::Answer { .. } => {
                let proof = self.before.and_then(|before| before.claim.unstaged_by.as_ref());
                let note = proof.map(|proof| format!("; {}", describe_unstaged_by(proof)));
                format!("detached from its node and its controller{}", note.unwrap_or_default())
            }
            Command::Release { reason, .. } => reason.clone(),
            // A confirmation for the node's plugin frees nothing (rule 18).
            Command::Confirm { confirmation, .. } => {
                format!("the plugin could not say that it is detached: {confirmation}")
            }
            Command::Begin(Begin { proven: Some(proven), .. }) => {
                format!("node {} is gone: {}", proven.node, proven.proof)
            }
            Command::Begin(Begin { wanted: true, .. }) if self.was(State::Waiting) => {
                "nobody asked for it any more".to_owned()
            }
            _ => "nothing of it was left to detach".to_owned(),
        };
        let released = self.trail.and_then(|trail| trail.released);
        let took = released.map(|released| self.now.since(released));
        Event {
            alloc: Some(alloc.clone()),
            node: self.before.map(|before| before.claim.node.clone()),
            detail: Some(detail),
            took_us: took.and_then(|took| u64::try_from(took.as_micros()).ok()),
            ..self.new_event(EventName::ClaimFreed)
        }
    }
}

/// The failure in words, because people read events.
fn words(failure: Option<&CallFailure>) -> Option<String> {
    failure.map(|failure| failure.message.clone())
}

fn describe_unstaged_by(confirmation: &Proof) -> String {
    format!(
        "the plugin did not take it down, and nothing of it is left on the node: {confirmation}"
    )
}
