//! What the claim service does with the record: it decides on the newest one, because a write on an
//! older one is refused by the guard and changes nothing.

use crate::decide::{Ask, Decision};
use crate::model::Model;
use crate::safety::Breach;
use crate::scenario::Mutation;
use crate::world::{AttemptId, Call, Grant, Outcome, TIMEOUT, World};
use berth_domain::volume::State;

impl Model {
    pub(crate) fn take(
        &mut self,
        world: &mut World,
        alloc: usize,
        controller: bool,
    ) -> Result<(), Breach> {
        self.ask(world, Ask::Take { alloc, controller })
    }

    pub(crate) fn release(&mut self, world: &mut World, alloc: usize) -> Result<(), Breach> {
        self.ask(world, Ask::Release { alloc })
    }

    pub(crate) fn begin(
        &mut self,
        world: &mut World,
        alloc: usize,
        wanted: bool,
    ) -> Result<(), Breach> {
        self.ask(world, Ask::Begin { alloc, wanted })
    }

    pub(crate) fn give_up(&mut self, world: &mut World, alloc: usize) -> Result<(), Breach> {
        let outcome = if self.scenario.is(Mutation::FreeOnTimeout) {
            Outcome::Done
        } else {
            Outcome::Unanswered
        };
        self.ask(world, Ask::Answer { alloc, attempt: AttemptId::Current, outcome })
    }

    pub(crate) fn report(&mut self, world: &mut World, at: usize) -> Result<(), Breach> {
        let answer = world.answers.remove(at);
        let attempt = if self.scenario.is(Mutation::OldAnswers) {
            AttemptId::Current
        } else {
            answer.attempt
        };
        let ask = Ask::Answer { alloc: answer.alloc, attempt, outcome: answer.outcome };
        self.ask(world, ask)
    }

    /// Whether an answer of an attempt that is no longer on the record is refused (safety rule 7).
    pub(crate) fn check_stale(&mut self, world: &World, alloc: usize) -> Result<(), Breach> {
        for outcome in [Outcome::Done, Outcome::Failed, Outcome::Refused, Outcome::Unanswered] {
            let ask = Ask::Answer { alloc, attempt: AttemptId::Old, outcome };
            if self.decider.decide(world.record, ask)? != Decision::Refused {
                return Err(Breach::new("an answer of an old attempt was taken (safety rule 7)"));
            }
        }
        Ok(())
    }

    /// Decides, writes, and sends the call that was decided, or the grant. When calls are counted
    /// and none is left, nobody is there to ask.
    ///
    /// A grant stays on its way also when it has arrived: whoever has a claim may ask for it again
    /// (B4), so that there is always another that may still come.
    fn ask(&mut self, world: &mut World, ask: Ask) -> Result<(), Breach> {
        let Decision::Decided { record, call } = self.decider.decide(world.record, ask)? else {
            return Ok(());
        };
        if call.is_some() {
            match &mut world.attempts_left {
                Some(0) => return Ok(()),
                left => *left = left.map(|left| left - 1),
            }
        }
        let alloc = ask.alloc();
        let is_new = world.record.claims[alloc].is_none();
        let epoch = self.epochs_of(world, alloc).max().unwrap_or(0) + 1;
        let tickets = world.record.claims.iter().flatten().map(|claim| claim.ticket);
        let ticket = tickets.max().unwrap_or(0) + 1;
        world.record = record;
        let Some(claim) = &mut world.record.claims[alloc] else { return Ok(()) };
        if is_new {
            claim.epoch = epoch;
            claim.ticket = if claim.state == State::Waiting { ticket } else { 0 };
        }
        if let Some(kind) = call {
            world.calls.push(Call {
                kind,
                alloc,
                attempt: AttemptId::New,
                epoch: claim.epoch,
                left: TIMEOUT,
                at_work: false,
            });
        }
        if claim.state == State::Taken {
            world.grants.push(Grant { alloc, epoch: claim.epoch });
        }
        Ok(())
    }
}
