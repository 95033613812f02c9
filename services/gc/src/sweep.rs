//! A sweep, carried out.

use std::time::Duration;

use berth_bus::{Call, RequestError};
use berth_contract::code::Code;
use berth_contract::key;
use berth_contract::message::claim::{Release, Released};
use berth_contract::message::collect::Sweep;
use berth_contract::message::volume::{Deregister, Deregistered};
use berth_contract::problem::Problem;
use berth_contract::record;
use berth_contract::subject::Namespaced;
use berth_contract::trace::TraceContext;
use berth_domain::volume::VolumeSpec;
use berth_domain::{VolumeKey, limits};
use berth_service::{clock, process};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::collector::Shared;
use crate::plan::{Unwanted, describe, plan};

/// What is asked for in one sweep at most; the rest is found by the next.
const ITEMS_MAX: usize = 1000;
/// What is asked for at once.
const AT_ONCE: usize = 8;
/// Lines in each half of the answer, so that it fits a message also when every byte is escaped.
const LINES_MAX: usize = 100;
const LINE_BYTES_MAX: usize = 2048;

const _: () = assert!(2 * 2 * (LINES_MAX + 1) * LINE_BYTES_MAX < limits::MESSAGE_BYTES_MAX);

const STEP: &str = "gc.sweep";

const TIME_UP: &str = "the sweep's time was up before its turn came; the next one takes it up";

/// What came of one thing.
enum Line {
    Collected(String),
    Kept(String),
    /// It has gone by itself, or is wanted after all.
    Nothing,
}

impl Shared {
    /// Looks through everything and asks for the release of what is older than the grace and
    /// unwanted. What is not done by the deadline is kept, and found by the next sweep.
    pub(crate) async fn sweep(
        &self,
        grace: Duration,
        trace: TraceContext,
        deadline: Instant,
    ) -> Result<Sweep, Problem> {
        let Ok(_turn) = timeout_at(deadline, self.turn.lock()).await else {
            let said = "another sweep is under way and did not end in time";
            return Err(Problem::new(Code::Overloaded, said).retryable().at(STEP));
        };
        self.catch_up(deadline).await?;
        let mut plan = self.volume_mirror.read(|volumes| {
            self.alloc_mirror.read(|allocs| plan(volumes, allocs, clock::now(), grace))
        });
        let chance = clock::jitter() as usize;
        let rest = limit(&mut plan.unwanted, chance) + limit(&mut plan.closing, chance);
        if rest > 0 {
            plan.kept.push(format!("{rest} more things, for the next sweep"));
        }
        let releases = plan.unwanted.into_iter().map(|claim| self.release(claim, trace, deadline));
        let lines: Vec<Line> = stream::iter(releases).buffered(AT_ONCE).collect().await;
        let closings =
            plan.closing.into_iter().map(|volume| self.deregister(volume, trace, deadline));
        let closed: Vec<Line> = stream::iter(closings).buffered(AT_ONCE).collect().await;
        let mut sweep = Sweep { collected: Vec::new(), kept: plan.kept };
        for line in lines.into_iter().chain(closed) {
            match line {
                Line::Collected(line) => sweep.collected.push(line),
                Line::Kept(line) => sweep.kept.push(line),
                Line::Nothing => {}
            }
        }
        log(&sweep, &trace.trace_id());
        Ok(Sweep { collected: shortened(sweep.collected), kept: shortened(sweep.kept) })
    }

    /// Waits until the mirrors show everything that was stored before.
    async fn catch_up(&self, deadline: Instant) -> Result<(), Problem> {
        let (volumes, allocs) = tokio::join!(self.volumes.head(">"), self.allocs.head(">"));
        let volumes = volumes.map_err(|error| error.into_problem(STEP))?;
        let allocs = allocs.map_err(|error| error.into_problem(STEP))?;
        let (volumes, allocs) = tokio::join!(
            self.volume_mirror.reach(volumes, deadline),
            self.alloc_mirror.reach(allocs, deadline),
        );
        volumes.and(allocs).map_err(|error| error.into_problem(STEP))
    }

    async fn release(&self, claim: Unwanted, trace: TraceContext, deadline: Instant) -> Line {
        let Unwanted { volume, alloc, epoch } = claim;
        let what = describe(&volume, &alloc, epoch);
        if Instant::now() >= deadline {
            return Line::Kept(format!("{what}: {TIME_UP}"));
        }
        let evidence = match self.evidence(&volume.namespace, &alloc).await {
            Ok(Some(evidence)) => evidence,
            Ok(None) => return Line::Nothing,
            Err(error) => return Line::Kept(format!("{what}: {}", process::chain(&error))),
        };
        let release = Release {
            alloc,
            volume: volume.volume.clone(),
            epoch: Some(epoch),
            reason: format!("gc: {evidence}"),
        };
        let asked: Result<Released, _> =
            self.ask(Namespaced::ClaimRelease, &volume, &release, trace, deadline).await;
        match asked {
            Ok(Released { state: Some(state) }) => {
                Line::Collected(format!("{what}: {evidence}; it is {state} now"))
            }
            Ok(Released { state: None }) => {
                Line::Collected(format!("{what}: {evidence}; it is gone"))
            }
            Err(error) => {
                Line::Kept(format!("{what}: {evidence}, but its release was not recorded: {error}"))
            }
        }
    }

    /// Deregisters a volume that is closing and has no claims. The leader is asked once more, so
    /// that one that was registered anew meanwhile is not taken for the old one.
    async fn deregister(&self, volume: VolumeKey, trace: TraceContext, deadline: Instant) -> Line {
        let what = format!("volume {volume}");
        if Instant::now() >= deadline {
            return Line::Kept(format!("{what}: {TIME_UP}"));
        }
        let entry = match self.volumes.get(&key::spec(&volume)).await {
            Ok(entry) => entry.and_then(|entry| Some((entry.revision, entry.value?))),
            Err(error) => return Line::Kept(format!("{what}: {}", process::chain(&error))),
        };
        let Some((revision, value)) = entry else { return Line::Nothing };
        let spec = match record::read::<VolumeSpec>(&value) {
            Ok(record) => record.body,
            Err(error) => return Line::Kept(format!("{what}: {}", process::chain(&error))),
        };
        let Some(closing) = spec.closing else { return Line::Nothing };
        let request = Deregister {
            id: volume.volume.clone(),
            force: false,
            reason: format!("gc: {}", closing.reason),
            // A record that was never written again leaves it to its own revision.
            create_index: Some(if spec.create_index == 0 { revision } else { spec.create_index }),
        };
        let asked: Result<Deregistered, _> =
            self.ask(Namespaced::VolumeDeregister, &volume, &request, trace, deadline).await;
        match asked {
            Ok(Deregistered { gone: true, .. }) => Line::Collected(format!(
                "{what}: closing since {}, and its last claim is gone; deregistered",
                closing.since
            )),
            Ok(Deregistered { releasing, .. }) => {
                Line::Kept(format!("{what}: {} claims are still being released", releasing.len()))
            }
            Err(problem) if problem.code == Code::NoSuchVolume => Line::Nothing,
            Err(problem) => Line::Kept(format!("{what}: it is closing, but stays: {problem}")),
        }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        verb: Namespaced,
        volume: &VolumeKey,
        body: &impl Serialize,
        trace: TraceContext,
        deadline: Instant,
    ) -> Result<T, Problem> {
        if Instant::now() >= deadline {
            return Err(Problem::new(Code::Late, TIME_UP).retryable().at(verb.step()));
        }
        let deadline = deadline.min(Instant::now() + limits::REQUEST_TIMEOUT);
        let subject = verb.subject(&volume.namespace);
        let asked = self.bus.request(&subject, body, &Call::until(trace, deadline)).await;
        asked.map_err(|error: RequestError| error.into_problem(&verb.step()))
    }
}

/// Keeps as many as one sweep takes, and answers how many are left for the next. Where they begin
/// is left to chance, so that things that fail each time are in nobody's way for ever.
fn limit<T>(found: &mut Vec<T>, chance: usize) -> usize {
    let rest = found.len().saturating_sub(ITEMS_MAX);
    if rest > 0 {
        let begin = chance % found.len();
        found.rotate_left(begin);
        found.truncate(ITEMS_MAX);
    }
    rest
}

fn log(sweep: &Sweep, trace: &str) {
    for line in &sweep.collected {
        tracing::info!(trace, "collected: {line}");
    }
    for line in &sweep.kept {
        // The same each time, and shown by `gc.force` and in the claims' own status.
        tracing::debug!(trace, "kept: {line}");
    }
    let (collected, kept) = (sweep.collected.len(), sweep.kept.len());
    if collected + kept > 0 {
        tracing::info!(trace, collected, kept, "swept");
    }
}

/// The first lines, each of a bounded length, and how many more there are.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(LINES_MAX);
    lines.truncate(LINES_MAX);
    for line in &mut lines {
        if line.len() > LINE_BYTES_MAX {
            let cut = (0..=LINE_BYTES_MAX).rev().find(|at| line.is_char_boundary(*at));
            line.truncate(cut.unwrap_or(0));
        }
    }
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thing_has_its_turn_when_there_are_too_many() {
        let mut few: Vec<usize> = (0..ITEMS_MAX).collect();
        assert_eq!((limit(&mut few, 7), few[0]), (0, 0));
        let mut many: Vec<usize> = (0..3 * ITEMS_MAX).collect();
        assert_eq!(limit(&mut many, 5 * ITEMS_MAX + 7), 2 * ITEMS_MAX);
        assert_eq!((many.len(), many[0]), (ITEMS_MAX, 2 * ITEMS_MAX + 7));
        assert_eq!(many[ITEMS_MAX - 1], 6, "after the last comes the first");
    }

    #[test]
    fn an_answer_always_fits_a_message() {
        let lines = vec!["\"é".repeat(5000); 5000];
        let sweep = Sweep { collected: shortened(lines.clone()), kept: shortened(lines) };
        assert_eq!(sweep.kept.len(), LINES_MAX + 1);
        assert_eq!(sweep.kept[LINES_MAX], format!("and {} more", 5000 - LINES_MAX));
        assert!(serde_json::to_vec(&sweep).unwrap().len() < limits::MESSAGE_BYTES_MAX);
        let few = vec!["one".to_owned(), "two".to_owned()];
        assert_eq!(shortened(few.clone()), few);
    }
}
