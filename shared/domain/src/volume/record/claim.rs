//! A claim: an alloc's right to use a volume, and how far its release has come.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::node_mount::NodeMount;
use crate::access::{AccessMode, AttachmentMode, Capability, Mode};
use crate::proof::Proof;
use crate::volume::call::{Attempt, Progress, is_zero};
use crate::volume::handle::Handle;
use crate::{NodeId, PluginId, Timestamp, limits};

/// The state of a claim; the diagram is in [the module](crate::volume).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// In line for the volume; holds nothing.
    Waiting,
    /// Reserved: the controller attaches the volume to the node. Nothing is mounted yet.
    Publishing,
    /// Granted: the workload may have it mounted.
    Taken,
    /// Being released: the node has to unmount the volume.
    Unpublishing,
    /// Unmounted on the node, or never mounted. The controller may still have it attached.
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

/// One claim. The order of the fields is for people: `nats kv get` shows the first 120 characters,
/// which say the state, the next try, and the last error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its state.
    pub state: State,
    /// The node it is for.
    pub node: NodeId,
    /// The calls of the present state.
    #[serde(flatten)]
    pub progress: Progress,
    /// Read or write. It stays during release, so that a read-only publish is undone as one (B7).
    pub mode: Mode,
    /// When it entered its state.
    pub since: Timestamp,
    /// `waiting`: the claim loses its place in line at this time, unless its caller asks again. A
    /// record of an older version has no such time, and keeps its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place_until: Option<Timestamp>,
    /// `publishing`: the plugin has no room for the volume (`RESOURCE_EXHAUSTED`). While a claim
    /// has this, the volume is not published on other nodes either (A7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exhausted: bool,
    /// `node-detached`: the controller answered the last try with an error, or there is no
    /// controller to ask. `unpublishing`: the node's plugin answered with an error. The plugin
    /// works on no call for the volume, so an operator may confirm in its place (rules 16 and 18).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
    /// Why it is being released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// `unpublishing`: the operator's confirmation that nothing of the volume is left on the node,
    /// for the next call of its agent (rule 18). `node-detached`: the confirmation by which the
    /// claim left the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstaged_by: Option<Proof>,
    /// The proof by which the claim left its node without the node's answer (rule 12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// The revision of the write that created this claim. A later claim of the same alloc has a
    /// higher one. A write cannot know its own revision: the record has 0 until the next write, and
    /// its reader fills in the revision.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// How the volume may be shared while this claim exists.
    pub access: AccessMode,
    /// Whether the workload gets a file system or a block device.
    pub attachment: AttachmentMode,
    /// Whether the plugin's controller attaches the volume, and must detach it (B9). Stored here,
    /// because the plugin may be gone or report otherwise at release.
    pub controller: bool,
    /// The plugin's id of the node (`NodeGetInfo.node_id`). Stored here, because the node may be
    /// gone at release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_node: Option<String>,
    /// The controller's `publish_context`, which the node's calls get unchanged (B2).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub publish_context: BTreeMap<String, String>,
    /// `taken`: the last report of the node's agent about the mount. No decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<NodeMount>,
    /// The plugin of the volume that is claimed. Stored here, because the registration may be lost,
    /// and its name given to another volume. None if an earlier version wrote the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// What the plugin calls that volume. None if an earlier version wrote the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
}

impl Claim {
    /// What the plugin calls abnormal of the mounted volume.
    pub fn condition(&self) -> Option<&str> {
        self.mount.as_ref()?.condition()
    }

    /// A new claim: no call was made for it, and no controller attaches the volume.
    pub fn new(
        state: State,
        node: NodeId,
        mode: Mode,
        capability: Capability,
        since: Timestamp,
    ) -> Self {
        Self {
            state,
            node,
            progress: Progress::default(),
            mode,
            since,
            place_until: None,
            exhausted: false,
            denied: false,
            reason: None,
            unstaged_by: None,
            proof: None,
            epoch: 0,
            access: capability.access,
            attachment: capability.attachment,
            controller: false,
            external_node: None,
            publish_context: BTreeMap::new(),
            mount: None,
            plugin: None,
            external_id: None,
        }
    }

    /// How the volume is used while this claim exists.
    pub fn capability(&self) -> Capability {
        Capability { access: self.access, attachment: self.attachment }
    }

    /// The volume that is claimed; none if an earlier version wrote the record.
    pub fn handle(&self) -> Option<Handle> {
        let (plugin, external_id) = (self.plugin.clone()?, self.external_id.clone()?);
        Some(Handle { plugin, external_id })
    }

    /// Whether the claim is certainly for another volume than the one with this handle.
    pub fn is_of_other_than(&self, handle: Option<&Handle>) -> bool {
        self.handle().is_some_and(|own| Some(&own) != handle)
    }

    /// This claim, for the volume with this handle.
    #[must_use]
    pub(in crate::volume) fn of_volume(self, handle: Option<&Handle>) -> Self {
        let (plugin, external_id) =
            handle.map(|handle| (handle.plugin.clone(), handle.external_id.clone())).unzip();
        Self { plugin, external_id, ..self }
    }

    /// Whether the claim holds the volume, or may. All claims do but the waiting ones.
    pub fn is_held(&self) -> bool {
        self.state != State::Waiting
    }

    /// Whether its alloc may still use it: it is not being released.
    pub fn is_wanted(&self) -> bool {
        matches!(self.state, State::Waiting | State::Publishing | State::Taken)
    }

    /// The last time at which a reservation's caller showed that it wants the claim. A `since` in
    /// the future was written by a clock that was ahead, and does not count.
    pub fn last_sign(&self, now: Timestamp) -> Timestamp {
        let since = Some(self.since).filter(|since| *since <= now.after(limits::CLOCK_MARGIN));
        let deadline = self.progress.attempt.as_ref().map(Attempt::ends);
        [since, deadline, self.progress.next_try].into_iter().flatten().max().unwrap_or_default()
    }

    /// Whether something on its node may use the attachment, or is about to.
    pub(in crate::volume) fn is_in_use(&self) -> bool {
        matches!(self.state, State::Publishing | State::Taken | State::Unpublishing)
    }

    /// Whether a controller call for one claim may affect the attachment of the other: both have
    /// the same node, or the same plugin's id of the node.
    pub(in crate::volume) fn shares_attachment(&self, other: &Self) -> bool {
        let has_same_id = self.external_node.is_some() && self.external_node == other.external_node;
        self.node == other.node || has_same_id
    }

    /// Rule 9: whether this claim is sure to make a *new* controller unpublish later. Not if its
    /// own unpublish is under way or uncertain: a third claim may attach the node again between
    /// that call and its late answer. Not if an operator may confirm it.
    pub fn will_unpublish(&self) -> bool {
        self.controller
            && match self.state {
                State::Waiting => false,
                State::Publishing | State::Taken | State::Unpublishing => true,
                State::NodeDetached => self.progress.attempt.is_none() && !self.denied,
            }
    }

    /// This claim with a call under way.
    #[must_use]
    pub(in crate::volume) fn attempting(mut self, attempt: &Attempt) -> Self {
        self.progress.start(attempt.clone());
        self
    }

    /// This claim in another state: the retries and the error of the old one are dropped.
    #[must_use]
    pub(in crate::volume) fn enter(self, state: State, now: Timestamp) -> Self {
        Self {
            state,
            since: now,
            progress: Progress::default(),
            place_until: None,
            exhausted: false,
            denied: false,
            mount: None,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A reservation that a clock ahead by an hour has written is given up now, and not in an hour.
    #[test]
    fn a_start_in_the_future_is_no_sign_of_the_caller_of_a_reservation() {
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        let reserved_since = |since: Timestamp| -> Claim {
            let claim = serde_json::json!({"state": "publishing", "node": "n1", "mode": "write",
                "since": since, "access": "single-node-writer", "attachment": "file-system",
                "controller": true});
            serde_json::from_value(claim).unwrap()
        };
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
        for recent in [now.before(hour), now, now.after(second)] {
            assert_eq!(reserved_since(recent).last_sign(now), recent);
        }
        let ahead = reserved_since(now.after(hour));
        assert_eq!(ahead.last_sign(now), Timestamp::default());
        let mut failed = ahead;
        failed.progress.next_try = Some(now.after(second));
        assert_eq!(failed.last_sign(now), now.after(second), "another sign");
    }
}
