//! Counts and indexes over all claims of a volume, so that a decision need not visit each claim.
//!
//! **Promises** the same result as a fresh count: [`Summary::count_claim`] both adds a claim and
//! removes it.
//!
//! **Never** decides: [`admit`] says whether claims conflict. It is asked once for each group of
//! claims that are alike to it.

use std::collections::{BTreeMap, BTreeSet};

use super::change::Change;
use super::external_nodes::ExternalNodes;
use crate::access::{Capability, Mode, admit};
use crate::volume::call::Attempt;
use crate::volume::record::claim::{Claim, State};
use crate::{AllocId, NodeId, Timestamp};

/// The counts of all claims of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub counts: Counts,
    /// Capabilities of the claims that hold the volume, and of the waiting claims.
    pub held_as: BTreeMap<Capability, u32>,
    wanted_as: BTreeMap<Capability, u32>,
    /// Each node with a claim. Boxed for the same reason as claims.
    pub nodes: BTreeMap<NodeId, Box<OnNode>>,
    /// Claims that hold the volume, by the plugin's id of their node.
    pub external: ExternalNodes,
    /// Waiting claims, by epoch: the order of the line.
    pub line: BTreeSet<(u64, AllocId)>,
    /// Claims that are neither waiting nor taken, by epoch: a newcomer is never before the others.
    pub moving: BTreeSet<(u64, AllocId)>,
    /// Claims that the plugin had no room for.
    pub exhausted: BTreeSet<AllocId>,
    /// Claims of a mount whose plugin calls the volume abnormal.
    pub unwell: BTreeSet<AllocId>,
    /// Claims with an attempt, by its deadline.
    pub calls: BTreeSet<(Timestamp, AllocId)>,
    /// Those of them whose attempt is a controller call.
    pub controller_calls: BTreeSet<(Timestamp, AllocId)>,
}

/// The counts of the claims of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::volume) struct OnNode {
    counts: Counts,
    /// Claims that hold the volume by an attachment of the controller.
    pub attached: u32,
    /// Claims that are sure to unpublish at the controller later (rule 9), and whose record has no
    /// plugin's id of the node.
    pub will_unpublish: u32,
    /// Taken claims.
    pub taken: BTreeSet<AllocId>,
    /// Claims with a node call as attempt, by its deadline.
    pub calls: BTreeSet<(Timestamp, AllocId)>,
}

impl Summary {
    /// Adds or removes a claim.
    pub fn count_claim(&mut self, alloc: &AllocId, claim: &Claim, change: Change) {
        let Claim { state, node, exhausted, .. } = claim;
        self.counts.count_claim(claim, change);
        let used_as =
            if *state == State::Waiting { &mut self.wanted_as } else { &mut self.held_as };
        change.entry(used_as, &claim.capability());
        let by_epoch = || (claim.epoch, alloc.clone());
        change.member_if(*state == State::Waiting, &mut self.line, by_epoch);
        let moving = !matches!(state, State::Waiting | State::Taken);
        change.member_if(moving, &mut self.moving, by_epoch);
        change.member_if(*exhausted, &mut self.exhausted, || alloc.clone());
        change.member_if(claim.condition().is_some(), &mut self.unwell, || alloc.clone());
        let (at_node, at_controller) = match &claim.progress.attempt {
            Some(attempt) => (!attempt.call.is_controller(), attempt.call.is_controller()),
            None => (false, false),
        };
        let deadline = claim.progress.attempt.as_ref().map(Attempt::ends).unwrap_or_default();
        let call = || (deadline, alloc.clone());
        change.member_if(at_node || at_controller, &mut self.calls, call);
        change.member_if(at_controller, &mut self.controller_calls, call);

        self.external.count_claim(claim, change);
        let on = self.nodes.entry(node.clone()).or_default();
        on.counts.count_claim(claim, change);
        change.count_if(claim.controller && *state != State::Waiting, &mut on.attached);
        let unnamed = claim.external_node.is_none();
        change.count_if(unnamed && claim.will_unpublish(), &mut on.will_unpublish);
        change.member_if(*state == State::Taken, &mut on.taken, || alloc.clone());
        change.member_if(at_node, &mut on.calls, call);
        if **on == OnNode::default() {
            self.nodes.remove(node);
        }
    }

    /// Whether the newcomer conflicts with no claim that holds the volume.
    pub fn holders_admit(&self, newcomer: &Newcomer<'_>) -> bool {
        let here = self.nodes.get(newcomer.node).map(|on| on.counts).unwrap_or_default();
        let alike = self.held_as.keys().all(|used| *used == newcomer.capability);
        alike && newcomer.joins_all(here.holding(), self.counts.holding())
    }

    /// Whether the newcomer conflicts with no waiting claim, wherever in line. `own` is its own
    /// waiting claim, which does not count.
    pub fn line_admits(&self, newcomer: &Newcomer<'_>, own: Option<&Claim>) -> bool {
        let here = self.nodes.get(newcomer.node).map(|on| on.counts).unwrap_or_default();
        let (mut here, mut all) = (here.waiting(), self.counts.waiting());
        let mut alike = self.wanted_as.get(&newcomer.capability).copied().unwrap_or(0);
        let mut line = all.sum();
        if let Some(own) = own {
            here = here.without(own.mode);
            all = all.without(own.mode);
            alike -= u32::from(own.capability() == newcomer.capability);
            line -= 1;
        }
        alike == line && newcomer.joins_all(here, all)
    }
}

impl OnNode {
    /// Whether a claim of this node holds the volume, or may.
    pub fn is_held(&self) -> bool {
        self.held() > 0
    }

    /// How many claims of this node hold the volume, or may.
    pub fn held(&self) -> u32 {
        self.counts.holding().sum()
    }

    /// How many claims of this node may use the attachment ([`Claim::is_in_use`]).
    pub fn in_use(&self) -> u32 {
        let detached = |mode| self.counts.number(State::NodeDetached, mode);
        self.held() - detached(Mode::Read) - detached(Mode::Write)
    }
}

/// Claims counted by state and mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts([[u32; 2]; 5]);

impl Counts {
    fn count_claim(&mut self, claim: &Claim, change: Change) {
        change.count(&mut self.0[claim.state as usize][claim.mode as usize]);
    }

    pub fn number(self, state: State, mode: Mode) -> u32 {
        self.0[state as usize][mode as usize]
    }

    fn waiting(self) -> Modes {
        let of = |mode| self.number(State::Waiting, mode);
        Modes { read: of(Mode::Read), write: of(Mode::Write) }
    }

    fn holding(self) -> Modes {
        let all = |mode: Mode| self.0.iter().map(|state| state[mode as usize]).sum::<u32>();
        let waiting = self.waiting();
        Modes { read: all(Mode::Read) - waiting.read, write: all(Mode::Write) - waiting.write }
    }
}

/// Claims counted by mode.
#[derive(Debug, Clone, Copy)]
struct Modes {
    read: u32,
    write: u32,
}

impl Modes {
    fn sum(self) -> u32 {
        self.read + self.write
    }

    fn without(mut self, one: Mode) -> Self {
        match one {
            Mode::Read => self.read -= 1,
            Mode::Write => self.write -= 1,
        }
        self
    }
}

/// A requested claim.
#[derive(Debug, Clone, Copy)]
pub(in crate::volume) struct Newcomer<'a> {
    pub node: &'a NodeId,
    pub mode: Mode,
    pub capability: Capability,
}

/// Whether another claim is on the newcomer's node.
#[derive(PartialEq)]
enum NodeRelation {
    Here,
    Elsewhere,
}

impl Newcomer<'_> {
    /// Whether the newcomer does not conflict with this claim.
    pub fn joins(&self, other: &Claim) -> bool {
        let others = [(&other.node, other.mode)];
        other.capability() == self.capability
            && admit(self.capability.access, self.mode, &self.node, others).is_ok()
    }

    /// Whether the newcomer conflicts with none of many claims of its own capability. Claims of one
    /// mode are alike to it if all are on its node, or all elsewhere. So [`admit`] sees at most
    /// four claims instead of all.
    fn joins_all(&self, here: Modes, all: Modes) -> bool {
        let others = [
            (here.read, NodeRelation::Here, Mode::Read),
            (here.write, NodeRelation::Here, Mode::Write),
            (all.read - here.read, NodeRelation::Elsewhere, Mode::Read),
            (all.write - here.write, NodeRelation::Elsewhere, Mode::Write),
        ];
        let others = others.into_iter().filter(|(count, ..)| *count > 0);
        let others = others.map(|(_, place, mode)| (place, mode));
        admit(self.capability.access, self.mode, &NodeRelation::Here, others).is_ok()
    }
}
