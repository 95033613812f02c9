//! Refusals of the domain as problems of the wire: each has a code, and the facts are its message.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::volume::Refusal;

/// What the caller is told.
pub fn problem(refusal: &Refusal) -> Problem {
    let (code, retryable) = match refusal {
        Refusal::NoSuchVolume => (Code::NoSuchVolume, false),
        Refusal::Closing { .. } => (Code::VolumeClosing, false),
        Refusal::HandleTaken { .. } => (Code::HandleTaken, false),
        Refusal::RegisteredTwice { .. } => (Code::RegisteredTwice, false),
        Refusal::CapabilityNotOffered { .. } => (Code::CapabilityNotOffered, false),
        Refusal::AccessInUse { .. } => (Code::AccessInUse, false),
        Refusal::NoWriters { .. } => (Code::ReadOnlyVolume, false),
        Refusal::Held { .. } => (Code::Held, false),
        Refusal::PluginUnready(_) => (Code::PluginUnhealthy, true),
        Refusal::Exhausted { .. } => (Code::PluginExhausted, true),
        Refusal::NodeClock(_) => (Code::ClockSkew, true),
        Refusal::NodeAway(_) => (Code::NodeDown, true),
        Refusal::OutOfReach(_) => (Code::OutOfReach, false),
        Refusal::NodeFull(_) => (Code::NodeFull, true),
        Refusal::SharedId(_) | Refusal::AttachedAs { .. } => (Code::SharedNodeId, true),
        Refusal::Unaccounted(_) => (Code::MountUnaccounted, true),
        Refusal::Busy { .. } => (Code::Busy, true),
        Refusal::Releasing { .. } => (Code::Releasing, true),
        Refusal::ClaimDiffers { .. } => (Code::ClaimDiffers, false),
        Refusal::TooManyClaims(_) => (Code::TooManyClaims, false),
        Refusal::NoSuchClaim(_) => (Code::NoSuchClaim, false),
        Refusal::StaleAttempt => (Code::StaleAttempt, false),
        Refusal::NotDue { .. } => (Code::NotDue, true),
        Refusal::ClaimsLive { .. } | Refusal::StillRunning { .. } => (Code::ClaimsLive, false),
        Refusal::UnsafeUpdate { .. } => (Code::UnsafeUpdate, false),
    };
    let problem = Problem::new(code, refusal);
    if retryable { problem.retryable() } else { problem }
}
