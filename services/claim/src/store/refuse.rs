//! The domain's refusals: the problem that the caller gets, and whether a request with `wait` waits
//! until the reason is gone. `berth-explain` says what the caller can do.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::VolumeKey;
use berth_domain::volume::{MountDoubt, Refusal};

/// The problem for the caller: the refusal's code, with its facts as the message.
pub fn to_problem(volume: &VolumeKey, refusal: &Refusal) -> Problem {
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
        Refusal::NoRoomHere(_) => (Code::NoRoomHere, true),
        Refusal::NodeClock(_) => (Code::ClockSkew, true),
        Refusal::NodeAway(_) => (Code::NodeDown, true),
        Refusal::OutOfReach(_) => (Code::OutOfReach, false),
        Refusal::NodeFull(_) => (Code::NodeFull, true),
        Refusal::StorageAway(_) => (Code::StorageAway, true),
        Refusal::SharedId(_) | Refusal::AttachedAs { .. } => (Code::SharedNodeId, true),
        Refusal::Unaccounted(_) => (Code::MountUnaccounted, true),
        Refusal::Unreported(_) => (Code::MountsUnreported, true),
        // A person has to unmount it.
        Refusal::MayBeMounted { mounts } if mounts.iter().any(MountDoubt::is_mounted) => {
            (Code::MountUnaccounted, false)
        }
        Refusal::MayBeMounted { .. } => (Code::MountsNotSaid, true),
        Refusal::OtherVolumesClaims { .. } => (Code::RegistrationLost, false),
        Refusal::Busy { .. } => (Code::Busy, true),
        Refusal::Releasing { .. } => (Code::Releasing, true),
        Refusal::ClaimDiffers { .. } => (Code::ClaimDiffers, false),
        Refusal::TooManyClaims(_) => (Code::TooManyClaims, false),
        Refusal::NoSuchClaim(_) => (Code::NoSuchClaim, false),
        Refusal::StaleAttempt => (Code::StaleAttempt, false),
        Refusal::NotDue { .. } => (Code::NotDue, true),
        Refusal::ClaimsLive { .. } | Refusal::StillRunning { .. } => (Code::ClaimsLive, false),
        Refusal::UnsafeUpdate { .. } | Refusal::Provisioned { .. } => (Code::UnsafeUpdate, false),
        Refusal::NotReady { .. } => (Code::VolumeNotReady, refusal.is_of_creation()),
        Refusal::PlaceRefused { .. } => (Code::VolumeNotReady, false),
        Refusal::Exists { .. } => (Code::VolumeExists, false),
        Refusal::OperationUnderWay { .. } => (Code::OperationUnderWay, true),
        Refusal::Shrinks { .. } => (Code::NeverSmaller, false),
        Refusal::InUse { .. } => (Code::VolumeInUse, false),
        Refusal::SnapshotUnfinished { .. } | Refusal::BeingCopied { .. } => {
            (Code::StorageInUse, true)
        }
        Refusal::SnapshotExists { .. } => (Code::SnapshotExists, false),
        Refusal::NoSuchSnapshot(_) => (Code::NoSuchSnapshot, false),
        Refusal::InGroup { .. } => (Code::SnapshotInGroup, false),
        Refusal::TooManySnapshots(_) => (Code::TooManySnapshots, false),
    };
    let problem = Problem { retryable, ..Problem::new(code, refusal) };
    let problem = match refusal.failure() {
        Some(failure) => problem.because_of(failure),
        None => problem,
    };
    let problem = match refusal {
        // It may be another node than the caller's.
        Refusal::Exhausted { holder, .. } => problem.node(&holder.node),
        _ => problem,
    };
    match berth_explain::next_of_refusal(volume, refusal) {
        Some(next) => problem.next(next),
        None => problem,
    }
}

/// Whether a request with `wait` waits until the reason is gone.
pub fn can_wait(refusal: &Refusal) -> bool {
    let is_in_line = matches!(refusal, Refusal::Held { .. } | Refusal::AccessInUse { .. });
    is_in_line || may_pass(refusal)
}

/// Whether the reason may pass while a caller waits: a volume may be registered, a plugin or a node
/// may recover.
pub fn may_pass(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoSuchVolume) || refusal.may_pass()
}
