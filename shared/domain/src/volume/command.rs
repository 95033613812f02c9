//! What may be asked of a volume, and what comes of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attempt::Attempt;
use super::claim::Claim;
use super::handle::HandleUse;
use super::node_mount::NodeMount;
use super::spec::VolumeSpec;
use crate::access::{CapabilityFilter, Mode};
use crate::proof::{Proof, Proven};
use crate::retry::Schedule;
use crate::{AllocId, AttemptId, NodeId, Timestamp, WorkerId, limits};

/// What may be asked of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Register it, or update it.
    Register(VolumeSpec),
    /// Store the spec once more as it is, so that the key of its handle is stored with it.
    Reserve,
    /// Deregister it.
    Deregister {
        /// Release its claims rather than refuse.
        force: bool,
        /// What is said for it, for the history.
        reason: String,
        /// Claiming allocs that have not ended: they refuse even force.
        running: Vec<AllocId>,
    },
    /// Claim it.
    Take(Take),
    /// Give a claim up.
    Release {
        /// Whose claim.
        alloc: AllocId,
        /// Only the claim of this epoch, when given.
        epoch: Option<u64>,
        /// Why, for people.
        reason: String,
    },
    /// A person answers for it that the storage has the volume attached to the claim's node no
    /// more, because the plugin cannot say so (rule 16).
    Confirm {
        /// Whose claim.
        alloc: AllocId,
        /// The claim that was seen.
        epoch: u64,
        /// Who says so, and what was said.
        word: Proof,
    },
    /// A worker asks for the next call of a claim's release.
    Begin {
        /// Whose claim.
        alloc: AllocId,
        /// Who will make the call.
        worker: WorkerId,
        /// Whether the alloc lives and so still wants the claim.
        wanted: bool,
        /// Whether something changed that may let a call succeed that failed: then it is made
        /// although its next try has not come.
        early: bool,
        /// What stands in for the node's answer, when the node is gone (rule 12). Nobody wants a
        /// claim there any more.
        proven: Option<Proven>,
    },
    /// The node's agent reports what it does with a granted claim.
    Observe {
        /// Whose claim.
        alloc: AllocId,
        /// The claim that it was granted by.
        epoch: u64,
        /// The report.
        mount: NodeMount,
    },
    /// What came of a call.
    Answer {
        /// Whose claim.
        alloc: AllocId,
        /// Which call.
        attempt: AttemptId,
        /// What came of it.
        outcome: Outcome,
        /// Who goes on with the next call, if somebody does.
        worker: Option<WorkerId>,
    },
}

/// A claim that is asked for. All but the alloc's word was looked up by the service (B1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    /// For whom.
    pub alloc: AllocId,
    /// Where.
    pub node: NodeId,
    /// To do what.
    pub mode: Mode,
    /// How: the volume's first capability that fits.
    pub capability: CapabilityFilter,
    /// Get in line rather than be refused when others hold it.
    pub wait: bool,
    /// How the plugin reaches the node, or why it cannot.
    pub route: Result<Route, NoRoute>,
    /// Who will call the controller.
    pub worker: WorkerId,
}

/// What the plugin needs for a volume on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// Whether its controller attaches volumes (B9: controller service and attach capability).
    pub controller: bool,
    /// What the plugin calls the node.
    pub external_node: Option<String>,
}

/// Why a volume cannot be claimed for a node now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRoute {
    /// Its plugin cannot serve it there: why not.
    Plugin(String),
    /// The node's clock is off, so that deadlines mean nothing there: by how much (safety rule 8).
    Clock(String),
    /// The node is down or gone.
    Node(String),
    /// The volume cannot be reached from where the node is.
    Topology(String),
    /// The node has as many volumes of the plugin as it takes (E10).
    Full(String),
    /// The plugin gives the node an id that is another node's: what can be done.
    SharedId(String),
    /// Another node has a mount of it that no claim covers: which.
    Unaccounted(String),
}

/// What came of a call, as far as the protocol cares (rules 5 and 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Done {
        /// What the controller said the node needs; empty for other calls.
        publish_context: BTreeMap<String, String>,
    },
    /// It was answered: it did nothing, and the same call never will.
    Refused(String),
    /// It was answered with an error: it may have done something, and may succeed when repeated.
    Failed(String),
    /// The plugin was not asked, or was not heard: a call for the volume may be at work.
    Unasked(String),
    /// It failed because the plugin has no room for it now (`RESOURCE_EXHAUSTED`).
    Exhausted(String),
    /// It was not answered: it may still be at work.
    Unanswered(String),
}

/// One transition: a guarded write, then at most one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// The write; none when the record already says so.
    pub write: Option<Write>,
    /// The call to make once the write is stored: the attempt that the write names.
    pub call: Option<Attempt>,
}

/// A write of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The spec.
    PutSpec(VolumeSpec),
    /// The spec goes, and the volume with it.
    DeleteSpec,
    /// A claim.
    PutClaim(AllocId, Claim),
    /// A claim goes: freed.
    DeleteClaim(AllocId),
}

/// What a decision needs besides the record: passed in, so that it is the same in a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// Now.
    pub now: Timestamp,
    /// The id of the attempt that this step may start.
    pub attempt: AttemptId,
    /// A random number, for jitter.
    pub jitter: u32,
    /// How long things take.
    pub policy: Policy,
    /// What is known of the handle that the volume has, or is to be registered with.
    pub handle: HandleUse,
}

/// How long things take; the same for all replicas of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// From an attempt's write to its deadline.
    pub call_timeout: Duration,
    /// Added to a deadline before a call that negates the first (safety rule 8).
    pub clock_margin: Duration,
    /// A reservation whose caller does not come back is undone after this.
    pub abandoned_after: Duration,
    /// A place in line is lost when nobody asks again for so long (B11).
    pub place_kept: Duration,
    /// When failed calls are repeated.
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

    /// A write, and the call of the attempt that it names, if it names a new one.
    pub(super) fn put(alloc: &AllocId, claim: Claim, call: Option<Attempt>) -> Self {
        Self { write: Some(Write::PutClaim(alloc.clone(), claim)), call }
    }

    /// The claim is freed: from here on it is in nobody's way. In five places, each with its
    /// ground: it was in line and held nothing (`release`, `begin`); its controller unpublish
    /// succeeded (`answer`); or it has left its node, and the controller did not attach it, or
    /// another claim there is sure to have it detached later (`leave::controller`), or a person
    /// answers for it that it is detached, which the plugin cannot say (`confirm`).
    pub(super) fn free(alloc: &AllocId) -> Self {
        Self { write: Some(Write::DeleteClaim(alloc.clone())), call: None }
    }
}
