//! Secrets of volumes in transit (A9): from the client that registers a volume to the claim
//! service, and from there to the agent that is about to make a plugin call.
//!
//! **Promises** that secrets have no printable form: [`Secrets`] prints how many there are, and
//! what crosses the bus or rests in a bucket is [`Sealed`] for one key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use berth_domain::volume::SecretCall;
use berth_domain::{Namespace, PluginId, SecretsId, Timestamp, VolumeId, limits};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::decode::{Decode, Decoder};
use crate::{decode_leaf, decode_struct};

/// The longest sealed value, in bytes: a full map as JSON, sealed, in base64, with room to spare.
const SEALED_BYTES_MAX: usize = 16 * limits::MAP_BYTES_MAX;

/// A volume's secrets, as the plugin wants them (CSI, `secrets`).
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secrets(pub BTreeMap<String, String>);

impl Secrets {
    /// The secrets for one call, or for one that has none of its own. A secret of the call's own
    /// replaces one for all calls.
    #[must_use]
    pub fn for_call(self, call: impl Into<Option<SecretCall>>) -> Self {
        let call = call.into().map(SecretCall::as_str);
        let mut for_all = BTreeMap::new();
        let mut own = BTreeMap::new();
        for (key, value) in self.0 {
            match key.split_once('/') {
                None => drop(for_all.insert(key, value)),
                Some((of, name)) if Some(of) == call => drop(own.insert(name.to_owned(), value)),
                Some(_) => {}
            }
        }
        for_all.append(&mut own);
        Self(for_all)
    }

    /// Without the secrets that are of other calls alone. The names stay: who makes the calls takes
    /// its own for each.
    #[must_use]
    pub fn for_calls(mut self, calls: &BTreeSet<SecretCall>) -> Self {
        let is_due = |of: &str| calls.iter().any(|call| call.as_str() == of);
        self.0.retain(|key, _| key.split_once('/').is_none_or(|(of, _)| is_due(of)));
        self
    }
}

/// The calls that a name may begin with, in words.
pub fn list_secret_calls() -> String {
    SecretCall::ALL.map(SecretCall::as_str).join(", ")
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} struck out]", self.0.len())
    }
}

impl Decode for Secrets {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let secrets = BTreeMap::<String, String>::decode(value, decoder)?;
        let mut sound = true;
        for key in secrets.keys() {
            // CSI, section "Secrets requirements".
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            let (of, name) = key.split_once('/').map_or((None, &**key), |(of, it)| (Some(of), it));
            sound &= decoder.demand(
                !name.is_empty() && name.bytes().all(plain),
                key,
                "is no name for a secret; it has letters, digits, `-`, `_` and `.` only",
            );
            sound &= decoder.demand(
                of.is_none_or(|of| SecretCall::ALL.iter().any(|call| call.as_str() == of)),
                key,
                format!("names no call before its `/`; known are {}", list_secret_calls()),
            );
        }
        sound.then_some(Self(secrets))
    }
}

/// Something sealed for one X25519 key, in the form of NATS's xkeys.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The sealer's public key, used for this envelope only.
    pub from: String,
    /// The sealed bytes, in base64.
    pub sealed: String,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[sealed]")
    }
}

impl Decode for Sealed {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let from = decoder.field(&mut object, "from");
        let sealed = object.remove("sealed").unwrap_or_default();
        let sealed: Option<String> = decoder.read_at(".sealed".to_owned(), |decoder| {
            let sealed: String = decoder.leaf(sealed)?;
            let fits = sealed.len() <= SEALED_BYTES_MAX;
            if !fits {
                decoder.fault(format!("has more than {SEALED_BYTES_MAX} bytes"));
            }
            fits.then_some(sealed)
        });
        decoder.finish(&object, &["from", "sealed"]);
        Some(Self { from: from?, sealed: sealed? })
    }
}

/// The sealed content: the secrets and their volume or class, so that a client cannot use the
/// sealed secrets of another volume for its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// The volume's namespace; `=class` for the secrets of a class.
    pub namespace: Namespace,
    /// The volume; the class's id for the secrets of a class.
    pub volume: VolumeId,
    /// The secrets.
    pub secrets: Secrets,
}

/// `secret.key`: for which key secrets are to be sealed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Key {}
decode_struct!(Key {});

/// `secret.key`: the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKey {
    /// The claim service's public X25519 key, `X…`.
    pub key: String,
}

/// `secret.open`, asked by the agent of the node in the subject, just before a plugin call that is
/// due there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
    /// Which secrets, as the call names them.
    pub secrets: SecretsId,
    /// The sealing key that the agent last reported, `X…`. The secrets are sealed for the key on
    /// the node's record; when that is another one, this is refused.
    pub to: String,
}
decode_struct!(Open { namespace, volume, secrets, to });

/// A volume's secrets as they are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSecrets {
    /// The secrets, sealed for the claim service.
    #[serde(flatten)]
    pub sealed: Sealed,
    /// The registration that last asked the plugin about the volume with these secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
}

/// A registration that asks a plugin's controllers about a volume (`controller.validate`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    /// The plugin.
    pub plugin: PluginId,
    /// When the registration gives up.
    pub until: Timestamp,
}
decode_leaf!(SecretsId);
