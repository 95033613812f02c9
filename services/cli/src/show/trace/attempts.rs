//! The attempts of a claim's calls, from two sources: the claim service's record, and the agent's
//! report.

use berth_contract::event::{Event, EventName};
use berth_domain::volume::{Attempt as OnRecord, CallKind};
use berth_domain::{AttemptId, Timestamp};

use super::claim_history::ClaimHistory;
use super::source::{call_of, is_claims};
use super::tree::{Step, StepOutcome, between, earlier};

/// One attempt.
#[derive(Debug)]
struct Attempt<'a> {
    id: &'a AttemptId,
    call: Option<CallKind>,
    worker: Option<&'a str>,
    /// When the attempt was recorded.
    began: Option<Timestamp>,
    /// The end of the attempt on the record.
    end: Option<End<'a>>,
    /// The spans of the attempt's executors.
    executed: Vec<&'a Event>,
}

#[derive(Debug, Clone, Copy)]
struct End<'a> {
    at: Timestamp,
    how: StepOutcome,
    took_us: Option<u64>,
    detail: Option<&'a str>,
}

/// The claim's attempts as steps, sorted by their start.
pub(super) fn attempts(
    history: &ClaimHistory<'_>,
    now: Timestamp,
) -> Vec<(Option<CallKind>, Step)> {
    let mut attempts = Vec::new();
    for event in &history.events {
        if is_claims(event) {
            recorded(&mut attempts, event);
        } else if matches!(event.event, EventName::CallDone | EventName::CallFailed) {
            executed(&mut attempts, event);
        }
    }
    let standing = history.status.and_then(|status| status.attempt.as_ref());
    if let Some(standing) = standing {
        let attempt = attempt(&mut attempts, &standing.id);
        attempt.call = Some(standing.call);
        attempt.worker.get_or_insert(standing.worker.as_str());
    }
    let since = history.status.map_or(now, |status| status.since);
    let mut steps: Vec<(Option<CallKind>, Step)> = attempts
        .iter()
        .map(|attempt| {
            let standing = standing.filter(|standing| standing.id == *attempt.id);
            (attempt.call, attempt.step(standing, since, now))
        })
        .collect();
    steps.sort_by_key(|(_, step)| step.at);
    succeed(&mut steps);
    steps
}

/// The attempt with this id, added when it is new.
fn attempt<'a, 'b>(attempts: &'b mut Vec<Attempt<'a>>, id: &'a AttemptId) -> &'b mut Attempt<'a> {
    let at = attempts.iter().position(|attempt| attempt.id == id).unwrap_or_else(|| {
        let (worker, executed) = (None, Vec::new());
        attempts.push(Attempt { id, call: None, worker, began: None, end: None, executed });
        attempts.len() - 1
    });
    &mut attempts[at]
}

/// Adds a change of the record: it begins an attempt, or has the result of one, or both.
fn recorded<'a>(attempts: &mut Vec<Attempt<'a>>, event: &'a Event) {
    let failed = event.event == EventName::ClaimFailed;
    if !failed {
        advance(attempts, event);
    }
    let Some(id) = &event.attempt else { return };
    let is_new = !attempts.iter().any(|attempt| attempt.id == id);
    let attempt = attempt(attempts, id);
    if failed {
        attempt.end = Some(End {
            at: event.at,
            how: StepOutcome::Failed,
            took_us: event.took_us,
            detail: event.detail.as_deref(),
        });
    } else if is_new {
        let worker = event.detail.as_deref().and_then(|detail| detail.split_once(" by "));
        attempt.call = call_of(event);
        attempt.worker = worker.map(|(_, worker)| worker);
        attempt.began = Some(event.at);
    }
}

/// Ends the attempts of the record's previous state.
fn advance<'a>(attempts: &mut [Attempt<'a>], event: &'a Event) {
    use CallKind::{ControllerPublish, ControllerUnpublish, NodeDetach};
    let ended: &[CallKind] = match event.event {
        EventName::ClaimTaken => &[ControllerPublish],
        EventName::ClaimNodeDetached => &[NodeDetach],
        EventName::ClaimFreed => &[NodeDetach, ControllerUnpublish],
        _ => &[],
    };
    let is_ended = |attempt: &Attempt<'_>| attempt.call.is_some_and(|call| ended.contains(&call));
    let last_done = attempts.iter().rposition(is_ended);
    let next = event.attempt.as_ref();
    // Calls of which this event begins another attempt, or that have a later attempt.
    let begun = call_of(event).filter(|_| next.is_some());
    let calls: Vec<Option<CallKind>> = attempts.iter().map(|attempt| attempt.call).collect();
    for (at, attempt) in attempts.iter_mut().enumerate().filter(|(_, one)| Some(one.id) != next) {
        let call = attempt.call;
        let is_replaced = call.is_some() && (begun == call || calls[at + 1..].contains(&call));
        let how = match &attempt.end {
            // This includes an attempt that was answered after its timeout.
            None | Some(End { how: StepOutcome::Failed, .. }) if Some(at) == last_done => {
                StepOutcome::Done
            }
            Some(_) => continue,
            None if is_replaced => StepOutcome::Abandoned,
            None => StepOutcome::NotTold,
        };
        let detail = attempt.end.and_then(|end| end.detail);
        attempt.end = Some(End { at: event.at, how, took_us: None, detail });
    }
}

fn executed<'a>(attempts: &mut Vec<Attempt<'a>>, event: &'a Event) {
    let Some(id) = &event.attempt else { return };
    let attempt = attempt(attempts, id);
    attempt.call = attempt.call.or_else(|| call_of(event));
    attempt.executed.push(event);
}

impl Attempt<'_> {
    fn step(&self, standing: Option<&OnRecord>, since: Timestamp, now: Timestamp) -> Step {
        let of_executed = |event: &&&Event| earlier(event.at, event.took_us.unwrap_or_default());
        let reported_start = self.end.map(|end| earlier(end.at, end.took_us.unwrap_or_default()));
        let first = self.executed.iter().map(|event| of_executed(&event)).min();
        let at = self.began.or(first).or(reported_start).unwrap_or(since);
        let under_way =
            standing.filter(|_| self.end.is_none_or(|end| end.how != StepOutcome::Done));
        let how = match (under_way, self.end) {
            (Some(_), None) => StepOutcome::UnderWay,
            (_, Some(end)) => end.how,
            (None, None) => StepOutcome::NotTold,
        };
        let took_us = match (how, self.end) {
            (StepOutcome::UnderWay, _) => Some(between(at, now)),
            (StepOutcome::Abandoned | StepOutcome::NotTold, _) | (_, None) => None,
            (_, Some(end)) => end.took_us.or_else(|| Some(between(at, end.at))),
        };
        let call = self.call.map_or("attempt".to_owned(), |call| call.to_string());
        let mut step = Step {
            took_us,
            node: self.executed.last().and_then(|event| event.node.clone()),
            attempt: Some(self.id.clone()),
            worker: self.worker.map(str::to_owned),
            until: standing
                .filter(|_| how == StepOutcome::UnderWay)
                .map(|standing| standing.deadline),
            detail: self.end.and_then(|end| end.detail).map(str::to_owned),
            ..Step::new(call, at, how)
        };
        for event in &self.executed {
            step.steps.extend(calls(event));
            step.steps.extend(unheard(event, how));
        }
        step
    }
}

/// The agent's report, where it differs from the record.
fn unheard(event: &Event, how: StepOutcome) -> Option<Step> {
    let done = event.event == EventName::CallDone;
    let reported_end = match how {
        StepOutcome::Done => done,
        StepOutcome::Failed => !done,
        _ => false,
    };
    (!reported_end).then(|| Step {
        node: event.node.clone(),
        detail: match (done, how) {
            (false, _) => event.detail.clone(),
            (true, StepOutcome::UnderWay) => Some("this is to be recorded".to_owned()),
            (true, StepOutcome::Failed) => Some("too late".to_owned()),
            (true, StepOutcome::Abandoned) => Some("this was not recorded".to_owned()),
            (true, _) => None,
        },
        ..Step::new(
            event.event.as_str(),
            event.at,
            if done { StepOutcome::Done } else { StepOutcome::Failed },
        )
    })
}

/// The plugin calls of an event.
pub(super) fn calls(event: &Event) -> impl Iterator<Item = Step> {
    event.calls.iter().map(|call| Step {
        took_us: Some(call.took_us),
        code: Some(call.code.clone()),
        ..Step::new(
            &call.rpc,
            call.at,
            if call.code == "OK" { StepOutcome::Done } else { StepOutcome::Failed },
        )
    })
}

/// Marks attempts that followed another one.
fn succeed(steps: &mut [(Option<CallKind>, Step)]) {
    for at in 1..steps.len() {
        let (before, after) = steps.split_at_mut(at);
        let (Some((call, before)), Some((next_call, next))) =
            (before.last_mut(), after.first_mut())
        else {
            continue;
        };
        next.taken_over = next.worker.is_some()
            && before.worker.is_some()
            && next.worker != before.worker
            && next_call != &Some(CallKind::ControllerPublish)
            && call != &Some(CallKind::ControllerPublish);
        let is_repeated = call == next_call && before.how == StepOutcome::Failed;
        before.again_after_us = is_repeated.then(|| between(before.end(), next.at));
    }
}
