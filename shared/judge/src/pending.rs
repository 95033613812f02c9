//! Findings that wait for their proof to be whole.
//!
//! Owns: what was found wrong at the beginning of a call, until the calls it is about have ended.
//! Promises: a finding that another call must have been in flight for is told only once that is
//! certain. Never: judges order.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::finding::{Finding, FindingKind, LogLine};
use super::rule::Rule;
use super::volume_use::{CallId, CallLines};

/// A finding to be.
#[derive(Debug)]
pub(super) struct PendingFinding {
    pub rule: Rule,
    pub about: String,
    pub what: String,
    /// The call that broke the rule.
    pub by: CallId,
    pub lines: CallLines,
    /// The calls that made it wrong.
    pub others: Vec<CallLines>,
    /// The call that has to have been in flight, where the rule is about that.
    pub during: Option<CallId>,
    /// Whether it certainly was.
    pub is_certain: bool,
    /// Whether the driver refused the one or the other.
    pub is_noticed: bool,
    /// Whether the driver did what its own rules forbid.
    pub is_missed: bool,
}

impl PendingFinding {
    /// The finding, and the disagreement that comes with it.
    pub fn into_findings(self) -> impl Iterator<Item = Finding> {
        let finding = Finding {
            kind: FindingKind::Violation,
            rule: self.rule.into(),
            about: self.about,
            what: self.what,
            noticed: self.is_noticed,
            proof: proof(&self.lines, &self.others),
        };
        let is_disagreement = self.is_missed && !self.is_noticed;
        let missed = Finding { kind: FindingKind::OnlyTheJudge, ..finding.clone() };
        [finding].into_iter().chain(is_disagreement.then_some(missed))
    }

    /// Whether it is about two calls at once, rather than about their order.
    pub fn is_overlap(&self) -> bool {
        matches!(self.rule, Rule::OverlappingControllerCalls | Rule::OverlappingNodeCalls)
    }
}

/// The lines of a call, then those of the others, each once.
pub(super) fn proof(lines: &CallLines, others: &[CallLines]) -> Vec<LogLine> {
    let mut seen = BTreeSet::new();
    let all = [lines].into_iter().chain(others);
    let all = all.flat_map(|lines| lines.borrow().clone());
    all.filter(|line| seen.insert((Rc::clone(&line.file), line.number))).collect()
}
