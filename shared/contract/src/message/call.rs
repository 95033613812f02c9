//! Plugin calls, as the claim service and the volumewatcher send them to controllers and agents.
//!
//! **Owns** the message of every call that an attempt makes ([`Call`]), the message of
//! `controller.validate`, and their replies.
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

use super::digest::AllocsDigest;
use super::storage_call::StorageDetails;
use crate::trace::TraceContext;
use crate::{decode_leaf, decode_part, decode_struct};

/// One call of one attempt, with all that its executor needs: it looks nothing up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call<D = CallDetails> {
    /// The call.
    pub call: CallKind,
    /// The attempt that it is the call of.
    pub attempt: AttemptId,
    /// The revision of the write that named the attempt: a call is refused when a higher one was
    /// seen for the volume, or when its executor began later (rule 4).
    pub revision: u64,
    /// The executor does nothing after this time (safety rule 8).
    pub deadline: Timestamp,
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume; of a group's call, the first volume of the group.
    pub volume: VolumeId,
    /// The plugin's id of the volume, which the executor locks (A10); of a creation, the volume's
    /// name for the plugin.
    pub external_id: String,
    /// The plugin.
    pub plugin: PluginId,
    /// Nodes to ask before this call. While a controller on one of them works on an earlier call
    /// for the volume, this call is not made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask_first: Vec<NodeId>,
    /// The id of the secrets that the plugin is called with; the executor fetches them (A9).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsId>,
    /// What only a call of this kind says.
    #[serde(flatten)]
    pub details: D,
}

/// A call for a claim: `controller.publish`, `controller.unpublish` and `agent.detach`.
pub type ClaimCall = Call<ClaimDetails>;

/// A call for the volume itself, or a snapshot: `controller.provision` and `agent.expand`.
pub type StorageCall = Call<StorageDetails>;

/// The details of any call. Each kind has to have a field that the other never has (`alloc`,
/// `work`): by it a reader tells them apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CallDetails {
    /// For a claim.
    Claim(Box<ClaimDetails>),
    /// For the volume itself, or a snapshot.
    Storage(Box<StorageDetails>),
}

/// The details of `controller.publish`, `controller.unpublish` and `agent.detach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimDetails {
    /// The alloc that has the claim.
    pub alloc: AllocId,
    /// The epoch of the claim (rule 10).
    pub epoch: u64,
    /// The node that the volume goes to, or leaves.
    pub node: NodeId,
    /// The plugin's id of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_node: Option<String>,
    /// The node whose controller has to get the call; none if any healthy one may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<NodeId>,
    /// For `agent.detach`: the other allocs with a claim on the volume at this node, when the
    /// attempt was written. A mount of any other alloc is covered by no claim. None where they are
    /// too many to be listed, and from an older service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims_beside: Option<BTreeSet<AllocId>>,
    /// The same allocs, where they are too many to be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims_beside_digest: Option<AllocsDigest>,
    /// For `agent.detach`: the operator's confirmation that nothing of the volume is left on the
    /// node (rule 18). Where the plugin answers with an error as it did before, and nothing is
    /// mounted, the volume counts as unmounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstaged_by: Option<Proof>,
    /// Who registered or adopted the alloc: it is in the subjects of the executor's events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How the volume may be shared.
    pub access: AccessMode,
    /// Read or write; absent means write.
    #[serde(default = "writes")]
    pub mode: Mode,
    /// File system or block device.
    pub attachment: AttachmentMode,
    /// The volume's mount options with those of the alloc's request over them (A11).
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
    /// `volume_context` (A8).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// The span of the attempt, which the claim service records: the parent of the executor's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<TraceContext>,
}

impl<D> Call<D> {
    /// The volume in its namespace.
    pub fn volume_key(&self) -> VolumeKey {
        VolumeKey::new(self.namespace.clone(), self.volume.clone())
    }

    fn volumes_of(&self, details: &StorageDetails) -> Vec<VolumeKey> {
        let others = details.others.iter().map(|other| &other.volume);
        let volumes = std::iter::once(&self.volume).chain(others);
        volumes.map(|volume| VolumeKey::new(self.namespace.clone(), volume.clone())).collect()
    }

    fn map<E>(self, change: impl FnOnce(D) -> E) -> Call<E> {
        Call {
            call: self.call,
            attempt: self.attempt,
            revision: self.revision,
            deadline: self.deadline,
            namespace: self.namespace,
            volume: self.volume,
            external_id: self.external_id,
            plugin: self.plugin,
            ask_first: self.ask_first,
            secrets: self.secrets,
            details: change(self.details),
        }
    }
}

impl Call {
    /// The volumes that it is a call of: several only for a group.
    pub fn volumes(&self) -> Vec<VolumeKey> {
        match &self.details {
            CallDetails::Claim(_) => vec![self.volume_key()],
            CallDetails::Storage(details) => self.volumes_of(details),
        }
    }

    /// The node whose executor has to get it; none if any controller of the plugin may.
    pub fn executor(&self) -> Option<&NodeId> {
        match &self.details {
            CallDetails::Claim(details) if self.call.is_controller() => details.controller.as_ref(),
            CallDetails::Claim(details) => Some(&details.node),
            CallDetails::Storage(details) => details.node.as_ref(),
        }
    }

    /// The node whose agent gets the call, if it is not one of a controller.
    pub fn node(&self) -> Option<&NodeId> {
        self.executor().filter(|_| !self.call.is_controller())
    }

    /// The plugin's name of what it is to create.
    pub fn creates(&self) -> Option<&str> {
        match &self.details {
            CallDetails::Claim(_) => None,
            CallDetails::Storage(details) => details.work.creates(),
        }
    }

    /// The call as it is sent. It lacks `ask_first`, which only the sender uses, and which may be
    /// longer than a request allows. If any controller may get the call, it goes to `creator`.
    #[must_use]
    pub fn to_send(&self, creator: Option<NodeId>) -> Self {
        let mut sent = Self { ask_first: Vec::new(), ..self.clone() };
        if let CallDetails::Storage(details) = &mut sent.details {
            details.node = details.node.take().or(creator);
        }
        sent
    }

    /// The call, if it is one for a claim.
    pub fn for_claim(self) -> Option<ClaimCall> {
        let CallDetails::Claim(details) = &self.details else { return None };
        let details = (**details).clone();
        Some(self.map(|_| details))
    }

    /// The call, if it is one for the volume itself or a snapshot.
    pub fn for_storage(self) -> Option<StorageCall> {
        let CallDetails::Storage(details) = &self.details else { return None };
        let details = (**details).clone();
        Some(self.map(|_| details))
    }
}

impl StorageCall {
    /// The volumes that it is a call of: several only for a group.
    pub fn volumes(&self) -> Vec<VolumeKey> {
        self.volumes_of(&self.details)
    }

    /// The plugin's ids of the volumes that it is a call of.
    pub fn external_ids(&self) -> impl Iterator<Item = &str> {
        let others = self.details.others.iter().map(|other| other.external_id.as_str());
        std::iter::once(self.external_id.as_str()).chain(others)
    }
}

impl From<ClaimCall> for Call {
    fn from(call: ClaimCall) -> Self {
        call.map(|details| CallDetails::Claim(Box::new(details)))
    }
}

impl From<StorageCall> for Call {
    fn from(call: StorageCall) -> Self {
        call.map(|details| CallDetails::Storage(Box::new(details)))
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
decode_part!(ClaimDetails {
    alloc,
    epoch,
    node,
    external_node,
    controller,
    claims_beside,
    claims_beside_digest,
    unstaged_by,
    by,
    access,
    mode = writes(),
    attachment,
    mount = MountOptions::default(),
    context,
    span,
});
/// The head of a call is read the same, whatever its details are.
macro_rules! decode_call {
    ($name:ty) => {
        decode_struct!(
            $name {
                call,
                attempt,
                revision,
                deadline,
                namespace,
                volume,
                external_id,
                plugin,
                ask_first,
                secrets,
            } + details
        );
    };
}
decode_call!(ClaimCall);
decode_call!(StorageCall);
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
