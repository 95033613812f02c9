//! One command to a snapshot of each volume of its group, stored in one atomic batch.
//!
//! **Promises** that all members change or none does, and that each decision is made on the
//! volume's state at the leader.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::volume::{Attempt, Command, Volume};
use berth_domain::{Namespace, SnapshotId, VolumeId, VolumeKey};
use tokio::time::Instant;

use crate::store::state::State;
use crate::store::transact::{Committed, TransactError};

/// The volumes of the caller's snapshot, or of the group that it belongs to; as far as this replica
/// knows.
pub fn members_of(state: &State, volume: &VolumeKey, id: &SnapshotId) -> Vec<VolumeKey> {
    let members = state.volumes.mirror.read(|volumes| {
        let snapshot = volumes.get(volume)?.volume.snapshots.get(id)?;
        Some(snapshot.group.as_ref()?.members.clone())
    });
    match members {
        Some(members) => keys(&volume.namespace, &members),
        None => vec![volume.clone()],
    }
}

/// The volumes of a namespace, in order.
pub fn keys(namespace: &Namespace, volumes: &[VolumeId]) -> Vec<VolumeKey> {
    let key = |volume: &VolumeId| VolumeKey::new(namespace.clone(), volume.clone());
    let mut keys: Vec<VolumeKey> = volumes.iter().map(key).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Refuses volumes that are not exactly the members of the snapshot's group. When this replica
/// looked for the members, it did not have the snapshot, or had an earlier one of its name.
pub fn check_members(
    now: &Volume,
    snapshot: Option<&SnapshotId>,
    members: &[VolumeKey],
) -> Result<(), Problem> {
    let record = snapshot.and_then(|id| now.snapshots.get(id));
    let is_whole = record.is_none_or(|record| {
        let group = record.group.as_ref().map_or(&[][..], |group| &group.members);
        group.len().max(1) == members.len()
            && members.iter().all(|member| group.is_empty() || group.contains(&member.volume))
    });
    if is_whole {
        return Ok(());
    }
    let message = "this service does not know all members of the group of snapshots yet";
    Err(Problem::new(Code::Busy, message).retryable())
}

/// What a command did to the members: whether anything was written, and the call to make.
#[derive(Debug, Default)]
pub struct GroupCommitted {
    pub written: bool,
    /// The attempt, with the first member and the revision of its write.
    pub call: Option<(VolumeKey, Attempt, u64)>,
}

/// Decides the command on each volume, and stores all writes together. A single volume is stored
/// like any other transition.
pub async fn transact_members(
    state: &State,
    volumes: &[VolumeKey],
    trace: TraceContext,
    until: Option<Instant>,
    command: impl Fn(&VolumeKey, &Volume) -> Result<Command, Problem>,
) -> Result<GroupCommitted, (VolumeKey, TransactError)> {
    if let [volume] = volumes {
        let decide = |now: &Volume| command(volume, now);
        let done = match until {
            Some(until) => state.transact_until(volume, trace, until, decide).await,
            None => state.transact(volume, trace, decide).await,
        };
        let Committed { step, revision } = done.map_err(|error| (volume.clone(), error))?;
        let call = step.call.map(|attempt| (volume.clone(), attempt, revision));
        return Ok(GroupCommitted { written: step.write.is_some(), call });
    }
    let results = state.transact_together(volumes, trace, until, command).await?;
    let written = results.iter().any(|done| done.step.write.is_some());
    // The first volume leads: its call is for all.
    let first = volumes.first().cloned();
    let call = first.zip(results.into_iter().next()).and_then(|(volume, done)| {
        let revision = done.revision;
        done.step.call.map(|attempt| (volume, attempt, revision))
    });
    Ok(GroupCommitted { written, call })
}
