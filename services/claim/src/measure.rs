//! Metrics of claims, counted from stored writes alone.

use std::time::Duration;

use berth_domain::PluginId;
use berth_domain::Timestamp;
use berth_domain::volume::{Attempt, Claim, Command, Outcome, State as ClaimState};
use berth_telemetry::metric::{
    ATTEMPTS, ATTEMPTS_RETRIED, CLAIMS_GRANTED, CLAIMS_RELEASED, CLAIMS_STATE_DURATION,
    CLAIMS_WAITING, PLUGINS,
};

use crate::state::State;
use crate::trail::Passage;

/// How often waiting claims are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Counts what a stored write did to a claim.
pub fn count_write(
    passage: &Passage<'_>,
    command: &Command,
    plugin: Option<&PluginId>,
    now: Timestamp,
) {
    let before = passage.before.map(|before| &before.claim);
    let (was, is) = (before.map(|claim| claim.state), passage.after.map(|claim| claim.state));
    let plugin = || PLUGINS.label(plugin.map_or("unknown", PluginId::as_str));
    if was != is {
        if let Some(before) = before {
            let took = now.since(before.since);
            CLAIMS_STATE_DURATION.record(took, [before.state.as_str().into()]);
        }
        if is == Some(ClaimState::Taken) {
            CLAIMS_GRANTED.add(1, [plugin()]);
        }
        if is.is_none() {
            CLAIMS_RELEASED.add(1, [plugin()]);
        }
    }
    let stood = before.and_then(|claim| claim.attempt.as_ref());
    let stands = passage.after.and_then(|claim| claim.attempt.as_ref());
    if let Some(ended) = stood.filter(|stood| stands.is_none_or(|stands| stands.id != stood.id)) {
        ATTEMPTS.add(1, [ended.call.as_str().into(), outcome_label(command, ended).into()]);
    }
    let begun = stands.filter(|stands| stood.is_none_or(|stood| stood.id != stands.id));
    if let (Some(begun), Some(Claim { tries: 1.., .. })) = (begun, passage.after) {
        ATTEMPTS_RETRIED.add(1, [begun.call.as_str().into()]);
    }
}

/// How an attempt ended: by its answer, or because another attempt replaced it.
fn outcome_label(command: &Command, ended: &Attempt) -> &'static str {
    match command {
        Command::Answer { attempt, outcome, .. } if *attempt == ended.id => match outcome {
            Outcome::Done { .. } => "done",
            Outcome::Refused(_) => "refused",
            Outcome::Failed(_) | Outcome::Unasked(_) => "failed",
            Outcome::Exhausted(_) => "exhausted",
            Outcome::Unanswered(_) => "unanswered",
        },
        _ => "abandoned",
    }
}

/// Counts the claims in line, again and again.
pub async fn count_waiting(state: State) {
    loop {
        let waiting = state.volumes.mirror.read(|volumes| {
            let volumes = volumes.iter().map(|(_, subtree)| &subtree.volume);
            volumes.map(|volume| volume.claims.count(ClaimState::Waiting)).sum::<usize>()
        });
        CLAIMS_WAITING.set(waiting as u64, []);
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}
