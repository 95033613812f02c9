//! Commands to a volume, and what their senders know.

use std::collections::BTreeMap;

use super::call::{CallKind, CallOwner};
use super::handle::Handle;
use super::outcome::Outcome;
use super::record::{Claim, NodeMount, VolumeSpec};
use super::storage::{CutSnapshot, SnapshotWish, Topology};
use crate::access::{Capability, CapabilityFilter, Mode};
use crate::proof::{Proof, Proven};
use crate::{AllocId, AttemptId, NodeId, PluginId, SnapshotId, WorkerId};

/// A command to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Register the volume, or update it.
    Register(VolumeSpec),
    /// Store the spec again unchanged, so that the key of its handle is stored with it.
    Reserve,
    /// Deregister the volume.
    Deregister {
        /// Close a volume that is in use, instead of refusing.
        force: bool,
        /// The reason, for people.
        reason: String,
    },
    /// Claim the volume.
    Take(Take),
    /// Give up the alloc's claim, if it differs from this one, so that this one can be taken.
    Change {
        /// The claim that the alloc asks for.
        take: Take,
        /// The claim of which the node's agent has nothing: its epoch. None if the agent was not
        /// asked, or has something.
        unmounted: Option<u64>,
    },
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
        /// Whether the plugin expands volumes on nodes only.
        node_only: bool,
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
        /// Its requested properties.
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

impl Take {
    /// Whether it asks for another mode, or for another use of the volume, than this claim has.
    pub fn differs_from(&self, claim: &Claim) -> bool {
        claim.mode != self.mode || self.capability.first_of(&[claim.capability()]).is_none()
    }
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
    /// The plugin says that the node does not reach its storage.
    Storage(String),
    /// The plugin has no room where the node is, and has some elsewhere.
    Room(String),
    /// The plugin gives the node an id that another node had first.
    SharedId(String),
    /// Another node has a mount of the volume that no claim covers.
    Unaccounted(String),
    /// Another node may have one: it has not said so since the records were restored.
    Unreported(String),
}
