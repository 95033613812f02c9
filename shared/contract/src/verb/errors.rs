//! Errors that several verbs have in common.

use crate::code::Code;

macro_rules! codes {
    ($($code:ident),* $(,)?) => { &[$(crate::code::Code::$code),*] };
}
pub(super) use codes;

/// What a call of a plugin may come to.
pub(super) const PLUGIN_FAILED: &[Code] = codes![
    NoSuchPlugin,
    PluginUnhealthy,
    PluginRefused,
    PluginFailed,
    PluginExhausted,
    StillBusy,
    SecretsUnavailable,
];

/// Why a volume's storage is not changed.
pub(super) const STORAGE_REFUSED: &[Code] = codes![
    NoSuchVolume,
    VolumeClosing,
    VolumeNotReady,
    OperationUnderWay,
    StorageInUse,
    PluginLacks,
    Changed,
    LevelTooLow,
];

/// Why a claim is not granted.
pub(super) const CLAIM_REFUSED: &[Code] = codes![
    NoSuchVolume,
    VolumeClosing,
    CapabilityNotOffered,
    AccessInUse,
    ReadOnlyVolume,
    Held,
    Releasing,
    ClaimDiffers,
    UnsafeUpdate,
    TooManyClaims,
    Waiting,
    RegisteredTwice,
    RegistrationLost,
    NoSuchNode,
    NodeDown,
    ClockSkew,
    NodeReturning,
    NodeFull,
    StorageAway,
    NoRoomHere,
    OutOfReach,
    MountOptionsRefused,
    SharedNodeId,
    MountUnaccounted,
    MountsUnreported,
    NoSuchAlloc,
    AllocTerminal,
    AllocForeign,
    VolumeNotRequested,
    GrantVoid,
    RunnerCannotMount,
    Deadlock,
    VolumeNotReady,
];
