//! A claim's two phases: it is taken, and it is released.

use berth_contract::event::{Event, EventName};
use berth_domain::Timestamp;
use berth_domain::volume::{CallKind, State};

use super::attempts::{attempts, calls};
use super::claim_history::{ClaimHistory, is_leaving};
use super::source::{TreeSource, is_claims};
use super::tree::{Claim, Phase, Step, StepOutcome, between, earlier};

/// The shortest time without events that is shown, in microseconds.
const QUIET_US: u64 = 1_000_000;
/// The step of a claim in the queue.
const WAITING: &str = "waiting";

/// The claim with its phases.
pub(super) fn claim(history: &ClaimHistory<'_>, known: TreeSource<'_>) -> Claim {
    let (namespace, volume, alloc) = history.key;
    let of_claim =
        history.events.iter().copied().filter(|event| is_claims(event) || is_mount(event));
    let told = of_claim.rev().find_map(|event| event.node.clone());
    let attempts = attempts(history, known.now);
    let of_release = |call: Option<CallKind>| {
        matches!(call, Some(CallKind::NodeDetach | CallKind::ControllerUnpublish))
    };
    let (releasing, taking): (Vec<_>, Vec<_>) =
        attempts.into_iter().partition(|(call, _)| of_release(*call));
    let steps = |attempts: Vec<(Option<CallKind>, Step)>| -> Vec<Step> {
        attempts.into_iter().map(|(_, step)| step).collect()
    };
    let source = PhaseSource { history, known };
    let mut claim = Claim {
        namespace: namespace.clone(),
        volume: volume.clone(),
        alloc: alloc.clone(),
        node: history.status.map(|status| status.node.clone()).or(told),
        epoch: history.status.map(|status| status.epoch),
        state: history.status.map(|status| status.state),
        claim: source.taking(steps(taking)),
        release: source.releasing(steps(releasing)),
    };
    let phase = claim.release.as_mut().unwrap_or(&mut claim.claim);
    source.wait(phase);
    claim
}

fn is_mount(event: &Event) -> bool {
    matches!(event.event, EventName::VolumeMounted | EventName::VolumeMountFailed)
}

struct PhaseSource<'a> {
    history: &'a ClaimHistory<'a>,
    known: TreeSource<'a>,
}

impl PhaseSource<'_> {
    /// From the alloc's registration to the grant, and the claim's mounts.
    fn taking(&self, attempts: Vec<Step>) -> Phase {
        let registered = self.events_named(EventName::AllocRegistered).map(moment);
        let take = self.take(attempts);
        let mounts = self.history.events.iter().copied().filter(|event| is_mount(event));
        let mounts = mounts.map(mount);
        let at = take.as_ref().map(|take| take.at);
        let is_gone = |at| self.known.begins.is_some_and(|begins| at < begins);
        let begins_before = at.is_none_or(is_gone);
        let how = take.as_ref().map_or(StepOutcome::NotTold, |take| take.how);
        let took_us = take.as_ref().and_then(|take| take.took_us);
        let mut steps: Vec<Step> = registered.chain(take).chain(mounts).collect();
        steps.sort_by_key(|step| step.at);
        let trace = self.history.claim.map(str::to_owned);
        Phase { trace, at, took_us, how, begins_before, steps }
    }

    /// The step of the request itself, if anything is known of it.
    fn take(&self, attempts: Vec<Step>) -> Option<Step> {
        let take_events = || self.history.events.iter().copied().filter(|event| is_of_take(event));
        let taken = take_events().find(|event| event.event == EventName::ClaimTaken);
        let standing = self.history.status.filter(|status| {
            matches!(status.state, State::Waiting | State::Publishing | State::Taken)
        });
        let requested_at = taken.map(|taken| earlier(taken.at, taken.took_us.unwrap_or_default()));
        let first = take_events().next().map(|event| event.at);
        let began = attempts.iter().map(|step| step.at).chain(requested_at).chain(first).min();
        let at = began.or(standing.map(|status| status.since))?;
        let given_up = self.left();
        let granted = standing.filter(|status| status.state == State::Taken);
        let granted = taken.map(|taken| taken.at).or(granted.map(|status| status.since));
        let live = standing.filter(|status| status.state != State::Taken);
        let (how, took_us, detail) = match (granted, given_up, live) {
            (Some(granted), ..) => (StepOutcome::Done, Some(between(at, granted)), None),
            (None, Some(left), _) if first.is_some() => {
                let why = "given up before it was granted".to_owned();
                (StepOutcome::Failed, Some(between(at, left)), Some(why))
            }
            (None, None, Some(_)) => {
                (StepOutcome::UnderWay, Some(between(at, self.known.now)), None)
            }
            _ => (StepOutcome::NotTold, None, None),
        };
        let waits =
            take_events().filter(|event| event.event == EventName::ClaimWaiting).map(|event| {
                let next = take_events().find(|next| next.at >= event.at && *next != event);
                let end = next.map(|next| next.at).or(given_up);
                let still = standing.is_some_and(|status| status.state == State::Waiting);
                let how = match end {
                    Some(_) => StepOutcome::Done,
                    None if still => StepOutcome::UnderWay,
                    None => StepOutcome::NotTold,
                };
                let end = end.or(still.then_some(self.known.now));
                let took_us = end.map(|end| between(event.at, end));
                let detail = event.detail.clone();
                Step { took_us, detail, ..Step::new(WAITING, event.at, how) }
            });
        let mut steps: Vec<Step> = waits.chain(attempts).collect();
        steps.extend(take_events().filter(|event| failed_alone(event)).map(moment));
        let steps = with_silences(steps);
        Some(Step { took_us, detail, steps, ..Step::new("claim.take", at, how) })
    }

    /// From the start of the release to its end; none while the claim is held.
    fn releasing(&self, attempts: Vec<Step>) -> Option<Phase> {
        let PhaseSource { history, known } = self;
        let release_events =
            || history.events.iter().copied().filter(|event| event.claim_trace.is_some());
        let standing = history.status.filter(|status| is_leaving(status.state));
        if attempts.is_empty() && history.release.is_none() && standing.is_none() {
            return None;
        }
        let freed = history.freed();
        let gave_up = freed.and_then(|freed| Some(earlier(freed.at, freed.took_us?)));
        let first = attempts.first().map(|step| step.at);
        let at = gave_up.or(self.left().into_iter().chain(first).min());
        // An event that only follows others is not the first of a release.
        let is_later = release_events().next().is_none_or(|first| match first.event {
            EventName::ClaimFailed => attempts.iter().any(|step| step.attempt == first.attempt),
            EventName::ClaimNodeDetached => {
                self.events_named(EventName::ClaimTaken).next().is_some()
            }
            _ => false,
        });
        let is_gone = at.zip(known.begins).is_some_and(|(at, begins)| at < begins);
        let begins_before = is_gone || (gave_up.is_none() && is_later);
        let at = at.or(standing.map(|status| status.since));
        let (how, end) = match (freed, standing) {
            (Some(freed), _) => (StepOutcome::Done, Some(freed.at)),
            (None, Some(_)) => (StepOutcome::UnderWay, Some(known.now)),
            (None, None) => (StepOutcome::NotTold, None),
        };
        let is_drawn = |event: &&Event| {
            let begins_attempt =
                attempts.iter().any(|step| step.attempt == event.attempt && step.attempt.is_some());
            match event.event {
                EventName::ClaimFailed => failed_alone(event),
                _ => !begins_attempt,
            }
        };
        let moments: Vec<Step> = release_events().filter(is_drawn).map(moment).collect();
        let mut steps = attempts;
        for event in self.events_named(EventName::VolumeUnmounted) {
            place(&mut steps, moment(event));
        }
        steps.extend(moments);
        steps
            .extend(history.events.iter().copied().filter(|event| is_alloc_end(event)).map(moment));
        Some(Phase {
            trace: history.release.map(str::to_owned),
            at,
            took_us: at.zip(end).map(|(at, end)| between(at, end)),
            how,
            begins_before,
            steps: with_silences(steps),
        })
    }

    /// What a present claim waits for, when nothing is running.
    fn wait(&self, phase: &mut Phase) {
        let Some(status) = self.history.status else { return };
        let Some(waits_for) = &status.waits_for else { return };
        let is_at_work = |step: &Step| step.how == StepOutcome::UnderWay && step.attempt.is_some();
        let parts = phase.steps.iter_mut().flat_map(|step| step.steps.iter_mut());
        let in_line = |step: &&mut Step| step.name == WAITING && step.how == StepOutcome::UnderWay;
        if let Some(step) = parts.rev().find(in_line) {
            step.detail = Some(waits_for.clone());
            return;
        }
        let all_steps = || phase.steps.iter().flat_map(|step| step.steps.iter().chain([step]));
        if all_steps().any(is_at_work) {
            return;
        }
        let now = self.known.now;
        let ends = all_steps().filter(|step| step.how != StepOutcome::UnderWay).map(Step::end);
        let since = ends.chain(phase.at).filter(|end| *end <= now).max().unwrap_or(status.since);
        let error = status
            .last_error()
            .filter(|error| !all_steps().any(|step| step.detail.as_deref() == Some(*error)));
        let error = error.map(|error| format!("; try {} failed: {error}", status.failed_tries()));
        phase.steps.push(Step {
            took_us: Some(between(since, now)),
            detail: Some(format!("waits for {waits_for}{}", error.unwrap_or_default())),
            until: status.next_try.filter(|next| *next > now),
            ..Step::new("quiet", since, StepOutcome::Quiet)
        });
    }

    fn events_named(&self, name: EventName) -> impl Iterator<Item = &Event> {
        self.history.events.iter().copied().filter(move |event| event.event == name)
    }

    /// The time at which the claim was given up, if an event has it.
    fn left(&self) -> Option<Timestamp> {
        let given_up = self
            .history
            .events
            .iter()
            .copied()
            .find(|event| is_claims(event) && event.claim_trace.is_some());
        given_up.map(|event| match event.event {
            EventName::ClaimFreed => earlier(event.at, event.took_us.unwrap_or_default()),
            _ => event.at,
        })
    }
}

fn is_of_take(event: &Event) -> bool {
    is_claims(event) && event.claim_trace.is_none()
}

/// A failure without an attempt.
fn failed_alone(event: &Event) -> bool {
    event.event == EventName::ClaimFailed && event.attempt.is_none()
}

fn is_alloc_end(event: &Event) -> bool {
    event.volume.is_none() && event.event != EventName::AllocRegistered
}

/// An event as a step.
fn moment(event: &Event) -> Step {
    let how = match event.event {
        EventName::ClaimFailed => StepOutcome::Failed,
        _ => StepOutcome::Happened,
    };
    let detail = event.detail.clone();
    let is_elsewhere = !is_claims(event);
    let node = event.node.clone().filter(|_| is_elsewhere);
    Step { node, detail, ..Step::new(event.event.as_str(), event.at, how) }
}

fn mount(event: &Event) -> Step {
    let how = match event.event {
        EventName::VolumeMounted => StepOutcome::Done,
        _ => StepOutcome::Failed,
    };
    let at = earlier(event.at, event.took_us.unwrap_or_default());
    Step {
        took_us: event.took_us,
        node: event.node.clone(),
        detail: event.detail.clone(),
        steps: calls(event).collect(),
        ..Step::new("mount", at, how)
    }
}

/// Moves the steps of an attempt below it.
fn place(attempts: &mut Vec<Step>, step: Step) {
    let covers = |attempt: &&mut Step| {
        attempt.name == CallKind::NodeDetach.as_str()
            && attempt.at <= step.at
            && (attempt.took_us.is_none() || step.at <= attempt.end())
    };
    match attempts.iter_mut().rev().find(covers) {
        Some(attempt) => {
            attempt.steps.push(step);
            attempt.steps.sort_by_key(|step| step.at);
        }
        None => attempts.push(step),
    }
}

/// Sorts the steps, and inserts the times without events.
fn with_silences(mut steps: Vec<Step>) -> Vec<Step> {
    steps.sort_by_key(|step| step.at);
    let mut with_gaps: Vec<Step> = Vec::with_capacity(steps.len());
    let mut covered: Option<(Timestamp, bool)> = None;
    for step in steps {
        // The delay before the next try is shown at the failed try.
        if let Some((end, false)) = covered
            && between(end, step.at) >= QUIET_US
        {
            let took_us = Some(between(end, step.at));
            with_gaps.push(Step { took_us, ..Step::new("quiet", end, StepOutcome::Quiet) });
        }
        let (end, waits) = (step.end(), step.again_after_us.is_some());
        let open = matches!(
            step.how,
            StepOutcome::NotTold | StepOutcome::Abandoned | StepOutcome::UnderWay
        );
        covered = match covered {
            Some((known, waited)) if known > end => Some((known, waited || open)),
            _ => Some((end, waits || open)),
        };
        with_gaps.push(step);
    }
    with_gaps
}
