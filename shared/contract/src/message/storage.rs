//! The messages of `volume.create`, `volume.delete`, `volume.expand`, `volume.modify`,
//! `volume.external` and `plugin.capacity`.
//!
//! **Owns** the document by which a volume is created.
//!
//! **Promises** that a reply shows no secret.
//!
//! **Never** says where a record is kept, or how: that is [`crate::record`]'s.

use std::collections::BTreeMap;

use berth_domain::access::Capability;
use berth_domain::class::TopologyPolicy;
use berth_domain::size::Size;
use berth_domain::volume::storage::{OperationKind, Origin, Reclaim, Stage, Topology};
use berth_domain::volume::{CallFailure, MountOptions};
use berth_domain::{
    AllocId, ClassId, Namespace, NodeId, PluginId, SnapshotId, Timestamp, VolumeId,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::query::Page;
use super::registration::{GivenSecrets, SEALED_FIELD, check_capabilities, read_secrets};
use super::storage_call::{PluginSnapshotStatus, PluginVolumeStatus};
pub use super::storage_wait::StorageWait;
use crate::decode::{Decode, Decoder};
use crate::{decode_leaf, decode_struct, text};

decode_leaf!(Reclaim, Stage, OperationKind, TopologyPolicy, StorageWait);

/// Why a field is refused that a request repeats from its class.
const SAID_BY_CLASS: &str = "is what the class says; leave it out, or leave `class` out";

/// Why a copy cannot have the secrets of its source and others.
const TWO_SECRETS: &str = "is set, and `secrets` are given; leave one of them out";

/// `volume.create`: a new volume's document, as its owner writes it in TOML or JSON. It names a
/// class or a plugin. With a class, the fields that the class decides are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Create {
    /// The volume's id.
    pub id: VolumeId,
    /// Its namespace; the subject's when absent, and the same as the subject's when not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The class that it is made from. It decides plugin, parameters, topology, topology policy and
    /// secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassId>,
    /// The plugin that creates it. Refused with a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// The smallest size. Absent: the source's size for a copy, else the class's default, else the
    /// plugin's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// The largest size. Absent: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Size>,
    /// The ways in which it may be used, at least one without a class. Empty: those of the class.
    #[serde(rename = "capability", skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// How its file system is mounted. Each option replaces that of the class.
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
    /// Parameters of `CreateVolume`, which only the plugin reads. Refused with a class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Parameters that `volume.modify` can change later, which only the plugin reads. Each replaces
    /// that of the class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// Topologies in one of which it is created; any if empty. Refused with a class.
    #[serde(default, rename = "topology", skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<Topology>,
    /// When its topology is decided; `immediate` if absent. Refused with a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_policy: Option<TopologyPolicy>,
    /// What becomes of it when its owner gives it up. Absent: `delete` with `for_alloc`, else what
    /// the class says, else `delete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
    /// What it is a copy of; an empty volume if absent.
    #[serde(rename = "from", skip_serializing_if = "Option::is_none")]
    pub origin: Option<CopyFrom>,
    /// The alloc that it exists for: the volume is deleted when the alloc has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_alloc: Option<AllocId>,
    /// The node where it is to be used: it is created where that node is, if the plugin tells of
    /// topologies. Refused with a class that does not allow that place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The secrets that its plugin calls are made with. Refused with a class.
    #[serde(flatten)]
    pub secrets: Option<SentSecrets>,
}

/// Secrets in the form in which they are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum SentSecrets {
    /// Plain, or sealed.
    #[serde(untagged)]
    Given(#[serde(serialize_with = "super::registration::write_secrets")] GivenSecrets),
}

/// What a new volume is a copy of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyFrom {
    /// The volume; with a snapshot, the volume of the snapshot, which may be gone.
    pub volume: VolumeId,
    /// The snapshot; absent for a copy of the volume itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
    /// Whether the copy gets the secrets of its source. Otherwise it has those of its class, or
    /// those of the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_secrets: bool,
}
decode_struct!(CopyFrom { volume, snapshot, with_secrets = false });

/// The secrets of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretsOrigin {
    /// Those of the request.
    Given,
    /// Those of its class.
    Class,
    /// Those of its source.
    Source,
    /// It has none, and its source has some.
    NoneOfSource,
}

/// The fields of the document, in the order in which `volume init` explains them.
pub const CREATE_FIELDS: [&str; 19] = [
    "id",
    "namespace",
    "name",
    "class",
    "size",
    "limit",
    "plugin",
    "capability",
    "mount",
    "parameters",
    "mutable_parameters",
    "topology",
    "topology_policy",
    "reclaim",
    "from",
    "for_alloc",
    "node",
    "secrets",
    SEALED_FIELD,
];

impl Decode for Create {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let id = decoder.field(&mut object, "id");
        let namespace = decoder.field(&mut object, "namespace");
        let name: Option<Option<String>> = decoder.field(&mut object, "name");
        let class: Option<Option<ClassId>> = decoder.field(&mut object, "class");
        let plugin: Option<Option<PluginId>> = decoder.field(&mut object, "plugin");
        let size: Option<Option<Size>> = decoder.field(&mut object, "size");
        let limit: Option<Option<Size>> = decoder.field(&mut object, "limit");
        let capabilities: Option<Vec<Capability>> = decoder.field(&mut object, "capability");
        let mount: Option<Option<MountOptions>> = decoder.field(&mut object, "mount");
        let parameters: Option<BTreeMap<String, String>> = decoder.field(&mut object, "parameters");
        let mutable: Option<BTreeMap<String, String>> =
            decoder.field(&mut object, "mutable_parameters");
        let topologies: Option<Vec<Topology>> = decoder.field(&mut object, "topology");
        let topology_policy: Option<Option<TopologyPolicy>> =
            decoder.field(&mut object, "topology_policy");
        let reclaim = decoder.field(&mut object, "reclaim");
        let origin: Option<Option<CopyFrom>> = decoder.field(&mut object, "from");
        let for_alloc = decoder.field(&mut object, "for_alloc");
        let node = decoder.field(&mut object, "node");
        let secrets = read_secrets(&mut object, decoder);
        let takes_secrets = matches!(&origin, Some(Some(CopyFrom { with_secrets: true, .. })));
        let has_own = secrets.iter().flatten().next().is_some();
        decoder.demand(!(takes_secrets && has_own), "from.with_secrets", TWO_SECRETS);
        decoder.finish(&object, &CREATE_FIELDS);

        text::add_fault(decoder, "name", name.iter().flatten().find_map(|it| text::name_fault(it)));
        text::check_limit(decoder, size.flatten(), limit.flatten());
        text::check_template(
            decoder,
            mount.as_ref().and_then(Option::as_ref),
            topologies.as_deref(),
            [("parameters", parameters.as_ref()), ("mutable_parameters", mutable.as_ref())],
        );
        match (&class, &plugin) {
            (Some(Some(_)), _) => {
                for (path, is_given) in [
                    ("plugin", plugin.iter().flatten().next().is_some()),
                    ("parameters", parameters.as_ref().is_some_and(|map| !map.is_empty())),
                    ("topology", topologies.as_ref().is_some_and(|all| !all.is_empty())),
                    ("topology_policy", topology_policy.iter().flatten().next().is_some()),
                    ("secrets", secrets.iter().flatten().next().is_some()),
                ] {
                    decoder.demand(!is_given, path, SAID_BY_CLASS);
                }
            }
            (Some(None), Some(None)) => {
                decoder.demand(false, "class", "is missing, and so is `plugin`; name one of them");
            }
            _ => {}
        }
        let needs_own = matches!(&class, Some(None));
        if needs_own || capabilities.as_ref().is_some_and(|all| !all.is_empty()) {
            check_capabilities(capabilities.as_deref(), mount.as_ref(), decoder);
        }
        Some(Self {
            id: id?,
            namespace: namespace?,
            name: name?,
            class: class?,
            plugin: plugin?,
            size: size?,
            limit: limit?,
            capabilities: capabilities?,
            mount: mount?.unwrap_or_default(),
            parameters: parameters?,
            mutable_parameters: mutable?,
            topologies: topologies?,
            topology_policy: topology_policy?,
            reclaim: reclaim?,
            origin: origin?,
            for_alloc: for_alloc?,
            node: node?,
            secrets: secrets?.map(SentSecrets::Given),
        })
    }
}

/// `volume.delete`: destroys the volume and its data at its storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteVolume {
    /// The volume.
    pub id: VolumeId,
    /// Why, for the history.
    #[serde(default)]
    pub reason: String,
    /// Only the volume that was created or registered at this revision, when given: not one that
    /// took its name since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_index: Option<u64>,
}
decode_struct!(DeleteVolume { id, reason = String::new(), create_index });

/// `volume.expand`: makes the volume larger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expand {
    /// The volume.
    pub id: VolumeId,
    /// The smallest new size.
    pub size: Size,
    /// The largest new size. Absent: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Size>,
    /// For a plugin that expands only volumes that are not in use: wait until no claim holds the
    /// volume, instead of being refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub when_free: bool,
}

impl Decode for Expand {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let id = fields.field("id");
        let size: Option<Size> = fields.field("size");
        let limit: Option<Option<Size>> = fields.field("limit");
        let when_free: Option<Option<bool>> = fields.field("when_free");
        fields.finish(&[]);
        text::check_limit(decoder, size, limit.flatten());
        let when_free = when_free?.unwrap_or_default();
        Some(Self { id: id?, size: size?, limit: limit?, when_free })
    }
}

/// `volume.modify`: changes mutable parameters of the volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modify {
    /// The volume.
    pub id: VolumeId,
    /// The parameters to set, at least one. The volume's other parameters stay as they are.
    pub parameters: BTreeMap<String, String>,
}

impl Decode for Modify {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let id = fields.field("id");
        let parameters: Option<BTreeMap<String, String>> = fields.field("parameters");
        fields.finish(&[]);
        if let Some(parameters) = &parameters {
            let none = "is empty; name at least one parameter";
            decoder.demand(!parameters.is_empty(), "parameters", none);
            text::check_keys(decoder, "parameters", parameters);
        }
        Some(Self { id: id?, parameters: parameters? })
    }
}

/// The answer to a request that changes a volume at its storage: what is stored, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageChanged {
    /// The volume.
    pub id: VolumeId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Whether this request changed anything.
    pub changed: bool,
    /// Whether the volume is gone from the storage and from Berth.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// The volume's newest revision. To wait for the end of the change, send `volume.status` with
    /// it as `newer_than`.
    pub index: u64,
    /// The volume's life at the storage; absent if the volume is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageStatus>,
    /// Of a request to create a volume: which secrets it has; absent if neither it nor its source
    /// has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsOrigin>,
}

/// The life of a volume at its storage, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageStatus {
    /// How far it has come.
    pub stage: Stage,
    /// The class that the volume was made from; absent if it was made without one, or registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassId>,
    /// What becomes of the volume when its owner gives it up; absent if it was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
    /// The smallest size that was requested, in bytes; absent if the plugin was to choose, or the
    /// volume was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<u64>,
    /// The name that the plugin was given in `CreateVolume`; absent if the volume was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_name: Option<String>,
    /// What the volume is a copy of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The alloc that the volume exists for: it is deleted when the alloc has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_alloc: Option<AllocId>,
    /// The change under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationStatus>,
    /// The last change that the plugin refused for good; absent once another change succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailedOperation>,
    /// What the plugin returned otherwise than CSI asks, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// The mutable parameters in effect.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable_parameters: BTreeMap<String, String>,
}

/// A change of a volume at its storage that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationStatus {
    /// Which change.
    pub operation: OperationKind,
    /// When it was requested.
    pub since: Timestamp,
    /// The call that is under way or due next, such as `controller.create`.
    pub call: String,
    /// Whether that call is under way, rather than due.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub calling: bool,
    /// How many calls did not succeed.
    #[serde(default)]
    pub tries: u32,
    /// When the next call is due; absent while a call is under way, or if it is due at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// Why the last of them did not succeed.
    #[serde(flatten)]
    pub failure: Option<CallFailure>,
    /// Whether an earlier call may have done its work although no answer says so. The call is
    /// repeated until it succeeds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
    /// Of an expansion: the smallest new size, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_bytes: Option<u64>,
    /// Of an expansion: the nodes that still have to expand the volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes_left: Vec<NodeId>,
    /// Of a creation: whether the volume's deletion was requested meanwhile. It is deleted as soon
    /// as the plugin has answered with its id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub then_deleted: bool,
    /// What the change waits for; absent if a call is under way, or only time has to pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<StorageWait>,
}

impl OperationStatus {
    /// Why the last call that did not succeed did not, in words.
    pub fn error(&self) -> Option<&str> {
        self.failure.as_ref().map(|failure| failure.message.as_str())
    }
}

/// A change of a volume at its storage that the plugin refused for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOperation {
    /// Which change.
    pub operation: OperationKind,
    /// When it was refused.
    pub at: Timestamp,
    /// Why.
    #[serde(flatten)]
    pub failure: CallFailure,
}

/// `volume.external`: lists what a plugin has, and which volume or snapshot of Berth it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListExternals {
    /// The plugin.
    pub plugin: PluginId,
    /// List snapshots instead of volumes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshots: bool,
    /// Only the volume or snapshot that the plugin knows by this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Which page. A page goes on with the plugin's list where the page before ended.
    #[serde(flatten)]
    pub page: Page,
}

impl Decode for ListExternals {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let plugin = fields.field("plugin");
        let snapshots: Option<Option<bool>> = fields.field("snapshots");
        let id: Option<Option<String>> = fields.field("id");
        let page = fields.part();
        fields.finish(&[]);
        let given = id.as_ref().and_then(Option::as_deref);
        text::add_fault(decoder, "id", given.and_then(text::external_id_fault));
        let snapshots = snapshots?.unwrap_or_default();
        Some(Self { plugin: plugin?, snapshots, id: id?, page: page? })
    }
}

/// `volume.external`: the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Externals {
    /// The plugin.
    pub plugin: PluginId,
    /// Its volumes, in the order of its list, and last what is registered and not listed; empty if
    /// snapshots were asked for. A plugin's list that changes while it is read, or begins again,
    /// may have a volume twice. Volumes of one `external_id` and of different `topologies` are
    /// those of several controllers, which may have a storage each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<ExternalVolume>,
    /// Its snapshots; empty if volumes were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<ExternalSnapshot>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Whether entries are missing, or may be: the plugin's list is too long, does not end, ends
    /// with a full page that cannot be asked for with more room, or could not be read as a whole.
    /// Then nothing is shown as `not-listed`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Controllers that could not be asked, each with the reason. Their entries are missing, and
    /// nothing is shown as `not-listed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_asked: Vec<String>,
}

/// Whether a volume or snapshot is registered, and whether its plugin lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Registration {
    /// It is registered, and its plugin lists it.
    Known,
    /// Its plugin lists it, and it is not registered.
    NotRegistered,
    /// It is registered, and its plugin does not list it.
    NotListed,
}

/// A volume of a plugin, and which volume of Berth it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalVolume {
    /// Whether it is registered, and whether the plugin lists it.
    pub registration: Registration,
    /// What the plugin says.
    #[serde(flatten)]
    pub listed: PluginVolumeStatus,
    /// The volume that it is registered as; absent if that is of another namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
    /// That volume's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
}

/// A snapshot of a plugin, and which snapshot of Berth it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalSnapshot {
    /// Whether it is registered, and whether the plugin lists it.
    pub registration: Registration,
    /// What the plugin says.
    #[serde(flatten)]
    pub listed: PluginSnapshotStatus,
    /// The volume that it is registered as a snapshot of; absent if that is of another namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeId>,
    /// That volume's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// The snapshot that it is registered as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotId>,
}

/// `plugin.capacity`: how much room a plugin has. It names a plugin or a class, or both. The class
/// may be of any namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListCapacities {
    /// The plugin. Absent: that of the class. With a class, the plugin of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// The class: the room for volumes with its capabilities and parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassId>,
    /// Only in this topology. Absent: in each topology of the class, else of the plugin's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
}

impl Decode for ListCapacities {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut fields = decoder.fields(value)?;
        let plugin: Option<Option<PluginId>> = fields.field("plugin");
        let class: Option<Option<ClassId>> = fields.field("class");
        let topology: Option<Option<Topology>> = fields.field("topology");
        fields.finish(&[]);
        let is_none = matches!((&plugin, &class), (Some(None), Some(None)));
        let none = "is missing, and so is `class`; name one of them";
        decoder.demand(!is_none, "plugin", none);
        if let Some(Some(topology)) = &topology {
            text::check_topology(decoder, "topology", topology);
        }
        Some(Self { plugin: plugin?, class: class?, topology: topology? })
    }
}

/// `plugin.capacity`: the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacities {
    /// The plugin.
    pub plugin: PluginId,
    /// The room in each topology, at most 64 of them.
    pub capacities: Vec<CapacityAt>,
}

/// How much room a plugin has in one topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityAt {
    /// The topology; absent for a plugin without topologies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
    /// Free bytes; absent if there is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// The largest volume that can be created, in bytes; absent if the plugin does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_volume_bytes: Option<u64>,
    /// The smallest volume that can be created, in bytes; absent if the plugin does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_volume_bytes: Option<u64>,
    /// Why the plugin gave no answer for this topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
