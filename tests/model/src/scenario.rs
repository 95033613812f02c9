//! What is searched: a volume, its allocs, and what is broken on purpose.

use std::fmt;

use berth_domain::access::{AccessMode, Mode};

/// One world to search.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What it is called in reports.
    pub name: &'static str,
    /// How the volume may be shared.
    pub access: AccessMode,
    /// Whether the plugin's controller attaches it.
    pub attaches: Attaches,
    /// The allocs that want it, at most [`ALLOCS`](crate::world::ALLOCS).
    pub allocs: &'static [Placed],
    /// Whether they get in line when others hold it.
    pub wait: bool,
    /// Whether agents crash, nodes reboot, and the node's half of the plugin fails.
    pub nodes_fail: bool,
    /// Whether an agent's journal may be lost.
    pub loses_journal: bool,
    /// What else happens.
    pub troubles: &'static [Trouble],
    /// How many calls may be started; none for any number.
    pub attempts: Option<u8>,
    /// What is broken on purpose.
    pub mutation: Option<Mutation>,
}

/// Whether the plugin's controller attaches volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attaches {
    /// It does.
    Always,
    /// It has none, or that one does not attach.
    Never,
    /// It says now this, now that: an upgrade, or a node that runs another version.
    Changes,
}

/// What else may happen in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The first node goes, is proven gone, and comes back.
    NodeGone,
    /// So does the second.
    OtherNodeGone,
    /// A second claim service decides on what it saw a while ago.
    SecondService,
    /// The volume is updated, deregistered, closed by force, and registered again.
    Deregistered,
    /// The plugin has no room for another publish.
    NoRoom,
    /// The plugin's controller runs twice, behind one queue group, and neither executor sees the
    /// other's lock. As does one whose executor was killed and started again over a call.
    SecondController,
    /// It runs three times: two calls may wait behind a third.
    ThirdController,
    /// The plugin's controller runs on each node, and is called for the claims there; it takes one
    /// call for the volume at a time, and nothing keeps two of them apart.
    OwnControllers,
    /// A person says that the storage has a claim's volume detached (rule 16).
    Confirmed,
    /// A person says at any time that nothing of the volume is left on a node (rule 18), whether it
    /// is so or not.
    Unstaged,
    /// The plugin's controller can be reached no more, for good.
    ControllerLost,
    /// The plugin's node service on the first node can be reached no more, for good.
    NodePluginLost,
    /// A call arrives more than once: the bus or its sender repeats it.
    Repeated,
    /// The plugin calls both nodes by one id, so that an attachment is both nodes'.
    SharedId,
    /// A claim service of an older version admits claims, and compares no ids.
    OlderService,
}

/// One alloc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its node, below [`NODES`](crate::world::NODES).
    pub node: usize,
    /// What it does with the volume.
    pub mode: Mode,
}

/// A rule of the protocol taken away, to see that the search notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Executors act on calls whose deadline has passed (rule 4).
    NoDeadline,
    /// New attempts do not wait for the margin after a deadline, and clocks differ (rule 3).
    NoMargin,
    /// Agents forget what they were told to detach (rule 10).
    NoEpoch,
    /// A call that was not answered counts as done (rule 6).
    FreeOnTimeout,
    /// An answer counts for whatever attempt is on the record (rule 5).
    OldAnswers,
    /// A node is left without a check for other holders of the volume there (rule 9, safety rule
    /// 3).
    LeaveOthers,
    /// A claim whose unpublish is under way or uncertain is relied on (rule 9).
    RelyOnLeaving,
    /// An agent unstages without a check for other users of the volume there (rule 11).
    CarelessUnstage,
    /// An agent unstages when its count of uses says so (rule 11).
    CountUses,
    /// A person's word counts whatever the controller said, and whether it was asked (rule 16).
    AnyWord,
    /// An agent takes a person's word without a look at the mount table (rule 18).
    BlindWord,
    /// A claim is relied on that a person may answer for (rules 9 and 16).
    RelyOnDenied,
    /// A service writes what it decided on an older record (rule 1).
    NoGuard,
    /// The newest revision of a volume falls when a delete's marker goes, and a service that missed
    /// the delete passes the guard (rule 1, decision 0022).
    HeadsFall,
    /// A grant is given again by a service that does not look at the leader (rule 12).
    NoLeader,
    /// Executors do not remember the newest attempt that they saw (rule 4).
    NoMemory,
    /// Restarted agents without a journal accept calls that were issued before their start (rule
    /// 4).
    NoBeginning,
    /// An agent takes a detach of an earlier claim for one of its present claim (rule 10).
    AnyDetach,
    /// A controller is called without asking the other controllers (decision 0011).
    NoAsking,
    /// Only executors with an unanswered attempt are asked.
    AskTheUnheard,
    /// A plugin that is asked again for a volume acts on both calls as it likes: it neither answers
    /// ABORTED nor has the second wait for the first.
    PluginOverlaps,
    /// A plugin has calls for a volume wait for each other, and then takes any of them.
    PluginJumpsLine,
    /// A proof counts for whatever claim is on the record (rule 12).
    AnyProof,
    /// A node that comes back is taken for good without having undone anything (rule 12).
    NoUndo,
    /// A node that comes back keeps what is still claimed (rule 12).
    KeepClaimed,
    /// A node that comes back follows grants from before (rule 12).
    NoFence,
    /// That it follows none is kept in its journal only, which may be lost (rule 12).
    JournalFence,
    /// Claims of other nodes are not looked at when the controller is called, whatever the plugin
    /// calls their nodes (rule 9).
    ByNodeName,
    /// That a node is gone is put on record though its record changed since it was looked at,
    /// before the evidence was gathered (rule 12).
    StaleEvidence,
    /// It follows none of those that it knew of when it came back, and counts as gone a while
    /// longer (rule 12).
    EarlyFence,
    /// A call is made of which its claim says nothing (rule 2).
    UnwrittenCall,
    /// The calls of other claims are not looked at (rule 3, safety rule 4).
    ForgetCalls,
    /// An answer of an attempt that is not on the record is taken (rule 5, safety rule 7).
    TakeOldAnswers,
    /// A failure leaves nothing on its claim (rule 5).
    SilentFailures,
    /// Claims are not looked at when the volume is deregistered (rule 15).
    DeregisterClaimed,
    /// A proof for an earlier claim is taken for one for this (rule 12).
    EarlierProof,
    /// A node without room for another volume is taken for one with room.
    FullNodes,
    /// A release is never tried again (rule 14).
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

    /// Where the storage has it attached, when it is attached to the node: two nodes may be one.
    pub(crate) fn attached_at(&self, node: usize) -> usize {
        if self.has(Trouble::SharedId) { 0 } else { node }
    }

    /// How often the plugin's controller runs.
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
