//! Refusals of the domain: the problem that the caller gets, and whether a request with `wait`
//! waits for the refusal to pass.

use berth_contract::code::Code;
use berth_contract::hint::{namespace_option, quoted, unmount, volume_argument};
use berth_contract::problem::Problem;
use berth_domain::volume::{MountDoubt, Refusal, State};
use berth_domain::{AllocId, VolumeKey};

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
        Refusal::NodeClock(_) => (Code::ClockSkew, true),
        Refusal::NodeAway(_) => (Code::NodeDown, true),
        Refusal::OutOfReach(_) => (Code::OutOfReach, false),
        Refusal::NodeFull(_) => (Code::NodeFull, true),
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
        Refusal::TooManyClaims(_) | Refusal::TooManyOnNode { .. } => (Code::TooManyClaims, false),
        Refusal::NoSuchClaim(_) => (Code::NoSuchClaim, false),
        Refusal::StaleAttempt => (Code::StaleAttempt, false),
        Refusal::NotDue { .. } => (Code::NotDue, true),
        Refusal::ClaimsLive { .. } | Refusal::StillRunning { .. } => (Code::ClaimsLive, false),
        Refusal::UnsafeUpdate { .. } | Refusal::Provisioned { .. } => (Code::UnsafeUpdate, false),
        Refusal::NotReady { .. } => (Code::VolumeNotReady, refusal.is_of_creation()),
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
    match next_step(volume, refusal) {
        Some(next) => problem.next(next),
        None => problem,
    }
}

/// What the caller can do about a refusal.
fn next_step(volume: &VolumeKey, refusal: &Refusal) -> Option<String> {
    let namespace = namespace_option(&volume.namespace);
    let stop = |alloc: &AllocId| format!("`berth alloc stop {alloc}{namespace}`");
    Some(match refusal {
        Refusal::Held { holders, .. } => {
            let first = holders.named.iter().find(|one| one.state == State::Taken)?;
            format!(
                "end a holder's workload, then stop its alloc (which ends no process): {}; or ask \
                 with `--wait`",
                stop(&first.alloc)
            )
        }
        Refusal::ClaimsLive { holders } => {
            let first = &holders.named.first()?.alloc;
            format!(
                "stop the allocs named: {}; or use `--force` once none of them runs",
                stop(first)
            )
        }
        Refusal::MayBeMounted { mounts } => mounts.iter().find_map(next_of_mount)?,
        // Nobody has to stop anything.
        Refusal::Provisioned { .. } => {
            let volume = volume_argument(volume);
            format!(
                "repeat these fields as `berth volume status {volume} --json` shows them: the rest \
                 of the document can change"
            )
        }
        Refusal::OtherVolumesClaims { holders } => {
            let first = &holders.named.first()?.alloc;
            let volume = volume_argument(volume);
            format!(
                "end the workloads of the claims, then stop their allocs: {}; \
                 `berth claim status --volume {volume}` shows them and their volume; or register \
                 that volume again as it was",
                stop(first)
            )
        }
        Refusal::StillRunning { allocs } => {
            format!("end what runs, then say so: {}", stop(allocs.first()?))
        }
        Refusal::Releasing { .. } => {
            let volume = volume_argument(volume);
            format!("wait for it: `berth claim status --volume {volume}` shows the step")
        }
        Refusal::SnapshotExists { .. } => {
            let volume = volume_argument(volume);
            format!("take another id, or see what has this one: `berth snapshot list {volume}`")
        }
        _ => return None,
    })
}

/// How the mount is ended. It is named as the volume was when it was mounted.
pub fn next_of_mount(doubt: &MountDoubt) -> Option<String> {
    Some(unmount(&doubt.mount.as_ref()?.volume_key(), &doubt.node))
}

/// What the caller can do about a deletion at the storage that claims stand in the way of. A
/// deletion cannot be forced, because the data would go under those that use it.
pub fn next_of_deletion(volume: &VolumeKey, refusal: &Refusal) -> Option<String> {
    let Refusal::ClaimsLive { holders } = refusal else { return None };
    let first = holders.named.first()?;
    let namespace = namespace_option(&volume.namespace);
    Some(format!(
        "end the workloads of the allocs named and stop them: `berth alloc stop {}{namespace}`; \
         once they have ended, `berth volume detach {} {}{namespace}` releases what is left on a \
         node; then delete it",
        quoted(first.alloc.as_str()),
        quoted(volume.volume.as_str()),
        quoted(first.node.as_str())
    ))
}

/// Whether a request with `wait` waits for what refuses it.
pub fn can_wait(refusal: &Refusal) -> bool {
    let is_in_line = matches!(refusal, Refusal::Held { .. } | Refusal::AccessInUse { .. });
    is_in_line || may_pass(refusal)
}

/// Whether the cause may pass while a caller waits: a volume may be registered, a plugin or a node
/// may recover.
pub fn may_pass(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::NoSuchVolume) || refusal.may_pass()
}

#[cfg(test)]
mod tests {
    use berth_domain::{Namespace, VolumeId};

    use super::*;

    #[test]
    fn a_created_volume_keeps_its_fields_whether_or_not_it_has_holders() {
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
        let refused = to_problem(&volume, &Refusal::Provisioned { fields: vec!["context"] });
        assert_eq!(refused.code, Code::UnsafeUpdate);
        assert!(refused.next.contains("`berth volume status data --json`"), "{refused}");
        assert!(!refused.next.contains("holders"), "{refused}");
    }
}
