//! The document by which a volume is registered, and what the documents of volumes and classes have
//! in common: capabilities and secrets.

use std::collections::BTreeMap;

use berth_domain::access::{AttachmentMode, Capability};
use berth_domain::limits::VOLUME_BYTES_MAX;
use berth_domain::volume::{MountOptions, VolumeSpec};
use berth_domain::{Namespace, VolumeId};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::secret::{Sealed, Secrets};
use crate::decode::{Decode, Decoder};
use crate::text;

/// `volume.register`: a volume's document, as its owner writes it in TOML or JSON.
///
/// An unknown field is a fault, as in a file: a person wrote the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterVolume {
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

const CAPACITY_TOO_LARGE: &str = "is more than CSI can say, which is 9223372036854775807 at most";

impl Decode for RegisterVolume {
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
        let capacity_bytes: Option<Option<u64>> = decoder.field(&mut object, "capacity_bytes");
        let parameters: Option<BTreeMap<String, String>> = decoder.field(&mut object, "parameters");
        let context: Option<BTreeMap<String, String>> = decoder.field(&mut object, "context");
        let secrets = read_secrets(&mut object, decoder);
        decoder.finish(&object, &DOCUMENT_FIELDS);

        check_capabilities(capabilities.as_deref(), mount.as_ref(), decoder);
        let external = external_id.as_ref().and_then(Option::as_deref);
        text::add_fault(decoder, "external_id", external.and_then(text::external_id_fault));
        let named = name.as_ref().and_then(Option::as_deref);
        text::add_fault(decoder, "name", named.and_then(text::name_fault));
        let is_sayable = capacity_bytes.flatten().is_none_or(|bytes| bytes <= VOLUME_BYTES_MAX);
        decoder.demand(is_sayable, "capacity_bytes", CAPACITY_TOO_LARGE);
        text::check_template(
            decoder,
            mount.as_ref().and_then(Option::as_ref),
            topologies.as_deref(),
            [("parameters", parameters.as_ref()), ("context", context.as_ref())],
        );
        let spec = VolumeSpec {
            closing: None,
            plugin: plugin?,
            name: name?.unwrap_or_default().into(),
            external_id: external_id?,
            capabilities: capabilities?.into(),
            mount: mount?.unwrap_or_default().into(),
            topologies: topologies?.into(),
            capacity_bytes: capacity_bytes?,
            parameters: parameters?.into(),
            context: context?.into(),
            storage: None,
            secrets: None,
            create_index: 0,
        };
        Some(Self { id: id?, namespace: namespace?, spec, secrets: secrets? })
    }
}

/// Reads the secrets of a document, in either form. None if they are faulty.
#[expect(clippy::option_option, reason = "faulty, absent and given differ")]
pub(super) fn read_secrets(
    object: &mut serde_json::Map<String, Value>,
    decoder: &mut Decoder,
) -> Option<Option<GivenSecrets>> {
    let plain: Option<Option<Secrets>> = decoder.field(object, "secrets");
    let sealed: Option<Option<Sealed>> = decoder.field(object, SEALED_FIELD);
    match (plain?, sealed?) {
        (Some(_), Some(_)) => {
            decoder.read_at(".secrets".to_owned(), |decoder| {
                decoder.fault(format!("is given beside `{SEALED_FIELD}`; give one of them"));
            });
            None
        }
        (plain, sealed) => {
            Some(plain.map(GivenSecrets::Plain).or(sealed.map(GivenSecrets::Sealed)))
        }
    }
}

/// Writes secrets as the field of a document.
pub(super) fn write_secrets<S: Serializer>(
    secrets: &GivenSecrets,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut field = serializer.serialize_map(Some(1))?;
    match secrets {
        GivenSecrets::Plain(secrets) => field.serialize_entry("secrets", secrets)?,
        GivenSecrets::Sealed(sealed) => field.serialize_entry(SEALED_FIELD, sealed)?,
    }
    field.end()
}

/// The document that says this, without the fields that it need not say.
impl Serialize for RegisterVolume {
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
            storage: _,
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

/// Notes all that is wrong with the capabilities of a document, and with mount options beside them.
pub(super) fn check_capabilities(
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
    text::check_distinct(decoder, "capability", capabilities);
    let only_block = !capabilities.is_empty()
        && capabilities.iter().all(|one| one.attachment == AttachmentMode::BlockDevice);
    let options = mount.and_then(Option::as_ref).is_some_and(|mount| !mount.is_empty());
    if only_block && options {
        decoder.read_at(".mount".to_owned(), |decoder| {
            decoder.fault("is given, but a block device is not mounted");
        });
    }
}
