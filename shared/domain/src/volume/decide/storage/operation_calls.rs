//! The calls of an operation, and what their outcomes change (rules 19, 20 and 22).
//!
//! **Owns** which call of a creation, deletion, expansion or modification comes next.
//!
//! **Promises** that what a plugin made stays on the record until the plugin has deleted it: also
//! if its answer was lost, breaks CSI's bounds, or came after the deletion was requested.
//!
//! **Never** counts an unanswered call as not made.

use std::collections::BTreeSet;

use super::next::{newest_epoch, next_node};
use super::request;
use super::size_answer::SizeAnswer;
use super::table::{self, VolumeStage};
use crate::volume::decide::due::{Due, DueCall};
use crate::volume::storage::{
    Expansion, Operation, OperationKind, Provision, StorageFailure, StorageLife, StorageProgress,
    Work,
};
use crate::volume::{
    Begin, CallFailure, Context, CreatedVolume, NextStorageCall, Outcome, Refusal, Step,
    StorageAnswer, Volume, VolumeSpec,
};
use crate::{AttemptId, NodeId, Timestamp};

/// Starts the next call of the volume's operation, if it may start now.
pub(in crate::volume) fn begin_operation(
    volume: &Volume,
    begin: &Begin,
    context: &Context,
) -> Result<Step, Refusal> {
    let spec = volume.spec.as_ref().ok_or(Refusal::NoSuchVolume)?;
    if volume.is_run_over(begin.wanted) {
        return request::delete(volume, "the run that it was created for is over", context);
    }
    let not_due = |next_try| Err(Refusal::NotDue { next_try });
    let mut storage = spec.life();
    let Some(operation) = &mut storage.operation else { return not_due(None) };
    match (volume.due(&begin.owner, &begin.facts(context)), &mut operation.work) {
        (Due::At(at), _) => return not_due(Some(at)),
        (Due::Rest, _) => return not_due(None),
        (Due::Now(DueCall::Nobody), _) => {
            storage.operation = None;
            return Ok(Step::put_spec(spec.living(storage)));
        }
        (Due::Now(DueCall::Node(node)), Work::Expand(expansion)) => expansion.node = Some(node),
        (Due::Now(_), _) => {}
    }
    // The mount may have been found after the deletion was accepted.
    let mounted = operation.needs_unmounted().then(|| context.mounts.first()).flatten();
    let is_told = operation.mounted.as_deref() == mounted;
    operation.mounted = mounted.cloned().map(Box::new);
    match mounted {
        Some(_) if is_told => return not_due(None),
        Some(_) => {
            // It is past, and the mount's end makes the call due.
            operation.progress.calls.next_try = None;
            return Ok(Step::put_spec(spec.living(storage)));
        }
        None => {}
    }
    let call = operation.call();
    let executor = begin.executor.as_ref();
    let attempt = operation.progress.start(call, &begin.worker, executor, context);
    Ok(Step { call: Some(attempt), ..Step::put_spec(spec.living(storage)) })
}

/// Forgets nodes without a claim, because a record is bounded. Keeps one node, as a sign that a
/// node has expanded the volume.
fn forget_former_nodes(volume: &Volume, expansion: &mut Expansion) {
    let taken: BTreeSet<&NodeId> = volume.taken_nodes().collect();
    expansion.refused.retain(|node, _| taken.contains(node));
    let any = expansion.expanded.last().cloned();
    expansion.expanded.retain(|node| taken.contains(node));
    if expansion.expanded.is_empty() {
        expansion.expanded.extend(any);
    }
}

/// Applies the outcome of the operation's call, if it is the call on the record.
pub(in crate::volume) fn answer_operation(
    volume: &Volume,
    attempt: &AttemptId,
    outcome: &Outcome,
    context: &Context,
) -> Result<Step, Refusal> {
    let spec = volume.spec.as_ref().ok_or(Refusal::StaleAttempt)?;
    let mut storage = spec.life();
    let Some(mut operation) = storage.operation.take() else { return Err(Refusal::StaleAttempt) };
    let current =
        operation.progress.calls.attempt.as_ref().filter(|current| current.id == *attempt);
    if current.is_none() {
        return Err(Refusal::StaleAttempt);
    }
    let is_placed = spec.provision().is_some_and(|provision| provision.first_claim.is_some());
    match table::next_of_volume(&operation.work, is_placed, &operation.progress, outcome) {
        VolumeStage::Gone => return Ok(Step::delete_spec()),
        VolumeStage::Created(made) => {
            storage.home = operation.progress.executor.take();
            let is_doomed = matches!(operation.work, Work::Create { doomed: true });
            return Ok(Step::put_spec(created(spec, storage, made, is_doomed, context)));
        }
        VolumeStage::Grown { bytes, at_nodes } => {
            return Ok(Step::put_spec(grown(spec, storage, operation, bytes, at_nodes)));
        }
        VolumeStage::GrownAtNode => {
            let spec = node_grown(spec, &mut storage, &operation, outcome);
            storage.operation = grown_at_node(volume, operation);
            return Ok(Step::put_spec(spec.living(bounded(storage))));
        }
        VolumeStage::RefusedByNode(failure) => {
            refused_by_node(volume, &mut operation);
            operation.progress = StorageProgress::failed(failure.clone());
            storage.operation = Some(operation);
        }
        VolumeStage::Modified => {
            if let Work::Modify { mut parameters, replaced } = operation.work {
                storage.mutable.append(&mut parameters);
                let goes_on = replaced.map(|expansion| Work::Expand(*expansion));
                storage.operation = goes_on.map(|work| Operation::new(work, operation.since));
            }
            storage.failure = None;
        }
        VolumeStage::Unplaced(error) => {
            storage.failure = Some(failure(operation.kind(), error, context.now));
            if let Some(provision) = &mut storage.provision {
                provision.unplace(|tries| context.next_try(tries));
            }
        }
        VolumeStage::Refused(error) => {
            storage.failure = Some(failure(operation.kind(), error, context.now));
            storage.operation = replaced_by(operation);
        }
        VolumeStage::AsBefore => {
            operation.progress.end_inherited(outcome);
            storage.operation = Some(operation);
        }
        VolumeStage::Again => {
            operation.progress.fail(outcome, context);
            storage.operation = Some(operation);
        }
    }
    if spec.operation() == storage.operation.as_ref() {
        return Ok(Step::nothing());
    }
    Ok(Step::put_spec(spec.living(storage)))
}

/// What the operation replaced, which goes on: it was acknowledged, and the volume stays.
fn replaced_by(operation: Operation) -> Option<Operation> {
    let before = match operation.work {
        Work::Expand(refused) => Work::Expand(*refused.replaced?),
        Work::Delete { replaced, .. } => *replaced?,
        Work::Modify { replaced, .. } => Work::Expand(*replaced?),
        Work::Create { .. } => return None,
    };
    let mut before = Operation::new(before, operation.since);
    before.progress.calls.tries = operation.progress.calls.tries;
    Some(before)
}

/// The volume with the size that the controller made.
fn grown(
    spec: &VolumeSpec,
    mut storage: StorageLife,
    mut operation: Operation,
    bytes: u64,
    at_nodes: bool,
) -> VolumeSpec {
    let Work::Expand(expansion) = &mut operation.work else { return spec.clone() };
    storage.failure = None;
    let required = expansion.required_bytes;
    let answer = SizeAnswer { bytes, required, limit: expansion.limit_bytes };
    storage.faults.extend(answer.fault("it expanded the volume to"));
    if bytes == 0 {
        storage.faults.push("it expanded the volume, and does not say to which size".to_owned());
    }
    // An OK without a size that can be believed says that it has the required one; a size that is
    // smaller says that it has not.
    let capacity = if answer.is_short() { spec.capacity_bytes } else { Some(answer.believed()) };
    storage.expanded_for = (!answer.is_short()).then_some(required);
    // Nodes that had to follow a smaller one have to follow this one.
    let nodes_behind = expansion.all_replaced().any(Expansion::is_at_nodes);
    if at_nodes || nodes_behind {
        expansion.at_nodes = true;
        expansion.replaced = None;
        operation.progress = StorageProgress::default();
        storage.operation = Some(operation);
    }
    let spec = VolumeSpec { capacity_bytes: capacity, ..spec.clone() };
    spec.living(bounded(storage))
}

/// The volume after a node has expanded it: its size is known from the controller's answer, unless
/// nodes do all of it.
fn node_grown(
    spec: &VolumeSpec,
    storage: &mut StorageLife,
    operation: &Operation,
    outcome: &Outcome,
) -> VolumeSpec {
    let node_only = match &operation.work {
        Work::Expand(expansion) if expansion.node_only => expansion,
        _ => return spec.clone(),
    };
    let bytes = match outcome {
        Outcome::Stored(StorageAnswer::Capacity { bytes, .. }) => *bytes,
        _ => 0,
    };
    let required = node_only.required_bytes;
    let answer = SizeAnswer { bytes, required, limit: node_only.limit_bytes };
    storage.faults.extend(answer.fault("a node expanded the volume to"));
    // The agent has looked at the device: a smaller number is the file system's.
    let believed = answer.believed().max(required);
    storage.failure = None;
    storage.expanded_for = Some(required);
    VolumeSpec { capacity_bytes: spec.capacity_bytes.max(Some(believed)), ..spec.clone() }
}

/// The expansion after a node has expanded the volume; none if it was the last one.
fn grown_at_node(volume: &Volume, mut operation: Operation) -> Option<Operation> {
    let Work::Expand(expansion) = &mut operation.work else { return None };
    expansion.expanded.extend(expansion.node.clone());
    forget_former_nodes(volume, expansion);
    let is_done = next_node(volume, expansion) == NextStorageCall::Finish;
    operation.progress = StorageProgress::default();
    (!is_done).then_some(operation)
}

/// Notes that the node of the last call does not expand the volume as it is staged there.
fn refused_by_node(volume: &Volume, operation: &mut Operation) {
    let Work::Expand(expansion) = &mut operation.work else { return };
    if let Some(node) = expansion.node.clone() {
        let newest = newest_epoch(volume, &node);
        expansion.refused.insert(node, newest);
    }
    forget_former_nodes(volume, expansion);
}

/// The volume with what the plugin returned, and what is wrong with that (rule 19).
fn created(
    spec: &VolumeSpec,
    mut storage: StorageLife,
    made: &CreatedVolume,
    doomed: bool,
    context: &Context,
) -> VolumeSpec {
    let without_id = if made.external_id.is_empty() {
        Some(format!("it {}", made.unusable.as_deref().unwrap_or("gives no id")))
    } else if context.handle.others.is_empty() {
        None
    } else {
        let others = context.handle.others.join(", ");
        Some(format!("it gives the id {:?}, which is the one of {others}", made.external_id))
    };
    if let Some(fault) = without_id {
        let name = spec.provision().map(|provision| provision.name.as_str()).unwrap_or_default();
        let error = format!(
            "it says that it created the volume, and {fault}: it may have left a volume named \
             {name:?} at the storage"
        );
        storage.failure = Some(failure(OperationKind::Create, &error.into(), context.now));
        storage.faults.push(fault);
        // Another claim would create a second one.
        if let Some(provision) = &mut storage.provision {
            provision.first_claim = None;
        }
        return spec.living(bounded(storage));
    }
    if let Some(provision) = &storage.provision {
        storage.faults.extend(differences(provision, made));
    }
    storage.unusable = made.unusable.is_some();
    storage.failure = made.unusable.as_ref().map(|why| {
        let error = format!("it created the volume, and {why}: the volume can only be deleted");
        failure(OperationKind::Create, &error.into(), context.now)
    });
    if doomed {
        let reason = "it was to be deleted before it was created".to_owned();
        storage.operation =
            Some(Operation::new(Work::Delete { reason, replaced: None }, context.now));
    }
    let capacity_bytes = storage.provision.as_ref().and_then(|asked| {
        let size = SizeAnswer::of_creation(asked, made);
        let says = made.capacity_bytes > 0 && !size.is_short();
        says.then(|| size.believed()).filter(|bytes| *bytes > 0)
    });
    if storage.operation.is_none() && !storage.unusable {
        let grows = storage.provision.as_ref().and_then(|asked| growth_of_copy(asked, made));
        storage.operation = grows.map(|work| Operation::new(work, context.now));
    }
    let spec = VolumeSpec {
        external_id: Some(made.external_id.clone()),
        capacity_bytes,
        context: made.context.clone().into(),
        topologies: made.topologies.clone().into(),
        ..spec.clone()
    };
    spec.living(bounded(storage))
}

/// What is left of a copy's creation. A plugin may leave the file system at the source's size, or
/// the whole copy (CSI, `CreateVolumeRequest.volume_content_source`).
fn growth_of_copy(asked: &Provision, made: &CreatedVolume) -> Option<Work> {
    let growth = asked.growth.as_ref()?;
    let size = SizeAnswer::of_creation(asked, made);
    let required_bytes = asked.required_bytes;
    let expansion = Expansion { required_bytes, ..Expansion::default() };
    if size.is_short() {
        let limit_bytes = asked.limit_bytes;
        let node_only = growth.by_nodes && !growth.by_controller;
        let offline = growth.by_controller;
        let whole = Expansion { limit_bytes, offline, node_only, ..expansion };
        return (offline || node_only).then_some(Work::Expand(whole));
    }
    let required_bytes = size.believed();
    let grows = growth.by_nodes && required_bytes > growth.from_bytes;
    grows.then_some(Work::Expand(Expansion { required_bytes, at_nodes: true, ..expansion }))
}

/// What the plugin returned otherwise than it was asked to.
fn differences(asked: &Provision, made: &CreatedVolume) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(SizeAnswer::of_creation(asked, made).fault("it created a volume of"));
    if !asked.is_met_by(&made.topologies) {
        let places = &made.topologies;
        faults.push(format!("it created the volume at {places:?}, where it was not requested"));
    }
    if asked.origin.is_some() && !made.is_copy {
        faults.push("it does not say that the volume is a copy of its source".to_owned());
    }
    faults
}

fn failure(operation: OperationKind, failure: &CallFailure, at: Timestamp) -> StorageFailure {
    StorageFailure { operation, at, failure: failure.clone() }
}

/// The newest faults only: a record is bounded.
fn bounded(mut storage: StorageLife) -> StorageLife {
    const FAULTS_MAX: usize = 8;
    let surplus = storage.faults.len().saturating_sub(FAULTS_MAX);
    storage.faults.drain(..surplus);
    storage
}
