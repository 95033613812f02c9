//! A request, as a handler gets it.

use std::time::Duration;

use berth_contract::actor::Actor;
use berth_contract::decode::{self, Decode, Fault, Unknown};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use bytes::Bytes;
use tokio::time::Instant;

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The subject on which it arrived, without the actor at its end.
    pub subject: String,
    /// The sender; none if the subject names none.
    pub actor: Option<Actor>,
    /// Its body.
    pub body: Bytes,
    /// The trace that it belongs to; a new one if it carried none.
    pub trace: TraceContext,
    /// When it must be answered: shortly before its caller stops waiting. A request without a
    /// deadline has five seconds from its arrival.
    pub deadline: Instant,
    /// Whether the deadline that its caller set had passed when it came. Only an endpoint that
    /// accepts [any clock](EndpointSpec::any_clock) gets such a request.
    pub is_late: bool,
    /// The version of the contract that its caller speaks, if the request has it.
    pub contract: Option<u32>,
    /// How a field that this version does not know is handled.
    pub unknown: Unknown,
}

impl Request {
    /// The body as a message, or a problem that names every fault.
    pub fn decode<T: Decode>(&self, step: &str) -> Result<T, Problem> {
        decode::message(&self.body, self.unknown).map_err(|faults| self.bad_input(step, faults))
    }

    /// The problem of a body with these faults.
    pub fn bad_input(&self, step: &str, faults: Vec<Fault>) -> Problem {
        let problem = Problem::bad_input_of(self.contract, faults).at_step(step);
        problem.trace(self.trace.trace_id())
    }

    /// The token at `place` (from 0) of the subject.
    pub fn token(&self, place: usize) -> Option<&str> {
        self.subject.split('.').nth(place)
    }

    /// How long the caller still waits.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}
