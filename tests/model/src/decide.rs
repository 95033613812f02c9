//! Decisions made by the real `step`. They are cached and checked, because a search asks for each
//! decision many thousand times, and there are few records.

use std::collections::HashMap;
use std::time::Duration;

use berth_domain::AllocId;
use berth_domain::retry::Schedule;
use berth_domain::volume::{
    CallKind, CallOwner, Claim, Claims, Command, Context, HandleUse, Outcome as Came, Policy,
    State, Step, Volume, Write, invariant, step,
};

use crate::fingerprint::Quick;
use crate::safety::Breach;
use crate::scenario::{Mutation, Scenario, Trouble};
use crate::translate::{NOW, TICK, Translation};
use crate::world::{AttemptId, Claim as WorldClaim, MARGIN, Outcome, Record, Spec, TIMEOUT};

/// The requests to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// `claim.take`, with the plugin's answer on whether its controller attaches; `None` if the
    /// node is full.
    Take { alloc: usize, controller: Option<bool> },
    /// `claim.take` in the mode that the alloc's claims do not have, with what the node's agent
    /// says of its mounts.
    Change { alloc: usize, is_unmounted: bool },
    /// `claim.release`.
    Release { alloc: usize },
    /// `claim.checkpoint` without a report.
    Begin { alloc: usize, wanted: bool, proof: Proof },
    /// The answer of a call.
    Answer { alloc: usize, attempt: AttemptId, outcome: Outcome },
    /// `volume.detach` with an operator's confirmation that the storage has it detached.
    Confirm { alloc: usize },
    /// `volume.register`: the same document again, or one with another name.
    Register,
    /// `volume.deregister`.
    Deregister { force: bool },
}

/// The proof that comes with `claim.checkpoint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Proof {
    /// Nothing.
    None,
    /// A proof for an earlier claim of the alloc.
    Earlier,
    /// A proof for the present claim.
    Good,
}

impl Ask {
    /// The alloc whose claim the request is about; `None` if it is about the volume.
    pub(crate) fn alloc(self) -> Option<usize> {
        match self {
            Self::Take { alloc, .. }
            | Self::Change { alloc, .. }
            | Self::Release { alloc }
            | Self::Begin { alloc, .. }
            | Self::Confirm { alloc }
            | Self::Answer { alloc, .. } => Some(alloc),
            Self::Register | Self::Deregister { .. } => None,
        }
    }
}

/// The decision on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The request is refused, and nothing is written.
    Refused,
    /// The record after the write, the call to make, and whether the other node's controller is
    /// asked before that. The epoch of a new claim is 0.
    Decided { record: Record, call: Option<CallKind>, asks: bool },
}

/// Calls `step`, and caches its decisions.
pub(crate) struct Decider {
    scenario: Scenario,
    translation: Translation,
    policy: Policy,
    said: HashMap<(Record, Ask), Result<Decision, Breach>, Quick>,
}

impl Decider {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let margin = if scenario.is(Mutation::NoMargin) { 0 } else { MARGIN };
        Self {
            translation: Translation::new(&scenario),
            scenario,
            policy: Policy {
                call_timeout: TICK * u32::from(TIMEOUT.unsigned_abs()),
                clock_margin: TICK * u32::from(margin.unsigned_abs()),
                // A caller that waits longer behaves like a slow one.
                abandoned_after: Duration::ZERO,
                place_kept: TICK,
                retry: Schedule { first: Duration::ZERO, max: Duration::ZERO },
            },
            said: HashMap::default(),
        }
    }

    /// The decision of `step`, or the invariant that it breaks.
    pub(crate) fn decide(&mut self, record: Record, ask: Ask) -> Result<Decision, Breach> {
        if let Some(said) = self.said.get(&(record, ask)) {
            return said.clone();
        }
        let said = self.decide_anew(record, ask);
        self.said.insert((record, ask), said.clone());
        said
    }

    fn decide_anew(&self, record: Record, ask: Ask) -> Result<Decision, Breach> {
        let mut volume = self.translation.volume(record);
        if let Some(alloc) = ask.alloc() {
            self.mistake(&mut volume, self.translation.alloc(alloc), ask);
        } else if self.scenario.is(Mutation::DeregisterClaimed) {
            volume.claims = Claims::default();
        }
        let context = Context {
            now: NOW,
            attempt: self.translation.attempt(AttemptId::New).clone(),
            jitter: 0,
            policy: self.policy,
            handle: HandleUse::default(),
            copies: Vec::new(),
            mounts: Vec::new(),
        };
        let command = self.translation.command(record, self.misread(ask));
        let tries_again = ask.alloc().and_then(|alloc| record.claims[alloc]).is_some_and(leaves)
            && matches!(ask, Ask::Begin { .. });
        if tries_again && self.scenario.is(Mutation::NoSecondTry) {
            return Ok(Decision::Refused);
        }
        let Ok(mut step) = step(&volume, &command, &context) else { return Ok(Decision::Refused) };
        self.miswrite(&mut step, ask);
        if is_silent(&volume, &command, &step) {
            return Err(Breach::new("a failure that its claim does not tell of"));
        }
        let decision = match ask.alloc() {
            Some(alloc) => self.apply(record, alloc, step)?,
            None => self.apply_spec(record, step)?,
        };
        match ask.alloc() {
            Some(alloc) if self.scenario.is(Mutation::RelyOnLeaving) => {
                Ok(self.relying_on_leaving(decision, alloc))
            }
            _ => Ok(decision),
        }
    }

    /// The mutations of rules 12 and 25 and of full nodes: `step` is asked another question.
    fn misread(&self, ask: Ask) -> Ask {
        match (self.scenario.mutation, ask) {
            (Some(Mutation::EarlierProof), Ask::Begin { alloc, wanted, proof: Proof::Earlier }) => {
                Ask::Begin { alloc, wanted, proof: Proof::Good }
            }
            (Some(Mutation::FullNodes), Ask::Take { alloc, controller: None }) => {
                Ask::Take { alloc, controller: Some(true) }
            }
            (Some(Mutation::ChangeMounted), Ask::Change { alloc, .. }) => {
                Ask::Change { alloc, is_unmounted: true }
            }
            _ => ask,
        }
    }

    /// The mutations of rules 2 and 5: only a part of the decision is written.
    fn miswrite(&self, step: &mut Step, ask: Ask) {
        let Some(Write::PutClaim(_, claim)) = &mut step.write else { return };
        match (self.scenario.mutation, ask) {
            (Some(Mutation::UnwrittenCall), _) if step.call.is_some() => {
                claim.progress.attempt = None;
            }
            (Some(Mutation::SilentFailures), Ask::Answer { .. }) => claim.progress.failure = None,
            _ => {}
        }
    }

    /// The mutations of rules 3, 5, 9, 15 and 16: `step` is given a changed record.
    fn mistake(&self, volume: &mut Volume, own: &AllocId, ask: Ask) {
        let confirms = matches!(ask, Ask::Confirm { .. });
        let takes = matches!(ask, Ask::Take { .. });
        let answers_late = matches!(ask, Ask::Answer { attempt: AttemptId::Old, .. });
        let node = ask.alloc().map(|own| self.translation.node(own).clone());
        let taken_for = |alloc: &AllocId, claim: &Claim| {
            let mut claim = claim.clone();
            let is_blind = (takes && self.scenario.has(Trouble::OlderService))
                || (!takes && self.scenario.is(Mutation::ByNodeName));
            if is_blind && node.as_ref() != Some(&claim.node) {
                claim.external_node = None;
            }
            match self.scenario.mutation {
                Some(Mutation::LeaveOthers) if is_release(ask) && alloc != own => {
                    (claim.state != State::Taken).then_some(claim)
                }
                Some(Mutation::AnyWord) if confirms && alloc == own => {
                    claim.denied = claim.state == State::NodeDetached;
                    claim.progress.attempt = None;
                    Some(claim)
                }
                Some(Mutation::RelyOnDenied) if !confirms && alloc != own => {
                    Some(Claim { denied: false, ..claim })
                }
                Some(Mutation::ForgetCalls) if alloc != own => {
                    claim.progress.attempt = None;
                    Some(claim)
                }
                Some(Mutation::TakeOldAnswers) if answers_late && alloc == own => {
                    if let Some(attempt) = &mut claim.progress.attempt {
                        attempt.id = self.translation.attempt(AttemptId::Old).clone();
                    }
                    Some(claim)
                }
                _ => Some(claim),
            }
        };
        let claims = volume.claims.iter();
        let claims =
            claims.filter_map(|(alloc, claim)| Some((alloc.clone(), taken_for(alloc, claim)?)));
        volume.claims = claims.collect();
    }

    /// The record after the step.
    fn apply(&self, before: Record, alloc: usize, step: Step) -> Result<Decision, Breach> {
        let mut record = before;
        let own = self.translation.alloc(alloc);
        match step.write {
            None => {}
            Some(Write::DeleteClaim(freed)) if freed == *own => record.claims[alloc] = None,
            Some(Write::PutClaim(put, claim)) if put == *own => {
                record.claims[alloc] = Some(self.translation.read(before, alloc, &claim)?);
            }
            Some(other) => return Err(Breach::new(format!("wrote what was not asked: {other:?}"))),
        }
        let call = step.call.map(|attempt| attempt.call);
        let named = record.claims[alloc].and_then(|claim| claim.attempt);
        let named = named.filter(|named| named.id == AttemptId::New).map(|named| named.kind);
        if call != named {
            let what = "the call to make is not the attempt that was written (rule 2)";
            return Err(Breach::new(what));
        }
        let volume = self.translation.volume(record);
        let ids_broken = || {
            let admits_any = self.scenario.has(Trouble::OlderService);
            if admits_any { None } else { invariant::ids_broken(&volume) }
        };
        if let Some(broken) = invariant::broken(&volume).or_else(ids_broken) {
            return Err(Breach::new(format!("invariant: {broken}")));
        }
        let asks = call.is_some_and(CallKind::is_controller) && self.asks(record, alloc);
        Ok(Decision::Decided { record, call, asks })
    }

    /// Whether a controller on another node may still work on an earlier call, by the record.
    fn asks(&self, record: Record, alloc: usize) -> bool {
        if !self.scenario.has(Trouble::OwnControllers) || self.scenario.is(Mutation::NoAsking) {
            return false;
        }
        let mut volume = self.translation.volume(record);
        if self.scenario.is(Mutation::AskTheUnheard) {
            let untried = volume.claims.iter().map(|(alloc, claim)| {
                let mut claim = claim.clone();
                claim.progress.tries = 0;
                (alloc.clone(), claim)
            });
            volume.claims = untried.collect();
        }
        let own = self.translation.node(alloc);
        let calling = CallOwner::Claim(self.translation.alloc(alloc).clone());
        volume.unsettled(&calling).any(|node| node != own)
    }

    /// The record after a step of the spec, which changes no claim.
    fn apply_spec(&self, before: Record, step: Step) -> Result<Decision, Breach> {
        let spec = match step.write {
            None => before.spec,
            Some(Write::DeleteSpec) => Spec::Gone,
            Some(Write::PutSpec(spec)) if spec.closing.is_some() => Spec::Closing,
            Some(Write::PutSpec(_)) => Spec::Open,
            Some(other) => return Err(Breach::new(format!("wrote what was not asked: {other:?}"))),
        };
        let record = Record { spec, ..before };
        if let Some(broken) = invariant::broken(&self.translation.volume(record)) {
            return Err(Breach::new(format!("invariant: {broken}")));
        }
        let call = step.call.map(|attempt| attempt.call);
        Ok(Decision::Decided { record, call, asks: false })
    }

    /// The mutation of rule 9: the claim is freed because another claim on the node is leaving too.
    fn relying_on_leaving(&self, decision: Decision, alloc: usize) -> Decision {
        let Decision::Decided { mut record, call: Some(CallKind::ControllerUnpublish), .. } =
            decision
        else {
            return decision;
        };
        let allocs = self.scenario.allocs;
        let is_leaving =
            record.claims.iter().zip(allocs).enumerate().any(|(other, (claim, at))| {
                other != alloc
                    && at.node == allocs[alloc].node
                    && claim.is_some_and(|claim| claim.state == State::NodeDetached)
            });
        if !is_leaving {
            return decision;
        }
        record.claims[alloc] = None;
        Decision::Decided { record, call: None, asks: false }
    }
}

/// Whether a call that failed and is to be repeated leaves no error on the claim.
fn is_silent(volume: &Volume, command: &Command, step: &Step) -> bool {
    let Command::Answer { owner: CallOwner::Claim(alloc), outcome, .. } = command else {
        return false;
    };
    let (Some(before), Some(Write::PutClaim(_, after))) = (volume.claims.get(alloc), &step.write)
    else {
        return false;
    };
    let is_done = matches!(outcome, Came::Done { .. });
    // The publish of a released claim is not repeated.
    let call = before.progress.attempt.as_ref().map(|attempt| attempt.call);
    let is_undone =
        before.state == State::NodeDetached && call == Some(CallKind::ControllerPublish);
    let is_told = after.progress.tries > before.progress.tries
        && after.progress.failure.is_some()
        && after.progress.next_try.is_some();
    before.state == after.state && !is_done && !is_undone && !is_told
}

/// Whether the claim is being released.
fn leaves(claim: WorldClaim) -> bool {
    matches!(claim.state, State::Unpublishing | State::NodeDetached)
}

/// Whether the request releases a claim.
fn is_release(ask: Ask) -> bool {
    matches!(ask, Ask::Begin { .. } | Ask::Answer { .. })
}
