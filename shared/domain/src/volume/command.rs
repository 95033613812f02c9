//! Commands to a volume, and their results: steps, writes and outcomes of calls.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, CallKind};
use super::claim::Claim;
use super::failure::CallFailure;
use super::handle::Handle;
use super::handle_use::HandleUse;
use super::mounted::MountDoubt;
use super::node_mount::NodeMount;
use super::owner::CallOwner;
use super::spec::VolumeSpec;
use super::storage::{Snapshot, SnapshotWish, Topology};
use crate::access::{Capability, CapabilityFilter, Mode};
use crate::proof::{Proof, Proven};
use crate::retry::Schedule;
use crate::{AllocId, AttemptId, NodeId, PluginId, SnapshotId, Timestamp, WorkerId, limits};

/// A command to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Register the volume, or update it.
    Register(VolumeSpec),
    /// Store the spec again unchanged, so that the key of its handle is stored with it.
    Reserve,
    /// Deregister the volume.
    Deregister {
        /// Release the volume's claims instead of refusing.
        force: bool,
        /// The reason, for people.
        reason: String,
        /// Claiming allocs that have not ended. With any of them even `force` is refused.
        running: Vec<AllocId>,
    },
    /// Claim the volume.
    Take(Take),
    /// Record a claim that was lost while its node has the volume mounted, to release it.
    Recover(LostClaim),
    /// Release a claim.
    Release {
        /// The claim's alloc.
        alloc: AllocId,
        /// Only the claim of this epoch, if given.
        epoch: Option<u64>,
        /// The reason, for people.
        reason: String,
    },
    /// An operator confirms what the plugin cannot answer: that the storage has detached the volume
    /// from the claim's node (rule 16), or that nothing of it is left on the node (rule 18).
    Confirm {
        /// The claim's alloc.
        alloc: AllocId,
        /// The epoch of the claim that the operator saw.
        epoch: u64,
        /// The call that the plugin does not answer with OK.
        call: CallKind,
        /// Who confirms it, and their note.
        confirmation: Proof,
    },
    /// A worker asks for the next call of a claim's release, of the volume's operation, or of a
    /// snapshot.
    Begin(Begin),
    /// The outcome of a call.
    Answer {
        /// Whose call it was.
        owner: CallOwner,
        /// The attempt that made the call.
        attempt: AttemptId,
        /// The outcome.
        outcome: Outcome,
        /// The worker that makes the next call of a claim's release with this write, if any does.
        worker: Option<WorkerId>,
    },
    /// The node's agent reports what it does with a granted claim.
    Observe {
        /// The claim's alloc.
        alloc: AllocId,
        /// The epoch of the grant.
        epoch: u64,
        /// The report.
        mount: NodeMount,
        /// The node that reports, if the sender is bound to one: it may report of its own claims.
        node: Option<NodeId>,
    },
    /// Create the volume at its storage. The spec has a `Provision`.
    Create(VolumeSpec),
    /// Delete the volume at its storage.
    Delete {
        /// The reason, for people.
        reason: String,
    },
    /// Make the volume larger at its storage.
    Expand {
        /// The smallest new size, in bytes.
        required_bytes: u64,
        /// The largest new size, in bytes.
        limit_bytes: Option<u64>,
        /// Whether the plugin expands only volumes that are not in use.
        offline: bool,
        /// Wait until no claim holds the volume, instead of being refused.
        when_free: bool,
    },
    /// Change the volume's mutable parameters at its storage.
    Modify {
        /// The parameters to set.
        parameters: BTreeMap<String, String>,
    },
    /// Cut a snapshot of the volume.
    CutSnapshot {
        /// The snapshot.
        snapshot: SnapshotId,
        /// What it is to be.
        wish: SnapshotWish,
    },
    /// Register a snapshot that the plugin has.
    AdoptSnapshot {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The plugin.
        plugin: PluginId,
        /// The snapshot as the plugin lists it.
        cut: CutSnapshot,
        /// Where the controller is that listed it, if each controller has a storage of its own.
        topologies: Vec<Topology>,
        /// The node whose controller alone listed it.
        home: Option<NodeId>,
    },
    /// Delete a snapshot at its storage.
    DeleteSnapshot {
        /// The snapshot.
        snapshot: SnapshotId,
        /// The other members of its group go with it.
        as_group: bool,
        /// Only the record goes, as a volume's does that is deregistered.
        forget: bool,
    },
}

/// A worker's request for the next call of a claim's release, of the volume's operation, or of a
/// snapshot, with what it knows beside the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// Whose call it is to be.
    pub owner: CallOwner,
    /// The worker that will make the call.
    pub worker: WorkerId,
    /// Whether the alloc that has the claim, or that the volume was created for, still runs.
    pub wanted: bool,
    /// Whether something changed that may let the failed call succeed now: then it is made before
    /// its next try is due.
    pub early: bool,
    /// The proof that replaces the node's answer, if the claim's node is gone (rule 12). The claim
    /// is released even if the alloc is recorded as running.
    pub proven: Option<Proven>,
    /// The node whose controller has to get a call of the storage; none if any may.
    pub executor: Option<NodeId>,
}

/// A requested claim. The service looked up everything but the alloc's own data (B1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// The alloc.
    pub alloc: AllocId,
    /// The node.
    pub node: NodeId,
    /// Read or write.
    pub mode: Mode,
    /// The requested capability: the volume's first one that fits is used.
    pub capability: CapabilityFilter,
    /// Wait in line instead of being refused while other claims hold the volume.
    pub wait: bool,
    /// How the plugin reaches the node, or why it cannot.
    pub route: Result<Route, NoRoute>,
    /// The worker that will call the controller.
    pub worker: WorkerId,
}

/// A claim whose record was lost, by the journal of its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostClaim {
    /// The alloc.
    pub alloc: AllocId,
    /// The node.
    pub node: NodeId,
    /// Read or write.
    pub mode: Mode,
    /// How the volume is mounted.
    pub capability: Capability,
    /// The volume that is mounted, whatever the name is registered with by now.
    pub handle: Handle,
    /// How the plugin reaches the node, or why it cannot.
    pub route: Result<Route, NoRoute>,
}

/// What the plugin needs for a volume on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// Whether its controller attaches volumes (B9: controller service and attach capability).
    pub controller: bool,
    /// The plugin's id of the node.
    pub external_node: Option<String>,
    /// The node's topology at the plugin: there a volume is created at its first use.
    pub topology: Topology,
}

/// Why a volume cannot be claimed for a node now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRoute {
    /// The plugin cannot serve the volume there.
    Plugin(String),
    /// The node's clock is wrong, so that deadlines mean nothing there (safety rule 8).
    Clock(String),
    /// The node is down or gone.
    Node(String),
    /// The volume's topology does not include the node.
    Topology(String),
    /// The node has the most volumes of the plugin that it may have (E10).
    Full(String),
    /// The plugin gives the node an id that another node had first.
    SharedId(String),
    /// Another node has a mount of the volume that no claim covers.
    Unaccounted(String),
    /// Another node may have one: it has not said so since the records were restored.
    Unreported(String),
}

/// The outcome of a call, as the protocol distinguishes them (rules 5 and 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done {
        /// The controller's `publish_context`; empty for other calls.
        publish_context: BTreeMap<String, String>,
    },
    /// The plugin answered with an error: the call did nothing, and a retry never will.
    Refused(CallFailure),
    /// The plugin answered with an error: the call may have done something, and a retry may
    /// succeed.
    Failed(CallFailure),
    /// The plugin answered with an error: this call did nothing, and a retry may succeed. What an
    /// earlier call did stays in doubt.
    NotDone(CallFailure),
    /// It succeeded, and the storage answered this.
    Stored(StorageAnswer),
    /// The plugin was not called. An earlier call for the volume may still act.
    Unasked(CallFailure),
    /// The plugin has no room for the volume now (`RESOURCE_EXHAUSTED`).
    Exhausted(CallFailure),
    /// There was no answer: the call may still act.
    Unanswered(CallFailure),
}

/// What the storage answered to a call that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageAnswer {
    /// The volume that was created.
    Volume(CreatedVolume),
    /// The size of the volume after an expansion.
    Capacity {
        /// The size, in bytes; 0 if the plugin does not say.
        bytes: u64,
        /// Whether each node that uses the volume has to expand it, too.
        node_expansion_required: bool,
    },
    /// The snapshot that was cut.
    Snapshot(CutSnapshot),
    /// The group of snapshots that was cut.
    Group {
        /// The plugin's id of the group.
        external_id: String,
        /// Whether volumes can be made of all of them.
        #[serde(default)]
        ready: bool,
        /// The snapshots.
        snapshots: Vec<CutSnapshot>,
    },
}

/// A volume as the plugin returned it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CreatedVolume {
    /// The plugin's id of it.
    pub external_id: String,
    /// Its size, in bytes; 0 if the plugin does not say.
    #[serde(default)]
    pub capacity_bytes: u64,
    /// The plugin's `volume_context`.
    #[serde(default)]
    pub context: BTreeMap<String, String>,
    /// Where it can be reached; everywhere if empty.
    #[serde(default)]
    pub topologies: Vec<Topology>,
    /// Whether the plugin says that it is a copy (`content_source`).
    #[serde(default)]
    pub is_copy: bool,
    /// What of the answer goes beyond the bounds of a record and was left out. Without it the
    /// volume cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
}

/// A snapshot as the plugin returned it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CutSnapshot {
    /// The plugin's id of it.
    pub external_id: String,
    /// The plugin's id of its volume.
    pub source: String,
    /// What a volume that is made of it needs, in bytes; 0 if the plugin does not say.
    #[serde(default)]
    pub size_bytes: u64,
    /// When it was cut.
    #[serde(default)]
    pub cut_at: Option<Timestamp>,
    /// Whether a volume can be made of it (`ready_to_use`).
    #[serde(default)]
    pub ready: bool,
}

/// One transition: a guarded write, then at most one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// The write. None if the record already has this content.
    pub write: Option<Write>,
    /// The call to make once the write is stored: the attempt that the write names.
    pub call: Option<Attempt>,
}

/// A write of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Stores the spec.
    PutSpec(VolumeSpec),
    /// Deletes the spec, and with it the volume.
    DeleteSpec,
    /// Stores a claim.
    PutClaim(AllocId, Claim),
    /// Deletes a claim: it is freed.
    DeleteClaim(AllocId),
    /// Stores a snapshot.
    PutSnapshot(SnapshotId, Snapshot),
    /// Deletes a snapshot.
    DeleteSnapshot(SnapshotId),
}

/// What a decision needs besides the record. It is passed in, so that decisions are pure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The present time.
    pub now: Timestamp,
    /// The id of the attempt that this step may start.
    pub attempt: AttemptId,
    /// A random number, for jitter.
    pub jitter: u32,
    /// Timeouts and retries.
    pub policy: Policy,
    /// Other registrations of the handle that the volume has, or is being registered with.
    pub handle: HandleUse,
    /// Volumes that are being created as copies of the volume or snapshot, named as the caller may
    /// know them.
    pub copies: Vec<String>,
    /// Where the volume may be mounted although no claim says so. It is looked up for what
    /// destroys or forgets the volume, and for what needs it out of use.
    pub mounts: Vec<MountDoubt>,
}

/// Timeouts and retries; the same for all replicas of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// From an attempt's write to its deadline.
    pub call_timeout: Duration,
    /// Added to a call's deadline before the opposite call may be made (safety rule 8).
    pub clock_margin: Duration,
    /// A reservation is undone if its caller does not send the request again for this long.
    pub abandoned_after: Duration,
    /// A waiting claim is deleted if its caller does not send the request again for this long
    /// (B11).
    pub place_kept: Duration,
    /// Backoff of failed calls.
    pub retry: Schedule,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            call_timeout: limits::CALL_TIMEOUT,
            clock_margin: limits::CLOCK_MARGIN,
            abandoned_after: limits::ABANDONED_AFTER,
            place_kept: limits::PLACE_KEPT,
            retry: Schedule::default(),
        }
    }
}

impl Step {
    /// Nothing to write, nothing to call.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Stores the spec.
    pub(super) fn put_spec(spec: VolumeSpec) -> Self {
        Self { write: Some(Write::PutSpec(spec)), call: None }
    }

    /// Deletes the spec, and with it the volume.
    pub(super) fn delete_spec() -> Self {
        Self { write: Some(Write::DeleteSpec), call: None }
    }

    /// Stores the snapshot.
    pub(super) fn put_snapshot(id: &SnapshotId, snapshot: Snapshot) -> Self {
        Self { write: Some(Write::PutSnapshot(id.clone(), snapshot)), call: None }
    }

    /// Deletes the snapshot's record: nothing of it is at the storage.
    pub(super) fn drop_snapshot(id: &SnapshotId) -> Self {
        Self { write: Some(Write::DeleteSnapshot(id.clone())), call: None }
    }

    /// Stores the claim. With `call`, that call is made after the write.
    pub(super) fn put(alloc: &AllocId, claim: Claim, call: Option<Attempt>) -> Self {
        Self { write: Some(Write::PutClaim(alloc.clone(), claim)), call }
    }

    /// Frees the claim: it no longer conflicts with others. There are five places, each with its
    /// reason:
    ///
    /// - `release` and `begin`: the claim was waiting and held nothing.
    /// - `answer`: the controller unpublish succeeded.
    /// - `leave::controller`: the claim has left its node, and either the controller did not attach
    ///   it, or another claim there is sure to unpublish later.
    /// - `confirm`: the claim has left its node, and an operator confirms that it is detached.
    pub(super) fn free(alloc: &AllocId) -> Self {
        Self { write: Some(Write::DeleteClaim(alloc.clone())), call: None }
    }
}
