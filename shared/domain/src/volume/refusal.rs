//! Refusals: why a command is not allowed, with the facts that an operator needs.

use std::fmt;

use thiserror::Error;

use super::call::{CallFailure, CallKind, CallOwner};
use super::command::NoRoute;
use super::mounted::MountDoubt;
use super::record::{Claim, State};
use super::storage::{OperationKind, SnapshotState, Stage};
use crate::access::{Capability, CapabilityFilter, Conflict, Mode};
use crate::size::describe_bytes;
use crate::{AllocId, NodeId, SnapshotId, Timestamp, VolumeId};

/// A claim that holds a volume, or is ahead in line for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The claim's alloc.
    pub alloc: AllocId,
    /// The claim's node.
    pub node: NodeId,
    /// Read or write.
    pub mode: Mode,
    /// The claim's state.
    pub state: State,
    /// When the claim entered its state.
    pub since: Timestamp,
}

/// Conflicting claims: the first few by name, and a count of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holders {
    /// The first claims, at most five.
    pub named: Vec<Holder>,
    /// How many more there are.
    pub more: usize,
}

impl<'a> FromIterator<(&'a AllocId, &'a Claim)> for Holders {
    fn from_iter<I: IntoIterator<Item = (&'a AllocId, &'a Claim)>>(claims: I) -> Self {
        let mut claims = claims.into_iter();
        let named =
            claims.by_ref().take(NAMED_MAX).map(|(alloc, claim)| Holder::from_claim(alloc, claim));
        Self { named: named.collect(), more: claims.count() }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(&self.named, self.more))
    }
}

impl Holder {
    pub(super) fn from_claim(alloc: &AllocId, claim: &Claim) -> Self {
        let Claim { node, mode, state, since, .. } = claim;
        let (alloc, node) = (alloc.clone(), node.clone());
        Self { alloc, node, mode: *mode, state: *state, since: *since }
    }
}

impl Refusal {
    /// Whether the cause at the plugin or the node may pass while a caller waits, without a change
    /// of the request.
    pub fn may_pass(&self) -> bool {
        use Refusal::{
            AttachedAs, NoRoomHere, NodeAway, NodeClock, NodeFull, PlaceRefused, PluginUnready,
            SharedId, StorageAway, Unaccounted, Unreported,
        };
        if self.is_of_creation() {
            return true;
        }
        matches!(
            self,
            PluginUnready(_)
                | NodeAway(_)
                | NodeClock(_)
                | NodeFull(_)
                | PlaceRefused { .. }
                | SharedId(_)
                | StorageAway(_)
                | NoRoomHere(_)
                | Unaccounted(_)
                | Unreported(_)
                | AttachedAs { .. }
        )
    }
}

impl Refusal {
    /// Whether the volume is being created: a claim waits for it as for a call under way.
    pub fn is_of_creation(&self) -> bool {
        matches!(self, Self::NotReady { stage: Stage::Creating, .. })
    }
}

impl From<NoRoute> for Refusal {
    fn from(why: NoRoute) -> Self {
        match why {
            NoRoute::Plugin(why) => Self::PluginUnready(why),
            NoRoute::Clock(why) => Self::NodeClock(why),
            NoRoute::Node(why) => Self::NodeAway(why),
            NoRoute::Topology(why) => Self::OutOfReach(why),
            NoRoute::Full(why) => Self::NodeFull(why),
            NoRoute::Storage(why) => Self::StorageAway(why),
            NoRoute::Room(why) => Self::NoRoomHere(why),
            NoRoute::SharedId(why) => Self::SharedId(why),
            NoRoute::Unaccounted(why) => Self::Unaccounted(why),
            NoRoute::Unreported(why) => Self::Unreported(why),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { alloc, node, mode, state, since } = self;
        write!(f, "alloc {alloc} on node {node} ({mode}, {state} since {since})")
    }
}

/// Why a command is not allowed. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The volume is not registered.
    #[error("the volume is not registered")]
    NoSuchVolume,
    /// The volume is being deregistered.
    #[error("the volume is being deregistered since {since}: {reason}")]
    Closing {
        /// When the deregistration began.
        since: Timestamp,
        /// The reason that was given.
        reason: String,
    },
    /// Another volume is registered with the handle.
    #[error("at its plugin it is the same volume as {}, registered already", list(others))]
    HandleTaken {
        /// The other volumes, as far as the caller may know them.
        others: Vec<String>,
    },
    /// The handle is registered more than once.
    #[error(
        "at its plugin it is the same volume as {}; while both are registered, neither is granted",
        list(others)
    )]
    RegisteredTwice {
        /// The other volumes, as far as the caller may know them.
        others: Vec<String>,
    },
    /// The volume does not offer the requested capability.
    #[error("{asked} is not offered; the volume offers {}", list(offered))]
    CapabilityNotOffered {
        /// The requested capability.
        asked: CapabilityFilter,
        /// The volume's capabilities.
        offered: Vec<Capability>,
    },
    /// The volume is in use with another capability.
    #[error("the volume is in use as {in_use}, not {asked}: held by {holders}")]
    AccessInUse {
        /// The requested capability.
        asked: Capability,
        /// The capability in use.
        in_use: Capability,
        /// The claims that use it.
        holders: Holders,
    },
    /// The capability allows no writer.
    #[error("the volume cannot be claimed for writing: {asked} allows no writer")]
    NoWriters {
        /// The requested capability.
        asked: Capability,
    },
    /// Other claims hold the volume.
    #[error("the volume is held by {holders}; {conflict}")]
    Held {
        /// The rule that conflicts.
        conflict: Conflict,
        /// The conflicting claims.
        holders: Holders,
    },
    /// The plugin has no room for the volume, by its answer for another claim (A7).
    #[error(
        "the plugin has no room for the volume: so it said for {holder}{}{}",
        last_error(failure.as_deref()),
        next_try.map(|at| format!("; it is asked again at {at}")).unwrap_or_default()
    )]
    Exhausted {
        /// The claim that got this answer.
        holder: Holder,
        /// Why it has none.
        failure: Option<Box<CallFailure>>,
        /// When the plugin is called again.
        next_try: Option<Timestamp>,
    },
    /// The plugin cannot serve the volume on the node now.
    #[error("the plugin cannot serve the volume there: {0}")]
    PluginUnready(String),
    /// The node's clock is beyond the margin (safety rule 8).
    #[error("the node's clock is off: {0}")]
    NodeClock(String),
    /// The node is down or gone.
    #[error("{0}")]
    NodeAway(String),
    /// The volume's topology does not cover the node's.
    #[error("the volume cannot be reached from the node: {0}")]
    OutOfReach(String),
    /// The node has the most volumes of the plugin that it may have (E10).
    #[error("there is no room for the volume on the node: {0}")]
    NodeFull(String),
    /// The plugin says that the node does not reach its storage.
    #[error("{0}")]
    StorageAway(String),
    /// The plugin has no room for a volume that this claim would have created where the node is,
    /// and has room where another node is.
    #[error("{0}")]
    NoRoomHere(String),
    /// The plugin gives the node an id that another node had first.
    #[error("{0}")]
    SharedId(String),
    /// Another node has a mount of the volume that no claim covers.
    #[error("{0}")]
    Unaccounted(String),
    /// Another node may have one: it has not said so since the records were restored.
    #[error("{0}")]
    Unreported(String),
    /// The volume is held on another node under the plugin's id of this node, or on this node under
    /// another id (rule 8).
    #[error(
        "the plugin calls node {node} {external:?}, and the volume is attached to {held_as:?} for \
         {holder}; the storage cannot tell the two apart"
    )]
    AttachedAs {
        /// The requested node.
        node: NodeId,
        /// The plugin's id of the requested node.
        external: String,
        /// The plugin's id of the holder's node.
        held_as: String,
        /// The claim that holds the volume.
        holder: Holder,
    },
    /// A call is under way, or due later.
    #[error(
        "{call} for {owner} is under way or not yet due; next look at {until}{}",
        last_error(failure.as_deref())
    )]
    Busy {
        /// Whose call it is.
        owner: CallOwner,
        /// The call.
        call: CallKind,
        /// When to try again, at the latest.
        until: Timestamp,
        /// Why the last call did not succeed.
        failure: Option<Box<CallFailure>>,
    },
    /// The alloc's own earlier claim is being released.
    #[error(
        "this alloc's earlier claim is still {state} since {since}{}",
        last_error(failure.as_deref())
    )]
    Releasing {
        /// The claim's state.
        state: State,
        /// When the claim entered its state.
        since: Timestamp,
        /// Why the last call did not succeed.
        failure: Option<Box<CallFailure>>,
    },
    /// The alloc has another claim on the volume.
    #[error("the alloc already claims the volume for {mode} on node {node}")]
    ClaimDiffers {
        /// The node of that claim.
        node: NodeId,
        /// The mode of that claim.
        mode: Mode,
    },
    /// The volume has the most claims that it may have.
    #[error("the volume has {0} claims, as many as a volume may have")]
    TooManyClaims(usize),
    /// There is no such claim.
    #[error("alloc {0} has no claim on the volume")]
    NoSuchClaim(AllocId),
    /// The outcome belongs to another attempt than the one on the record (safety rule 7).
    #[error("the answer is of an attempt that is no longer on the record")]
    StaleAttempt,
    /// There is no call to make for the claim, the volume or the snapshot now.
    #[error("nothing is to be done now")]
    NotDue {
        /// When to try again, if only time has to pass.
        next_try: Option<Timestamp>,
    },
    /// The volume has claims.
    #[error("still claimed by {holders}")]
    ClaimsLive {
        /// The claims.
        holders: Holders,
    },
    /// Claims stand that were granted for another volume of this name.
    #[error("claims stand that were granted for another volume of this name: {holders}")]
    OtherVolumesClaims {
        /// The claims.
        holders: Holders,
    },
    /// The volume may be mounted where no claim covers it.
    #[error("it may be in use: {}", list(mounts))]
    MayBeMounted {
        /// Where, and why that is in doubt.
        mounts: Vec<MountDoubt>,
    },
    /// Allocs that have not ended have claims on the node, which no operator's command releases.
    #[error("still running with it: {}", list(allocs))]
    StillRunning {
        /// Those allocs.
        allocs: Vec<AllocId>,
    },
    /// The update changes fields that may not change while the volume is claimed.
    #[error("cannot change {} of a volume that is claimed by {holders}", fields.join(", "))]
    UnsafeUpdate {
        /// The fields.
        fields: Vec<&'static str>,
        /// The claims.
        holders: Holders,
    },
    /// The update changes what the plugin said of a volume that Berth created.
    #[error("cannot change {} of a volume that was created at its plugin", fields.join(", "))]
    Provisioned {
        /// The fields.
        fields: Vec<&'static str>,
    },
    /// The volume's storage cannot be used.
    #[error("the volume is {stage}{}", last_error(failure.as_deref()))]
    NotReady {
        /// How far its life at the storage has come.
        stage: Stage,
        /// Why the last call did not succeed.
        failure: Option<Box<CallFailure>>,
    },
    /// The plugin did not create the volume where the claim is. Another place is asked for at once.
    #[error(
        "the storage did not create the volume where this node is, and is asked for that place \
         again at {until}{}",
        last_error(failure.as_deref())
    )]
    PlaceRefused {
        /// When.
        until: Timestamp,
        /// Why it did not.
        failure: Option<Box<CallFailure>>,
    },
    /// There is such a volume already, and it was not created by the same request.
    #[error("the volume exists ({stage}), with another {}", fields.join(", "))]
    Exists {
        /// How far its life at the storage has come.
        stage: Stage,
        /// The fields that differ.
        fields: Vec<&'static str>,
    },
    /// Another change of the storage is under way.
    #[error("{operation} is under way since {since}{}", last_error(failure.as_deref()))]
    OperationUnderWay {
        /// The change.
        operation: OperationKind,
        /// Since when.
        since: Timestamp,
        /// Why the last call did not succeed.
        failure: Option<Box<CallFailure>>,
    },
    /// A volume never gets smaller.
    #[error(
        "the volume has {}, and never gets smaller; {} was requested",
        describe_bytes(*capacity), describe_bytes(*required)
    )]
    Shrinks {
        /// Its size, in bytes.
        capacity: u64,
        /// The requested size, in bytes.
        required: u64,
    },
    /// The plugin expands only volumes that are not in use.
    #[error("the plugin expands no volume that is in use, and this one is held by {holders}")]
    InUse {
        /// The claims that hold it.
        holders: Holders,
    },
    /// A snapshot of the volume is not finished.
    #[error("snapshot {snapshot} of it is not finished{}", last_error(failure.as_deref()))]
    SnapshotUnfinished {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Why its last call did not succeed.
        failure: Option<Box<CallFailure>>,
    },
    /// Volumes are being created as copies of it.
    #[error("{} is being created as a copy of it", list(copies))]
    BeingCopied {
        /// The copies, as far as the caller may know them.
        copies: Vec<String>,
    },
    /// There is such a snapshot already, and it was not requested alike.
    #[error("snapshot {snapshot} exists already ({state}), and was not requested alike")]
    SnapshotExists {
        /// The snapshot.
        snapshot: SnapshotId,
        /// Its state.
        state: SnapshotState,
    },
    /// There is no such snapshot.
    #[error("the volume has no snapshot {0}")]
    NoSuchSnapshot(SnapshotId),
    /// The snapshot was cut in a group, and is deleted with it only.
    #[error("the snapshot is one of a group, of the volumes {}, and goes with it", list(members))]
    InGroup {
        /// The volumes of the group.
        members: Vec<VolumeId>,
    },
    /// The volume has the most snapshots that it may have.
    #[error("the volume has {0} snapshots, as many as a volume may have")]
    TooManySnapshots(usize),
}

impl Refusal {
    /// The failed call that stands behind it.
    pub fn failure(&self) -> Option<&CallFailure> {
        match self {
            Self::Exhausted { failure, .. }
            | Self::Busy { failure, .. }
            | Self::Releasing { failure, .. }
            | Self::NotReady { failure, .. }
            | Self::PlaceRefused { failure, .. }
            | Self::OperationUnderWay { failure, .. }
            | Self::SnapshotUnfinished { failure, .. } => failure.as_deref(),
            _ => None,
        }
    }
}

/// The most entries named in a message: a volume may have thousands of holders.
const NAMED_MAX: usize = 5;

fn list<T: fmt::Display>(things: &[T]) -> String {
    let named = &things[..things.len().min(NAMED_MAX)];
    joined(named, things.len() - named.len())
}

fn joined<T: fmt::Display>(named: &[T], more: usize) -> String {
    let named: Vec<String> = named.iter().map(ToString::to_string).collect();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &tail
}

fn last_error(failure: Option<&CallFailure>) -> String {
    failure.map(|failure| format!("; the last call said: {failure}")).unwrap_or_default()
}
