//! Plugin calls, as the claim service and the volumewatcher send them to controllers and agents.
//!
//! **Owns** the message of `controller.publish`, `controller.unpublish` and `agent.detach`
//! ([`Call`]), the message of `controller.validate`, and their replies.
//!
//! **Never** carries a secret: a call has the id of its secrets, and the executor fetches them.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::proof::Proof;
use berth_domain::volume::{CallKind, MountOptions, Outcome, StorageAnswer};
use berth_domain::{
    AllocId, AttemptId, Namespace, NodeId, PluginId, SecretsId, Timestamp, VolumeId, VolumeKey,
};
use serde::{Deserialize, Serialize};

use crate::trace::TraceContext;
use crate::{decode_leaf, decode_struct};

/// One call of one attempt, with all that its executor needs: it looks nothing up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Which call.
    pub call: CallKind,
    /// Of which attempt.
    pub attempt: AttemptId,
    /// The revision of the write that named the attempt: a call is refused when a higher one was
    /// seen for the volume, or when its executor began later (rule 4).
    pub revision: u64,
    /// Past this the executor does nothing (safety rule 8).
    pub deadline: Timestamp,
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// What the plugin calls it (A10).
    pub external_id: String,
    /// The plugin.
    pub plugin: PluginId,
    /// For whose claim.
    pub alloc: AllocId,
    /// Which claim of that alloc (rule 10).
    pub epoch: u64,
    /// The node the volume goes to or leaves.
    pub node: NodeId,
    /// What the plugin calls the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_node: Option<String>,
    /// The node whose own controller is to be called, when it has to be that one; else whichever
    /// agent hosts a healthy one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<NodeId>,
    /// Whose agents are asked first whether their controller is still at an earlier call for the
    /// volume: while one is, this call is not made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask_first: Vec<NodeId>,
    /// For `agent.detach`: the other allocs with a claim on the volume at this node, when the
    /// attempt was written. A mount of any other alloc is covered by no claim. None from an older
    /// service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims_beside: Option<BTreeSet<AllocId>>,
    /// For `agent.detach`: who said that nothing of the volume is left on the node (rule 18). Where
    /// the plugin answers with an error as it did before, and nothing is mounted, that is taken for
    /// done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstaged_by: Option<Proof>,
    /// Who registered or adopted the alloc: it is in the subjects of the executor's events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How the volume is used.
    pub access: AccessMode,
    /// What the claim may do with it; writes, when it does not say.
    #[serde(default = "writes")]
    pub mode: Mode,
    /// What it is to the workload.
    pub attachment: AttachmentMode,
    /// Mount options, volume's and request's merged (A11).
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
    /// `volume_context` (A8).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// Which secrets the plugin is called with; the executor asks for them (A9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsId>,
    /// The span of the attempt, which the claim service records: the parent of the executor's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<TraceContext>,
}

impl Call {
    /// The volume in its namespace.
    pub fn volume_key(&self) -> VolumeKey {
        VolumeKey::new(self.namespace.clone(), self.volume.clone())
    }
}

fn writes() -> Mode {
    Mode::Write
}

/// A call succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Called {
    /// What the controller said the node needs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub publish_context: BTreeMap<String, String>,
    /// What the plugin returned, for a call of the storage that returns anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<StorageAnswer>,
}

impl From<Called> for Outcome {
    fn from(called: Called) -> Self {
        match called.answer {
            Some(answer) => Self::Stored(answer),
            None => Self::Done { publish_context: called.publish_context },
        }
    }
}

impl From<StorageAnswer> for Called {
    fn from(answer: StorageAnswer) -> Self {
        Self { answer: Some(answer), ..Self::default() }
    }
}

/// A question to a controller: can the volume be used so (A3)? `ValidateVolumeCapabilities`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validate {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// What the plugin calls the volume.
    pub external_id: String,
    /// The plugin.
    pub plugin: PluginId,
    /// The ways in which it is to be used.
    pub capabilities: Vec<Capability>,
    /// Mount options.
    #[serde(default)]
    pub mount: MountOptions,
    /// `volume_context`.
    #[serde(default)]
    pub context: BTreeMap<String, String>,
    /// `parameters`.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// Which secrets the plugin is called with; the executor asks for them (A9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsId>,
}

/// The controller's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validated {
    /// Whether every capability was confirmed.
    pub confirmed: bool,
    /// Whether this controller does not know the volume at all. Another of the same plugin may,
    /// where each knows the volumes of its own node only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// The plugin's words, when not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

decode_leaf!(AccessMode, AttachmentMode, CallKind, TraceContext);
decode_struct!(Proof { kind, by, at, note = String::new() });
decode_struct!(Capability { access, attachment = AttachmentMode::FileSystem });
decode_struct!(MountOptions { fs_type, flags, group });
decode_struct!(Call {
    call,
    attempt,
    revision,
    deadline,
    namespace,
    volume,
    external_id,
    plugin,
    alloc,
    epoch,
    node,
    external_node,
    controller,
    ask_first,
    claims_beside,
    unstaged_by,
    by,
    access,
    mode = writes(),
    attachment,
    mount = MountOptions::default(),
    context,
    secrets,
    span,
});
decode_struct!(Validate {
    namespace,
    volume,
    external_id,
    plugin,
    capabilities,
    mount = MountOptions::default(),
    context,
    parameters,
    secrets,
});
