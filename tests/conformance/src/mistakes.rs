//! Finds the mistakes of a scheduler. This module is pure.

use std::fmt;

use berth_contract::event::EventName;

use crate::job::JobRun;

/// The clocks and logs of one machine may differ by this much, in milliseconds.
const TOLERANCE_MS: u64 = 300;

/// A mistake, and the job that it was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The kind of mistake.
    pub kind: Kind,
    /// The id of the job.
    pub job: String,
    /// The moments that prove it.
    pub proof: String,
}

/// The mistakes that the kit knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The scheduler reported the end of an alloc while its job ran.
    StoppedRunningJob,
    /// A job wrote to a volume after the volume was free for others.
    WroteAfterRelease,
    /// The scheduler stopped requesting a volume that it waited in line for.
    GaveUpPlaceInLine,
    /// The scheduler gave up a job after a retryable error.
    IgnoredRetryable,
    /// A job ran twice.
    RanTwice,
    /// A job did not run, although nothing prevented it.
    NeverRan,
    /// A job has ended, and its alloc is live or has claims.
    LeftBehind,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StoppedRunningJob => "stopped a running job",
            Self::WroteAfterRelease => "wrote after release",
            Self::GaveUpPlaceInLine => "gave up its place in line",
            Self::IgnoredRetryable => "ignored `retryable`",
            Self::RanTwice => "ran a job twice",
            Self::NeverRan => "never ran a job",
            Self::LeftBehind => "left an alloc or a claim behind",
        })
    }
}

/// The text for people, such as `stopped a running job: a: …`.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: job {}: {}", self.kind, self.job, self.proof)
    }
}

/// The observations of one job.
#[derive(Debug, Clone, Default)]
pub struct ObservedJob {
    /// Its id, and that of its alloc.
    pub id: String,
    /// Its runs.
    pub runs: Vec<JobRun>,
    /// The events of its alloc and claims, with their times in milliseconds since 1970.
    pub events: Vec<(u64, EventName)>,
    /// Whether it met retryable errors.
    pub met_retryable: bool,
    /// Whether the kit itself stopped its alloc.
    pub was_stopped_by_kit: bool,
    /// What is left of it in the end, as text.
    pub left: Option<String>,
}

/// The mistakes with one job, each once.
pub fn mistakes_with(job: &ObservedJob) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut add = |kind, proof: String| mistakes.push(Mistake { kind, job: job.id.clone(), proof });
    let ends = [EventName::AllocComplete, EventName::AllocFailed, EventName::AllocStopped];
    let end = job.events.iter().find(|(_, event)| ends.contains(event));
    if let Some((at, event)) = end.filter(|_| !job.was_stopped_by_kit) {
        let runs_then = |run: &&JobRun| {
            run.begun <= *at && run.wrote.max(run.ended.unwrap_or(0)) > at + TOLERANCE_MS
        };
        if let Some(run) = job.runs.iter().find(runs_then) {
            add(Kind::StoppedRunningJob, format!("{event} at {at}, and {run:?}"));
        }
    }
    let freed = job.events.iter().rfind(|(_, event)| *event == EventName::ClaimFreed);
    let granted = job.events.iter().rfind(|(_, event)| *event == EventName::ClaimTaken);
    // A run that began later may have been granted the volume again. That claim is not freed yet,
    // or the event of its end is lost.
    let is_of_run = |run: &JobRun, at: u64| {
        let is_free = granted.is_some_and(|(taken, _)| *taken <= at);
        run.wrote > at + TOLERANCE_MS && (is_free || run.begun <= at)
    };
    if let Some((at, _)) = freed.filter(|_| granted.is_some())
        && let Some(run) = job.runs.iter().find(|run| is_of_run(run, *at))
    {
        add(Kind::WroteAfterRelease, format!("claim.freed at {at}, and {run:?}; {:?}", job.events));
    }
    let waited = job.events.iter().any(|(_, event)| *event == EventName::ClaimWaiting);
    if let Some((at, _)) = freed.filter(|_| waited && granted.is_none() && job.runs.is_empty()) {
        add(Kind::GaveUpPlaceInLine, format!("its claim in line was gone at {at}"));
    } else if job.runs.is_empty() {
        let kind = if job.met_retryable { Kind::IgnoredRetryable } else { Kind::NeverRan };
        let last = job.events.last().map(|(at, event)| format!("{event} at {at}"));
        add(kind, last.unwrap_or_else(|| "its alloc was never registered".to_owned()));
    }
    if let [first, second, ..] = job.runs.as_slice() {
        add(Kind::RanTwice, format!("{first:?} and {second:?}"));
    }
    if let Some(left) = &job.left {
        add(Kind::LeftBehind, left.clone());
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(begun: u64, wrote: u64) -> JobRun {
        JobRun { begun, wrote, ended: Some(wrote) }
    }

    fn kinds(job: &ObservedJob) -> Vec<Kind> {
        mistakes_with(job).into_iter().map(|mistake| mistake.kind).collect()
    }

    #[test]
    fn each_mistake_is_found_and_a_right_life_has_none() {
        use EventName::{AllocComplete, AllocRegistered, ClaimFreed, ClaimTaken, ClaimWaiting};
        let right = ObservedJob {
            id: "a".to_owned(),
            runs: vec![run(2_000, 5_000)],
            events: vec![
                (1_000, AllocRegistered),
                (1_500, ClaimTaken),
                (5_100, AllocComplete),
                (5_500, ClaimFreed),
            ],
            ..ObservedJob::default()
        };
        assert_eq!(kinds(&right), []);
        let early = vec![(1_500, ClaimTaken), (3_000, AllocComplete), (5_500, ClaimFreed)];
        let early = ObservedJob { events: early, ..right.clone() };
        assert_eq!(kinds(&early), [Kind::StoppedRunningJob]);
        assert_eq!(kinds(&ObservedJob { was_stopped_by_kit: true, ..early }), []);
        let late = vec![(1_500, ClaimTaken), (5_000, AllocComplete), (3_000, ClaimFreed)];
        let late = ObservedJob { events: late, ..right.clone() };
        assert_eq!(kinds(&late), [Kind::WroteAfterRelease]);
        let taken_again = vec![(1_000, ClaimTaken), (1_200, ClaimFreed), (1_500, ClaimTaken)];
        assert_eq!(
            kinds(&ObservedJob { events: taken_again, ..right.clone() }),
            [],
            "a second mount"
        );
        let lost = vec![(1_500, ClaimTaken), (3_000, ClaimFreed), (3_500, ClaimTaken)];
        let lost = ObservedJob { events: lost, ..right.clone() };
        assert_eq!(kinds(&lost), [Kind::WroteAfterRelease], "taken from it while it ran");
        let twice =
            ObservedJob { runs: vec![run(2_000, 3_000), run(3_000, 5_000)], ..right.clone() };
        assert_eq!(kinds(&twice), [Kind::RanTwice]);
        let never_ran = ObservedJob { runs: Vec::new(), ..right.clone() };
        assert_eq!(kinds(&never_ran), [Kind::NeverRan]);
        assert_eq!(
            kinds(&ObservedJob { met_retryable: true, ..never_ran.clone() }),
            [Kind::IgnoredRetryable]
        );
        let gave_up = vec![(1_000, ClaimWaiting), (2_000, ClaimFreed)];
        assert_eq!(kinds(&ObservedJob { events: gave_up, ..never_ran }), [Kind::GaveUpPlaceInLine]);
        let left_behind = ObservedJob { left: Some("its alloc is live".to_owned()), ..right };
        assert_eq!(kinds(&left_behind), [Kind::LeftBehind]);
    }
}
