//! Findings whose proof is not complete yet.
//!
//! Owns: findings from the beginning of a call until the calls that they name have ended. Promises:
//! an overlap is reported only if both calls were certainly in flight at once. Never: judges order.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::finding::{Finding, FindingKind, LogLine, ObjectKind};
use super::rule::Rule;
use super::volume_use::{CallId, CallLines};

#[derive(Debug)]
pub(super) struct PendingFinding {
    pub rule: Rule,
    pub object: ObjectKind,
    pub about: String,
    pub what: String,
    pub by: CallId,
    pub lines: CallLines,
    /// The calls that make it wrong.
    pub others: Vec<CallLines>,
    /// Set for a rule about overlaps.
    pub overlap: Option<OverlapProof>,
    /// Whether the driver refused one of the calls by this rule.
    pub is_noticed: bool,
    /// Whether the driver allowed what its own rules forbid.
    pub is_missed: bool,
}

/// What proves that two calls overlapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverlapProof {
    /// The call that must have been in flight.
    pub during: CallId,
    /// Whether it certainly was.
    pub is_certain: bool,
    /// Whether the driver also checks that call.
    pub is_watched: bool,
}

impl PendingFinding {
    /// The call that must have been in flight, for a rule about overlaps.
    pub fn during(&self) -> Option<CallId> {
        self.overlap.map(|overlap| overlap.during)
    }

    /// Whether the calls certainly overlapped, if the rule is about overlaps.
    pub fn is_certain(&self) -> bool {
        self.overlap.is_none_or(|overlap| overlap.is_certain)
    }

    /// The finding, and the disagreement with the driver if there is one.
    pub fn into_findings(self) -> impl Iterator<Item = Finding> {
        let finding = Finding {
            kind: FindingKind::Violation,
            rule: self.rule.into(),
            object: self.object,
            about: self.about,
            what: self.what,
            noticed: self.is_noticed,
            proof: proof(&self.lines, &self.others),
        };
        let is_disagreement = self.is_missed && !self.is_noticed;
        let missed = Finding { kind: FindingKind::OnlyTheJudge, ..finding.clone() };
        [finding].into_iter().chain(is_disagreement.then_some(missed))
    }

    /// Whether the rule is about overlapping calls.
    pub fn is_overlap(&self) -> bool {
        matches!(self.rule, Rule::OverlappingControllerCalls | Rule::OverlappingNodeCalls)
    }
}

/// The lines of a call, then those of the others, each once.
pub(super) fn proof(lines: &CallLines, others: &[CallLines]) -> Vec<LogLine> {
    let mut line_keys = BTreeSet::new();
    let calls = [lines].into_iter().chain(others);
    let calls = calls.flat_map(|lines| lines.borrow().clone());
    calls.filter(|line| line_keys.insert((Rc::clone(&line.file), line.number))).collect()
}
