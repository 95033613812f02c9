//! Snapshots are cut, adopted and deleted, and the outcomes of their calls applied (rule 23).
//!
//! A group is decided member by member with one attempt, and stored in one atomic batch. So the
//! records of a group never differ in their state.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::table::{self, SnapshotStage};
use crate::volume::decide::busy::BusyCall;
use crate::volume::decide::due::Due;
use crate::volume::storage::{
    Snapshot, SnapshotGroup, SnapshotState, SnapshotWish, StorageProgress, Topology,
};
use crate::volume::{
    Begin, CallOwner, Context, CutSnapshot, Outcome, Progress, Refusal, Step, StorageAnswer, Volume,
};
use crate::{AttemptId, NodeId, PluginId, SnapshotId, limits};

/// Requests a snapshot of the volume. The same request again changes nothing.
pub(in crate::volume) fn cut(
    volume: &Volume,
    id: &SnapshotId,
    wish: &SnapshotWish,
    context: &Context,
) -> Result<Step, Refusal> {
    if let Some(record) = volume.snapshots.get(id) {
        let members = record.group.as_ref().map_or(&[][..], |group| &group.members);
        // A snapshot outlives its volume, so another volume may have the name by now.
        let is_same_volume = volume
            .spec
            .as_ref()
            .is_none_or(|spec| spec.plugin == record.plugin && record.source == wish.source);
        let is_same =
            is_same_volume && members == wish.members && record.parameters == wish.parameters;
        return if is_same && record.state != SnapshotState::Deleting && !record.doomed {
            Ok(Step::nothing())
        } else {
            Err(Refusal::SnapshotExists { snapshot: id.clone(), state: record.state })
        };
    }
    let spec = volume.ready_spec()?;
    context.check_registered_once()?;
    if volume.snapshots.len() >= limits::SNAPSHOTS_MAX {
        return Err(Refusal::TooManySnapshots(volume.snapshots.len()));
    }
    let group = (!wish.members.is_empty())
        .then(|| SnapshotGroup { members: wish.members.clone(), ..SnapshotGroup::default() });
    let snapshot = Snapshot {
        state: SnapshotState::Creating,
        since: context.now,
        progress: StorageProgress::default(),
        doomed: false,
        was_ready: false,
        external_id: None,
        second_id: None,
        foreign: false,
        size_bytes: None,
        growing: spec.pending_expansion().is_some(),
        cut_at: None,
        name: wish.name.clone(),
        plugin: spec.plugin.clone(),
        source: wish.source.clone(),
        topologies: spec.accessible_from().to_vec(),
        usable_from: Vec::new(),
        home: spec.home().cloned(),
        parameters: wish.parameters.clone(),
        secrets: spec.secrets.clone(),
        group,
        create_index: 0,
    };
    Ok(Step::put_snapshot(id, snapshot))
}

/// Registers a snapshot that the plugin has. It is polled while the plugin still works on it.
pub(in crate::volume) fn adopt_snapshot(
    volume: &Volume,
    id: &SnapshotId,
    plugin: &PluginId,
    cut: &CutSnapshot,
    (topologies, home): (&[Topology], Option<&NodeId>),
    context: &Context,
) -> Result<Step, Refusal> {
    if let Some(record) = volume.snapshots.get(id) {
        let is_same =
            record.plugin == *plugin && record.external_id.as_ref() == Some(&cut.external_id);
        return if is_same {
            Ok(Step::nothing())
        } else {
            Err(Refusal::SnapshotExists { snapshot: id.clone(), state: record.state })
        };
    }
    let same = volume.snapshots.iter().find(|(_, record)| record.may_be(plugin, cut));
    if let Some((id, record)) = same {
        return Err(Refusal::SnapshotExists { snapshot: id.clone(), state: record.state });
    }
    if volume.snapshots.len() >= limits::SNAPSHOTS_MAX {
        return Err(Refusal::TooManySnapshots(volume.snapshots.len()));
    }
    let spec = volume.spec.as_ref().filter(|spec| spec.plugin == *plugin);
    let snapshot = Snapshot {
        state: if cut.ready { SnapshotState::Ready } else { SnapshotState::Cut },
        since: context.now,
        progress: StorageProgress::default(),
        doomed: false,
        external_id: Some(cut.external_id.clone()),
        second_id: None,
        foreign: false,
        size_bytes: (cut.size_bytes > 0).then_some(cut.size_bytes),
        // It may have been cut at any time.
        growing: true,
        cut_at: cut.cut_at,
        name: id.to_string(),
        was_ready: false,
        plugin: plugin.clone(),
        source: cut.source.clone(),
        // What the plugin lists is preferred: the volume of this name may be a new one elsewhere.
        topologies: match topologies {
            [] => spec.map(|spec| spec.topologies.to_value()).unwrap_or_default(),
            listed => listed.to_vec(),
        },
        usable_from: cut.usable_from.clone(),
        home: home.or_else(|| spec?.home()).cloned(),
        parameters: BTreeMap::new(),
        secrets: spec.and_then(|spec| spec.secrets.clone()),
        group: None,
        create_index: 0,
    };
    Ok(Step::put_snapshot(id, snapshot))
}

/// Requests the deletion of a snapshot. `as_group` says that the other members go with it, `forget`
/// that what is at the storage stays there.
pub(in crate::volume) fn delete_snapshot(
    volume: &Volume,
    id: &SnapshotId,
    (as_group, forget): (bool, bool),
    context: &Context,
) -> Result<Step, Refusal> {
    let record = volume.snapshots.get(id).ok_or_else(|| Refusal::NoSuchSnapshot(id.clone()))?;
    if let Some(group) = record.group.as_ref().filter(|_| !as_group) {
        return Err(Refusal::InGroup { members: group.members.clone() });
    }
    context.check_not_copied()?;
    if forget {
        let owner = CallOwner::Snapshot(id.clone());
        let calls = &record.progress.calls;
        if let Some(busy) = BusyCall::find_live(owner, calls, context.now, &context.policy) {
            return Err(busy.refusal(None));
        }
        return Ok(Step::drop_snapshot(id));
    }
    let mut snapshot = Snapshot::clone(record);
    match record.state {
        SnapshotState::Failed => return Ok(Step::drop_snapshot(id)),
        SnapshotState::Deleting => return Ok(Step::nothing()),
        SnapshotState::Creating if !record.progress.may_have_acted() => {
            return Ok(Step::drop_snapshot(id));
        }
        SnapshotState::Creating if record.doomed => return Ok(Step::nothing()),
        SnapshotState::Creating => snapshot.doomed = true,
        SnapshotState::Cut | SnapshotState::Ready => {
            snapshot.enter(SnapshotState::Deleting, context.now);
            snapshot.was_ready = record.state == SnapshotState::Ready;
            snapshot.progress = record.progress.replaced();
        }
    }
    Ok(Step::put_snapshot(id, snapshot))
}

/// Starts the next call of a snapshot, if it may start now.
pub(in crate::volume) fn begin_snapshot(
    volume: &Volume,
    id: &SnapshotId,
    begin: &Begin,
    context: &Context,
) -> Result<Step, Refusal> {
    let record = volume.snapshots.get(id).ok_or_else(|| Refusal::NoSuchSnapshot(id.clone()))?;
    let not_due = |next_try| Err(Refusal::NotDue { next_try });
    let Some(call) = record.call() else { return not_due(None) };
    match volume.due(&begin.owner, &begin.facts(context)) {
        Due::At(at) => return not_due(Some(at)),
        Due::Rest => return not_due(None),
        Due::Now(_) => {}
    }
    let mut snapshot = Snapshot::clone(record);
    let executor = begin.executor.as_ref();
    let attempt = snapshot.progress.start(call, &begin.worker, executor, context);
    Ok(Step { call: Some(attempt), ..Step::put_snapshot(id, snapshot) })
}

/// Applies the outcome of a snapshot's call, if it is the call on the record.
pub(in crate::volume) fn answer_snapshot(
    volume: &Volume,
    id: &SnapshotId,
    attempt: &AttemptId,
    outcome: &Outcome,
    context: &Context,
) -> Result<Step, Refusal> {
    let record = volume.snapshots.get(id).ok_or(Refusal::StaleAttempt)?;
    let current = record.progress.calls.attempt.as_ref().filter(|current| current.id == *attempt);
    if current.is_none() {
        return Err(Refusal::StaleAttempt);
    }
    let mut snapshot = Snapshot::clone(record);
    // An expansion may have been requested before the plugin cut it.
    let source = volume.spec.as_ref().filter(|spec| spec.plugin == record.plugin);
    let grows = source.is_some_and(|spec| spec.pending_expansion().is_some());
    snapshot.growing |= grows && record.state == SnapshotState::Creating;
    let made = match outcome {
        Outcome::Stored(answer) => find_snapshot(answer, record),
        _ => None,
    };
    match table::next_of_snapshot(record, made, outcome) {
        SnapshotStage::Gone => return Ok(Step::drop_snapshot(id)),
        SnapshotStage::Cut(made, answer) => apply_cut(&mut snapshot, &made, answer, context),
        SnapshotStage::CutAgain(second) => {
            let second = second.external_id;
            let fault = format!(
                "the plugin cut another snapshot, {second:?}, when it was asked whether this one \
                 is ready; delete it: both are deleted"
            );
            snapshot.progress = StorageProgress::failed(fault.into());
            snapshot.second_id = Some(second);
        }
        SnapshotStage::FirstGone => {
            snapshot.external_id = snapshot.second_id.take();
            snapshot.enter(SnapshotState::Deleting, context.now);
        }
        SnapshotStage::Failed(failure) => {
            snapshot.enter(SnapshotState::Failed, context.now);
            snapshot.progress = StorageProgress::failed(failure.clone());
        }
        SnapshotStage::Kept(failure) => {
            let state = if record.was_ready { SnapshotState::Ready } else { SnapshotState::Cut };
            snapshot.enter(state, context.now);
            snapshot.was_ready = false;
            snapshot.progress = StorageProgress::failed(failure.clone());
        }
        SnapshotStage::AsBefore => snapshot.progress.end_inherited(outcome),
        SnapshotStage::Other => {
            if !apply_wrong_group(&mut snapshot, outcome, context) {
                snapshot.progress.fail(outcome, context);
            }
        }
        SnapshotStage::Again => snapshot.progress.fail(outcome, context),
    }
    if snapshot == **record {
        return Ok(Step::nothing());
    }
    Ok(Step::put_snapshot(id, snapshot))
}

/// What an answer says of this snapshot.
fn find_snapshot(answer: &StorageAnswer, record: &Snapshot) -> Option<CutSnapshot> {
    let made = match answer {
        StorageAnswer::Snapshot(made) => made,
        StorageAnswer::Group { snapshots, .. } => {
            // All or none: the same answer is applied to the record of each member. The agent
            // clears sources in the answer if the group is not as requested.
            let named = snapshots.iter().filter(|made| !made.external_id.is_empty());
            let sources: BTreeSet<&str> = named.map(|made| made.source.as_str()).collect();
            let members = record.group.as_ref().map_or(0, |group| group.members.len());
            if sources.len() < members {
                return None;
            }
            snapshots.iter().find(|made| made.source == record.source)?
        }
        StorageAnswer::Volume(_) | StorageAnswer::Capacity { .. } => return None,
    };
    (!made.external_id.is_empty()).then(|| made.clone())
}

/// The fault, if the plugin says that it cut another volume. The id stays on the record: something
/// may be at the storage under it.
fn foreign_source(record: &Snapshot, made: &CutSnapshot) -> Option<String> {
    if made.source.is_empty() || made.source == record.source {
        return None;
    }
    Some(format!(
        "the plugin says that snapshot {:?}, which it cut, is of its volume {:?}, and one of \
         {:?} was requested: no volume is made of it. Look at the storage; then delete it here, \
         which deletes it there, or forget it",
        made.external_id, made.source, record.source
    ))
}

/// Records a group that is not one snapshot of each member, with all ids by which it is deleted.
/// False if the answer names no group: nothing could be deleted by it.
fn apply_wrong_group(snapshot: &mut Snapshot, outcome: &Outcome, context: &Context) -> bool {
    let Outcome::Stored(StorageAnswer::Group { external_id, snapshots, .. }) = outcome else {
        return false;
    };
    let Some(group) = snapshot.group.as_mut().filter(|_| !external_id.is_empty()) else {
        return false;
    };
    let with_source = snapshots.iter().find(|made| !made.source.is_empty());
    let example = with_source.map(|made| format!(", one of them of its volume {:?}", made.source));
    let error = format!(
        "the plugin says that group {external_id:?}, which it cut, has {} snapshots{}, and one of \
         each of {} volumes was requested: no volume is made of them. Look at the storage; then \
         delete the group here, which deletes it there, or forget it",
        snapshots.len(),
        example.unwrap_or_default(),
        group.members.len()
    );
    group.external_id = Some(external_id.clone());
    // A group that was right when it was cut keeps the ids that it had then.
    if snapshot.state == SnapshotState::Creating {
        let ids = snapshots.iter().map(|made| &made.external_id).filter(|id| !id.is_empty());
        let ids: BTreeSet<&String> = ids.collect();
        group.snapshots = ids.into_iter().cloned().collect();
    }
    snapshot.foreign = true;
    let state = if snapshot.doomed { SnapshotState::Deleting } else { SnapshotState::Cut };
    snapshot.doomed = false;
    snapshot.enter(state, context.now);
    snapshot.progress.calls.failure = (state == SnapshotState::Cut).then(|| Box::new(error.into()));
    true
}

fn apply_cut(
    snapshot: &mut Snapshot,
    made: &CutSnapshot,
    answer: &StorageAnswer,
    context: &Context,
) {
    // A group is ready as a whole.
    let mut ready = made.ready;
    if let (Some(group), StorageAnswer::Group { external_id, ready: group_ready, .. }) =
        (&mut snapshot.group, answer)
    {
        group.external_id = Some(external_id.clone());
        ready = *group_ready;
    }
    snapshot.external_id = Some(made.external_id.clone());
    snapshot.size_bytes = (made.size_bytes > 0).then_some(made.size_bytes);
    snapshot.cut_at = made.cut_at.or(snapshot.cut_at);
    if !made.usable_from.is_empty() {
        snapshot.usable_from.clone_from(&made.usable_from);
    }
    if snapshot.home.is_none() {
        snapshot.home = snapshot.progress.executor.clone();
    }
    let polls = snapshot.progress.calls.tries;
    let foreign = foreign_source(snapshot, made);
    snapshot.foreign = foreign.is_some();
    if snapshot.doomed {
        snapshot.doomed = false;
        snapshot.enter(SnapshotState::Deleting, context.now);
        snapshot.was_ready = ready && !snapshot.foreign;
    } else if foreign.is_some() {
        snapshot.enter(SnapshotState::Cut, context.now);
        snapshot.progress.calls.failure = foreign.map(|fault| Box::new(fault.into()));
    } else if ready {
        snapshot.enter(SnapshotState::Ready, context.now);
    } else {
        if snapshot.state == SnapshotState::Creating {
            snapshot.enter(SnapshotState::Cut, context.now);
        }
        // Each poll waits longer than the last one.
        let tries = polls.saturating_add(1);
        let next_try = Some(context.next_try(tries));
        snapshot.progress = StorageProgress {
            calls: Progress { tries, next_try, ..Progress::default() },
            executor: snapshot.progress.executor.take(),
            ..StorageProgress::default()
        };
    }
}
