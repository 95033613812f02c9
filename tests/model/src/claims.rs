//! How the claim services decide on the record. One decides on the newest record. The other decides
//! on a record that it read earlier: the guard (rule 1) refuses its writes, which therefore change
//! nothing.

use crate::action::LateAsk;
use crate::decide::{Ask, Decision, Proof};
use crate::model::Model;
use crate::safety::Breach;
use crate::scenario::{Attaches, Mutation, Trouble};
use crate::world::{AttemptId, Call, Grant, Outcome, Record, TIMEOUT, World};
use berth_domain::volume::State;

impl Model {
    pub(crate) fn take(
        &mut self,
        world: &mut World,
        alloc: usize,
        controller: bool,
    ) -> Result<(), Breach> {
        if self.scenario.has(Trouble::NoRoom) {
            self.check_full(world, alloc)?;
        }
        self.check_change(world, alloc)?;
        self.ask(world, Ask::Take { alloc, controller: Some(controller) })
    }

    /// Rule 25: to claim again in another mode does what a release does, or nothing. A release and
    /// a new claim may come at any moment, so a change leads to no other world. A granted claim
    /// stays unless the agent says that nothing is mounted.
    fn check_change(&mut self, world: &World, alloc: usize) -> Result<(), Breach> {
        let released = self.decider.decide(world.record, Ask::Release { alloc })?;
        let is_granted =
            world.record.claims[alloc].is_some_and(|claim| claim.state == State::Taken);
        for is_unmounted in [true, false] {
            let changed = self.decider.decide(world.record, Ask::Change { alloc, is_unmounted })?;
            let nothing = Decision::Decided { record: world.record, call: None, asks: false };
            let stays = changed == Decision::Refused || changed == nothing;
            if !stays && changed != released {
                return Err(Breach::new("a change that is no release (rule 25)"));
            }
            if !stays && is_granted && !is_unmounted {
                return Err(Breach::new("a claim was given up under a mount (rule 25)"));
            }
        }
        Ok(())
    }

    /// Other volumes may take all places that the node has for the plugin. A request must then
    /// change nothing, except that it gets or keeps a place in line. For this volume, other volumes
    /// only cause delay.
    fn check_full(&mut self, world: &World, alloc: usize) -> Result<(), Breach> {
        let Decision::Decided { record, call, .. } =
            self.decider.decide(world.record, Ask::Take { alloc, controller: None })?
        else {
            return Ok(());
        };
        let waits = record.claims[alloc].is_some_and(|claim| claim.state == State::Waiting);
        if call.is_some() || (record != world.record && !waits) {
            return Err(Breach::new("claimed on a node that is full"));
        }
        Ok(())
    }

    pub(crate) fn release(&mut self, world: &mut World, alloc: usize) -> Result<(), Breach> {
        self.ask(world, Ask::Release { alloc })
    }

    /// A proof for an earlier claim of the alloc changes nothing (rule 12).
    pub(crate) fn begin(
        &mut self,
        world: &mut World,
        alloc: usize,
        wanted: bool,
    ) -> Result<(), Breach> {
        let ask = Ask::Begin { alloc, wanted, proof: Proof::None };
        if self.scenario.goes(self.node_of(alloc)) {
            let earlier = Ask::Begin { alloc, wanted, proof: Proof::Earlier };
            let (plain, proven) = (
                self.decider.decide(world.record, ask)?,
                self.decider.decide(world.record, earlier)?,
            );
            if plain != proven {
                return Err(Breach::new(
                    "a proof for an earlier claim made a difference (rule 12)",
                ));
            }
        }
        self.ask(world, ask)
    }

    /// The service still believes that the alloc lives: a proof does not depend on that.
    pub(crate) fn use_proof(&mut self, world: &mut World, alloc: usize) -> Result<(), Breach> {
        self.ask(world, Ask::Begin { alloc, wanted: true, proof: Proof::Good })
    }

    pub(crate) fn confirm(&mut self, world: &mut World, alloc: usize) -> Result<(), Breach> {
        self.ask(world, Ask::Confirm { alloc })
    }

    pub(crate) fn register(&mut self, world: &mut World) -> Result<(), Breach> {
        self.ask(world, Ask::Register)
    }

    pub(crate) fn deregister(&mut self, world: &mut World, force: bool) -> Result<(), Breach> {
        self.ask(world, Ask::Deregister { force })
    }

    /// The second service decides on the record that it saw, and forgets it afterwards.
    pub(crate) fn late(
        &mut self,
        world: &mut World,
        alloc: usize,
        ask: LateAsk,
    ) -> Result<(), Breach> {
        let Some(seen) = world.view.take() else { return Ok(()) };
        if ask == LateAsk::Take && !self.may_grant_again(world, seen, alloc) {
            return Ok(());
        }
        let controller = self.scenario.attaches != Attaches::Never;
        let ask = match ask {
            LateAsk::Take => Ask::Take { alloc, controller: Some(controller) },
            LateAsk::Release => Ask::Release { alloc },
            LateAsk::Begin => Ask::Begin { alloc, wanted: false, proof: Proof::None },
            LateAsk::Deregister => Ask::Deregister { force: false },
        };
        self.ask_on(world, seen, ask)
    }

    /// A grant without a write is given after a read at the leader, for the claim that exists.
    /// Where journals are kept, the epoch alone decides. The model leaves this read out there,
    /// which is the harder world.
    fn may_grant_again(&self, world: &World, seen: Record, alloc: usize) -> bool {
        let looks = self.scenario.loses_journal && !self.scenario.is(Mutation::NoLeader);
        let taken = |record: Record| {
            let claim = record.claims[alloc].filter(|claim| claim.state == State::Taken);
            claim.map(|claim| claim.epoch)
        };
        let granted = taken(seen);
        !looks || granted.is_none() || granted == taken(world.record)
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
        use Outcome::{Done, Exhausted, Failed, Refused, Unanswered};
        for outcome in [Done, Failed, Exhausted, Refused, Unanswered] {
            let ask = Ask::Answer { alloc, attempt: AttemptId::Old, outcome };
            if self.decider.decide(world.record, ask)? != Decision::Refused {
                return Err(Breach::new("an answer of an old attempt was taken (safety rule 7)"));
            }
        }
        Ok(())
    }

    fn ask(&mut self, world: &mut World, ask: Ask) -> Result<(), Breach> {
        self.ask_on(world, world.record, ask)
    }

    /// Decides on the record as it was read, writes under the guard, and sends the call that was
    /// decided, or the grant. When calls are counted and none is left, no caller remains.
    ///
    /// A grant stays on its way also when it has arrived: a holder may ask for its claim again
    /// (B4), so another grant may always still come.
    fn ask_on(&mut self, world: &mut World, seen: Record, ask: Ask) -> Result<(), Breach> {
        let decision = self.decider.decide(seen, ask)?;
        let Decision::Decided { record: decided, call, asks } = decision else { return Ok(()) };
        let is_refused = seen != world.record && decided != seen;
        let passes = self.scenario.is(Mutation::NoGuard)
            || self.scenario.is(Mutation::HeadsFall) && is_what_is_left(world.record, seen);
        if is_refused && !passes {
            return Ok(());
        }
        if call.is_some() {
            match &mut world.attempts_left {
                Some(0) => return Ok(()),
                left => *left = left.map(|left| left - 1),
            }
        }
        let Some(alloc) = ask.alloc() else {
            world.record.spec = decided.spec;
            return Ok(());
        };
        let is_new = seen.claims[alloc].is_none();
        let epoch = self.epochs_of(world, alloc).max().unwrap_or(0) + 1;
        let tickets = world.record.claims.iter().flatten().map(|claim| claim.ticket);
        let ticket = tickets.max().unwrap_or(0) + 1;
        let mut claim = decided.claims[alloc];
        if is_new && let Some(claim) = &mut claim {
            claim.epoch = epoch;
            claim.ticket = if claim.state == State::Waiting { ticket } else { 0 };
        }
        if seen == world.record || decided != seen {
            world.record.claims[alloc] = claim;
        }
        let Some(claim) = claim else {
            // A proof for this claim holds for no later claim.
            world.proven[alloc] &= self.scenario.is(Mutation::AnyProof);
            return Ok(());
        };
        if let Some(kind) = call {
            world.calls.push(Call {
                kind,
                alloc,
                attempt: AttemptId::New,
                epoch: claim.epoch,
                confirmed_unstaged: claim.confirmed_unstaged && !kind.is_controller(),
                left: TIMEOUT,
                asks,
                at_work: false,
                behind: 0,
                order: self.next_order(world, kind),
                old: false,
            });
        }
        if claim.state == State::Taken {
            world.grants.push(Grant { alloc, epoch: claim.epoch });
        }
        Ok(())
    }
}

/// Whether the record equals the one that was seen, except for claims that were deleted since. If
/// their markers are purged, the head falls to the newest remaining message, and a guard on that
/// head passes (decision 0022). The model takes that message to be one of a remaining claim.
fn is_what_is_left(record: Record, seen: Record) -> bool {
    let mut claims = record.claims.iter().zip(&seen.claims);
    record.spec == seen.spec
        && record.claims.iter().any(Option::is_some)
        && claims.all(|(left, seen)| left == seen || left.is_none())
}
