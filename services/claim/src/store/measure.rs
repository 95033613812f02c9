//! Metrics of claims and of changes of the storage, counted from stored writes alone.

use std::time::Duration;

use berth_domain::PluginId;
use berth_domain::Timestamp;
use berth_domain::volume::{
    Attempt, CallKind, CallOwner, Command, Outcome, State as ClaimState, Volume, Write,
};
use berth_telemetry::metric::{
    ATTEMPTS, ATTEMPTS_RETRIED, CLAIMS_GRANTED, CLAIMS_RELEASED, CLAIMS_STATE_DURATION,
    CLAIMS_WAITING, PLUGINS, STORAGE_CHANGES_DURATION, STORAGE_CHANGES_UNDER_WAY,
};

use crate::store::state::State;
use crate::store::trail::ClaimChange;

/// How often waiting claims are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Counts the effect of a stored write on a claim.
pub fn count_write(
    change: &ClaimChange<'_>,
    command: &Command,
    plugin: Option<&PluginId>,
    now: Timestamp,
) {
    let before = change.before.map(|before| &before.claim);
    let (old_state, new_state) =
        (before.map(|claim| claim.state), change.after.map(|claim| claim.state));
    let plugin = || PLUGINS.label(plugin.map_or("unknown", PluginId::as_str));
    if old_state != new_state {
        if let Some(before) = before {
            let took = now.since(before.since);
            CLAIMS_STATE_DURATION.record(took, [before.state.as_str().into()]);
        }
        if new_state == Some(ClaimState::Taken) {
            CLAIMS_GRANTED.add(1, [plugin()]);
        }
        if new_state.is_none() {
            CLAIMS_RELEASED.add(1, [plugin()]);
        }
    }
    let old_attempt = before.and_then(|claim| claim.progress.attempt.as_ref());
    let new_attempt = change.after.and_then(|claim| claim.progress.attempt.as_ref());
    if let Some(ended) = old_attempt.filter(|old_attempt| {
        new_attempt.is_none_or(|new_attempt| new_attempt.id != old_attempt.id)
    }) {
        ATTEMPTS.add(1, [ended.call.as_str().into(), outcome_label(command, ended).into()]);
    }
    let begun = new_attempt.filter(|new_attempt| {
        old_attempt.is_none_or(|old_attempt| old_attempt.id != new_attempt.id)
    });
    if let Some(begun) = begun
        && change.after.is_some_and(|after| after.progress.tries > 0)
    {
        ATTEMPTS_RETRIED.add(1, [begun.call.as_str().into()]);
    }
}

/// How an attempt ended: by its answer, or because another attempt replaced it.
fn outcome_label(command: &Command, ended: &Attempt) -> &'static str {
    match command {
        Command::Answer { attempt, outcome, .. } if *attempt == ended.id => label(outcome),
        _ => "abandoned",
    }
}

const fn label(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done { .. } | Outcome::Stored(_) => "done",
        Outcome::Refused(_) => "refused",
        Outcome::Failed(_) | Outcome::NotDone(_) | Outcome::Unasked(_) => "failed",
        Outcome::Exhausted(_) => "exhausted",
        Outcome::Unanswered(_) => "unanswered",
    }
}

/// A change of the storage whose call was answered.
#[derive(Debug, Clone, Copy)]
pub struct AnsweredChange {
    call: CallKind,
    since: Timestamp,
    outcome: &'static str,
}

impl AnsweredChange {
    /// The change whose answer the command brings.
    pub fn answered_by(volume: &Volume, command: &Command) -> Option<Self> {
        let Command::Answer { owner, attempt, outcome, .. } = command else { return None };
        let (progress, since) = match owner {
            CallOwner::Claim(_) => return None,
            CallOwner::Volume => {
                let operation = volume.spec.as_ref()?.operation()?;
                (&operation.progress, operation.since)
            }
            CallOwner::Snapshot(id) => {
                let snapshot = volume.snapshots.get(id)?;
                (&snapshot.progress, snapshot.since)
            }
        };
        let made = progress.calls.attempt.as_ref().filter(|matching| matching.id == *attempt)?;
        Some(Self { call: made.call, since, outcome: label(outcome) })
    }

    /// Counts the change by what the write stored.
    pub fn count(&self, stored: &Write, now: Timestamp) {
        let call = self.call.as_str();
        ATTEMPTS.add(1, [call.into(), self.outcome.into()]);
        let goes_on = match stored {
            Write::PutSpec(spec) => spec.operation().is_some(),
            Write::PutSnapshot(_, snapshot) => snapshot.call().is_some(),
            _ => false,
        };
        if !goes_on {
            STORAGE_CHANGES_DURATION.record(now.since(self.since), [call.into()]);
        }
    }
}

/// Reports how many claims are in line, and how many changes of the storage are under way, at
/// intervals.
pub async fn count_unfinished(state: State) {
    loop {
        let (waiting, changes) = state.volumes.mirror.read(|volumes| {
            let index = volumes.index();
            (index.count_waiting(), index.count_storage_changes())
        });
        CLAIMS_WAITING.set(waiting as u64, []);
        STORAGE_CHANGES_UNDER_WAY.set(changes as u64, []);
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}
