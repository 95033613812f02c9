//! A sweep: finds candidates, collects each, and reports the outcomes.

use berth_contract::code::Code;
use berth_contract::message::collect::Sweep;
use berth_contract::problem::Problem;
use berth_domain::limits;
use berth_service::clock;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout_at;

use crate::collect::{CollectCandidate, CollectOutcome};
use crate::collector::{Collector, Cursors, Order};
use crate::find::ITEMS_MAX;
use crate::plan::Plan;

/// Candidates that are collected at the same time.
const COLLECTED_AT_ONCE: usize = 8;
/// Most lines in each half of the answer. It fits into a message even if every byte is escaped.
const LINES_MAX: usize = 100;
const LINE_BYTES_MAX: usize = 2048;

const _: () = assert!(2 * 2 * (LINES_MAX + 1) * LINE_BYTES_MAX < limits::MESSAGE_BYTES_MAX);

/// The name in errors.
pub const STEP: &str = "gc.sweep";

/// The result of a sweep.
#[derive(Debug)]
pub struct Swept {
    /// What was collected and kept, in a bounded number of lines.
    pub sweep: Sweep,
    /// Whether there are more candidates than one sweep takes.
    pub more: bool,
}

impl Collector {
    /// Carries the order out.
    pub(crate) async fn sweep(&self, order: &Order) -> Result<Swept, Problem> {
        let Ok(mut cursors) = timeout_at(order.deadline, self.turn.lock()).await else {
            let message = "another sweep is under way and did not end in time";
            return Err(Problem::new(Code::Overloaded, message).retryable().at_step(STEP));
        };
        let plan = self.plan(order, &mut cursors).await?;
        let mut sweep = Sweep { collected: Vec::new(), kept: plan.kept };
        let chance = clock::jitter() as usize;
        let sorts = [
            plan.unwanted.into_iter().map(CollectCandidate::Claim).collect::<Vec<_>>(),
            plan.closing.into_iter().map(CollectCandidate::Volume).collect(),
            plan.ended.into_iter().map(CollectCandidate::Alloc).collect(),
            plan.idle
                .into_iter()
                .map(|(node, since)| CollectCandidate::Node(node, since))
                .collect(),
            plan.strays.into_iter().map(CollectCandidate::Stray).collect(),
        ];
        let mut more = plan.more;
        for mut candidates in sorts {
            more |= limit(&mut candidates, chance);
            let lines = candidates.into_iter().map(|candidate| self.collect(candidate, order));
            let mut lines = stream::iter(lines).buffered(COLLECTED_AT_ONCE);
            while let Some(line) = lines.next().await {
                match line {
                    CollectOutcome::Collected(line) => sweep.collected.push(line),
                    CollectOutcome::Kept(line) => sweep.kept.push(line),
                    CollectOutcome::Nothing => {}
                }
            }
        }
        if more {
            sweep.kept.push("more things, for the next sweep".to_owned());
        }
        log(&sweep, &order.trace.trace_id());
        let Sweep { collected, kept } = sweep;
        let sweep = Sweep { collected: shortened(collected), kept: shortened(kept) };
        Ok(Swept { sweep, more })
    }

    /// Finds the candidates of all kinds. A kind that cannot be looked at stops no other. Fails if
    /// none can, and nothing was found before the errors.
    async fn plan(&self, order: &Order, cursors: &mut Cursors) -> Result<Plan, Problem> {
        let (mut plan, mut problems) = (Plan::default(), Vec::new());
        for kind in &order.kinds {
            if let Err(problem) = self.find(*kind, order, cursors, &mut plan).await {
                let (kind, trace) = (kind.0.as_str(), order.trace.trace_id());
                tracing::warn!(trace, kind, %problem, "what could be collected was not found");
                plan.kept.push(format!("{kind}: not looked at now: {problem}"));
                problems.push(problem);
            }
        }
        // The next sweep goes on behind what was found.
        let is_blind = problems.len() == order.kinds.len() && plan.is_idle();
        match problems.into_iter().next() {
            Some(problem) if is_blind => Err(problem.at_step(STEP)),
            _ => Ok(plan),
        }
    }
}

/// Keeps as many candidates as one sweep takes, from a random one on, and returns whether some are
/// left for the next sweep. So candidates that fail each time do not keep the others out.
fn limit<T>(candidates: &mut Vec<T>, chance: usize) -> bool {
    let has_more = candidates.len() > ITEMS_MAX;
    if has_more {
        let begin = chance % candidates.len();
        candidates.rotate_left(begin);
        candidates.truncate(ITEMS_MAX);
    }
    has_more
}

fn log(sweep: &Sweep, trace: &str) {
    for line in &sweep.collected {
        tracing::info!(trace, "collected: {line}");
    }
    for line in &sweep.kept {
        // Logged at debug level: the lines repeat each time, and `berth gc` and the claims' own
        // status show them.
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
        let mut few_candidates: Vec<usize> = (0..ITEMS_MAX).collect();
        assert_eq!((limit(&mut few_candidates, 7), few_candidates[0]), (false, 0));
        let mut many_candidates: Vec<usize> = (0..3 * ITEMS_MAX).collect();
        assert!(limit(&mut many_candidates, 5 * ITEMS_MAX + 7));
        assert_eq!((many_candidates.len(), many_candidates[0]), (ITEMS_MAX, 2 * ITEMS_MAX + 7));
        assert_eq!(many_candidates[ITEMS_MAX - 1], 6, "after the last comes the first");
    }

    #[test]
    fn an_answer_always_fits_a_message() {
        let lines = vec!["\"é".repeat(5000); 5000];
        let sweep = Sweep { collected: shortened(lines.clone()), kept: shortened(lines) };
        assert_eq!(sweep.kept.len(), LINES_MAX + 1);
        assert_eq!(sweep.kept[LINES_MAX], format!("and {} more", 5000 - LINES_MAX));
        assert!(serde_json::to_vec(&sweep).unwrap().len() < limits::MESSAGE_BYTES_MAX);
        let few_lines = vec!["one".to_owned(), "two".to_owned()];
        assert_eq!(shortened(few_lines.clone()), few_lines);
    }
}
