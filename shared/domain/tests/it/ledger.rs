//! All calls of a history, with what may have come of them: what a record forgets too early shows
//! here.

use berth_domain::volume::storage::Work;
use berth_domain::volume::{
    Attempt, Begin, CallKind, CallOwner, Command, Context, Outcome, Step, StorageAnswer, Volume,
    Write,
};
use berth_domain::{AttemptId, NodeId};

use crate::anything::subject;

/// Every call that was made.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    calls: Vec<MadeCall>,
}

#[derive(Debug, Clone)]
struct MadeCall {
    attempt: Attempt,
    owner: CallOwner,
    /// The node whose agent was called; none for a controller.
    node: Option<NodeId>,
    /// The size that was requested, if the call expands the volume.
    required_bytes: Option<u64>,
    /// It was answered, or a proof stands in for its node's answer.
    is_over: bool,
    /// It created something, or may have.
    may_have_created: bool,
}

impl Ledger {
    /// Checks a step against all calls before it, and records its own.
    pub fn record(&mut self, before: &Volume, command: &Command, step: &Step, context: &Context) {
        self.record_answer(before, command, context);
        if let Some(write) = &step.write {
            self.check_deletion(command, write);
            check_expansion(self, before, command, write);
        }
        let Some(attempt) = &step.call else { return };
        let owner = subject(command);
        let (node, required_bytes) = match (&step.write, attempt.call) {
            (Some(Write::PutClaim(_, claim)), CallKind::NodeDetach) => {
                (Some(claim.node.clone()), None)
            }
            (Some(Write::PutSpec(spec)), call) => match spec.operation().map(|it| &it.work) {
                Some(Work::Expand(expansion)) if call == CallKind::NodeExpand => {
                    (expansion.node.clone(), None)
                }
                Some(Work::Expand(expansion)) => (None, Some(expansion.required_bytes)),
                _ => (None, None),
            },
            _ => (None, None),
        };
        let is_apart = |other: &MadeCall| match (&node, &other.node) {
            (Some(node), Some(other)) => node != other,
            _ => false,
        };
        let beside = self.calls.iter().find(|call| {
            let acts = call.attempt.may_still_act(context.now, context.policy.clock_margin);
            acts && !call.is_over && !is_apart(call)
        });
        assert!(beside.is_none(), "{attempt:?} of {owner} began beside {beside:?}");
        let may_have_created = matches!(
            attempt.call,
            CallKind::VolumeCreate | CallKind::SnapshotCreate | CallKind::GroupCreate
        );
        let attempt = attempt.clone();
        let call =
            MadeCall { attempt, owner, node, required_bytes, is_over: false, may_have_created };
        self.calls.push(call);
    }

    fn record_answer(&mut self, before: &Volume, command: &Command, context: &Context) {
        let (id, outcome) = match command {
            Command::Answer { attempt, outcome, .. } => (attempt.clone(), outcome),
            Command::Begin(Begin {
                owner: CallOwner::Claim(alloc), proven: Some(proven), ..
            }) => {
                let claim = before.claims.get(alloc);
                let claim =
                    claim.filter(|claim| claim.node == proven.node && claim.epoch == proven.epoch);
                let attempt = claim.and_then(|claim| claim.progress.attempt.as_ref());
                if let Some(attempt) = attempt.filter(|it| it.call == CallKind::NodeDetach) {
                    self.find(&attempt.id).into_iter().for_each(|call| call.is_over = true);
                }
                return;
            }
            _ => return,
        };
        let Some(call) = self.find(&id) else { return };
        call.is_over |= !matches!(outcome, Outcome::Unanswered(_));
        call.may_have_created &= !matches!(
            outcome,
            Outcome::Refused(_) | Outcome::NotDone(_) | Outcome::Exhausted(_) | Outcome::Unasked(_)
        );
        let Outcome::Stored(StorageAnswer::Volume(made)) = outcome else { return };
        // Without an id it cannot be deleted: the failure says so. An id of another volume is that
        // volume's. Earlier calls had the same name, so what they made is the same.
        if made.external_id.is_empty() || !context.handle.others.is_empty() {
            let (owner, call) = (call.owner.clone(), call.attempt.call);
            let same = |it: &&mut MadeCall| it.owner == owner && it.attempt.call == call;
            self.calls.iter_mut().filter(same).for_each(|it| it.may_have_created = false);
        }
    }

    fn find(&mut self, id: &AttemptId) -> Option<&mut MadeCall> {
        self.calls.iter_mut().find(|call| call.attempt.id == *id)
    }

    /// Rules 19 and 20: a record goes when its storage was deleted, or when no call may have
    /// created anything.
    fn check_deletion(&mut self, command: &Command, write: &Write) {
        let owner = match write {
            Write::DeleteSpec => CallOwner::Volume,
            Write::DeleteSnapshot(id) => CallOwner::Snapshot(id.clone()),
            _ => return,
        };
        let is_deleted = match command {
            // The operator keeps what is at the storage.
            Command::Deregister { .. } | Command::DeleteSnapshot { forget: true, .. } => true,
            Command::Answer {
                attempt, outcome: Outcome::Done { .. } | Outcome::Stored(_), ..
            } => {
                use CallKind::{GroupDelete, SnapshotDelete, VolumeDelete};
                let call = self.find(attempt).map(|call| call.attempt.call);
                matches!(call, Some(VolumeDelete | SnapshotDelete | GroupDelete))
            }
            _ => false,
        };
        for call in self.calls.iter_mut().filter(|call| call.owner == owner) {
            assert!(
                is_deleted || !call.may_have_created,
                "{command:?} forgot what {call:?} may have created"
            );
            call.may_have_created = false;
        }
    }
}

/// Rule 22: an expansion ends by the answer of a call for its own size.
fn check_expansion(ledger: &mut Ledger, before: &Volume, command: &Command, write: &Write) {
    let Command::Answer { owner: CallOwner::Volume, attempt, .. } = command else { return };
    let expansion = |work: &Work| match work {
        Work::Expand(expansion) => Some((expansion.required_bytes, expansion.is_at_nodes())),
        _ => None,
    };
    let operation = before.spec.as_ref().and_then(|spec| spec.operation());
    let Some((required, false)) = operation.and_then(|it| expansion(&it.work)) else { return };
    let Write::PutSpec(after) = write else { return };
    if after.operation().and_then(|it| expansion(&it.work)) == Some((required, false)) {
        return;
    }
    let asked = ledger.find(attempt).and_then(|call| call.required_bytes);
    assert_eq!(asked, Some(required), "{command:?} ended the expansion to {required}");
}

/// What may be driven at the storage: the operation, and each snapshot that is not at rest.
pub fn drives(volume: &Volume) -> Vec<Command> {
    let drive = |snapshot| {
        let worker = crate::world::worker();
        Command::Begin(Begin {
            owner: CallOwner::of_storage(snapshot),
            worker,
            wanted: true,
            early: false,
            proven: None,
            executor: None,
        })
    };
    let operation = volume.spec.as_ref().and_then(|spec| spec.operation());
    let snapshots = volume.snapshots.iter().filter(|(_, snapshot)| snapshot.call().is_some());
    let snapshots = snapshots.map(|(id, _)| drive(Some(id.clone())));
    operation.map(|_| drive(None)).into_iter().chain(snapshots).collect()
}
