//! Changes of volumes and snapshots at their storage.
//!
//! The parts of a change are not of one trace: each call of the volumewatcher has its own. So an
//! event belongs to the change of its volume or snapshot that began last.

use std::collections::BTreeSet;

use berth_contract::event::{Event, EventName};

use super::attempts::calls;
use super::source::{TreeSource, in_order};
use super::tree::{Phase, Step, StepOutcome, StorageChange, between, earlier};

/// What an event says about a change.
enum Role {
    /// It is requested, or a call for it begins.
    Begins,
    /// A part of it.
    Part(StepOutcome),
    Ends(StepOutcome),
}

/// The changes in the events, oldest first.
pub(super) fn changes(source: TreeSource<'_>) -> Vec<StorageChange> {
    let mut changes: Vec<StorageChange> = Vec::new();
    for event in in_order(source.events) {
        let Some((role, volume)) = role_of(event).zip(event.volume.as_ref()) else { continue };
        let is_of = |change: &StorageChange| {
            Some(&change.namespace) == event.namespace.as_ref()
                && (&change.volume, &change.snapshot) == (volume, &event.snapshot)
                && change.phase.how == StepOutcome::UnderWay
        };
        let change_name = event.event.as_str().rsplit('.').next().unwrap_or_default();
        let mut at = changes.iter().rposition(is_of);
        if let (Some(open), Role::Begins) = (at, &role)
            && changes[open].what != change_name
        {
            // A deletion that was requested during the creation follows it: the creation is closed.
            close(&mut changes[open], StepOutcome::Done, event);
            at = None;
        }
        let at = at.unwrap_or_else(|| {
            changes.extend(event.namespace.clone().map(|namespace| StorageChange {
                namespace,
                volume: volume.clone(),
                snapshot: event.snapshot.clone(),
                what: change_name.to_owned(),
                traces: BTreeSet::new(),
                phase: Phase {
                    trace: event.trace.clone(),
                    at: Some(event.at),
                    took_us: Some(between(event.at, source.now)),
                    how: StepOutcome::UnderWay,
                    begins_before: matches!(role, Role::Part(_)),
                    steps: Vec::new(),
                },
            }));
            changes.len().saturating_sub(1)
        });
        let Some(change) = changes.get_mut(at) else { continue };
        change.traces.extend(event.trace.clone());
        change.phase.steps.push(step(event, &role));
        if let Role::Ends(how) = role {
            close(change, how, event);
        }
    }
    changes
}

fn close(change: &mut StorageChange, how: StepOutcome, event: &Event) {
    change.phase.how = how;
    change.phase.took_us = change.phase.at.map(|at| between(at, event.at));
}

/// None for an event that is about no change at the storage, such as one of a claim.
fn role_of(event: &Event) -> Option<Role> {
    use EventName as E;
    if event.alloc.is_some() {
        return None;
    }
    Some(match event.event {
        E::VolumeCreating | E::VolumeDeleting | E::VolumeExpanding | E::VolumeModifying => {
            Role::Begins
        }
        E::SnapshotCreating | E::SnapshotDeleting => Role::Begins,
        E::VolumeCreated | E::VolumeDeleted | E::VolumeExpanded | E::VolumeModified => {
            Role::Ends(StepOutcome::Done)
        }
        E::SnapshotReady | E::SnapshotDeleted => Role::Ends(StepOutcome::Done),
        E::VolumeFailed | E::SnapshotFailed => Role::Ends(StepOutcome::Failed),
        E::SnapshotCut => Role::Part(StepOutcome::Happened),
        E::VolumeRetried | E::SnapshotRetried | E::CallFailed => Role::Part(StepOutcome::Failed),
        E::CallDone => Role::Part(StepOutcome::Done),
        _ => return None,
    })
}

fn step(event: &Event, role: &Role) -> Step {
    let how = match role {
        Role::Begins => StepOutcome::Happened,
        Role::Part(how) | Role::Ends(how) => *how,
    };
    let detail = event.detail.clone();
    if !matches!(event.event, EventName::CallDone | EventName::CallFailed) {
        return Step { detail, ..Step::new(event.event.as_str(), event.at, how) };
    }
    // The detail of a call is its name; an error follows it.
    let detail = detail.unwrap_or_default();
    let (call, error) = detail.split_once(": ").unwrap_or((&detail, ""));
    Step {
        took_us: event.took_us,
        node: event.node.clone(),
        detail: Some(error.to_owned()).filter(|error| !error.is_empty()),
        steps: calls(event).collect(),
        ..Step::new(call, earlier(event.at, event.took_us.unwrap_or_default()), how)
    }
}
