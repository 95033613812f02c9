//! Volumes at their storage: no change has failed for a while, and every snapshot is ready.

use std::time::Duration;

use berth_contract::hint::volume_argument;
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::storage::{OperationStatus, StorageWait};
use berth_contract::message::volume::VolumeStatus;
use berth_domain::volume::storage::{OperationKind, SnapshotState};
use berth_domain::{Timestamp, VolumeKey};

use super::facts::SystemFacts;
use super::finding::{DoctorFinding, Examined, keep_one_of_each_remedy};
use crate::span::ago;
use berth_explain::name_operation;
use berth_explain::{Cause, Finding, find_change, find_refusal, find_snapshot, find_volume, next};

/// How long a call may take, or fail, before the change counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(15);
/// How long a change without a fault may be in progress before it counts as slow.
const SLOW_AFTER: Duration = Duration::from_secs(600);

pub fn examine(facts: &SystemFacts) -> Examined {
    let storage = match &facts.storage {
        Ok(storage) => storage,
        Err(problem) => return Examined::not_made("volumes at their storage", problem),
    };
    let of_volumes = storage.volumes.iter().filter_map(|volume| judge_volume(facts, volume));
    let of_snapshots =
        storage.snapshots.iter().filter_map(|snapshot| judge_snapshot(facts, snapshot));
    let mut findings: Vec<DoctorFinding> = of_volumes.chain(of_snapshots).collect();
    let stuck = findings.len();
    keep_one_of_each_remedy(&mut findings);
    if storage.is_cut {
        let sentence = "there are more volumes or snapshots than were read";
        findings.push(DoctorFinding::warning("volumes", sentence).next("berth volume list -n '*'"));
    }
    let changing = storage.volumes.iter().filter(|volume| operation(volume).is_some()).count();
    let unread = match storage.unread {
        0 => String::new(),
        unread => format!(", {unread} not read"),
    };
    let summary = format!(
        "volumes {}{unread}, changing {changing}, snapshots {}, stuck {stuck}",
        storage.volume_count, storage.snapshot_count
    );
    Examined::new(summary, findings)
}

fn operation(volume: &VolumeStatus) -> Option<&OperationStatus> {
    volume.storage.as_ref()?.operation.as_ref()
}

fn judge_volume(facts: &SystemFacts, volume: &VolumeStatus) -> Option<DoctorFinding> {
    let VolumeStatus { id, namespace, .. } = volume;
    let place = format!("volume {namespace}/{id}");
    let why = next::why_volume(id, namespace);
    if !volume.registered_twice.is_empty() {
        let finding = find_volume(facts.now, volume)?;
        return DoctorFinding::from_finding(place, finding);
    }
    let Some(operation) = operation(volume) else {
        // A refused change was reported to its caller. A refused deletion was too, but nobody looks
        // at a volume that should be gone.
        let failure = volume.storage.as_ref()?.failure.as_ref()?;
        let finding = find_change(&facts.why, volume).or_else(|| {
            let is_deletion = failure.operation == OperationKind::Delete;
            is_deletion.then(|| find_refusal(&facts.why, volume))?
        });
        return DoctorFinding::from_finding(place, finding?);
    };
    // The storage has expanded the volume. The next node that mounts it expands its file system.
    if operation.waits_for == Some(StorageWait::NextStaging) {
        return None;
    }
    let is_stuck = is_stuck(facts.now, operation.since, operation.tries);
    let finding = find_change(&facts.why, volume).filter(|_| is_stuck)?;
    let name = name_operation(operation);
    let since = operation.since;
    let slow = is_slow(facts.now, since, &finding).then(|| {
        let sentence = format!("{name} for {}: {}", ago(since, facts.now), finding.sentence);
        let volume = volume_argument(&VolumeKey::new(namespace.clone(), id.clone()));
        DoctorFinding::warning(&place, sentence).next(format!("berth volume status {volume}"))
    });
    slow.or_else(|| Some(DoctorFinding::from_finding(&place, finding)?.next(why)))
}

fn judge_snapshot(facts: &SystemFacts, snapshot: &SnapshotStub) -> Option<DoctorFinding> {
    let SnapshotStub { namespace, volume, snapshot: id, state, since, tries, .. } = snapshot;
    // A group is reported once, for its first volume.
    if snapshot.group.first().is_some_and(|first| first != volume) {
        return None;
    }
    let place = format!("snapshot {namespace}/{volume}@{id}");
    let finding = find_snapshot(&facts.why, snapshot)?;
    let is_over = matches!(state, SnapshotState::Ready | SnapshotState::Failed);
    // The plugin is asked again until its snapshot is ready: those calls are no failed tries.
    let tries = if snapshot.failure.is_some() { *tries } else { 0 };
    if !is_over && !is_stuck(facts.now, *since, tries) {
        return None;
    }
    let slow = is_slow(facts.now, *since, &finding).then(|| {
        DoctorFinding::warning(&place, finding.sentence.clone())
            .next(next::snapshot_list(volume, namespace))
    });
    slow.or_else(|| DoctorFinding::from_finding(&place, finding))
}

fn is_stuck(now: Timestamp, since: Timestamp, tries: u32) -> bool {
    now.since(since) >= STUCK_AFTER || tries >= 2
}

/// Whether a change without a fault takes too long.
fn is_slow(now: Timestamp, since: Timestamp, finding: &Finding) -> bool {
    finding.cause == Cause::UnderWay && now.since(since) >= SLOW_AFTER
}
