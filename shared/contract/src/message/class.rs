//! The messages of the `class.*` requests.
//!
//! **Owns** the document by which a class is defined. Its secrets are sealed for
//! [`ClassId::to_secrets_key`].

use std::collections::BTreeMap;

use berth_domain::access::Capability;
use berth_domain::class::{Class, ClassUse, Quota, SizeLimits, TopologyPolicy};
use berth_domain::size::Size;
use berth_domain::volume::MountOptions;
use berth_domain::volume::storage::{Reclaim, Topology};
use berth_domain::{ClassId, Namespace, PluginId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::query::{Page, UnreadableRecord};
use super::registration::{SEALED_FIELD, check_capabilities, read_secrets};
use super::storage::SentSecrets;
use crate::decode::{Decode, Decoder};
use crate::{decode_struct, text};

/// `class.put`: a class's document, as its operator writes it in TOML or JSON. It replaces the
/// class's earlier document, and changes no volume that was made from the class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PutClass {
    /// The class's id.
    pub id: ClassId,
    /// The plugin that creates its volumes.
    pub plugin: PluginId,
    /// Parameters of `CreateVolume`, which only the plugin reads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Parameters that `volume.modify` can change later, which only the plugin reads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// The ways in which its volumes may be used, at least one.
    #[serde(rename = "capability")]
    pub capabilities: Vec<Capability>,
    /// How the file systems of its volumes are mounted.
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
    /// When the topology of a volume is decided.
    #[serde(default)]
    pub topology_policy: TopologyPolicy,
    /// Topologies in one of which each volume is created; any if empty.
    #[serde(default, rename = "topology", skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<Topology>,
    /// The smallest size of a volume. Absent: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<Size>,
    /// The largest size of a volume. Absent: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<Size>,
    /// The size of a volume whose request names none. Absent: `min_size`, else the plugin's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_size: Option<Size>,
    /// What becomes of a volume when its owner gives it up, unless its request says otherwise.
    #[serde(default)]
    pub reclaim: Reclaim,
    /// The namespaces that may use it; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Namespace>,
    /// The most volumes of the class in each namespace; none can be created with 0. Absent: no
    /// bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_volumes: Option<u64>,
    /// The most bytes of all volumes of the class together, in each namespace. Absent: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_size: Option<Size>,
    /// The secrets that the plugin calls of its volumes are made with. Absent: those that the class
    /// has stay.
    #[serde(flatten)]
    pub secrets: Option<SentSecrets>,
}

/// The fields of the document.
pub const CLASS_FIELDS: [&str; 17] = [
    "id",
    "plugin",
    "parameters",
    "mutable_parameters",
    "capability",
    "mount",
    "topology_policy",
    "topology",
    "min_size",
    "max_size",
    "default_size",
    "reclaim",
    "namespaces",
    "quota_volumes",
    "quota_size",
    "secrets",
    SEALED_FIELD,
];

impl Decode for PutClass {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let id = decoder.field(&mut object, "id");
        let plugin = decoder.field(&mut object, "plugin");
        let parameters: Option<BTreeMap<String, String>> = decoder.field(&mut object, "parameters");
        let mutable: Option<BTreeMap<String, String>> =
            decoder.field(&mut object, "mutable_parameters");
        let capabilities: Option<Vec<Capability>> = decoder.field(&mut object, "capability");
        let mount: Option<Option<MountOptions>> = decoder.field(&mut object, "mount");
        let policy: Option<Option<TopologyPolicy>> = decoder.field(&mut object, "topology_policy");
        let topologies: Option<Vec<Topology>> = decoder.field(&mut object, "topology");
        let min: Option<Option<Size>> = decoder.field(&mut object, "min_size");
        let max: Option<Option<Size>> = decoder.field(&mut object, "max_size");
        let default: Option<Option<Size>> = decoder.field(&mut object, "default_size");
        let reclaim: Option<Option<Reclaim>> = decoder.field(&mut object, "reclaim");
        let namespaces: Option<Vec<Namespace>> = decoder.field(&mut object, "namespaces");
        let quota_volumes = decoder.field(&mut object, "quota_volumes");
        let quota_size = decoder.field(&mut object, "quota_size");
        let secrets = read_secrets(&mut object, decoder);
        decoder.finish(&object, &CLASS_FIELDS);

        check_capabilities(capabilities.as_deref(), mount.as_ref(), decoder);
        text::check_template(
            decoder,
            mount.as_ref().and_then(Option::as_ref),
            topologies.as_deref(),
            [("parameters", parameters.as_ref()), ("mutable_parameters", mutable.as_ref())],
        );
        check_namespaces(namespaces.as_deref().unwrap_or_default(), decoder);
        let [min, max, default] = [min, max, default].map(Option::flatten);
        if let (Some(min), Some(max)) = (min, max) {
            let problem = format!("is {max}, smaller than `min_size`, {min}");
            decoder.demand(min <= max, "max_size", problem);
        }
        if let Some(default) = default {
            let is_within =
                min.is_none_or(|min| default >= min) && max.is_none_or(|max| default <= max);
            let problem = format!("is {default}, not between `min_size` and `max_size`");
            decoder.demand(is_within, "default_size", problem);
        }
        Some(Self {
            id: id?,
            plugin: plugin?,
            parameters: parameters?,
            mutable_parameters: mutable?,
            capabilities: capabilities?,
            mount: mount?.unwrap_or_default(),
            topology_policy: policy?.unwrap_or_default(),
            topologies: topologies?,
            min_size: min,
            max_size: max,
            default_size: default,
            reclaim: reclaim?.unwrap_or_default(),
            namespaces: namespaces?,
            quota_volumes: quota_volumes?,
            quota_size: quota_size?,
            secrets: secrets?.map(SentSecrets::Given),
        })
    }
}

fn check_namespaces(namespaces: &[Namespace], decoder: &mut Decoder) {
    for (at, namespace) in namespaces.iter().enumerate() {
        let all = "is `*`, which is no namespace; leave `namespaces` out if all may use the class";
        decoder.demand(!namespace.is_wildcard(), &format!("namespaces[{at}]"), all);
    }
    text::check_distinct(decoder, "namespaces", namespaces);
}

impl PutClass {
    /// The class, with the secrets of this id.
    pub fn to_class(&self, secrets: Option<berth_domain::SecretsId>) -> Class {
        let bytes = |size: Option<Size>| size.map(Size::bytes);
        Class {
            plugin: self.plugin.clone(),
            parameters: self.parameters.clone(),
            mutable_parameters: self.mutable_parameters.clone(),
            capabilities: self.capabilities.clone(),
            mount: self.mount.clone(),
            topology_policy: self.topology_policy,
            topologies: self.topologies.clone(),
            size: SizeLimits {
                min_bytes: bytes(self.min_size),
                max_bytes: bytes(self.max_size),
                default_bytes: bytes(self.default_size),
            },
            reclaim: self.reclaim,
            namespaces: self.namespaces.clone(),
            quota: Quota { volumes: self.quota_volumes, bytes: bytes(self.quota_size) },
            secrets,
        }
    }
}

/// `class.put` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenClass {
    /// The class.
    pub id: ClassId,
    /// Whether anything was written; false when the class said the same already.
    pub changed: bool,
    /// The class's newest revision.
    pub index: u64,
}

/// `class.delete`: removes a class of which no volume is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteClass {
    /// The class.
    pub id: ClassId,
}
decode_struct!(DeleteClass { id });

/// `class.delete` was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedClass {
    /// The class.
    pub id: ClassId,
}

/// `class.list`: the classes that the namespace may use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListClasses {
    /// Only this class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ClassId>,
    /// Only classes whose id begins with this text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Which page.
    #[serde(flatten)]
    pub page: Page,
}
decode_struct!(ListClasses { id, prefix = String::new() } + page);

/// `class.list`: the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    /// The classes that the namespace may use, by id.
    pub classes: Vec<ClassStatus>,
    /// Where the next page begins, as `after`; none when this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Records of classes that cannot be read, and so do not say which namespaces may use them.
    /// They are told to a request for all namespaces, and to one that names the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<UnreadableRecord>,
}

/// One class, and what the namespace has of it. Each mount flag is shown as `***`, and the id of
/// the secrets is left out. Of the namespaces that may use it, a request for one namespace is told
/// that one only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassStatus {
    /// The class.
    pub id: ClassId,
    /// What its document says.
    #[serde(flatten)]
    pub class: Class,
    /// Whether it has secrets. They are never shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_secrets: bool,
    /// What the namespace has of it; for `*`, what all namespaces have together.
    pub used: ClassUse,
    /// The class's newest revision.
    pub index: u64,
}
