//! The messages of the `claim.*` requests.
//!
//! **Owns** take with its grant, release, recovery, the records of watchers (checkpoint) and agents
//! (observe), and how a reply shows a claim.
//!
//! **Never** carries a secret: a grant has the id of its secrets, and the agent fetches them.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::proof::Proof;
use berth_domain::volume::{
    Attempt, CallFailure, CallKind, MountOptions, NodeMount, NodeMountState, Outcome, State,
};
use berth_domain::{
    AllocId, AttemptId, Namespace, NodeId, PluginId, SecretsId, Timestamp, VolumeId, WorkerId,
};
use serde::{Deserialize, Serialize};

use super::call::ClaimCall;
use super::digest::AllocsDigest;
use super::query::{LongPoll, Page, UnreadableRecord};
use crate::shorten::shorten;
use crate::{decode_leaf, decode_struct};

/// `claim.take`: ids only; the service looks up the rest (B1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Take {
    /// For whom.
    pub alloc: AllocId,
    /// Which volume.
    pub volume: VolumeId,
    /// From where: refused unless the alloc is placed there.
    pub node: NodeId,
    /// To do what; what the alloc's volume request says when absent, and no more than it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Get in line rather than be refused when others hold it (B11).
    #[serde(default)]
    pub wait: bool,
    /// Under which of the names that the alloc asked for it by, when it asked several times (E6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
}
decode_struct!(Take { alloc, volume, node, mode, wait = false, alias });

/// `claim.take` was granted: good once, here, now (rule 10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Which claim of the alloc.
    pub epoch: u64,
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// What the plugin calls it.
    pub external_id: String,
    /// Its plugin.
    pub plugin: PluginId,
    /// For whom.
    pub alloc: AllocId,
    /// What the claim may do.
    pub mode: Mode,
    /// How the volume is shared.
    pub access: AccessMode,
    /// File system or block device.
    pub attachment: AttachmentMode,
    /// Mount options, volume's and request's merged (A11).
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
    /// `volume_context`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// The controller's `publish_context`, untouched (B2).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub publish_context: BTreeMap<String, String>,
    /// Which secrets the plugin is called with; the agent asks for them (A9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsId>,
    /// The other allocs with a claim on the volume at this node. A mount there of any other alloc
    /// is covered by no claim. None where any number of allocs may write, where they are too many
    /// to be listed, and from an older service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims_beside: Option<BTreeSet<AllocId>>,
    /// The same allocs, where they are too many to be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims_beside_digest: Option<AllocsDigest>,
    /// The size of the volume in bytes, if it was expanded at its storage and not yet on this node:
    /// the agent expands it (`NodeExpandVolume`) once it is staged. Absent if nothing is to be
    /// expanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expand_to: Option<u64>,
    /// How it is to be seen under the name that was asked for, when that is not the one the claim
    /// rests on: beside the volume's publication, with options of its own (E6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// Who registered or adopted the alloc: it is in the subjects of the agent's events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A volume under another of the names that its alloc asked for it by (E6). It is published once
/// for the alloc, and seen in several places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Which of the alloc's requests for the volume, from 0.
    pub place: u32,
    /// What the workload may do there.
    pub mode: Mode,
    /// Mount options, volume's and request's merged.
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
}

/// `claim.release`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Whose claim.
    pub alloc: AllocId,
    /// On which volume.
    pub volume: VolumeId,
    /// Only the claim of this epoch, when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Why, for people.
    #[serde(default)]
    pub reason: String,
}
decode_struct!(Release { alloc, volume, epoch, reason = String::new() });

/// `claim.release` was recorded; the rest is the watcher's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The claim's present state. Absent if there is no such claim (any more).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
}

/// `claim.checkpoint`: a worker reports what came of its call, if it made one, and asks for the
/// next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Whose claim.
    pub alloc: AllocId,
    /// On which volume.
    pub volume: VolumeId,
    /// Who works.
    pub worker: WorkerId,
    /// What came of its call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<CallReport>,
    /// Something changed that may let a call succeed that failed: do not wait for its next try.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early: bool,
    /// The worker has no room for another call now: nothing new is begun, so that no deadline runs
    /// while it waits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub report_only: bool,
}
decode_struct!(Checkpoint { alloc, volume, worker, report, early = false, report_only = false });

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// Of which attempt.
    pub attempt: AttemptId,
    /// What came of it.
    pub outcome: ReportedOutcome,
    /// Failed: whether the plugin was asked, or is not there to be asked. Else an earlier call for
    /// the volume may be at work there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
    /// The error, when it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
decode_struct!(CallReport { attempt, outcome, asked = false, error });

/// [`Outcome`] on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedOutcome {
    /// It succeeded.
    Done,
    /// It did nothing, and never will.
    Refused,
    /// It was answered with an error.
    Failed,
    /// The plugin has no room for it now.
    Exhausted,
    /// It was not answered.
    Unanswered,
}
decode_leaf!(ReportedOutcome, Mode, State);

impl CallReport {
    /// A report of this outcome. An older claim service knows the failure in words only.
    pub fn new(attempt: AttemptId, outcome: Outcome) -> Self {
        let asked = matches!(outcome, Outcome::Failed(_));
        let (outcome, failure) = match outcome {
            // No call of a claim is answered with what the storage returned.
            Outcome::Done { .. } | Outcome::Stored(_) => (ReportedOutcome::Done, None),
            Outcome::Refused(failure) => (ReportedOutcome::Refused, Some(failure)),
            Outcome::Failed(failure) | Outcome::NotDone(failure) | Outcome::Unasked(failure) => {
                (ReportedOutcome::Failed, Some(failure))
            }
            Outcome::Exhausted(failure) => (ReportedOutcome::Exhausted, Some(failure)),
            Outcome::Unanswered(failure) => (ReportedOutcome::Unanswered, Some(failure)),
        };
        Self { attempt, outcome, asked, error: failure.map(|failure| shorten(failure.message)) }
    }

    /// The outcome reported.
    pub fn into_outcome(self) -> Outcome {
        let failure = self.error.unwrap_or_else(|| "no reason was given".to_owned()).into();
        match self.outcome {
            ReportedOutcome::Done => Outcome::Done { publish_context: BTreeMap::new() },
            ReportedOutcome::Refused => Outcome::Refused(failure),
            ReportedOutcome::Failed if self.asked => Outcome::Failed(failure),
            ReportedOutcome::Failed => Outcome::Unasked(failure),
            ReportedOutcome::Exhausted => Outcome::Exhausted(failure),
            ReportedOutcome::Unanswered => Outcome::Unanswered(failure),
        }
    }
}

/// `claim.checkpoint` was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpointed {
    /// The claim's present state. Absent if it is freed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The call to make next, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<ClaimCall>,
    /// When to ask again at the latest, when there is no call to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
}

/// `claim.recover`: the node has a mount that no claim covers. Its agent is about to unmount it, or
/// the node counts as gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recover {
    /// Whose mount.
    pub alloc: AllocId,
    /// The volume, by the name that it had when it was mounted.
    pub volume: VolumeId,
    /// Where it is mounted.
    pub node: NodeId,
    /// The plugin that mounted it.
    pub plugin: PluginId,
    /// What the plugin calls the volume.
    pub external_id: String,
    /// Read or write.
    pub mode: Mode,
    /// How the volume may be shared.
    pub access: AccessMode,
    /// File system or block device.
    pub attachment: AttachmentMode,
}
decode_struct!(Recover { alloc, volume, node, plugin, external_id, mode, access, attachment });

/// `claim.recover` was recorded: from now on the release goes on by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The claim's state.
    pub state: State,
}

/// `claim.observe`: the node's agent reports what it does with a granted claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// Whose claim.
    pub alloc: AllocId,
    /// On which volume.
    pub volume: VolumeId,
    /// The claim that it was granted by. Of an earlier claim nothing is stored.
    pub epoch: u64,
    /// The report.
    pub mount: NodeMount,
}
decode_struct!(Observe { alloc, volume, epoch, mount });
decode_struct!(NodeMount { state, since, rpc, tries = 0, error });
decode_leaf!(NodeMountState);

/// `claim.observe` was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Whether the claim has the report now. Else the claim is gone, or no longer taken.
    pub recorded: bool,
}

/// `claim.status`: claims of a volume, of an alloc, or all of the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListClaims {
    /// Only of volumes whose ids begin so.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Only of this volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
    /// Only of this alloc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<AllocId>,
    /// Only on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Only on volumes of this plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// Only in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Only claims that are to end: those that are being released, and those whose alloc has ended
    /// or is not known. A page has those among a bounded number of claims: it may be empty although
    /// there is a next one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: LongPoll,
}
decode_struct!(ListClaims {
    prefix = String::new(),
    volume,
    alloc,
    node,
    plugin,
    state,
    leaving = false,
} + page, newer);

/// The kind of thing that a claim waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimWait {
    /// The answer to its call, or the deadline of the call.
    Call,
    /// The time of its next try.
    NextTry,
    /// A volumewatcher that makes its next call.
    Watcher,
    /// Its release: its alloc has ended.
    Release,
    /// Its caller, to ask again.
    Caller,
    /// Its turn: claims that hold the volume, or came before it, end first.
    Turn,
    /// Another claim that uses the same attachment at the storage.
    Attachment,
    /// A claim of the same volume of the plugin that is registered under another name, too.
    OtherName,
    /// The server, which stores no writes.
    Store,
    /// A record that cannot be read.
    Record,
    /// Its node, which is down.
    Node,
    /// Its mount on the node.
    Mount,
    /// Something that a newer version waits for.
    #[serde(other)]
    Unknown,
}

/// A claim as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimStatus {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// Whose claim.
    pub alloc: AllocId,
    /// The claim's state.
    pub state: State,
    /// Where it is for.
    pub node: NodeId,
    /// What it may do.
    pub mode: Mode,
    /// When it entered its state.
    pub since: Timestamp,
    /// The call that it is at, or that comes next; none when none is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<CallKind>,
    /// What it waits for; absent when it is at rest, and from an older service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<ClaimWait>,
    /// The same in words, for people: no program reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Calls of the present state that did not succeed.
    #[serde(default)]
    pub tries: u32,
    /// Why the last of them did not succeed.
    #[serde(flatten)]
    pub failure: Option<CallFailure>,
    /// When the next is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// In line: how many are before it in line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// For a waiting claim: the first few claims that hold the volume or are ahead in line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<AllocId>,
    /// Whether the plugin said that it has no room for it (A7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exhausted: bool,
    /// Why it is being released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What stood in for the node's answer, when it left the node by a proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// Who said that nothing of the volume is left on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstaged_by: Option<Proof>,
    /// What a person can do, when it does not go on by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The call that may be under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The volume's plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// What the plugin calls the volume that was granted; absent on a claim of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// Whether the volume that was granted is not registered under this name any more: its
    /// registration was lost. The claim can be released, and is not granted again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stray: bool,
    /// Taken: what the node does with the claim, as its agent reported last; none until its first
    /// report, about a second after the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<NodeMount>,
    /// Which claim of the alloc.
    pub epoch: u64,
    /// The trace of its last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

impl ClaimStatus {
    /// Why the last call that did not succeed did not, in words.
    pub fn error(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.message.as_str())
    }

    /// What the last call said that failed: one of the claim's own calls, or one that mounts.
    pub fn last_error(&self) -> Option<&str> {
        let of_mount = || self.mount.as_ref()?.error.as_deref();
        self.error().or_else(of_mount)
    }

    /// How many calls in a row failed: of the claim's own, or of those that mount.
    pub fn failed_tries(&self) -> u32 {
        self.mount.as_ref().map_or(0, |mount| mount.tries).max(self.tries)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_unknown(incarnation: &u64) -> bool {
    *incarnation == 0
}

/// `claim.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The revision of the volumes bucket that the list shows: all of it, and nothing newer.
    #[serde(default)]
    pub index: u64,
    /// The incarnation of the volumes bucket, if records may be missing in it: it was restored, for
    /// example. 0 otherwise, and from an older service.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub incarnation: u64,
    /// The claims, by namespace, volume and alloc.
    pub claims: Vec<ClaimStatus>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}
