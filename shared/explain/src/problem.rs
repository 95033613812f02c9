//! What an error answer means to the caller.
//!
//! **Owns** the table of error codes: the cause of each, and who acts. The answer itself has the
//! sentence and the next step.

use berth_contract::code::Code;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::problem::Problem;
use berth_domain::{GrpcCode, PluginId, VolumeKey};

use crate::cause::{Actor, Cause};
use crate::claim::{Case, find_holder, keeps_itself};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::next;
use crate::obstacle::show_processes;
use crate::record::{is_unreadable, unreadable_record};
use crate::span::ago;

/// The cause that an error answer names.
pub fn find_problem(problem: &Problem) -> Finding {
    if is_unreadable(problem) {
        return unreadable_record(problem);
    }
    let (cause, who) = judge(problem);
    let node = problem.node.as_ref().and_then(|node| node.parse().ok());
    let processes = node.and_then(|node| show_processes(&node, &problem.processes));
    let advice = Some(format!("# {}", problem.next)).filter(|_| !problem.next.is_empty());
    Finding::new(cause, who, problem.to_string()).next_if_known(processes.or(advice))
}

/// Whether the volume's claims explain more than the error answer with this code.
pub const fn is_of_holders(code: Code) -> bool {
    matches!(code, Code::Held | Code::AccessInUse | Code::Waiting | Code::Releasing)
}

/// Why the caller cannot use the volume: because of its holders, if they were read; otherwise what
/// the error answer says. The answer's own advice about holders is for callers that can wait.
pub fn find_unusable(facts: &Facts, key: &VolumeKey, problem: &Problem) -> Finding {
    let volume = facts.volumes.get(key).and_then(|volume| volume.as_ref().ok());
    let volume = volume.filter(|_| is_of_holders(problem.code));
    match volume.and_then(|volume| find_holder(facts, &volume.claims)) {
        Some((holder, finding)) => explain_holder(&holder, finding, problem),
        None if is_of_holders(problem.code) => Finding {
            next: vec![next::why_volume(&key.volume, &key.namespace)],
            ..find_problem(problem)
        },
        None => find_problem(problem),
    }
}

/// The holder keeps the volume, or something keeps the holder from giving it up.
fn explain_holder(holder: &Case<'_>, finding: Finding, problem: &Problem) -> Finding {
    let ClaimStatus { alloc, node, volume, since, state, hint, .. } = holder.claim;
    let (since, code) = (ago(*since, holder.now()), problem.code);
    let in_use = format!("volume {volume} is in use ({code}): {alloc} on node {node}");
    let sentence = if keeps_itself(holder, &finding) {
        format!("{in_use} has held it for {since}")
    } else {
        format!("{in_use}, {state} for {since}: {}", finding.sentence)
    };
    // The claim service has read more records: its hint is more useful than a late cause.
    let hint = hint.as_ref().filter(|_| finding.cause >= Cause::UnderWay);
    let hint = hint.map(|hint| format!("# {hint}"));
    Finding { sentence, ..finding }.shown_by([problem.to_string()]).next_if_known(hint)
}

/// The kind of cause, and the actor.
fn judge(problem: &Problem) -> (Cause, Actor) {
    use Code as C;
    let code = problem.code;
    let plugin = problem.plugin.as_ref().and_then(|id| id.parse::<PluginId>().ok());
    let operator = plugin.map_or(Actor::You, Actor::PluginOperator);
    match code {
        C::BusUnavailable => (Cause::BusAway, Actor::You),
        C::NoResponder => (Cause::ServiceAway, Actor::You),
        C::NotAllowed => (Cause::RightMissing, Actor::You),
        // A deadline that passed does not prove a wrong clock: the time may have been short.
        C::ClockSkew => (Cause::ClockWrong, Actor::You),
        C::RegisteredTwice => (Cause::RegisteredTwice, Actor::You),
        C::RegistrationLost => (Cause::RegistrationLost, Actor::You),
        C::MountUnaccounted => (Cause::MountUnaccounted, Actor::You),
        C::MountsUnreported | C::MountsNotSaid => (Cause::MountUnaccounted, Actor::NOBODY),
        C::NodeReturning => (Cause::NodeGone, Actor::NOBODY),
        C::NodeDown => (Cause::NodeDown, Actor::You),
        C::NoSuchNode => (Cause::NodeUnknown, Actor::You),
        C::SharedNodeId => (Cause::SharedNodeId, operator),
        C::PluginUnhealthy => (Cause::PluginDown, operator),
        C::NoSuchPlugin => (Cause::PluginDown, Actor::You),
        C::RunUnknown => (Cause::RunUnknown, Actor::You),
        // It is retryable, and succeeds after a replica is upgraded.
        C::LevelTooLow => (Cause::Refused, Actor::You),
        C::StillBusy => (Cause::PluginHangs, operator),
        C::VolumeHeldByProcess => (Cause::HeldByProcess, Actor::You),
        C::ForeignMount => (Cause::ForeignMount, Actor::You),
        C::UnmountFailed => (Cause::MountLeft, Actor::You),
        C::OldCall => (Cause::RequestOutdated, Actor::NOBODY),
        C::PluginExhausted | C::NodeFull => (Cause::NoRoom, Actor::You),
        C::Held | C::AccessInUse => (Cause::HeldByOthers, Actor::You),
        C::Waiting | C::Releasing => (Cause::HeldByOthers, Actor::NOBODY),
        _ if code.is_of_plugin() => {
            let retries = problem.retryable && problem.grpc.is_none_or(GrpcCode::is_temporary);
            if retries {
                (Cause::PluginRetries, Actor::NOBODY)
            } else {
                (Cause::PluginRefuses, operator)
            }
        }
        _ if problem.retryable => (Cause::UnderWay, Actor::NOBODY),
        _ => (Cause::Refused, Actor::You),
    }
}
