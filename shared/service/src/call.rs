//! Making a call of the claim protocol: once, and what came of it.
//!
//! **Promises** that each outcome says no more than is known (rule 6): only an answer is an answer.
//!
//! **Never** repeats a call: a repetition is a new attempt, and is written down first (rule 2).

use std::time::Duration;

use berth_bus::{Bus, RequestError};
use berth_contract::code::Code;
use berth_contract::message::agent::{self, WorkStatus};
use berth_contract::message::call::{Call, Called};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::volume::{CallKind, Outcome};
use futures_util::future::try_join_all;

use crate::clock;

/// How many agents are asked at once.
const ASKED_AT_ONCE_MAX: usize = 64;

/// How an error says that nobody listens for the call.
const NOT_THERE: &str = "is not there: no responders";
/// What stands between an executor's error and its advice.
const ADVICE: &str = "; next: ";

/// Whether the error of a call says that its executor was not there to be asked.
pub fn says_not_there(error: &str) -> bool {
    error.contains(NOT_THERE)
}

/// The error of a call, and what its executor advised to do about it.
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
        // Nothing was sent, so this is known not to have happened.
        return Outcome::Unasked(format!("{}: its deadline passed before it was sent", call.call));
    }
    // The attempt's own span, which the claim service records: one of ours would be lost with this
    // process, and the executor's be without a parent.
    let trace = call.span.unwrap_or(trace);
    let within = berth_bus::Call::within(trace, left).as_it_is();
    let outcome = match elsewhere(bus, call, trace).await {
        Ok(()) => {
            // Only this side uses the list, which may be longer than a request allows.
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

/// Whether no controller is known to be at an earlier call for the volume (safety rule 4). A call
/// can go on past every deadline, and one controller of a plugin does not know of the others'.
///
/// Who cannot be asked may be at one, for as long as its lease says that it is there.
async fn elsewhere(bus: &Bus, call: &Call, trace: TraceContext) -> Result<(), String> {
    // What remains is for the call itself.
    let within = call.deadline.since(clock::now()) / 2;
    let within = berth_bus::Call::within(trace, within).as_it_is();
    let ask = |node| async move {
        let status = bus.ask_service::<verb::AgentStatus>(node, &agent::Status {}, &within).await;
        let status = status.map_err(|error| {
            format!(
                "an earlier call for the volume did not succeed, and the agent of node {node} \
                 does not say whether its controller is still at it: {error}"
            )
        })?;
        match status.work.iter().find(|work| is_in_the_way(work, call)) {
            Some(work) => Err(format!(
                "the controller of plugin {} on node {node} is still at {} for alloc {}, since {}",
                call.plugin, work.step, work.alloc, work.since
            )),
            None => Ok(()),
        }
    };
    // Each is asked, however many they are: the one that was left out could be at a call.
    for some in call.ask_first.chunks(ASKED_AT_ONCE_MAX) {
        try_join_all(some.iter().map(ask)).await?;
    }
    Ok(())
}

fn is_in_the_way(work: &WorkStatus, call: &Call) -> bool {
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
        // No plugin was asked; a controller's agent is not there, so none of its calls is at work.
        RequestError::NoResponder { .. } if call.call.is_controller() => {
            Outcome::Failed(format!("{}: {to} {NOT_THERE}", call.call))
        }
        RequestError::NoResponder { .. } => {
            Outcome::Unasked(format!("{}: {to} {NOT_THERE}", call.call))
        }
        RequestError::Unavailable { .. }
        | RequestError::TooLarge { .. }
        | RequestError::Unsendable { .. } => {
            Outcome::Unasked(format!("{}: not sent to {to}: {error}", call.call))
        }
        // It was sent. Whatever came back, the call may be at work.
        RequestError::NoAnswer { .. } => {
            Outcome::Unanswered(format!("{}: {to} did not answer within {left:?}", call.call))
        }
        RequestError::BadReply { .. } => {
            Outcome::Unanswered(format!("{}: {to} answered what cannot be read", call.call))
        }
    }
}

fn answered(call: &Call, problem: &Problem) -> Outcome {
    // The executor names the step it failed at, which as a rule is this call.
    let error = match &problem.step {
        Some(step) if *step == call.call.to_string() => problem.to_string(),
        _ => format!("{}: {problem}", call.call),
    };
    // What the plugin's code asks for is done by the next try; what the executor asks for is not.
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
        // The executor answered, and the plugin did not: it may still be at work.
        Code::NoAnswer => Outcome::Unanswered(error),
        Code::PluginFailed => Outcome::Failed(error),
        _ => Outcome::Unasked(error),
    }
}
