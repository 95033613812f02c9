//! A state of the world: one volume, the allocs that want it, and everything on its way between
//! them.
//!
//! Times are ticks from now, and numbers that only say which of two things came first are kept as
//! ranks, so that worlds that behave alike are alike ([`normal`](crate::normal)).

use berth_domain::volume::{CallKind, State};

/// The most allocs in a world.
pub const ALLOCS: usize = 3;
/// The nodes of a world.
pub const NODES: usize = 2;
/// From an attempt's write to its deadline, in ticks.
pub const TIMEOUT: i8 = 1;
/// What clocks may differ by, in ticks.
pub const MARGIN: i8 = 1;
/// Longer ago than any rule asks.
pub const LONG_AGO: i8 = -MARGIN - 1;

/// Everything there is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct World {
    /// The claims on the record.
    pub record: Record,
    /// Calls that were sent, or are at work.
    pub calls: Vec<Call>,
    /// Answers on their way back.
    pub answers: Vec<Answer>,
    /// Grants on their way to agents.
    pub grants: Vec<Grant>,
    /// Where the controller has the volume attached: by node, or in the first place for all nodes
    /// that the plugin calls by one id.
    pub attached: [bool; NODES],
    /// Whether the controller can be reached no more, for good.
    pub controller_lost: bool,
    /// The nodes.
    pub nodes: [Node; NODES],
    /// Calls that may still be started, when they are counted.
    pub attempts_left: Option<u8>,
    /// The claims for which an operator holds a proof: the operator saw the present claim, and then
    /// that its node is gone. The proof may be outdated.
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
    /// Deregistered by force: it goes with its last claim.
    Closing,
    /// Not registered.
    Gone,
}

/// What of a claim is not the same for all claims of its alloc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the claim as it is stored")]
pub struct Claim {
    /// Its state.
    pub state: State,
    /// Whether the controller attaches the volume for it.
    pub controller: bool,
    /// Whether its last call did not succeed, where that is asked.
    pub failed: bool,
    /// Whether the plugin had no room for it.
    pub exhausted: bool,
    /// Whether the plugin answered the last try to take it down with an error.
    pub denied: bool,
    /// Whether a person says that nothing of it is left on its node (rule 18).
    pub word: bool,
    /// Whether it left its node by a proof.
    pub proof: bool,
    /// Which claim of its alloc: a rank.
    pub epoch: u8,
    /// Its place in line while it waits: a rank.
    pub ticket: u8,
    /// The call that may be under way.
    pub attempt: Option<Attempt>,
}

/// An attempt on the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// Which call.
    pub kind: CallKind,
    /// Which attempt.
    pub id: AttemptId,
    /// Ticks to its deadline.
    pub left: i8,
}

/// Which attempt of a claim: only whether it is the one on the record can matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptId {
    /// One that is on the record no more.
    Old,
    /// The one on the record.
    Current,
    /// The one that this very step started; it is current when the step is done.
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
    /// Of which attempt.
    pub attempt: AttemptId,
    /// Which claim of the alloc.
    pub epoch: u8,
    /// Whether it carries a person's word that nothing is left on the node (rule 18).
    pub word: bool,
    /// Ticks to its deadline.
    pub left: i8,
    /// Whether the controller of the other node is to be asked first what it is at (decision 0011).
    pub asks: bool,
    /// Whether its executor took it up.
    pub at_work: bool,
    /// How many calls the plugin's controller was asked for before this one, and is still to end.
    pub behind: u8,
    /// Which controller call on its way was asked for first, where calls may come twice: a rank.
    pub order: u8,
    /// Whether its executor refuses it as old (rule 4): it has seen one that was asked for later,
    /// and remembers it, or began later.
    pub old: bool,
}

/// An answer on its way to the replica that records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Answer {
    /// The alloc of its claim.
    pub alloc: usize,
    /// Of which attempt.
    pub attempt: AttemptId,
    /// What it says.
    pub outcome: Outcome,
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It succeeded.
    Done,
    /// It did nothing and never will.
    Refused,
    /// It was answered with an error.
    Failed,
    /// The plugin was not asked: an earlier call may be at work. Told apart where it matters.
    Unasked,
    /// It was answered that there is no room.
    Exhausted,
    /// It was not answered.
    Unanswered,
}

/// A reply `taken` on its way to the agent that asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grant {
    /// For whom.
    pub alloc: usize,
    /// Which claim of the alloc.
    pub epoch: u8,
}

/// A node: what its agent keeps, and what is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the node")]
pub struct Node {
    /// The journal: the epoch at which each alloc is, or may be, using the volume.
    pub intents: [Option<u8>; ALLOCS],
    /// The journal: the highest epoch at which each alloc was told to go; 0 for never.
    pub told: [u8; ALLOCS],
    /// The call that the plugin's node service is at.
    pub busy: Option<NodeCall>,
    /// Whether the volume is staged.
    pub staged: bool,
    /// For which allocs it is published.
    pub mounted: [bool; ALLOCS],
    /// Whether it is there.
    pub life: Life,
    /// Whether its record says that it is gone (rule 12).
    pub gone: bool,
    /// Whether an operator has read its record, then made sure that nothing on it can write, and
    /// not yet declared it gone.
    pub evidence: bool,
    /// The highest epoch at which each alloc ended because its node was back (rule 12): the claim
    /// service grants nothing up to it. No part of the journal, which may be lost.
    pub ended: [u8; ALLOCS],
    /// Whether the plugin's node service can be reached no more, for good.
    pub plugin_lost: bool,
    /// How often the volume was published, less how often it was unpublished: an agent that keeps
    /// such a count is a mutation.
    pub uses: u8,
}

/// Whether a node is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Life {
    /// It is.
    #[default]
    Here,
    /// Nothing on it can write: it has no power, or the storage takes nothing from it.
    Off,
    /// It is back, was told that it counts as gone, and undoes its mounts. Nothing on it can write
    /// yet: it booted, or the fence stays until the node is ready.
    Back,
    /// It has undone everything, and counts as there; it does not know yet which claims are new.
    Undone,
}

/// A call that a plugin's node service is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeCall {
    /// Which.
    pub kind: NodeCallKind,
    /// For whom.
    pub alloc: usize,
    /// The caller that waits for it.
    pub whose: Whose,
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
pub enum Whose {
    /// The agent, on its way to a mount.
    Mount,
    /// The agent, on its way out: the call `agent.detach` that is at work on the node.
    Detach,
    /// None: the agent that made it is gone.
    Nobody,
}

impl Node {
    /// Whether nothing on the node can write, whatever is mounted there.
    pub fn is_fenced(&self) -> bool {
        matches!(self.life, Life::Off | Life::Back)
    }

    /// Whether anything of the volume is on the node.
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
