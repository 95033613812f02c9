//! Makes a call of the claim protocol, once, and returns its outcome.
//!
//! **Promises** that an outcome says no more than is known (rule 6): only a response counts as an
//! answer.
//!
//! **Never** makes a call twice: a retry is a new attempt, which is recorded first (rule 2). After
//! a reconnect a copy is sent, if only one executor can get it: that one makes each attempt once,
//! and gives the copy the answer of the first.

use std::fmt::Display;
use std::time::Duration;

use berth_bus::{Bus, RequestError};
use berth_contract::code::Code;
use berth_contract::message::agent::{self, AgentStatus};
use berth_contract::message::call::{Call, CallDetails, Called};
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb;
use berth_domain::retry::Schedule;
use berth_domain::volume::{CallFailure, CallKind, FailureFacts, Outcome};
use berth_domain::{Namespace, NodeId, VolumeId, VolumeKey};
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep};

use crate::clock;

/// The prefix of the steps of controller calls.
const CONTROLLER_STEP_PREFIX: &str = "controller.";
/// The pauses before a copy of a call is sent, after a copy that reached no executor.
const COPY_PAUSES: Schedule =
    Schedule { first: Duration::from_millis(50), max: Duration::from_millis(500) };
/// Most agents that are asked at the same time.
const ASKED_AT_ONCE_MAX: usize = 64;

/// Whether no executor listened for the call, so that none works on an earlier call either.
pub fn was_not_there(failure: &CallFailure) -> bool {
    failure.facts.code == Some(Code::NoResponder.into())
}

/// Sends the call to its executor and waits for the answer until the call's deadline. A creation
/// goes to the controller that has answered it already, after its caller had stopped waiting.
pub async fn make(bus: &Bus, call: &Call, trace: TraceContext) -> Outcome {
    // The attempt's own span, which the claim service records. A span of this process would be lost
    // with it, and the executor's span would have no parent.
    let (trace, alloc) = match &call.details {
        CallDetails::Claim(of) => (of.span.unwrap_or(trace), Some(&of.alloc)),
        CallDetails::Storage(_) => (trace, None),
    };
    let outcome = send(bus, call, trace).await;
    tracing::info!(
        call = %call.call,
        volume = call.volumes().first().map(tracing::field::display),
        alloc = alloc.map(tracing::field::display),
        node = call.executor().map(tracing::field::display),
        attempt = %call.attempt,
        trace = trace.trace_id(),
        outcome = describe(&outcome),
        "called"
    );
    match (&call.details, outcome) {
        // No plugin was called. The controller's agent is absent, so it works on no earlier call
        // either.
        (CallDetails::Claim(_), Outcome::Unasked(failure))
            if call.call.is_controller() && was_not_there(&failure) =>
        {
            Outcome::Failed(failure)
        }
        (_, outcome) => outcome,
    }
}

async fn send(bus: &Bus, call: &Call, trace: TraceContext) -> Outcome {
    let remaining = call.deadline.since(clock::now());
    if remaining.is_zero() {
        // Nothing was sent, so the call was certainly not made.
        return Outcome::Unasked(fail(call, Code::Late, "its deadline passed before it was sent"));
    }
    let within = berth_bus::Call::within(trace, remaining).without_client_span();
    let creator = match ask_other_controllers(bus, call, trace).await {
        Ok(creator) => creator,
        Err(why) => {
            let why = format_args!("not made yet: {why}");
            return Outcome::Unasked(fail(call, Code::StillBusy, why));
        }
    };
    match ask_across_connections(bus, &call.to_send(creator), &within).await {
        Ok(called) => called.into(),
        Err(error) => outcome_of(call, error, remaining),
    }
}

fn outcome_of(call: &Call, error: RequestError, left: Duration) -> Outcome {
    let executor = executor_in_words(call);
    match error {
        RequestError::Problem(problem) => answered(call.call, &problem),
        RequestError::NoResponder { .. } => Outcome::Unasked(fail(
            call,
            Code::NoResponder,
            format_args!("{executor} is not there: no responders"),
        )),
        RequestError::Unavailable { .. }
        | RequestError::NotAllowed { .. }
        | RequestError::TooLarge { .. }
        | RequestError::Unsendable { .. } => {
            let message = format_args!("not sent to {executor}: {error}");
            Outcome::Unasked(fail(call, Code::BusUnavailable, message))
        }
        // The call was sent. Whatever the answer, the executor may be working on it.
        RequestError::NoAnswer { .. } => {
            let message = format_args!("{executor} did not answer within {left:?}");
            Outcome::Unanswered(fail(call, Code::NoAnswer, message))
        }
        RequestError::BadReply { .. } => {
            let message = format_args!("{executor} answered what cannot be read");
            Outcome::Unanswered(fail(call, Code::NoAnswer, message))
        }
    }
}

fn executor_in_words(call: &Call) -> String {
    let plugin = &call.plugin;
    match (call.call.is_controller(), call.executor()) {
        (false, Some(node)) => format!("the agent of node {node}"),
        (true, Some(node)) => format!("the controller of plugin {plugin} on node {node}"),
        (_, None) => format!("the controller of plugin {plugin}"),
    }
}

/// A failure without a message of the executor.
fn fail(call: &Call, code: Code, message: impl Display) -> CallFailure {
    let (code, node) = (Some(code.into()), call.executor().cloned());
    CallFailure {
        message: format!("{}: {message}", call.call),
        facts: FailureFacts { code, node, ..FailureFacts::default() },
    }
}

/// Sends the call. Sends a copy after each reconnect, because the answer to the earlier connection
/// is lost. A copy that reaches no executor is repeated, because the executor may have to
/// reconnect, too.
///
/// The answer to a copy counts if it says that the call succeeded or failed. "Refused" and "not
/// done" say nothing about the first call: a restarted executor refuses the copy; an executor of
/// the last release makes the call again, and its plugin may refuse it because the first call
/// succeeded.
async fn ask_across_connections(
    bus: &Bus,
    call: &Call,
    within: &berth_bus::Call,
) -> Result<Called, RequestError> {
    let subject = call.subject();
    let send = async || bus.request::<Called>(&subject, call, within).await;
    if call.executor().is_none() {
        // Another controller would make the call a second time.
        return send().await;
    }
    let began = Instant::now();
    let mut copies = 0;
    loop {
        let connects = bus.counts().connects;
        let answer = tokio::select! {
            answer = send() => answer,
            _ = bus.await_connection(connects) => {
                copies += 1;
                continue;
            }
        };
        match answer {
            Err(error) if copies > 0 && !is_failure_of_plugin(&error) => {
                let pause = COPY_PAUSES.wait(copies, clock::jitter());
                if error.is_undone() && Instant::now() + pause < within.deadline {
                    copies += 1;
                    sleep(pause).await;
                    continue;
                }
                let within = began.elapsed();
                return Err(RequestError::NoAnswer { subject, within, source: None });
            }
            answer => return answer,
        }
    }
}

fn is_failure_of_plugin(error: &RequestError) -> bool {
    matches!(error, RequestError::Problem(problem) if problem.code == Code::PluginFailed)
}

/// Checks that no controller is working on an earlier call for one of the volumes (safety rule 4).
/// A call can go on past every deadline, and the controllers of a plugin do not know of each
/// other's calls.
///
/// An agent that cannot be asked may be working on such a call until its lease ends.
///
/// Returns a node whose controller has created what the call is to create.
async fn ask_other_controllers(
    bus: &Bus,
    call: &Call,
    trace: TraceContext,
) -> Result<Option<NodeId>, String> {
    // The other half of the time is for the call itself.
    let within = call.deadline.since(clock::now()) / 2;
    let volumes = &call.volumes();
    let within = berth_bus::Call::within(trace, within).without_client_span();
    let ask = |node: NodeId| async move {
        let everything = verb::NodeAndNamespace::any_of(node.clone());
        let status =
            bus.ask_service::<verb::AgentStatus>(&everything, &agent::AgentQuery {}, &within).await;
        let status = status.map_err(|error| {
            format!(
                "an earlier call for the volume did not succeed, and the agent of node {node} \
                 does not say whether its controller is still working on it: {error}"
            )
        })?;
        match volumes.iter().find_map(|volume| find_controller_call(&status, volume)) {
            Some(at) => Err(format!(
                "the controller of plugin {} on node {node} is still at {at}",
                call.plugin
            )),
            None => Ok(call.creates().filter(|name| has_created(&status, name)).map(|_| node)),
        }
    };
    let mut created = None;
    // Every agent is asked, however many there are, because an agent that is left out could be
    // working on a call.
    for nodes in call.ask_first.chunks(ASKED_AT_ONCE_MAX) {
        let answered = try_join_all(nodes.iter().cloned().map(ask)).await?;
        created = created.or_else(|| answered.into_iter().flatten().next());
    }
    Ok(created)
}

/// Whether a controller on this node has created the thing of this name.
fn has_created(status: &AgentStatus, name: &str) -> bool {
    status.late.iter().any(|late| late.name == name)
}

/// The controller call for the volume that an agent works on, in words.
fn find_controller_call(status: &AgentStatus, volume: &VolumeKey) -> Option<String> {
    let is_of = |namespace: &Namespace, other: &VolumeId, step: &str| {
        *namespace == volume.namespace
            && *other == volume.volume
            && step.starts_with(CONTROLLER_STEP_PREFIX)
    };
    let of_claim = status.work.iter().find(|work| is_of(&work.namespace, &work.volume, &work.step));
    let of_storage =
        status.storage.iter().find(|call| is_of(&call.namespace, &call.volume, &call.step));
    of_claim
        .map(|work| format!("{} for alloc {}, since {}", work.step, work.alloc, work.since))
        .or_else(|| of_storage.map(|call| format!("{}, since {}", call.step, call.since)))
}

fn describe(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Done { .. } | Outcome::Stored(_) => "done",
        Outcome::Refused(failure)
        | Outcome::NotDone(failure)
        | Outcome::Failed(failure)
        | Outcome::Exhausted(failure)
        | Outcome::Unasked(failure)
        | Outcome::Unanswered(failure) => &failure.message,
    }
}

fn answered(kind: CallKind, problem: &Problem) -> Outcome {
    // The executor names the step that failed, usually this call.
    let message = match &problem.step {
        Some(step) if *step == kind.to_string() => problem.to_string(),
        _ => format!("{kind}: {problem}"),
    };
    let mut facts = problem.failure_facts();
    // The next attempt follows the plugin's error code, and not the advice of the executor.
    if problem.code.is_of_plugin() {
        facts.next = None;
    }
    // The executor answered: a service that the executor asked was absent (see `was_not_there`).
    if problem.code == Code::NoResponder {
        facts.code = None;
    }
    let failure = CallFailure { message, facts };
    match problem.code {
        Code::PluginRefused => Outcome::Refused(failure),
        Code::PluginExhausted => Outcome::Exhausted(failure),
        Code::PluginUnable => Outcome::NotDone(failure),
        // The executor answered, but the plugin did not: the plugin may still be working.
        Code::NoAnswer => Outcome::Unanswered(failure),
        Code::PluginFailed => Outcome::Failed(failure),
        _ => Outcome::Unasked(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The executor may be working on an earlier call (rule 4), and did not deny it.
    #[test]
    fn an_executor_that_reached_nobody_was_there() {
        let secrets = Problem::new(Code::NoResponder, "no claim service").at_step("secret.open");
        let outcome = answered(CallKind::ControllerUnpublish, &secrets);
        let Outcome::Unasked(failure) = &outcome else { panic!("{outcome:?}") };
        assert!(!was_not_there(failure), "{failure:?}");
        assert!(failure.message.contains("BERTH0003"), "people are told: {failure}");
        let other_problem = Problem::new(Code::MountFailed, "no").node("n1");
        let Outcome::Unasked(failure) = answered(CallKind::NodeDetach, &other_problem) else {
            panic!()
        };
        assert_eq!(failure.facts.code, Some(Code::MountFailed.into()));
    }
}
