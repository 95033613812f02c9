//! Explains the state of a snapshot.

use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::service::CLAIM;
use berth_domain::VolumeKey;

use crate::cause::{Actor, Cause};
use crate::facts::{Facts, SnapshotName};
use crate::finding::{Diagnosis, Finding};
use crate::record::read_record;
use crate::{service, storage};

/// The diagnosis of a snapshot of the names' namespace; none when there is no such snapshot.
pub fn diagnose(facts: &Facts, name: &SnapshotName) -> Option<Diagnosis> {
    let SnapshotName { volume, snapshot } = name;
    let subject = format!("snapshot {volume}@{snapshot}");
    let key = VolumeKey::new(facts.namespace.clone(), volume.clone());
    let answer = facts.named_snapshots.get(&(key, snapshot.clone()))?;
    let unanswered = |problem: &_| Some(service::away(facts, CLAIM.name, problem));
    let diagnosis = match read_record(answer, &subject, unanswered) {
        Ok(snapshot) => Some(of_record(facts, snapshot, &subject)),
        Err(diagnosis) => diagnosis,
    };
    diagnosis.map(|diagnosis| diagnosis.in_namespace(&facts.namespace))
}

fn of_record(facts: &Facts, snapshot: &SnapshotStub, subject: &str) -> Diagnosis {
    let finding = storage::find_snapshot(facts, snapshot).unwrap_or_else(|| {
        let sentence = "a volume can be made of it; nothing to do";
        Finding::new(Cause::Nothing, Actor::NOBODY, sentence)
    });
    let since = Some(snapshot.since);
    Diagnosis { since, ..Diagnosis::new(subject, snapshot.state.to_string(), finding) }
}
