//! Waiting for a snapshot, or for a group of snapshots.

use std::ops::ControlFlow::{Break, Continue};

use berth_contract::hint::{namespace_option, quoted};
use berth_contract::message::query::{LongPoll, Page};
use berth_contract::message::snapshot::{ListSnapshots, SnapshotStub};
use berth_contract::problem::Problem;
use berth_contract::verb;
use berth_domain::volume::storage::SnapshotState;
use berth_domain::{SnapshotId, VolumeId};
use berth_explain::delete_command;
use berth_service::clock;
use tokio::time::Instant;

use super::words::{describe_snapshot, name_snapshot};
use super::{ASK_FOR, ASK_MARGIN, STEP_REST, newer};
use crate::exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::wait::Waiter;

/// The state of a snapshot that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotGoal {
    /// A volume can be made of it.
    Ready,
    /// It is gone.
    Deleted,
}

/// Prints the steps until the snapshots have reached the goal. The snapshots of a group have one
/// state, so the first of `snapshots` stands for all. Fails if the storage refuses, or after the
/// deadline `until`.
pub async fn await_snapshots(
    session: &Session,
    snapshots: &[SnapshotStub],
    goal: SnapshotGoal,
    until: Instant,
) -> Result<(), Failure> {
    let Some(first) = snapshots.first() else { return Ok(()) };
    let (volume, id, index) = (&first.volume, &first.snapshot, first.modify_index);
    let name = name_snapshot(first);
    let mut waiter = Waiter::begin("change");
    let mut than = index.saturating_sub(1);
    let end = waiter.poll(until, STEP_REST, async |waiter| {
        let (list_index, found) = read_one(session, volume, id, newer(than, until)).await?;
        than = list_index;
        let Some(stub) = found else {
            return Ok(match goal {
                SnapshotGoal::Deleted => Break(Ok(())),
                SnapshotGoal::Ready if list_index < index => Continue(()),
                SnapshotGoal::Ready => Break(Err(deleted_meanwhile(session, first))),
            });
        };
        let error = stub.error().unwrap_or_default().to_owned();
        let refused = |sentence: &str, next: String| {
            Ok(Break(Err(Failure::local(
                format_args!("snapshot {name} {sentence}: {error}"),
                next,
            ))))
        };
        match (goal, stub.state) {
            (SnapshotGoal::Ready, SnapshotState::Ready) => Ok(Break(Ok(()))),
            (SnapshotGoal::Ready, SnapshotState::Cut)
                if stub.second_id.is_some() || stub.foreign =>
            {
                let next = format!("`{} --yes`, and tell its authors", delete_command(&stub));
                refused("cannot be used", next)
            }
            (SnapshotGoal::Ready, SnapshotState::Failed) => {
                let delete = delete_command(&stub);
                let next =
                    format!("correct what the plugin says, then `{delete}` and cut it again");
                refused("was not cut", next)
            }
            (SnapshotGoal::Ready, SnapshotState::Deleting) => {
                Ok(Break(Err(deleted_meanwhile(session, first))))
            }
            // A snapshot whose deletion was refused stays as it was.
            (SnapshotGoal::Deleted, SnapshotState::Ready | SnapshotState::Cut)
                if !error.is_empty() =>
            {
                refused("was not deleted", "correct what the plugin says, and ask again".to_owned())
            }
            _ => {
                waiter.step("", &describe_snapshot(&stub, clock::now()));
                Ok(Continue(()))
            }
        }
    });
    end.await?.unwrap_or_else(|| {
        let goal = match goal {
            SnapshotGoal::Ready => "ready",
            SnapshotGoal::Deleted => "gone",
        };
        Err(Failure::Local {
            exit: exit::UNAVAILABLE,
            message: format!("snapshot {name} {}", waiter.describe_end(goal)),
            next: format!(
                "it goes on by itself; see it with: berth snapshot list {}{}",
                quoted(volume.as_str()),
                namespace_option(&session.namespace)
            ),
        })
    })
}

fn deleted_meanwhile(session: &Session, snapshot: &SnapshotStub) -> Failure {
    Failure::Local {
        exit: exit::CONFLICT,
        message: format!(
            "snapshot {}@{} was deleted meanwhile",
            snapshot.volume, snapshot.snapshot
        ),
        next: format!(
            "berth events --volume {}{}",
            quoted(snapshot.volume.as_str()),
            namespace_option(&session.namespace)
        ),
    }
}

/// Reads one snapshot; none when there is no such snapshot.
pub async fn read_snapshot(
    session: &Session,
    volume: &VolumeId,
    id: &SnapshotId,
) -> Result<Option<SnapshotStub>, Failure> {
    let body = list_one(volume, id, LongPoll::default());
    let page = session.ask_service::<verb::SnapshotList>(&session.namespace, &body).await?;
    Ok(page.snapshots.into_iter().find(|snapshot| snapshot.snapshot == *id))
}

async fn read_one(
    session: &Session,
    volume: &VolumeId,
    id: &SnapshotId,
    newer: LongPoll,
) -> Result<(u64, Option<SnapshotStub>), Problem> {
    let body = list_one(volume, id, newer);
    let deadline = Instant::now() + ASK_FOR + ASK_MARGIN;
    let page = session.once::<verb::SnapshotList>(&session.namespace, &body, deadline).await?;
    Ok((page.index, page.snapshots.into_iter().find(|snapshot| snapshot.snapshot == *id)))
}

/// The request for a list that begins with this snapshot, because its id sorts before all longer
/// ids with this prefix.
pub fn list_one(volume: &VolumeId, id: &SnapshotId, newer: LongPoll) -> ListSnapshots {
    ListSnapshots {
        volume: Some(volume.clone()),
        prefix: id.to_string(),
        page: Page { limit: Some(1), after: None },
        newer,
        ..ListSnapshots::default()
    }
}
