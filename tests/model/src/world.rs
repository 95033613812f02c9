//! A state of the world: one volume, the allocs that want it, and the messages between them.
//!
//! Times are ticks from now. Numbers that only order two things are kept as ranks, so that worlds
//! that behave alike are equal ([`normal`](crate::normal)).

use berth_domain::volume::{CallKind, State};

/// The most allocs in a world.
pub const ALLOCS: usize = 3;
/// The nodes of a world.
pub const NODES: usize = 2;
/// From an attempt's write to its deadline, in ticks.
pub const TIMEOUT: i8 = 1;
/// The largest difference between two clocks, in ticks.
pub const MARGIN: i8 = 1;
/// A time that is further back than any rule looks, in ticks.
pub const LONG_AGO: i8 = -MARGIN - 1;

/// A state of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct World {
    /// The claims on the record.
    pub record: Record,
    /// Calls that were sent or are at work.
    pub calls: Vec<Call>,
    /// Answers on their way back.
    pub answers: Vec<Answer>,
    /// Grants on their way to agents.
    pub grants: Vec<Grant>,
    /// Where the controller has the volume attached: by node, or at index 0 for all nodes to which
    /// the plugin gives one id.
    pub attached: [bool; NODES],
    /// Whether the controller is unreachable for good.
    pub controller_lost: bool,
    /// The nodes.
    pub nodes: [Node; NODES],
    /// The number of calls that may still be started, if it is limited.
    pub attempts_left: Option<u8>,
    /// The claims for which an operator holds a proof: the operator saw the present claim, and
    /// afterwards saw that its node is gone. The proof may be outdated.
    pub proven: [bool; ALLOCS],
    /// The record as a second claim service saw it.
    pub view: Option<Record>,
}

/// The volume's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Record {
    /// Whether it is registered.
    pub spec: Spec,
    /// One for each alloc that has one.
    pub claims: [Option<Claim>; ALLOCS],
}

/// The registration of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Spec {
    /// Registered.
    #[default]
    Open,
    /// Deregistered by force. The spec is deleted with the last claim.
    Closing,
    /// Not registered.
    Gone,
}

/// The parts of a claim that differ between claims of one alloc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the claim as it is stored")]
pub struct Claim {
    /// Its state.
    pub state: State,
    /// Whether the controller attaches the volume for it.
    pub controller: bool,
    /// Whether its last call failed, where that decides who is asked.
    pub failed: bool,
    /// Whether the plugin had no room for it.
    pub exhausted: bool,
    /// Whether the plugin answered the last try to take it down with an error.
    pub denied: bool,
    /// Whether a person confirms that nothing of it is left on its node (rule 18).
    pub confirmed_unstaged: bool,
    /// Whether it left its node by a proof.
    pub proof: bool,
    /// The rank of its epoch among the claims of its alloc.
    pub epoch: u8,
    /// The rank of its place in line while it waits.
    pub ticket: u8,
    /// The call that may be under way.
    pub attempt: Option<Attempt>,
}

/// An attempt on the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// Which call.
    pub kind: CallKind,
    /// Whether it is the attempt on the record.
    pub id: AttemptId,
    /// Ticks to its deadline.
    pub left: i8,
}

/// The identity of a claim's attempt. It only matters whether it is the one on the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptId {
    /// An attempt that is not on the record any more.
    Old,
    /// The attempt on the record.
    Current,
    /// The attempt that this step started. It is current once the step is done.
    New,
}

/// A call on its way to its executor, or at work there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own of the call")]
pub struct Call {
    /// Which call.
    pub kind: CallKind,
    /// The alloc of its claim.
    pub alloc: usize,
    /// The attempt that the call belongs to.
    pub attempt: AttemptId,
    /// The epoch of the claim that it is for.
    pub epoch: u8,
    /// Whether it carries a person's confirmation that nothing is left on the node (rule 18).
    pub confirmed_unstaged: bool,
    /// Ticks to its deadline.
    pub left: i8,
    /// Whether the controller of the other node is asked first which calls it works on (decision
    /// 0011).
    pub asks: bool,
    /// Whether its executor accepted it.
    pub at_work: bool,
    /// The number of earlier controller calls that the plugin has yet to end.
    pub behind: u8,
    /// The rank of this controller call by the time of its request, where calls may arrive twice.
    pub order: u8,
    /// Whether its executor refuses it as old (rule 4): the executor has seen a later call and
    /// remembers it, or started later.
    pub old: bool,
}

/// An answer on its way to the replica that records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Answer {
    /// The alloc of its claim.
    pub alloc: usize,
    /// The attempt that the answer belongs to.
    pub attempt: AttemptId,
    /// The outcome that the answer reports.
    pub outcome: Outcome,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// It did nothing, and never will.
    Refused,
    /// It was answered with an error.
    Failed,
    /// The plugin was not called, because an earlier call may be at work. It differs from a failure
    /// only where that matters.
    Unasked,
    /// The answer was that there is no room.
    Exhausted,
    /// It was not answered.
    Unanswered,
}

/// A reply `taken` under way to the agent that sent the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// The alloc that the claim is for.
    pub alloc: usize,
    /// The epoch of the claim.
    pub epoch: u8,
}

/// A node: its agent's records, and its real state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the node")]
pub struct Node {
    /// In the journal: the epoch at which each alloc uses, or may use, the volume.
    pub intents: [Option<u8>; ALLOCS],
    /// In the journal: the highest epoch that the agent was told to detach for each alloc; 0 for
    /// none.
    pub told_to_detach: [u8; ALLOCS],
    /// The call that the plugin's node service works on.
    pub busy: Option<NodeCall>,
    /// Whether the volume is staged.
    pub staged: bool,
    /// The allocs that it is published for.
    pub mounted: [bool; ALLOCS],
    /// Whether the node is present.
    pub presence: Presence,
    /// Whether its record says that it is gone (rule 12).
    pub gone: bool,
    /// Whether an operator has read the node's record, then made sure that nothing on the node can
    /// write, and not yet declared it gone.
    pub evidence: bool,
    /// The highest epoch at which each alloc ended because its node returned (rule 12). The claim
    /// service grants nothing up to it. It is no part of the journal, which may be lost.
    pub ended: [u8; ALLOCS],
    /// Whether the plugin's node service is unreachable for good.
    pub plugin_lost: bool,
    /// How often the volume was published, minus how often it was unpublished. Only a mutation of
    /// the agent keeps this count.
    pub uses: u8,
}

/// Whether a node is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Presence {
    /// The node works.
    #[default]
    Present,
    /// Nothing on the node can write: it has no power, or the storage refuses its writes.
    Off,
    /// The node has returned, was told that it counts as gone, and undoes its mounts. Nothing on it
    /// can write yet: it booted, or the fence stays until the node is ready.
    Back,
    /// The node has undone all mounts, and counts as present. It does not know yet which claims are
    /// new.
    Undone,
}

/// A call that a plugin's node service works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeCall {
    /// The kind of call.
    pub kind: NodeCallKind,
    /// The alloc that it is for.
    pub alloc: usize,
    /// The caller that waits for it.
    pub caller: NodeCaller,
}

/// The calls of CSI's node service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeCallKind {
    /// `NodeStageVolume`.
    Stage,
    /// `NodePublishVolume`.
    Publish,
    /// `NodeUnpublishVolume`.
    Unpublish,
    /// `NodeUnstageVolume`.
    Unstage,
}

/// The caller of a node call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeCaller {
    /// The agent, for a mount.
    Mount,
    /// The agent, for the call `agent.detach` that works on the node.
    Detach,
    /// No caller: the agent that made the call is gone.
    Nobody,
}

impl Node {
    /// Whether nothing on the node can write, whatever is mounted there.
    pub fn is_fenced(&self) -> bool {
        matches!(self.presence, Presence::Off | Presence::Back)
    }

    /// Whether the volume is staged or mounted on the node.
    pub fn in_use(&self) -> bool {
        self.staged || self.mounted.contains(&true)
    }
}

impl Attempt {
    /// Whether a rule-abiding executor, whose clock may be late by the margin, might begin it now.
    pub fn may_begin(self) -> bool {
        self.left >= -MARGIN
    }
}

impl Call {
    /// Whether a rule-abiding executor, whose clock may be late by the margin, might begin it now.
    pub fn may_begin(&self) -> bool {
        self.left >= -MARGIN
    }
}
