//! What is told of each transition. Fire and forget: no claim ever waits for an event.

use berth_contract::event::{Event, EventName};
use berth_contract::service::CLAIM;
use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_domain::proof::Proof;
use berth_domain::volume::{Claim, Command, Outcome, Policy, State, VolumeSpec, Write};
use berth_domain::{AllocId, Timestamp, VolumeKey};

use crate::trail::{Trailed, began};

/// A transition that is stored.
pub struct StoredTransition<'a> {
    /// The volume.
    pub volume: &'a VolumeKey,
    /// What was asked.
    pub command: &'a Command,
    /// What is stored.
    pub write: &'a Write,
    /// The claim as it was.
    pub before: Option<&'a Trailed>,
    /// The claim's trail with the write.
    pub trail: Option<Trail>,
    /// The request that made the write.
    pub trace: TraceContext,
    /// When it was decided.
    pub now: Timestamp,
}

impl StoredTransition<'_> {
    /// The step that the event is part of.
    pub fn context(&self) -> TraceContext {
        self.trail.map_or(self.trace, |trail| trail.now())
    }

    /// Whether anybody is to be told: not of a place in line that is kept once more, nor of what an
    /// agent reports of a mount, of which it publishes the event itself.
    pub fn is_news(&self) -> bool {
        if matches!(self.command, Command::Observe { .. }) {
            return false;
        }
        let was = self.before.map(|before| before.claim.state);
        !matches!(
            (was, self.write),
            (Some(State::Waiting), Write::PutClaim(_, Claim { state: State::Waiting, .. }))
        )
    }

    /// The event.
    pub fn event(&self, policy: &Policy) -> Event {
        let event = match self.write {
            Write::PutSpec(spec) => self.of_spec(spec),
            Write::DeleteSpec => self.of_deregistration(),
            Write::PutClaim(alloc, claim) => self.of_claim(alloc, claim, policy),
            Write::DeleteClaim(alloc) => self.of_end(alloc),
        };
        let of = self.trail.filter(|trail| trail.released.is_some());
        Event {
            trace: Some(self.context().trace_id()),
            claim_trace: of.map(|trail| trail.claim.trace_id()),
            ..event
        }
    }

    fn named(&self, name: EventName) -> Event {
        Event {
            namespace: Some(self.volume.namespace.clone()),
            volume: Some(self.volume.volume.clone()),
            ..Event::new(name, self.now, CLAIM)
        }
    }

    fn was(&self, state: State) -> bool {
        self.before.is_some_and(|before| before.claim.state == state)
    }

    fn of_spec(&self, spec: &VolumeSpec) -> Event {
        let name = match (&spec.closing, spec.create_index) {
            (Some(_), _) => EventName::VolumeClosing,
            (None, 0) => EventName::VolumeRegistered,
            (None, _) => EventName::VolumeUpdated,
        };
        Event {
            plugin: Some(spec.plugin.clone()),
            detail: spec.closing.as_ref().map(|closing| closing.reason.clone()),
            ..self.named(name)
        }
    }

    fn of_deregistration(&self) -> Event {
        let reason = match self.command {
            Command::Deregister { reason, .. } if !reason.is_empty() => Some(reason.clone()),
            _ => None,
        };
        Event { detail: reason, ..self.named(EventName::VolumeDeregistered) }
    }

    fn of_claim(&self, alloc: &AllocId, claim: &Claim, policy: &Policy) -> Event {
        let failed = matches!(
            self.command,
            Command::Answer {
                outcome: Outcome::Failed(_)
                    | Outcome::Exhausted(_)
                    | Outcome::Unasked(_)
                    | Outcome::Unanswered(_)
                    | Outcome::Refused(_),
                ..
            }
        );
        let name = match claim.state {
            _ if failed => EventName::ClaimFailed,
            State::Waiting => EventName::ClaimWaiting,
            State::Publishing => EventName::ClaimPublishing,
            State::Taken => EventName::ClaimTaken,
            State::Unpublishing => EventName::ClaimUnpublishing,
            State::NodeDetached => EventName::ClaimNodeDetached,
        };
        let proof = match self.command {
            Command::Begin { proven: Some(_), .. } => claim.proof.as_ref(),
            _ => None,
        };
        let detail = match (&claim.error, &claim.attempt) {
            (Some(error), _) if failed => Some(error.clone()),
            _ if proof.is_some() => proof.map(|proof| format!("its node is gone: {proof}")),
            _ if claim.unstaged_by.is_some() => claim.unstaged_by.as_ref().map(nothing_left),
            (_, Some(attempt)) => Some(format!("{} by {}", attempt.call, attempt.worker)),
            _ => claim.reason.clone(),
        };
        let answered = self.before.and_then(|before| before.claim.attempt.as_ref());
        let took = match claim.state {
            State::Taken => self.trail.map(|trail| self.now.since(trail.since)),
            _ if failed => answered.map(|attempt| self.now.since(began(attempt, policy))),
            _ => None,
        };
        let attempt = if failed { answered } else { claim.attempt.as_ref() };
        Event {
            alloc: Some(alloc.clone()),
            node: Some(claim.node.clone()),
            detail,
            attempt: attempt.map(|attempt| attempt.id.clone()),
            took_us: took.and_then(|took| u64::try_from(took.as_micros()).ok()),
            ..self.named(name)
        }
    }

    fn of_end(&self, alloc: &AllocId) -> Event {
        let detail = match self.command {
            Command::Answer { .. } => {
                let before = self.before.and_then(|before| before.claim.unstaged_by.as_ref());
                let word = before.map(|word| format!("; {}", nothing_left(word)));
                format!("detached from its node and its controller{}", word.unwrap_or_default())
            }
            Command::Release { reason, .. } => reason.clone(),
            // In place of the node's plugin a word frees nothing (rule 18).
            Command::Confirm { word, .. } => {
                format!("the plugin could not say that it is detached: {word}")
            }
            Command::Begin { proven: Some(proven), .. } => {
                format!("node {} is gone: {}", proven.node, proven.proof)
            }
            Command::Begin { wanted: true, .. } if self.was(State::Waiting) => {
                "nobody asked for it any more".to_owned()
            }
            _ => "nothing of it was left to detach".to_owned(),
        };
        let released = self.trail.and_then(|trail| trail.released);
        let took = released.map(|released| self.now.since(released));
        Event {
            alloc: Some(alloc.clone()),
            node: self.before.map(|before| before.claim.node.clone()),
            detail: Some(detail),
            took_us: took.and_then(|took| u64::try_from(took.as_micros()).ok()),
            ..self.named(EventName::ClaimFreed)
        }
    }
}

fn nothing_left(word: &Proof) -> String {
    format!("the plugin did not take it down, and nothing of it is left on the node: {word}")
}
