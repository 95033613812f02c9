//! Makes a call of the claim protocol, once, and returns its outcome.
//!
//! **Promises** that an outcome says no more than is known (rule 6): only a response counts as an
//! answer.
//!
//! **Never** repeats a call: a retry is a new attempt, which is recorded first (rule 2).

use std::time::Duration;

use berth_bus::{Bus, RequestError};
use berth_contract::code::Code;
use berth_contract::message::agent::{self, WorkStatus};
use berth_contract::message::call::{Call, Called};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::NodeId;
use berth_domain::volume::{CallKind, Outcome};
use futures_util::future::try_join_all;

use crate::clock;

/// Agents that are asked at once.
const ASKED_AT_ONCE_MAX: usize = 64;

/// Part of the error of a call that had no responder.
const NOT_THERE: &str = "is not there: no responders";
/// Separates an executor's error from its advice.
const ADVICE: &str = "; next: ";

/// Whether the error of a call says that no executor listened for it.
pub fn says_not_there(error: &str) -> bool {
    error.contains(NOT_THERE)
}

/// Splits the error of a call from the executor's advice.
pub fn split_advice(error: &str) -> (&str, Option<&str>) {
    match error.split_once(ADVICE) {
        Some((error, advice)) => (error, Some(advice)),
        None => (error, None),
    }
}

/// Sends the call to its executor and waits for the answer until the call's deadline.
pub async fn make(bus: &Bus, call: &Call, trace: TraceContext) -> Outcome {
    let left = call.deadline.since(clock::now());
    if left.is_zero() {
        // Nothing was sent, so the call was certainly not made.
        return Outcome::Unasked(format!("{}: its deadline passed before it was sent", call.call));
    }
    // The attempt's own span, which the claim service records. A span of this process would be lost
    // with it, and the executor's span would have no parent.
    let trace = call.span.unwrap_or(trace);
    let within = berth_bus::Call::within(trace, left).as_it_is();
    let outcome = match check_other_controllers(bus, call, trace).await {
        Ok(()) => {
            // Only the caller uses the list, which may be longer than a request allows.
            let sent = Call { ask_first: Vec::new(), ..call.clone() };
            let answer = bus.request::<Called>(&call.subject(), &sent, &within).await;
            outcome(call, answer, left)
        }
        Err(why) => Outcome::Unasked(format!("{}: not made yet: {why}", call.call)),
    };
    tracing::info!(
        call = %call.call,
        volume = %call.volume_key(),
        alloc = %call.alloc,
        node = %call.node,
        attempt = %call.attempt,
        trace = trace.trace_id(),
        outcome = describe(&outcome),
        "called"
    );
    outcome
}

/// Checks that no controller is working on an earlier call for the volume (safety rule 4). A call
/// can go on past every deadline, and the controllers of a plugin do not know of each other's
/// calls.
///
/// An agent that cannot be asked may be working on such a call until its lease ends.
async fn check_other_controllers(
    bus: &Bus,
    call: &Call,
    trace: TraceContext,
) -> Result<(), String> {
    // The other half of the time is for the call itself.
    let within = call.deadline.since(clock::now()) / 2;
    let within = berth_bus::Call::within(trace, within).as_it_is();
    let ask = |node: NodeId| async move {
        let everything = verb::NodeAndNamespace::any_of(node.clone());
        let status =
            bus.ask_service::<verb::AgentStatus>(&everything, &agent::Status {}, &within).await;
        let status = status.map_err(|error| {
            format!(
                "an earlier call for the volume did not succeed, and the agent of node {node} \
                 does not say whether its controller is still working on it: {error}"
            )
        })?;
        match status.work.iter().find(|work| is_controller_call_for_volume(work, call)) {
            Some(work) => Err(format!(
                "the controller of plugin {} on node {node} is still at {} for alloc {}, since {}",
                call.plugin, work.step, work.alloc, work.since
            )),
            None => Ok(()),
        }
    };
    // Every agent is asked, however many there are: an agent that is left out could be working on a
    // call.
    for some in call.ask_first.chunks(ASKED_AT_ONCE_MAX) {
        try_join_all(some.iter().cloned().map(ask)).await?;
    }
    Ok(())
}

fn is_controller_call_for_volume(work: &WorkStatus, call: &Call) -> bool {
    let of_a_controller = [CallKind::ControllerPublish, CallKind::ControllerUnpublish];
    work.namespace == call.namespace
        && work.volume == call.volume
        && of_a_controller.iter().any(|kind| kind.as_str() == work.step)
}

fn describe(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Done { .. } => "done",
        Outcome::Refused(error)
        | Outcome::Failed(error)
        | Outcome::Exhausted(error)
        | Outcome::Unasked(error)
        | Outcome::Unanswered(error) => error,
    }
}

fn outcome(call: &Call, answer: Result<Called, RequestError>, left: Duration) -> Outcome {
    let error = match answer {
        Ok(called) => return Outcome::Done { publish_context: called.publish_context },
        Err(error) => error,
    };
    let to = if call.call.is_controller() {
        format!("the controller of plugin {}", call.plugin)
    } else {
        format!("the agent of node {}", call.node)
    };
    match error {
        RequestError::Problem(problem) => answered(call, &problem),
        // No plugin was called. The controller's agent is not there, so it works on no earlier call
        // either.
        RequestError::NoResponder { .. } if call.call.is_controller() => {
            Outcome::Failed(format!("{}: {to} {NOT_THERE}", call.call))
        }
        RequestError::NoResponder { .. } => {
            Outcome::Unasked(format!("{}: {to} {NOT_THERE}", call.call))
        }
        RequestError::Unavailable { .. }
        | RequestError::NotAllowed { .. }
        | RequestError::TooLarge { .. }
        | RequestError::Unsendable { .. } => {
            Outcome::Unasked(format!("{}: not sent to {to}: {error}", call.call))
        }
        // The call was sent. Whatever came back, the executor may be working on it.
        RequestError::NoAnswer { .. } => {
            Outcome::Unanswered(format!("{}: {to} did not answer within {left:?}", call.call))
        }
        RequestError::BadReply { .. } => {
            Outcome::Unanswered(format!("{}: {to} answered what cannot be read", call.call))
        }
    }
}

fn answered(call: &Call, problem: &Problem) -> Outcome {
    // The executor names the step that failed, usually this call.
    let error = match &problem.step {
        Some(step) if *step == call.call.to_string() => problem.to_string(),
        _ => format!("{}: {problem}", call.call),
    };
    // The next attempt does what the plugin's error code asks for. It does not do what the executor
    // advises.
    let is_plugins = matches!(
        problem.code,
        Code::PluginRefused | Code::PluginExhausted | Code::PluginFailed | Code::StillBusy
    );
    let error = match problem.own_advice().filter(|_| !is_plugins) {
        Some(advice) => format!("{error}{ADVICE}{advice}"),
        None => error,
    };
    match problem.code {
        Code::PluginRefused => Outcome::Refused(error),
        Code::PluginExhausted => Outcome::Exhausted(error),
        // The executor answered, and the plugin did not: the plugin may still be working.
        Code::NoAnswer => Outcome::Unanswered(error),
        Code::PluginFailed => Outcome::Failed(error),
        _ => Outcome::Unasked(error),
    }
}
