//! Which cause an error code is, and who acts.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::volume::CallFailure;
use berth_domain::{GrpcCode, PluginId};

use crate::cause::{Actor, Cause};

/// The kind of cause that an error answer names, and the actor.
pub fn judge(problem: &Problem) -> (Cause, Actor) {
    use Code as C;
    let code = problem.code;
    let plugin = problem.plugin.as_ref().and_then(|id| id.parse::<PluginId>().ok());
    let operator = plugin.map_or(Actor::You, Actor::PluginOperator);
    match code {
        C::BusUnavailable => (Cause::BusAway, Actor::You),
        C::NoResponder => (Cause::ServiceAway, Actor::You),
        C::NotAllowed => (Cause::RightMissing, Actor::You),
        // A deadline that passed is no wrong clock: the time may have been short.
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
        // It is retryable, and goes on once a replica is upgraded.
        C::LevelTooLow => (Cause::Refused, Actor::You),
        C::StillBusy => (Cause::PluginHangs, operator),
        C::VolumeHeldByProcess => (Cause::HeldByProcess, Actor::You),
        C::ForeignMount => (Cause::ForeignMount, Actor::You),
        C::UnmountFailed => (Cause::MountLeft, Actor::You),
        C::OldCall => (Cause::RequestOutdated, Actor::NOBODY),
        C::StorageAway => (Cause::StorageUnreachable, operator),
        C::PluginExhausted | C::NodeFull | C::NoRoomHere => (Cause::NoRoom, Actor::You),
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

/// The same of a failed call that the plugin did not answer: Berth itself, or the caller, failed.
/// None where it may be the plugin's doing.
pub fn judge_failure(failure: &CallFailure, plugin: Option<&PluginId>) -> Option<(Cause, Actor)> {
    let code = Code::from(failure.facts.code?);
    if code == Code::Unknown || code.is_of_plugin() || failure.facts.grpc.is_some() {
        return None;
    }
    let plugin = plugin.map(ToString::to_string);
    let (cause, who) = judge(&Problem { plugin, ..Problem::new(code, "") });
    // A call failed, and no claim was refused.
    Some((if cause == Cause::Refused { Cause::CallFails } else { cause }, who))
}

/// Leaves a failure that may pass by itself to retries while it is young. `nobody` acts then, and
/// the operator of Berth later.
pub fn leave_to_retries(
    (cause, who): (Cause, Actor),
    is_young: bool,
    nobody: Actor,
) -> (Cause, Actor) {
    match who {
        Actor::Nobody { .. } if is_young => (cause, nobody),
        Actor::Nobody { .. } if cause == Cause::UnderWay => (Cause::CallFails, Actor::You),
        Actor::Nobody { .. } => (cause, Actor::You),
        who => (cause, who),
    }
}

/// The same of a call of a controller. Where nobody took the call, no healthy controller was there.
pub fn judge_at_controller(
    failure: &CallFailure,
    plugin: Option<&PluginId>,
) -> Option<(Cause, Actor)> {
    let code = Code::from(failure.facts.code?);
    if code == Code::NoResponder {
        return Some((
            Cause::PluginDown,
            plugin.cloned().map_or(Actor::You, Actor::PluginOperator),
        ));
    }
    judge_failure(failure, plugin)
}
