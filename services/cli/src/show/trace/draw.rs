//! The tree as text: a line for each step, below its parent step.
//!
//! ```text
//! TIME  HOW LONG  what
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use super::tree::{Claim, Phase, Step, StepOutcome, StorageChange, Tree, between};
use crate::show::refused;
use crate::show::time::{Zone, took};
use crate::table::plain;

/// The most consecutive failed tries of one call that are all printed.
const TRIES_MAX: usize = 8;
/// Of more tries, the number of first and last ones that are printed.
const TRIES_FIRST: usize = 2;
const TRIES_LAST: usize = 3;

/// Options of the drawing.
#[derive(Debug, Clone)]
pub struct Drawing {
    /// The reader's time zone.
    pub zone: Zone,
    /// Whether every try is printed.
    pub all: bool,
}

/// Draws a tree.
pub fn draw(tree: &Tree, drawing: &Drawing) -> String {
    let mut text = String::new();
    for (at, claim) in tree.claims.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        drawing.claim(&mut text, claim, tree);
    }
    for change in &tree.changes {
        if !text.is_empty() {
            text.push('\n');
        }
        drawing.change(&mut text, change, tree);
    }
    let gap = |text: &str| if text.is_empty() { "" } else { "\n" };
    if tree.left_out > 0 {
        let (count, are) = (tree.left_out, if tree.left_out == 1 { " is" } else { "s are" });
        let gap = gap(&text);
        let _ = writeln!(text, "{gap}{count} earlier claim{are} not shown: add --all");
    }
    if !tree.refusals.is_empty() {
        let gap = gap(&text);
        let _ = writeln!(text, "{gap}refused requests");
    }
    for refusal in &tree.refusals {
        let (at, what) = (drawing.zone.date_and_time(refusal.at), refused(refusal));
        let trace = refusal.trace.as_deref().map(|trace| format!("  trace {trace}"));
        let trace = trace.unwrap_or_default();
        let _ = writeln!(text, "{at}  {}{}", plain(&untagged(&what)), plain(&trace));
    }
    text
}

impl Drawing {
    fn claim(&self, text: &mut String, claim: &Claim, tree: &Tree) {
        let Claim { namespace, volume, alloc, .. } = claim;
        let node = claim.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "claim  {}: {}",
            plain(&format!("{namespace}/{volume} by {alloc}{node}")),
            stands(&claim.claim, "granted", "given up")
        );
        self.phase(text, &claim.claim, "", tree);
        if let Some(release) = &claim.release {
            let _ = writeln!(text, "release: {}", stands(release, "freed", "given up"));
            self.phase(text, release, ", of the claim above", tree);
        }
    }

    fn change(&self, text: &mut String, change: &StorageChange, tree: &Tree) {
        let StorageChange { namespace, volume, snapshot, what, phase, .. } = change;
        let snapshot_part =
            snapshot.as_ref().map(|snapshot| format!("@{snapshot}")).unwrap_or_default();
        let kind = if snapshot.is_some() { "snapshot" } else { "volume" };
        let name = plain(&format!("{namespace}/{volume}{snapshot_part}: {what}"));
        let _ = writeln!(text, "{kind}  {name}: {}", stands(phase, "done", "failed"));
        self.phase(text, phase, "", tree);
    }

    fn phase(&self, text: &mut String, phase: &Phase, of: &str, tree: &Tree) {
        let times = || phase.steps.iter().flat_map(|step| [step.at, step.end()]);
        let (first, last) = (times().min(), times().max());
        let dated = first
            .zip(last)
            .is_some_and(|(first, last)| self.zone.date(first) != self.zone.date(last));
        let trace = phase.trace.as_deref().unwrap_or("is not known");
        let day = first.filter(|_| !dated).map(|first| format!(", {}", self.zone.date(first)));
        let day = day.unwrap_or_default();
        let _ = writeln!(text, "  trace {}{of}{day}", plain(trace));
        if phase.begins_before {
            let why = match tree.begins {
                Some(begins) => {
                    format!("the events before {} are gone", self.zone.date_and_time(begins))
                }
                None => "events of its beginning are missing".to_owned(),
            };
            let _ = writeln!(text, "  {why}");
        }
        self.steps(text, &phase.steps, 0, dated);
    }

    fn steps(&self, text: &mut String, steps: &[Step], depth: usize, dated: bool) {
        let is_failure = |step: &Step| {
            step.attempt.is_some()
                && matches!(step.how, StepOutcome::Failed | StepOutcome::Abandoned)
        };
        // The first try after a takeover begins a new row, so that it is always shown.
        let same = |step: &Step, next: &Step| {
            is_failure(step) && is_failure(next) && step.name == next.name && !next.taken_over
        };
        for row in steps.chunk_by(same) {
            let is_long = row.len() > TRIES_MAX && !self.all;
            let left_out = TRIES_FIRST..row.len().saturating_sub(TRIES_LAST);
            for (at, step) in row.iter().enumerate() {
                if !is_long || !left_out.contains(&at) {
                    self.line(text, step, depth, dated, &step_text(step, self));
                    self.steps(text, &step.steps, depth + 1, dated);
                } else if at == TRIES_FIRST {
                    let span = between(step.at, row[left_out.end - 1].end());
                    let summary = Step { took_us: Some(span), ..step.clone() };
                    let more = left_out.len();
                    let note = format!("… {more} more tries failed: --all shows them");
                    self.line(text, &summary, depth, dated, &note);
                }
            }
        }
    }

    fn line(&self, text: &mut String, step: &Step, depth: usize, dated: bool, text_of_step: &str) {
        let time = if dated { self.zone.date_and_time(step.at) } else { self.zone.time(step.at) };
        let long = step.took_us.map(|us| took(Duration::from_micros(us))).unwrap_or_default();
        let _ =
            writeln!(text, "{time}  {long:>7}  {:indent$}{text_of_step}", "", indent = 2 * depth);
    }
}

/// `granted after 24 ms`
fn stands(phase: &Phase, done: &str, failed: &str) -> String {
    let took = phase.took_us.map(|us| took(Duration::from_micros(us)));
    let after = took.as_ref().map(|took| format!(" after {took}")).unwrap_or_default();
    match phase.how {
        StepOutcome::Done => format!("{done}{after}"),
        StepOutcome::Failed => format!("{failed}{after}"),
        StepOutcome::UnderWay => format!("under way for {}", took.unwrap_or_default()),
        _ => "what came of it was not told".to_owned(),
    }
}

/// A step as text.
fn step_text(step: &Step, drawing: &Drawing) -> String {
    if step.how == StepOutcome::Quiet {
        let reason = step.detail.as_deref().map_or_else(|| "nothing was told".to_owned(), plain);
        let next = step.until.map(|at| format!(" (in {})", took(at.since(step.end()))));
        return reason + &next.unwrap_or_default();
    }
    let failed = matches!(step.how, StepOutcome::Failed | StepOutcome::Abandoned);
    let mut words = if failed { "✗ ".to_owned() } else { String::new() } + &plain(&step.name);
    if let Some(attempt) = &step.attempt {
        let _ = write!(words, "  attempt {}", plain(short(attempt.as_str())));
    }
    if let Some(node) = &step.node {
        let _ = write!(words, " on {}", plain(node.as_str()));
    }
    if let Some(worker) = &step.worker {
        let takeover = if step.taken_over { ", who took over" } else { "" };
        let _ = write!(words, " by {}{takeover}", plain(worker));
    }
    if let Some(code) = &step.code {
        let _ = write!(words, "  {}", plain(code));
    }
    // The detail is shown without the step's name, which is printed already.
    let strip_name =
        |text| str::strip_prefix(text, &step.name).and_then(|rest| rest.strip_prefix(": "));
    let detail =
        step.detail.as_deref().map(|text| plain(&untagged(strip_name(text).unwrap_or(text))));
    let why = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
    let _ = match step.how {
        StepOutcome::Failed if step.code.is_none() => write!(words, "  failed{why}"),
        StepOutcome::Abandoned => {
            write!(words, "  nobody said what came of it; another attempt took its place")
        }
        StepOutcome::NotTold => write!(words, "  what came of it was not told"),
        StepOutcome::UnderWay => {
            let until = step.until.map(|at| format!(", until {}", drawing.zone.time(at)));
            write!(words, "  under way{why}{}", until.unwrap_or_default())
        }
        StepOutcome::Done if step.attempt.is_some() && !why.is_empty() => {
            write!(words, "  done; before that{why}")
        }
        _ => write!(words, "{why}"),
    };
    if let Some(us) = step.again_after_us {
        let _ = write!(words, "; again after {}", took(Duration::from_micros(us)));
    }
    words
}

/// An error without the parts in brackets, because the tree shows their names; `--json` has all
/// parts.
fn untagged(text: &str) -> String {
    let mut bare = text.to_owned();
    for tag in [" [volume ", " [plugin ", " [node "] {
        if let Some((before, rest)) = bare.split_once(tag)
            && let Some((_, after)) = rest.split_once(']')
        {
            bare = format!("{before}{after}");
        }
    }
    bare
}

/// The part of an attempt's id that distinguishes it; `--json` has the whole id.
fn short(attempt: &str) -> &str {
    let random = attempt.rsplit('-').next().unwrap_or(attempt);
    random.char_indices().nth(8).map_or(random, |(at, _)| &random[..at])
}
