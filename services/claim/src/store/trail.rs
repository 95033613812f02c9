//! The spans of a claim: reserved when they begin, emitted when a stored write ends them.
//!
//! **Owns** a claim's [`Trail`]. **Promises** that each of its spans is emitted once, by the
//! process whose write ended it, below spans that are emitted too. **Never** decides anything.

use berth_contract::trace::TraceContext;
use berth_contract::trail::Trail;
use berth_domain::volume::{Attempt, CallKind, Claim, Policy, State};
use berth_domain::{AllocId, Timestamp, VolumeKey};
use berth_telemetry::{Kind, Span, attribute};

/// A claim and its trail.
#[derive(Debug, Clone)]
pub struct TrailedClaim {
    pub claim: Claim,
    /// None for a claim that an older version wrote.
    pub trail: Option<Trail>,
}

/// One claim before and after a write.
#[derive(Debug, Clone, Copy)]
pub struct ClaimChange<'a> {
    pub volume: &'a VolumeKey,
    pub alloc: &'a AllocId,
    pub before: Option<&'a TrailedClaim>,
    /// None when the claim is freed.
    pub after: Option<&'a Claim>,
}

impl ClaimChange<'_> {
    /// The claim's trail after the write. `trace` is that of the request that makes the write.
    pub fn trail(&self, trace: TraceContext, now: Timestamp) -> Trail {
        let earlier_trail = self.before.and_then(|before| before.trail);
        let mut trail = earlier_trail.unwrap_or_else(|| Trail {
            claim: Span::reserve(trace),
            parent: trace.span(),
            since: now,
            release: Span::reserve(TraceContext::begin(&mut rand::rng())),
            released: None,
            attempt: None,
        });
        let leaves = self.after.is_none_or(|claim| is_leaving(claim.state));
        if leaves && trail.released.is_none() {
            trail.released = Some(now);
        }
        let attempt =
            |claim: &Claim| claim.progress.attempt.as_ref().map(|attempt| attempt.id.clone());
        let stood = self.before.and_then(|before| attempt(&before.claim));
        match self.after.and_then(|claim| Some((claim, attempt(claim)?))) {
            None => trail.attempt = None,
            Some((_, id)) if Some(&id) == stood.as_ref() => {}
            Some((claim, _)) => {
                let above = if is_leaving(claim.state) { trail.release } else { trail.claim };
                trail.attempt = Some(Span::reserve(above));
            }
        }
        trail
    }

    /// Emits the spans that the stored write ended.
    pub fn emit(&self, trail: &Trail, policy: &Policy) {
        self.emit_attempt(policy);
        let old_state = self.before.map(|before| before.claim.state);
        let new_state = self.after.map(|claim| claim.state);
        let granted = new_state == Some(State::Taken) && old_state != Some(State::Taken);
        let given_up = old_state
            .is_none_or(|old_state| matches!(old_state, State::Waiting | State::Publishing))
            && new_state.is_none_or(is_leaving)
            && self.before.is_some();
        if granted || given_up {
            let span =
                Span::resume(trail.claim, trail.parent, "claim", Kind::Internal, trail.since);
            let mut span = self.with_names(span);
            if given_up {
                span.fail("given up before it was granted");
            }
            span.end();
        }
        if new_state.is_none() {
            let began = trail.released.unwrap_or(trail.since);
            let mut span = self.with_names(Span::resume(
                trail.release,
                None,
                "release",
                Kind::Internal,
                began,
            ));
            span.link(trail.claim);
            span.end();
        }
    }

    /// Emits the span of the attempt that the write removed from the record.
    fn emit_attempt(&self, policy: &Policy) {
        let Some(TrailedClaim { claim, trail: Some(trail) }) = self.before else { return };
        let (Some(attempt), Some(context)) = (&claim.progress.attempt, trail.attempt) else {
            return;
        };
        let goes_on = self.after.and_then(|claim| claim.progress.attempt.as_ref());
        if goes_on.is_some_and(|goes_on| goes_on.id == attempt.id) {
            return;
        }
        // A publish that outlived its reservation still belongs to the claim.
        let above = match attempt.call {
            CallKind::ControllerPublish => trail.claim,
            _ => trail.release,
        };
        let name = format_args!("attempt {}", attempt.call);
        let span =
            Span::resume(context, above.span(), name, Kind::Client, recorded_at(attempt, policy));
        let mut span = self
            .with_names(span)
            .with(attribute::ATTEMPT, attempt.id.as_str())
            .with(attribute::WORKER, attempt.worker.as_str());
        let failed = self.after.is_some_and(|after| after.progress.tries > claim.progress.tries);
        if failed {
            span.fail("the call did not succeed; the claim's error says why");
        } else if goes_on.is_some() && !advanced(claim, self.after) {
            span.fail("nobody reported what came of it; another attempt took its place");
        }
        span.end();
    }

    fn with_names(&self, span: Span) -> Span {
        let claim = self.after.or(self.before.map(|before| &before.claim));
        let span = span
            .with(attribute::NAMESPACE, self.volume.namespace.as_str())
            .with(attribute::VOLUME, self.volume.volume.as_str())
            .with(attribute::ALLOC, self.alloc.as_str());
        match claim {
            Some(claim) => span.with(attribute::NODE, claim.node.as_str()),
            None => span,
        }
    }
}

/// When an attempt was recorded: one call timeout before its deadline.
pub fn recorded_at(attempt: &Attempt, policy: &Policy) -> Timestamp {
    attempt.deadline.before(policy.call_timeout)
}

fn is_leaving(state: State) -> bool {
    matches!(state, State::Unpublishing | State::NodeDetached)
}

fn advanced(before: &Claim, after: Option<&Claim>) -> bool {
    after.is_none_or(|after| after.state != before.state)
}

#[cfg(test)]
mod tests;
