//! What the plugin does with a call, and how it answers.

use super::action::Model;
use super::check::{check_deletion, check_snapshot_deletion};
use super::world::{AGENT, Call, Id, Outcome, Owner, Progress, StoredSnapshot, Work, World};
use crate::safety::Breach;

/// How a call ends at the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It acts, and reports success. `flag` is its choice: nodes have to follow an expansion; a
    /// snapshot is ready at once.
    Done { flag: bool },
    /// It acts, and reports an error.
    DoneAndFailed,
    /// It acts, and its answer is lost.
    DoneAndLost,
    /// It does nothing, and reports that it never will.
    Refused,
    /// It does nothing, and reports that.
    NotDone,
    /// It does nothing, and reports an error.
    Failed,
    /// It does nothing, and its answer is lost.
    Lost,
}

/// How a call at work may end.
pub(super) fn endings(world: &World, call: &Call, store: u8) -> Vec<Ending> {
    use Ending::{Done, DoneAndFailed, DoneAndLost, Failed, Lost, NotDone, Refused};
    let can = can_act(world, call.work, store);
    if !call.current {
        return if can { vec![DoneAndLost, Lost] } else { vec![Lost] };
    }
    let flags = match call.work {
        Work::Expand { .. } | Work::Cut { .. } => &[false, true][..],
        _ => &[false],
    };
    let mut endings = Vec::new();
    if can {
        endings.extend(flags.iter().map(|flag| Done { flag: *flag }));
        endings.extend([DoneAndFailed, DoneAndLost]);
    }
    if call.owner == Owner::Claim {
        endings.extend([Failed, Lost]);
    } else {
        endings.extend([Refused, NotDone, Failed, Lost]);
    }
    endings
}

/// Whether the plugin can carry out the call.
fn can_act(world: &World, work: Work, store: u8) -> bool {
    let has = |id: Id| id.store == store && world.volumes.contains(&id);
    let has_snapshot = |id: Id| id.store == store && world.snapshot(id).is_some();
    match work {
        // The name is the key of idempotency: an existing volume is returned.
        Work::Create { name, of } => {
            has(Id { name, store })
                || of.is_none_or(|of| if of.snapshot { has_snapshot(of.id) } else { has(of.id) })
        }
        Work::Cut { name, of } => has_snapshot(Id { name, store }) || has(of),
        Work::Expand { id, .. } | Work::Modify { id } | Work::Publish { id } => has(id),
        // CSI requires success if there is nothing to delete or to detach.
        Work::Delete { .. }
        | Work::DeleteSnapshot { .. }
        | Work::Unpublish { .. }
        | Work::ExpandNode
        | Work::Detach => true,
    }
}

/// Ends a call at work.
pub(super) fn end_call(
    model: &Model,
    world: &mut World,
    at: usize,
    ending: Ending,
) -> Result<(), Breach> {
    let call = world.calls[at];
    let Progress::AtWork(executor) = call.progress else { return Ok(()) };
    let store = if model.scenario.local && executor != AGENT { executor } else { 0 };
    let answer = match ending {
        Ending::Done { flag } => Some(act(model, world, call, store, flag)?),
        Ending::DoneAndFailed => {
            act(model, world, call, store, false)?;
            Some(Outcome::Failed)
        }
        Ending::DoneAndLost => {
            act(model, world, call, store, false)?;
            None
        }
        Ending::Refused => Some(Outcome::Refused),
        Ending::NotDone => Some(Outcome::NotDone),
        Ending::Failed => Some(Outcome::Failed),
        Ending::Lost => None,
    };
    match answer {
        Some(outcome) => world.calls[at].progress = Progress::Answered(outcome),
        None => drop(world.calls.remove(at)),
    }
    Ok(())
}

/// Carries out a call.
fn act(
    model: &Model,
    world: &mut World,
    call: Call,
    store: u8,
    flag: bool,
) -> Result<Outcome, Breach> {
    Ok(match call.work {
        Work::Create { name, .. } => {
            let id = Id { name, store };
            if !world.volumes.contains(&id) {
                world.volumes.push(id);
            }
            Outcome::Created { id }
        }
        Work::Delete { id } => {
            if id.store == store && world.volumes.contains(&id) {
                check_deletion(model, world, id)?;
                world.volumes.retain(|volume| *volume != id);
            }
            Outcome::Done
        }
        Work::Expand { size, .. } => Outcome::Expanded { size, nodes: flag },
        Work::Cut { name, .. } => {
            let id = Id { name, store };
            if let Some(known) = world.snapshot(id) {
                return Ok(Outcome::Cut { id, ready: known.ready });
            }
            world.snapshots.push(StoredSnapshot { id, ready: flag });
            Outcome::Cut { id, ready: flag }
        }
        Work::DeleteSnapshot { id } => {
            if id.store == store && world.snapshot(id).is_some() {
                check_snapshot_deletion(model, world, id)?;
                world.snapshots.retain(|snapshot| snapshot.id != id);
            }
            Outcome::Done
        }
        Work::Modify { .. }
        | Work::Publish { .. }
        | Work::Unpublish { .. }
        | Work::ExpandNode
        | Work::Detach => Outcome::Done,
    })
}
