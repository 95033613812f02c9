//! What a scheduler does about a refusal.
//!
//! **Owns** one line for each error code: whether to wait, to go elsewhere, to give the alloc up,
//! or to look first at what became of the request.

use std::fmt;

use crate::code::Code;
use crate::problem::Problem;

/// What a scheduler does about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Advice {
    /// Ask again, later: it may pass by itself, or when others end.
    Wait,
    /// Place the alloc on another node: it will not pass here soon.
    Elsewhere,
    /// Give the alloc up, or change what it asks for. A person may have to act first.
    Never,
    /// It may have been done. Ask again, which is harmless, or look with `alloc.status`.
    Unknown,
}

impl Advice {
    /// The name, in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Elsewhere => "elsewhere",
            Self::Never => "never",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Code {
    /// What a scheduler does, when the problem does not say that it is retryable.
    pub const fn advice(self) -> Advice {
        match self {
            Self::NoAnswer | Self::Internal => Advice::Unknown,

            Self::Late
            | Self::NoResponder
            | Self::BusUnavailable
            | Self::Overloaded
            | Self::Busy
            | Self::Releasing
            | Self::Waiting
            | Self::NotDue
            | Self::Held
            | Self::AccessInUse
            | Self::StillBusy
            | Self::PluginUnhealthy
            | Self::PluginFailed
            | Self::NewerRecord
            | Self::LevelTooLow
            | Self::VolumeHeldByProcess
            | Self::RunUnknown
            | Self::MountsNotSaid
            | Self::MountsUnreported
            | Self::SealingKeyUnknown
            | Self::SecretsUnavailable
            | Self::OwnerHeld
            | Self::UnmountFailed
            | Self::OperationUnderWay
            | Self::StorageInUse
            | Self::VolumeInUse
            | Self::QuotaExceeded
            | Self::PluginUnable
            | Self::ClaimsLive
            | Self::TooManyClaims
            | Self::AllocKept => Advice::Wait,

            Self::NoSuchNode
            | Self::NodeDown
            | Self::ClockSkew
            | Self::NodeReturning
            | Self::NodeFull
            | Self::StorageAway
            | Self::NoRoomHere
            | Self::OutOfReach
            | Self::PluginExhausted
            | Self::NoSuchPlugin
            | Self::SharedNodeId
            | Self::MountUnaccounted
            | Self::MountFailed
            | Self::ForeignMount
            | Self::MountOptionsRefused
            | Self::NotReadOnly
            | Self::PathRefused => Advice::Elsewhere,

            Self::BadInput
            | Self::Changed
            | Self::NotAllowed
            | Self::BucketLost
            | Self::DamagedRecord
            | Self::NoSuchVolume
            | Self::VolumeClosing
            | Self::CapabilityNotOffered
            | Self::ReadOnlyVolume
            | Self::ClaimDiffers
            | Self::UnsafeUpdate
            | Self::NoSuchClaim
            | Self::StaleAttempt
            | Self::HandleTaken
            | Self::RegisteredTwice
            | Self::RegistrationLost
            | Self::MountWell
            | Self::Deadlock
            | Self::VolumeNotReady
            | Self::VolumeExists
            | Self::NeverSmaller
            | Self::SnapshotExists
            | Self::NoSuchSnapshot
            | Self::SnapshotInGroup
            | Self::TooManySnapshots
            | Self::NoSuchClass
            | Self::ClassRefused
            | Self::ClassInUse
            | Self::PluginLacks
            | Self::PluginRefused
            | Self::OldCall
            | Self::NodeReady
            | Self::NodeElsewhere
            | Self::NodeRenamed
            | Self::PluginInUse
            | Self::TooManyJobs
            | Self::PluginHeld
            | Self::NoSuchAlloc
            | Self::AllocTerminal
            | Self::AllocForeign
            | Self::VolumeNotRequested
            | Self::GrantVoid
            | Self::RunnerCannotMount
            | Self::AllocOwned
            | Self::GuardRefused
            | Self::Unknown => Advice::Never,
        }
    }
}

impl Problem {
    /// What a scheduler does about it. A problem that says that the same request may succeed later
    /// is waited for, unless it says where the alloc cannot be.
    pub const fn advice(&self) -> Advice {
        match self.code.advice() {
            Advice::Never if self.retryable => Advice::Wait,
            advice => advice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_retryable_is_never_given_up() {
        let void = Problem::new(Code::GrantVoid, "x");
        assert_eq!(void.advice(), Advice::Never);
        assert_eq!(void.retryable().advice(), Advice::Wait);
        assert_eq!(Problem::new(Code::NodeFull, "x").retryable().advice(), Advice::Elsewhere);
        for code in Code::ALL {
            let waits = Problem::new(*code, "x").retryable().advice();
            assert_ne!(waits, Advice::Never, "{code}");
        }
    }
}
