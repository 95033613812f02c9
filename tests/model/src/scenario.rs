//! What is searched: a volume, its allocs, and the rules that are taken away.

use std::fmt;

use berth_domain::access::{AccessMode, Mode};

/// One world to search.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The name in reports.
    pub name: &'static str,
    /// How the volume may be shared.
    pub access: AccessMode,
    /// Whether the plugin's controller attaches it.
    pub attaches: Attaches,
    /// The allocs that want it, at most [`ALLOCS`](crate::world::ALLOCS).
    pub allocs: &'static [Placed],
    /// Whether they wait in the queue while others hold it.
    pub wait: bool,
    /// Whether agents crash, nodes reboot, and the node's half of the plugin fails.
    pub nodes_fail: bool,
    /// Whether an agent's journal may be lost.
    pub loses_journal: bool,
    /// The further troubles of this world.
    pub troubles: &'static [Trouble],
    /// The most calls that may be started; `None` for no limit.
    pub attempts: Option<u8>,
    /// The rule that is taken away.
    pub mutation: Option<Mutation>,
}

/// Whether the plugin's controller attaches volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attaches {
    /// It does.
    Always,
    /// The plugin has no controller, or one that does not attach.
    Never,
    /// The answer changes: the plugin is upgraded, or a node runs another version.
    Changes,
}

/// Further events that may happen in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The first node goes, is declared gone, and returns.
    NodeGone,
    /// The second node goes, is declared gone, and returns.
    OtherNodeGone,
    /// A second claim service decides on a record that it read earlier.
    SecondService,
    /// The volume is updated, deregistered, closed by force, and registered again.
    Deregistered,
    /// The plugin has no room for another publish.
    NoRoom,
    /// The plugin's controller runs twice, behind one queue group, and neither executor sees the
    /// other's lock. An executor that was killed and restarted during a call behaves the same.
    SecondController,
    /// The controller runs three times, so that two calls may wait behind a third.
    ThirdController,
    /// The plugin's controller runs on each node, and is called for the claims there. It takes one
    /// call for the volume at a time, and nothing coordinates two controllers.
    OwnControllers,
    /// A person says that the storage has a claim's volume detached (rule 16).
    Confirmed,
    /// A person says at any time that nothing of the volume is left on a node (rule 18), whether
    /// that is true or not.
    Unstaged,
    /// The plugin's controller becomes unreachable for good.
    ControllerLost,
    /// The plugin's node service on the first node becomes unreachable for good.
    NodePluginLost,
    /// A call arrives more than once: the bus or its sender repeats it.
    Repeated,
    /// The plugin has one id for both nodes, so an attachment belongs to both.
    SharedId,
    /// A claim service of an older version admits claims, and compares no node ids.
    OlderService,
}

/// An alloc with its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its node, below [`NODES`](crate::world::NODES).
    pub node: usize,
    /// Whether it reads or writes.
    pub mode: Mode,
}

/// A rule of the protocol that is taken away, to show that the search finds the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Executors act on calls whose deadline has passed (rule 4).
    NoDeadline,
    /// New attempts do not wait for the margin after a deadline, and clocks differ (rule 3).
    NoMargin,
    /// Agents forget the epochs that they were told to detach (rule 10).
    NoEpoch,
    /// An unanswered call counts as done (rule 6).
    FreeOnTimeout,
    /// An answer counts for any attempt on the record (rule 5).
    OldAnswers,
    /// A node is detached without a check for other holders of the volume there (rule 9, safety
    /// rule 3).
    LeaveOthers,
    /// A claim whose unpublish is under way or uncertain is relied on (rule 9).
    RelyOnLeaving,
    /// An agent unstages without a check for other users of the volume there (rule 11).
    CarelessUnstage,
    /// An agent unstages when its count of uses says so (rule 11).
    CountUses,
    /// A person's confirmation counts whatever the controller said, and even if it was not asked
    /// (rule 16).
    AnyWord,
    /// An agent takes a person's confirmation without reading the mount table (rule 18).
    BlindWord,
    /// A release relies on a claim that a person may confirm (rules 9 and 16).
    RelyOnDenied,
    /// A service writes a decision that it made on an older record (rule 1).
    NoGuard,
    /// The newest revision of a volume falls when a delete's marker is purged. A service that
    /// missed the delete then passes the guard (rule 1, decision 0022).
    HeadsFall,
    /// A service repeats a grant without reading at the leader (rule 12).
    NoLeader,
    /// Executors do not remember the newest attempt that they saw (rule 4).
    NoMemory,
    /// Restarted agents without a journal accept calls that were issued before their start (rule
    /// 4).
    NoBeginning,
    /// An agent applies a detach of an earlier claim to its present claim (rule 10).
    AnyDetach,
    /// A controller is called without asking the other controllers (decision 0011).
    NoAsking,
    /// Only executors with an unanswered attempt are asked.
    AskTheUnheard,
    /// A plugin that is called again for a volume works on both calls: it neither answers ABORTED
    /// nor lets the second call wait.
    PluginOverlaps,
    /// A plugin lets calls for a volume wait for each other, and then takes any of them first.
    PluginJumpsLine,
    /// A proof counts for any claim on the record (rule 12).
    AnyProof,
    /// A node that returns is trusted without having undone anything (rule 12).
    NoUndo,
    /// A node that returns keeps mounts that are still claimed (rule 12).
    KeepClaimed,
    /// A node that returns follows grants from before its absence (rule 12).
    NoFence,
    /// Only the journal says that the node follows no older grant, and it may be lost (rule 12).
    JournalFence,
    /// The controller is called without a look at claims of other nodes, which may have the same id
    /// at the plugin (rule 9).
    ByNodeName,
    /// A node is recorded as gone although its record changed after the evidence was gathered (rule
    /// 12).
    StaleEvidence,
    /// A returned node refuses only the grants that it knew of when it returned, and counts as gone
    /// for longer (rule 12).
    EarlyFence,
    /// A call is made that its claim does not record (rule 2).
    UnwrittenCall,
    /// Calls of other claims are ignored (rule 3, safety rule 4).
    ForgetCalls,
    /// An answer is accepted whose attempt is not on the record (rule 5, safety rule 7).
    TakeOldAnswers,
    /// A failure leaves no error on its claim (rule 5).
    SilentFailures,
    /// Claims are ignored when the volume is deregistered (rule 15).
    DeregisterClaimed,
    /// A proof for an earlier claim counts for the present one (rule 12).
    EarlierProof,
    /// A full node counts as one with room for another volume.
    FullNodes,
    /// A claim that may be mounted is given up for one in another mode (rule 25).
    ChangeMounted,
    /// A release is never retried (rule 14).
    NoSecondTry,
}

impl Scenario {
    /// The scenario with a rule taken away.
    #[must_use]
    pub fn without(self, mutation: Mutation) -> Self {
        Self { mutation: Some(mutation), ..self }
    }

    pub(crate) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether the node may go.
    pub(crate) fn goes(&self, node: usize) -> bool {
        self.has([Trouble::NodeGone, Trouble::OtherNodeGone][node])
    }

    /// The place where the storage has it attached for this node: two nodes may share one.
    pub(crate) fn attached_at(&self, node: usize) -> usize {
        if self.has(Trouble::SharedId) { 0 } else { node }
    }

    /// The number of executors of the plugin's controller.
    pub(crate) fn controllers(&self) -> usize {
        let more = [Trouble::SecondController, Trouble::ThirdController];
        1 + more.into_iter().filter(|trouble| self.has(*trouble)).count()
    }

    pub(crate) fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.mutation {
            Some(mutation) => write!(f, ", {mutation:?}"),
            None => Ok(()),
        }
    }
}
