//! A run through the calls of all volumes.
//!
//! Owns: asking the rules at the beginning of each call, with what was so or may have been so then.
//! Promises: each broken rule is one finding with its proof. Never: looks ahead.

use std::collections::BTreeMap;

use super::Finding;
use super::calls::{Calls, Moment};
use super::history::{History, Needs};
use crate::log::{Effect, Start};

/// A run through the calls.
#[derive(Debug)]
pub(super) struct Replay<'a> {
    calls: &'a Calls<'a>,
    volumes: BTreeMap<String, History>,
    /// By node id, as its last start said.
    nodes: BTreeMap<String, Needs>,
    findings: Vec<Finding>,
}

impl<'a> Replay<'a> {
    pub fn new(calls: &'a Calls<'a>) -> Self {
        Self { calls, volumes: BTreeMap::new(), nodes: BTreeMap::new(), findings: Vec::new() }
    }

    /// Lets one moment pass.
    pub fn pass(&mut self, moment: Moment<'_>) {
        match moment {
            Moment::Start(start) => self.start(start),
            Moment::Begin(place) => self.begin(place),
            Moment::End(place) => self.end(place),
        }
    }

    /// What was found.
    pub fn findings(self) -> Vec<Finding> {
        self.findings
    }

    fn start(&mut self, start: &Start) {
        let node = &start.source.node_id;
        self.nodes.insert(node.clone(), Needs { attach: start.attach, stage: start.stage });
        for (volume_id, history) in &mut self.volumes {
            let holding = start.holds.iter().find(|holding| holding.volume_id == *volume_id);
            history.settle(node, holding);
        }
    }

    fn begin(&mut self, place: usize) {
        let call = self.calls.get(place);
        let Some(volume_id) = call.volume_id().map(str::to_owned) else { return };
        let needs = self.nodes.get(&call.begin.source.node_id).copied().unwrap_or_default();
        let history = self.volumes.entry(volume_id.clone()).or_default();

        let mut broken = history.overlaps(self.calls, call.begin);
        broken.extend(history.broken_by(self.calls, call.begin, needs));
        if let Some(noticed) = call.noticed()
            && !broken.iter().any(|(violation, _)| violation.is_same_rule(noticed))
        {
            broken.push((noticed.clone(), Vec::new()));
        }
        for (violation, others) in broken {
            let noticed = call.noticed().is_some_and(|noticed| noticed.is_same_rule(&violation));
            let others = others.into_iter().flat_map(|other| self.calls.get(other).lines());
            let proof = call.lines().chain(others).collect();
            self.findings.push(Finding { volume_id: volume_id.clone(), violation, noticed, proof });
        }
        history.may_be_done(call.begin, place);
    }

    fn end(&mut self, place: usize) {
        let call = self.calls.get(place);
        let history = call.volume_id().and_then(|id| self.volumes.get_mut(id));
        let Some(history) = history else { return };
        history.has_ended(place);
        match call.end.map(|end| end.effect) {
            Some(Effect::Done) => history.is_done(call.begin, place),
            Some(Effect::None) => history.is_not_done(place),
            Some(Effect::Unknown) | None => {}
        }
    }
}
