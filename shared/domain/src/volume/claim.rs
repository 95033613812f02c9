//! A claim: an alloc's right to use a volume, and where its release has got to.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::node_mount::NodeMount;
use crate::access::{AccessMode, AttachmentMode, Capability, Mode};
use crate::proof::Proof;
use crate::{NodeId, Timestamp};

/// Where a claim stands; the diagram is in [the module](super).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// In line; holds nothing.
    Waiting,
    /// Reserved; the controller is attaching the volume to the node. Nothing is mounted by it.
    Publishing,
    /// Granted: the workload may have it mounted.
    Taken,
    /// No longer wanted; the node is still to unmount it.
    Unpublishing,
    /// Unmounted on its node, or never mounted; the controller may still have it attached there.
    NodeDetached,
}

impl State {
    /// The name in records and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Publishing => "publishing",
            Self::Taken => "taken",
            Self::Unpublishing => "unpublishing",
            Self::NodeDetached => "node-detached",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One claim. Fields stand in the order in which a person who looks at the record wants them: `nats
/// kv get` shows the first 120 characters, which are to say where it stands, when it is tried next
/// and why not yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Where it stands.
    pub state: State,
    /// The node it is for.
    pub node: NodeId,
    /// Calls of the present state that did not succeed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// When the next is due; none while one is under way, or at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// What the last of them said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it may do; kept through release, so that a read-only publish is undone as one (B7).
    pub mode: Mode,
    /// Since when it stands so.
    pub since: Timestamp,
    /// In line: the place is lost when nobody asks again until then. Never, when it does not say:
    /// so it was before this was kept, and is until its caller asks again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place_until: Option<Timestamp>,
    /// Publishing: the plugin said that it has no room for it (`RESOURCE_EXHAUSTED`). While a claim
    /// says so, the volume is not published elsewhere either (A7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exhausted: bool,
    /// Node-detached: the controller answered the last try with an error, or there is none to ask:
    /// so it is at no call for the volume, and a person may answer in its place (rule 16).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
    /// Why it is being released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What stood in for the node's answer, when it left the node by a proof (rule 12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// The call that may be under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// The revision of the write that made this claim, so that the same alloc claiming again later
    /// has a higher one. A write cannot know its own revision: in the record it is 0 until the next
    /// write, and whoever reads the record fills it in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// How the volume is shared while this claim lives.
    pub access: AccessMode,
    /// What it is to its workload.
    pub attachment: AttachmentMode,
    /// Whether the plugin's controller attaches it, and must detach it (B9). Kept here, because at
    /// release the plugin may be gone or answer otherwise.
    pub controller: bool,
    /// What the plugin calls the node (`NodeGetInfo.node_id`); kept here, because at release the
    /// node may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_node: Option<String>,
    /// What the controller said the node needs (`publish_context`), passed on untouched (B2).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub publish_context: BTreeMap<String, String>,
    /// Taken: what the node does with it, as its agent reported last. No decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<NodeMount>,
}

pub(super) fn is_zero<N: Default + PartialEq>(number: &N) -> bool {
    *number == N::default()
}

impl Claim {
    /// How the volume is used while this claim lives.
    pub fn capability(&self) -> Capability {
        Capability { access: self.access, attachment: self.attachment }
    }

    /// Whether it holds the volume, or may: all do but those in line.
    pub fn is_held(&self) -> bool {
        self.state != State::Waiting
    }

    /// Whether something on its node may use the attachment, or is about to.
    pub(super) fn is_in_use(&self) -> bool {
        matches!(self.state, State::Publishing | State::Taken | State::Unpublishing)
    }

    /// Whether a controller call for one may concern the attachment of the other: on one node, or
    /// under one of the plugin's ids.
    pub(super) fn shares_attachment(&self, other: &Self) -> bool {
        let one_id = self.external_node.is_some() && self.external_node == other.external_node;
        self.node == other.node || one_id
    }

    /// Rule 9: whether this one is sure to make a *fresh* controller unpublish later. One whose own
    /// unpublish is under way or uncertain is not: between its call and its late answer, a third
    /// claim may have attached the node again. Nor is one that a person may answer for.
    pub fn will_unpublish(&self) -> bool {
        self.controller
            && match self.state {
                State::Waiting => false,
                State::Publishing | State::Taken | State::Unpublishing => true,
                State::NodeDetached => self.attempt.is_none() && !self.denied,
            }
    }

    /// This claim with a call under way: until it is answered there is no next try. One before it
    /// that nobody has answered was a try, also when nobody was left to say so.
    #[must_use]
    pub(super) fn attempting(self, attempt: &Attempt) -> Self {
        let tries = if self.attempt.is_some() { self.tries.max(1) } else { self.tries };
        Self { attempt: Some(attempt.clone()), tries, next_try: None, ..self }
    }

    /// This claim in another state: the retries and the error of the old one are over.
    #[must_use]
    pub(super) fn enter(self, state: State, now: Timestamp) -> Self {
        Self {
            state,
            since: now,
            tries: 0,
            error: None,
            next_try: None,
            place_until: None,
            exhausted: false,
            denied: false,
            attempt: None,
            mount: None,
            ..self
        }
    }
}
