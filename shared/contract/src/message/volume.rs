//! The messages of the `volume.*` requests.
//!
//! **Owns** their fields, and the document by which a volume is registered.
//!
//! **Promises** that a reply shows no secret and no mount flag.
//!
//! **Never** decides: what may change of a volume is `domain::volume`'s.

use std::collections::BTreeMap;

use berth_domain::access::{AttachmentMode, Capability};
use berth_domain::alloc::VolumeRequest;
use berth_domain::plugin::Count;
use berth_domain::volume::{Closing, MountOptions, State, VolumeSpec};
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::claim::ClaimStatus;
use super::query::{Newer, Page, RefusedRequest, UnreadableRecord};
use super::secret::{Sealed, Secrets};
use crate::code::Code;
use crate::decode::{Decode, Decoder};
use crate::{decode_struct, text};

/// `volume.register`: a volume's document, as its owner writes it in TOML or JSON.
///
/// An unknown field is a fault, as in a file: a person wrote the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// The volume's id.
    pub id: VolumeId,
    /// Its namespace; the subject's when absent, and the same as the subject's when not.
    pub namespace: Option<Namespace>,
    /// What it is.
    pub spec: VolumeSpec,
    /// The secrets its plugin calls are made with (A9). Absent, those it has stay; an empty map
    /// takes them away.
    pub secrets: Option<GivenSecrets>,
}

/// A volume's secrets as they are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenSecrets {
    /// `secrets`: in plain text, readable by every client that may subscribe to the request.
    Plain(Secrets),
    /// `sealed_secrets`: for the key that `secret.key` answers. `berth` sends them so.
    Sealed(Sealed),
}

/// The fields of the document, in the order in which `volume init` explains them.
pub const DOCUMENT_FIELDS: [&str; 12] = [
    "id",
    "namespace",
    "name",
    "plugin",
    "external_id",
    "capability",
    "mount",
    "topology",
    "capacity_bytes",
    "parameters",
    "context",
    "secrets",
];

/// The form of `secrets` on the bus.
pub const SEALED_FIELD: &str = "sealed_secrets";

impl Decode for Register {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let id = decoder.field(&mut object, "id");
        let namespace = decoder.field(&mut object, "namespace");
        let name: Option<Option<String>> = decoder.field(&mut object, "name");
        let plugin = decoder.field(&mut object, "plugin");
        let external_id: Option<Option<String>> = decoder.field(&mut object, "external_id");
        let capabilities: Option<Vec<Capability>> = decoder.field(&mut object, "capability");
        let mount: Option<Option<MountOptions>> = decoder.field(&mut object, "mount");
        let topologies: Option<Vec<BTreeMap<String, String>>> =
            decoder.field(&mut object, "topology");
        let capacity_bytes = decoder.field(&mut object, "capacity_bytes");
        let parameters: Option<BTreeMap<String, String>> = decoder.field(&mut object, "parameters");
        let context: Option<BTreeMap<String, String>> = decoder.field(&mut object, "context");
        let plain: Option<Option<Secrets>> = decoder.field(&mut object, "secrets");
        let sealed: Option<Option<Sealed>> = decoder.field(&mut object, SEALED_FIELD);
        decoder.finish(&object, &DOCUMENT_FIELDS);

        check_capabilities(capabilities.as_deref(), mount.as_ref(), decoder);
        let external = external_id.as_ref().and_then(Option::as_deref);
        text::add_fault(decoder, "external_id", external.and_then(text::external_id_fault));
        let named = name.as_ref().and_then(Option::as_deref);
        text::add_fault(decoder, "name", named.and_then(text::name_fault));
        if let Some(Some(mount)) = &mount {
            text::check_mount(decoder, mount);
        }
        text::check_topologies(decoder, topologies.as_deref().unwrap_or_default());
        for (path, map) in [("parameters", &parameters), ("context", &context)] {
            text::check_keys(decoder, path, map.as_ref().unwrap_or(&BTreeMap::new()));
        }
        let spec = VolumeSpec {
            closing: None,
            plugin: plugin?,
            name: name?.unwrap_or_default(),
            external_id: external_id?,
            capabilities: capabilities?,
            mount: mount?.unwrap_or_default(),
            topologies: topologies?,
            capacity_bytes: capacity_bytes?,
            parameters: parameters?,
            context: context?,
            secrets: None,
            create_index: 0,
        };
        let secrets = match (plain?, sealed?) {
            (Some(_), Some(_)) => {
                decoder.read_at(".secrets".to_owned(), |decoder| {
                    decoder.fault(format!("is given beside `{SEALED_FIELD}`; give one of them"));
                });
                return None;
            }
            (plain, sealed) => plain.map(GivenSecrets::Plain).or(sealed.map(GivenSecrets::Sealed)),
        };
        Some(Self { id: id?, namespace: namespace?, spec, secrets })
    }
}

/// The document that says this, without the fields that it need not say.
impl Serialize for Register {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Every field is named, so that a new one is not forgotten here.
        let VolumeSpec {
            plugin,
            name,
            external_id,
            capabilities,
            mount,
            topologies,
            capacity_bytes,
            parameters,
            context,
            closing: _,
            secrets: _,
            create_index: _,
        } = &self.spec;
        let mut document = serializer.serialize_map(None)?;
        document.serialize_entry("id", &self.id)?;
        document.serialize_entry("namespace", &self.namespace)?;
        document.serialize_entry("name", name)?;
        document.serialize_entry("plugin", plugin)?;
        document.serialize_entry("external_id", external_id)?;
        document.serialize_entry("capability", capabilities)?;
        document.serialize_entry("mount", mount)?;
        document.serialize_entry("topology", topologies)?;
        document.serialize_entry("capacity_bytes", capacity_bytes)?;
        document.serialize_entry("parameters", parameters)?;
        document.serialize_entry("context", context)?;
        match &self.secrets {
            Some(GivenSecrets::Plain(secrets)) => document.serialize_entry("secrets", secrets)?,
            Some(GivenSecrets::Sealed(sealed)) => document.serialize_entry(SEALED_FIELD, sealed)?,
            None => {}
        }
        document.end()
    }
}

fn check_capabilities(
    capabilities: Option<&[Capability]>,
    mount: Option<&Option<MountOptions>>,
    decoder: &mut Decoder,
) {
    let Some(capabilities) = capabilities else { return };
    if capabilities.is_empty() {
        decoder.read_at(".capability".to_owned(), |decoder| {
            decoder.fault("is empty; a volume needs at least one way to be used");
        });
    }
    for (at, capability) in capabilities.iter().enumerate() {
        if capabilities[..at].contains(capability) {
            decoder.read_at(format!(".capability[{at}]"), |decoder| {
                decoder.fault(format!("{capability} is listed twice"));
            });
        }
    }
    let only_block = !capabilities.is_empty()
        && capabilities.iter().all(|one| one.attachment == AttachmentMode::BlockDevice);
    let options = mount.and_then(Option::as_ref).is_some_and(|mount| !mount.is_empty());
    if only_block && options {
        decoder.read_at(".mount".to_owned(), |decoder| {
            decoder.fault("is given, but a block device is not mounted");
        });
    }
}

/// `volume.register` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The volume.
    pub id: VolumeId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Whether anything was written; false when it was registered so already (A4).
    pub changed: bool,
    /// The newest revision of the volume.
    pub index: u64,
}

/// `volume.deregister`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deregister {
    /// The volume.
    pub id: VolumeId,
    /// Release its claims rather than refuse (A5).
    #[serde(default)]
    pub force: bool,
    /// What is said for it, for the history.
    #[serde(default)]
    pub reason: String,
    /// Only the volume that was registered at this revision, when given: not one that took its name
    /// since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_index: Option<u64>,
}
decode_struct!(Deregister { id, force = false, reason = String::new(), create_index });

/// `volume.deregister` was done, or has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deregistered {
    /// The volume.
    pub id: VolumeId,
    /// Whether it is gone; else it goes with the last of `releasing`.
    pub gone: bool,
    /// Claims still being released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releasing: Vec<AllocId>,
}

/// `volume.detach`: the volume is to leave the node (C6). Released are all claims there whose alloc
/// has ended or vanished; one whose alloc lives refuses, and then nothing is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detach {
    /// The volume.
    pub id: VolumeId,
    /// The node, also if it is down or no longer known.
    pub node: NodeId,
    /// Why, for the history.
    #[serde(default)]
    pub reason: String,
    /// The operator who confirms that the storage has detached the volume from the node. This
    /// replaces the controller's answer where the plugin was asked and cannot give it, and frees
    /// the claims that have left the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_by: Option<String>,
    /// Who answers for it that nothing of the volume is left on the node. It counts where the
    /// plugin on the node was asked and answered with an error, for the next call, and only if the
    /// node's agent finds nothing mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstaged_by: Option<String>,
}
decode_struct!(Detach { id, node, reason = String::new(), confirmed_by, unstaged_by });

/// `volume.detach` was done, or has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The volume.
    pub id: VolumeId,
    /// The node.
    pub node: NodeId,
    /// Whether nothing on the node holds the volume any more; else `claims` are being released.
    pub gone: bool,
    /// How many claims of the node's are still being released.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: usize,
    /// The first of them, each with its step, its last error and its next try.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimStatus>,
    /// What the release waits for, when a person has to do something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Mounts of the volume on the node that no claim covers. Nothing is being done about them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unaccounted: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `volume.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The volume.
    pub id: VolumeId,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: Newer,
}
decode_struct!(Status { id } + newer);

impl Status {
    /// The volume as it is now.
    pub fn current(id: VolumeId) -> Self {
        Self { id, newer: Newer::default() }
    }
}

/// `volume.list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct List {
    /// Only ids that begin so.
    #[serde(default)]
    pub prefix: String,
    /// Only volumes of this plugin.
    #[serde(default)]
    pub plugin: Option<PluginId>,
    /// Only volumes with a claim on this node that holds them, or may.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// Only volumes with a claim in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait.
    #[serde(flatten)]
    pub newer: Newer,
}
decode_struct!(List {
    prefix = String::new(),
    plugin,
    node,
    state,
} + page, newer);

/// Whether a volume can be claimed, derived when read (A6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether its plugin can serve it somewhere.
    pub healthy: bool,
    /// In words.
    pub description: String,
    /// Healthy controller instances of how many; none when the plugin needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<Count>,
    /// Healthy node instances of how many.
    pub nodes: Count,
}

/// `volume.status`: a volume with its claims and its health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// The volume.
    pub id: VolumeId,
    /// Its namespace.
    pub namespace: Namespace,
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Set while it is being deregistered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<Closing>,
    /// Its plugin.
    pub plugin: PluginId,
    /// What the plugin calls it.
    pub external_id: String,
    /// The ways in which it may be used.
    pub capabilities: Vec<Capability>,
    /// The way in which it is used, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<Capability>,
    /// The file system asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// How many mount flags there are; the flags may be sensitive.
    #[serde(default)]
    pub mount_flags: usize,
    /// The group that is to be able to read and write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_group: Option<String>,
    /// Where it can be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<BTreeMap<String, String>>,
    /// Its size, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Context.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, String>,
    /// Whether it has secrets. They are never shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_secrets: bool,
    /// Whether it can be claimed.
    pub health: Health,
    /// Set while the plugin has no room for it: what it said (A7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted: Option<String>,
    /// Other registrations of the same volume of the plugin. While there are any, neither is
    /// granted. Volumes of other namespaces are not named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registered_twice: Vec<String>,
    /// Mounts of it that no claim covers, each with its node. While there is one, no other node is
    /// granted the volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unaccounted: Vec<String>,
    /// What a person can do when it is not as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The newest refused request that names it; none once a claim was granted after it. It is
    /// read from the events, so it may be missing, and events are kept for a week at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<RefusedRequest>,
    /// How many claims it has.
    #[serde(default)]
    pub claim_count: usize,
    /// Its claims; the first that fit a message, when there are more: `claim.status` has all.
    pub claims: Vec<ClaimStatus>,
    /// The revision that registered it.
    pub create_index: u64,
    /// Its newest revision.
    pub modify_index: u64,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

/// Who holds a volume, in a list of volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeHolder {
    /// Whose claim.
    pub alloc: AllocId,
    /// Where it is for.
    pub node: NodeId,
}

/// A volume in a list: of its claims the first few holders only, and no context (A1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStub {
    /// The volume.
    pub id: VolumeId,
    /// Its namespace.
    pub namespace: Namespace,
    /// What people call it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its plugin.
    pub plugin: PluginId,
    /// The way in which it is used, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<Capability>,
    /// Claims that read.
    pub readers: usize,
    /// Claims that write.
    pub writers: usize,
    /// Claims being released.
    pub releasing: usize,
    /// Claims in line.
    pub waiting: usize,
    /// The first few of the claims that are not in line. One that is being released still holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<VolumeHolder>,
    /// Whether it can be claimed.
    pub healthy: bool,
    /// Whether the same volume of the plugin is registered under another name: then neither is
    /// granted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub registered_twice: bool,
    /// The file system asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_type: Option<String>,
    /// Its newest revision.
    pub modify_index: u64,
}

/// `volume.list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volumes {
    /// The revision of the volumes bucket that the list shows: all of it, and nothing newer.
    pub index: u64,
    /// The volumes, by namespace and id.
    pub volumes: Vec<VolumeStub>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Records that belong here and cannot be read: what they say may hold all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

/// `volume.placement`: where a workload with these volumes could run now (D6).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Placement {
    /// The volumes, as the workload's alloc would ask for them.
    #[serde(default)]
    pub volumes: Vec<VolumeRequest>,
    /// Which of several alike it is, from 0; needed by volumes that are `per_alloc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Only of this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
    /// Whether to wait until the answer is another one.
    #[serde(flatten)]
    pub newer: Newer,
}
decode_struct!(Placement { volumes, index, node } + page, newer);

/// `volume.placement`: the answer that claims would get at this moment. Nothing is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placements {
    /// Stands for this answer: another answer has another number, which may be a smaller one. To
    /// wait for another answer, ask again with it as `newer_than`.
    #[serde(default)]
    pub index: u64,
    /// The volumes, by id: how many claims hold each, and how many wait in line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeDemand>,
    /// The nodes, by id.
    pub nodes: Vec<NodePlacement>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How much a volume is in demand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeDemand {
    /// The volume.
    pub volume: VolumeId,
    /// How many claims hold it, or are being released.
    pub holding: usize,
    /// How many claims wait in line. A new one is behind them.
    pub waiting: usize,
}

/// How many more volumes of a plugin a node takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginSlots {
    /// The plugin.
    pub plugin: PluginId,
    /// How many more volumes it takes there; none where the plugin names no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// How many volumes of the plugin the node has.
    pub used: u64,
}

/// Whether one node can host the volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePlacement {
    /// The node.
    pub node: NodeId,
    /// Whether it can host all of them now.
    pub fits: bool,
    /// Whether it could after a wait: claims with `wait` get in line there. Where this is false as
    /// well, an operator must change something first.
    #[serde(default)]
    pub fits_later: bool,
    /// The room that the volumes' plugins have there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<PluginSlots>,
    /// Why not, everything at once, by volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub obstacles: Vec<Obstacle>,
}

/// What is in the way of a volume on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obstacle {
    /// The volume.
    pub volume: VolumeId,
    /// Which reason: the code that `claim.take` would answer.
    pub code: Code,
    /// In words.
    pub message: String,
    /// Whether it may pass by itself: the plugin or the node comes back, a call ends.
    #[serde(default)]
    pub retryable: bool,
    /// Whether `claim.take` with `wait` waits for it: in line after the holders, or for what may
    /// come back.
    #[serde(default)]
    pub can_wait: bool,
}
