//! Waiting for changes at the storage ([`crate::wait`]).
//!
//! **Owns** when a change is over ([`StorageGoal`]), and its words.

mod goal;
mod snapshots;
mod words;

use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::hint::volume_argument;
use berth_contract::message::query::LongPoll;
use berth_contract::message::storage::StorageWait;
use berth_contract::message::volume::{VolumeQuery, VolumeStatus};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::volume::storage::{OperationKind, Stage};
use berth_domain::{Namespace, VolumeId, VolumeKey};
use berth_service::clock;
use tokio::time::Instant;

pub use goal::{GoalState, StorageGoal};
pub use snapshots::{SnapshotGoal, await_snapshots, list_one, read_snapshot};
pub use words::{describe_operation, describe_snapshot, name_snapshot};

use crate::exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::wait::{WaitStep, Waiter};

/// How long a change is waited for, unless `--timeout` is given.
pub const CHANGE_PATIENCE: Duration = Duration::from_secs(300);
/// How long one request waits for a newer status.
const ASK_FOR: Duration = Duration::from_secs(2);
/// How long after its own wait a request times out.
const ASK_MARGIN: Duration = Duration::from_secs(3);
/// Pause between two requests, because a change may have many short steps.
const STEP_REST: Duration = Duration::from_millis(50);

/// A change of a volume that is waited for.
#[derive(Debug)]
pub struct Change<'a> {
    /// The session.
    pub session: &'a Session,
    /// The volume's namespace.
    pub namespace: &'a Namespace,
    /// The volume.
    pub id: &'a VolumeId,
    /// What ends the wait.
    pub goal: &'a StorageGoal,
    /// The revision of the request.
    pub index: u64,
}

impl Change<'_> {
    /// Prints the steps until the goal is reached; none when the volume is gone. Fails if it is
    /// refused, or after the deadline `until`.
    pub async fn wait(&self, until: Instant) -> Result<Option<VolumeStatus>, Failure> {
        let mut waiter = Waiter::begin("change");
        let mut than = self.index.saturating_sub(1);
        let end = waiter.poll(until, STEP_REST, async |waiter| {
            let volume = match self.read_newer(than, until).await {
                Err(problem) if problem.code == Code::NoSuchVolume => {
                    return Ok(Break(self.gone()));
                }
                read => read?,
            };
            than = volume.modify_index;
            Ok(match self.goal.judge(&volume, self.index) {
                GoalState::Open => {
                    let step = describe(self.id, &volume);
                    if let Some(step) = step.filter(|_| volume.modify_index >= self.index) {
                        waiter.step("", &step);
                    }
                    Continue(())
                }
                GoalState::Reached => Break(Ok(Some(volume))),
                GoalState::Refused(error) => Break(Err(self.refused(&volume, &error))),
                GoalState::Blocked(waits_for) => Break(Err(self.blocked(waits_for))),
                GoalState::Overtaken(stage) => Break(Err(self.overtaken(stage))),
            })
        });
        end.await?.unwrap_or_else(|| Err(self.unfinished(&waiter)))
    }

    async fn read_newer(&self, than: u64, until: Instant) -> Result<VolumeStatus, Problem> {
        let body =
            VolumeQuery { newer: newer(than, until), ..VolumeQuery::current(self.id.clone()) };
        let deadline = Instant::now() + ASK_FOR + ASK_MARGIN;
        self.session.once::<verb::VolumeStatus>(self.namespace, &body, deadline).await
    }

    fn argument(&self) -> String {
        volume_argument(&VolumeKey::new(self.namespace.clone(), self.id.clone()))
    }

    fn gone(&self) -> Result<Option<VolumeStatus>, Failure> {
        match self.goal {
            StorageGoal::Deleted { .. } => Ok(None),
            _ => Err(Failure::Local {
                exit: exit::CONFLICT,
                message: format!("volume {} was deleted meanwhile", self.id),
                next: format!("berth events --volume {}", self.argument()),
            }),
        }
    }

    /// The plugin's words, and what a person can do.
    fn refused(&self, volume: &VolumeStatus, error: &str) -> Failure {
        let id = self.id;
        let sentence = match self.goal {
            StorageGoal::Created => format!("volume {id} was not created"),
            StorageGoal::Deleted { .. } => {
                format!("volume {id} was not deleted; it can be used as before")
            }
            StorageGoal::Expanded { .. } => format!("volume {id} was not expanded"),
            StorageGoal::Modified(_) => format!("volume {id} was not changed"),
        };
        let next = match (self.goal, &volume.hint) {
            (_, Some(hint)) => hint.clone(),
            (StorageGoal::Created, None) => format!(
                "correct the class or the request, then `berth volume delete {}` and create it \
                 again",
                self.argument()
            ),
            (_, None) => "correct what the plugin says, and ask again".to_owned(),
        };
        Failure::local(format_args!("{sentence}: {error}"), next)
    }

    fn blocked(&self, waits_for: StorageWait) -> Failure {
        let next = match waits_for {
            StorageWait::StagedAgain => format!(
                "stop the allocs that have it, and start them again: `berth volume status {}` \
                 names the nodes that are left",
                self.argument()
            ),
            _ => format!("what it waits for: `berth why {}`", self.argument()),
        };
        let state = match waits_for {
            StorageWait::Unmounted => "is not deleted yet",
            _ => "is larger at its storage, and not on its nodes",
        };
        Failure::Local {
            exit: exit::CONFLICT,
            message: format!("volume {} {state}; it waits for {}", self.id, waits_for.describe()),
            next,
        }
    }

    fn overtaken(&self, stage: Stage) -> Failure {
        Failure::Local {
            exit: exit::CONFLICT,
            message: format!("volume {} is {stage} now, by another request", self.id),
            next: format!("berth volume status {}", self.argument()),
        }
    }

    fn unfinished(&self, waiter: &Waiter) -> Failure {
        let goal = match self.goal.operation() {
            OperationKind::Create => "ready",
            OperationKind::Delete => "gone",
            OperationKind::Expand => "expanded",
            OperationKind::Modify => "changed",
        };
        Failure::Local {
            exit: exit::UNAVAILABLE,
            message: format!("volume {} {}", self.id, waiter.describe_end(goal)),
            next: format!(
                "it goes on by itself; what it waits for: `berth why {}`",
                self.argument()
            ),
        }
    }
}

/// A request for a newer status, which waits until the deadline `until` at most.
fn newer(than: u64, until: Instant) -> LongPoll {
    let remaining = until.saturating_duration_since(Instant::now()).min(ASK_FOR);
    LongPoll { than: Some(than), wait_ms: u64::try_from(remaining.as_millis()).ok() }
}

/// The change that is under way, in one line.
fn describe(id: &VolumeId, volume: &VolumeStatus) -> Option<WaitStep> {
    let operation = volume.storage.as_ref()?.operation.as_ref()?;
    Some(describe_operation(operation, clock::now()).prefix_with(id, ": "))
}
