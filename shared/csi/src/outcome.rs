//! The meaning of a plugin's answer: one total table.
//!
//! **Owns** [`classify`], the only place that interprets a gRPC code.
//!
//! **Promises** an entry for each of the 36 calls and each answer, fixed by a golden file. The
//! table follows CSI 1.13, and is stricter where drivers are known to be careless.
//!
//! **Never** turns doubt into certainty: only [`Class::Done`] ends an earlier [`Class::Uncertain`].
//! A later failure does not, even if that call never left this host.

use std::fmt;

use crate::code::Code;
use crate::rpc::{Effect, Rpc};

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallAnswer {
    /// A gRPC status of the plugin.
    Code(Code),
    /// No readable answer: the deadline passed, the connection broke, or the server does not speak
    /// gRPC.
    Missing,
    /// The call never reached the plugin.
    Unsent,
    /// OK, with an answer that contradicts the request.
    Contradiction,
}

/// The effect of a call as far as it is known, and whether to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// It is done.
    Done,
    /// The call is not done and nothing is under way. Retry after the remedy, with backoff.
    Retry(Remedy),
    /// The call may be done, under way, or neither. What it would change counts as changed until
    /// the same call, or the call that undoes it, succeeds. Retry after the remedy, with backoff.
    Uncertain(Remedy),
    /// The call is not done. A retry fails until an operator applies the remedy. If the call was
    /// to undo a change, the change is still in place.
    Refused(Remedy),
}

impl Class {
    /// What must happen before the call can succeed; `None` when it is done.
    pub const fn remedy(self) -> Option<Remedy> {
        match self {
            Self::Done => None,
            Self::Retry(remedy) | Self::Uncertain(remedy) | Self::Refused(remedy) => Some(remedy),
        }
    }
}

macro_rules! remedies {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What must happen before a call can succeed. `Display` is the next step for a person.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Remedy {
            $($(#[$doc])* $name,)*
        }

        impl Remedy {
            /// The next thing to try, for people.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

remedies! {
    /// Time only.
    Wait = "wait: it is tried again",
    /// Nothing answers at the socket.
    StartPlugin = "see that the plugin runs and that its socket is where the agent looks",
    /// The plugin says it is unhealthy.
    HealPlugin = "see the plugin's log for what it depends on, and restart it",
    /// The plugin failed without saying how.
    ReadLog = "read the plugin's log",
    /// The plugin's answer is not one to the request.
    TellAuthors = "look at the storage for what it did, and report it to the plugin's authors",
    /// The call is not offered.
    ReadCapabilities = "the plugin does not offer this call; check what it says it can do",
    /// A field is missing, wrong or not supported.
    FixRequest = "correct the volume's parameters or capabilities",
    /// Secrets are not accepted.
    FixCredentials = "correct the volume's secrets",
    /// The identity of the secrets lacks rights.
    GrantRights = "give the identity in the volume's secrets the rights it lacks",
    /// The plugin does not know the volume, node or snapshot.
    VerifyId = "check that the volume's id at the plugin is right and that it still exists",
    /// The plugin does not know what is to be copied.
    VerifySource = "check that the source volume or snapshot still exists",
    /// The volume is not at the path.
    VerifyPath = "check that the volume is still mounted at its path",
    /// The name belongs to something else.
    UseOtherName = "use another name, or ask for exactly what exists under this one",
    /// It is there already, made with other arguments.
    MatchExisting = "the volume is there already in another way: release it first",
    /// No capacity where the volume must be.
    FindCapacity = "free capacity or quota, or allow another topology",
    /// The backend has no room.
    FreeSpace = "free space at the storage backend",
    /// The node holds as many volumes as it may.
    FreeSlot = "release another volume on this node, or use another node",
    /// The size or offset is not possible.
    FixRange = "ask for a size within the plugin's limits",
    /// Another node has the volume.
    DetachElsewhere = "release the volume on the other node first",
    /// Somebody still uses it.
    RemoveUsers = "remove what still uses it: mounts, attachments or snapshots",
    /// It cannot grow while in use.
    TakeOffline = "release the volume everywhere, then expand it",
    /// The use exceeds what the volume can do at present.
    FitUse = "check the volume's capabilities, or wait until others release it",
    /// It must be staged before it is published.
    StageFirst = "stage the volume, then publish it",
    /// The listing changed under the reader.
    RestartListing = "list again from the start",
    /// A snapshot of a group goes with its group.
    DeleteGroup = "if the snapshot belongs to a group, delete the group",
    /// These volumes cannot be snapshotted together.
    Regroup = "group volumes that the plugin can snapshot together",
    /// Changes are not tracked.
    FullBackup = "make a full backup: changes are not tracked",
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What `answer` to `rpc` means.
pub const fn classify(rpc: Rpc, answer: CallAnswer) -> Class {
    let class = match answer {
        // The connection could not be made, so this attempt changed nothing. What an earlier
        // attempt did stays as uncertain as it was.
        CallAnswer::Unsent => Class::Retry(Remedy::StartPlugin),
        // Errors without a gRPC code say nothing of what the plugin did.
        CallAnswer::Missing => in_doubt(rpc, Remedy::Wait),
        CallAnswer::Contradiction => in_doubt(rpc, Remedy::TellAuthors),
        CallAnswer::Code(code) => classify_code(rpc, code),
    };
    match (rpc, class) {
        // A failed unmount leaves an unknown state, whatever the code.
        (Rpc::NodeUnpublishVolume | Rpc::NodeUnstageVolume, Class::Retry(remedy))
            if !matches!(answer, CallAnswer::Unsent) =>
        {
            Class::Uncertain(remedy)
        }
        _ => class,
    }
}

const fn classify_code(rpc: Rpc, code: Code) -> Class {
    match code {
        Code::Ok => Class::Done,
        // The caller, a proxy or the plugin stopped waiting: the work may go on.
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable => in_doubt(rpc, Remedy::Wait),
        // Plain errors of a driver's language arrive as UNKNOWN or INTERNAL, after any step. Other
        // orchestrators treat them as final; Berth does not, for a call that changes something.
        Code::Unknown | Code::Internal | Code::DataLoss => in_doubt(rpc, Remedy::ReadLog),
        Code::InvalidArgument => invalid_argument(rpc),
        Code::NotFound => not_found(rpc),
        Code::AlreadyExists => already_exists(rpc),
        Code::PermissionDenied => Class::Refused(Remedy::GrantRights),
        Code::ResourceExhausted => resource_exhausted(rpc),
        Code::FailedPrecondition => failed_precondition(rpc),
        Code::Aborted => aborted(rpc),
        Code::OutOfRange => out_of_range(rpc),
        // Must not be retried; the capabilities that led here are out of date.
        Code::Unimplemented => Class::Refused(Remedy::ReadCapabilities),
        Code::Unauthenticated => Class::Refused(Remedy::FixCredentials),
    }
}

/// Doubt matters only if the call may have changed something.
const fn in_doubt(rpc: Rpc, remedy: Remedy) -> Class {
    match rpc.effect() {
        Effect::Reads => Class::Retry(remedy),
        Effect::Changes | Effect::Undoes => Class::Uncertain(remedy),
    }
}

const fn invalid_argument(rpc: Rpc) -> Class {
    match rpc {
        // Some drivers also answer this for a snapshot of a group, which can only be deleted as a
        // whole.
        Rpc::DeleteSnapshot => Class::Refused(Remedy::DeleteGroup),
        // The request must be changed before it is retried.
        _ => Class::Refused(Remedy::FixRequest),
    }
}

const fn not_found(rpc: Rpc) -> Class {
    match rpc {
        // The source is missing, not the object that is being made.
        Rpc::CreateVolume | Rpc::CreateSnapshot | Rpc::CreateVolumeGroupSnapshot => {
            Class::Retry(Remedy::VerifySource)
        }
        // The volume is not at that path.
        Rpc::NodeGetVolumeStats => Class::Retry(Remedy::VerifyPath),
        // These requests name nothing that could be missing.
        Rpc::GetPluginInfo
        | Rpc::GetPluginCapabilities
        | Rpc::Probe
        | Rpc::ListVolumes
        | Rpc::ControllerListVolumeHealth
        | Rpc::NodeGetStorageHealth
        | Rpc::GetCapacity
        | Rpc::ControllerGetCapabilities
        | Rpc::GroupControllerGetCapabilities
        | Rpc::NodeGetCapabilities
        | Rpc::NodeGetInfo => Class::Retry(Remedy::ReadLog),
        // Verify the id, then retry. This is no success even for a call that undoes: a plugin that
        // is sure that nothing is left answers OK, and this code means that it is not safe to
        // assume so.
        _ => Class::Retry(Remedy::VerifyId),
    }
}

const fn already_exists(rpc: Rpc) -> Class {
    match rpc {
        // The name belongs to an incompatible object.
        Rpc::CreateVolume | Rpc::CreateSnapshot | Rpc::CreateVolumeGroupSnapshot => {
            Class::Refused(Remedy::UseOtherName)
        }
        // Already published or staged there, with another capability or read-only flag.
        Rpc::ControllerPublishVolume | Rpc::NodeStageVolume | Rpc::NodePublishVolume => {
            Class::Refused(Remedy::MatchExisting)
        }
        _ => Class::Refused(Remedy::FixRequest),
    }
}

const fn resource_exhausted(rpc: Rpc) -> Class {
    match rpc {
        // The volume cannot be provisioned in this topology: final until the cause is removed.
        Rpc::CreateVolume => Class::Retry(Remedy::FindCapacity),
        // The node's attach limit. gRPC itself uses this code for messages that are too large, so
        // the effect is not known.
        Rpc::ControllerPublishVolume => Class::Uncertain(Remedy::FreeSlot),
        // No space; the request should be given up, which means deleting what may have been made.
        Rpc::CreateSnapshot | Rpc::CreateVolumeGroupSnapshot | Rpc::ControllerExpandVolume => {
            Class::Uncertain(Remedy::FreeSpace)
        }
        _ => in_doubt(rpc, Remedy::Wait),
    }
}

const fn failed_precondition(rpc: Rpc) -> Class {
    match rpc {
        // Unhealthy: the plugin may be restarted.
        Rpc::Probe => Class::Retry(Remedy::HealPlugin),
        // In use, or with dependent snapshots. CSI does not define the code for unpublish and
        // unstage; drivers that check the order of calls use it in the same sense.
        Rpc::DeleteVolume
        | Rpc::DeleteSnapshot
        | Rpc::DeleteVolumeGroupSnapshot
        | Rpc::ControllerUnpublishVolume
        | Rpc::NodeUnstageVolume
        | Rpc::NodeUnpublishVolume => Class::Retry(Remedy::RemoveUsers),
        // Published on another node, and the volume is not for several nodes.
        Rpc::ControllerPublishVolume => Class::Retry(Remedy::DetachElsewhere),
        // In use, and the plugin expands only volumes that are not.
        Rpc::ControllerExpandVolume => Class::Retry(Remedy::TakeOffline),
        // The same for the file system: CSI forbids a retry.
        Rpc::NodeExpandVolume => Class::Refused(Remedy::TakeOffline),
        // Exceeds the volume's capabilities: validate, or wait for an unpublish.
        Rpc::NodeStageVolume => Class::Retry(Remedy::FitUse),
        // Not staged, or, less often, as above. Staging again shows which.
        Rpc::NodePublishVolume => Class::Retry(Remedy::StageFirst),
        // These volumes cannot be grouped.
        Rpc::CreateVolumeGroupSnapshot => Class::Refused(Remedy::Regroup),
        // Changed blocks are not tracked.
        Rpc::GetMetadataDelta => Class::Refused(Remedy::FullBackup),
        // CSI does not define the code for the other calls.
        _ => Class::Retry(Remedy::ReadLog),
    }
}

const fn aborted(rpc: Rpc) -> Class {
    match rpc {
        // The starting token is stale.
        Rpc::ListVolumes | Rpc::ListSnapshots | Rpc::ControllerListVolumeHealth => {
            Class::Retry(Remedy::RestartListing)
        }
        // Another operation is pending for the volume, perhaps an earlier attempt of the same call.
        _ => in_doubt(rpc, Remedy::Wait),
    }
}

const fn out_of_range(rpc: Rpc) -> Class {
    match rpc {
        Rpc::CreateVolume
        | Rpc::ControllerExpandVolume
        | Rpc::NodeExpandVolume
        | Rpc::GetMetadataAllocated
        | Rpc::GetMetadataDelta => Class::Refused(Remedy::FixRange),
        _ => Class::Refused(Remedy::FixRequest),
    }
}
