//! Ids: one type per kind of thing, so that an alloc can never be passed for a volume.
//!
//! **Owns** what an id may be: 1 to 256 bytes of UTF-8 without control characters. Dots, slashes,
//! spaces and any script are allowed, because plugins and schedulers use them (`ebs.csi.aws.com`).
//!
//! **Promises** that an id that exists is valid: the constructors are the only way in, and
//! deserializing goes through them. To clone one costs nothing, its text is there once, and it is
//! one pointer: the length stands beside the text, since there are many more ids than texts.
//!
//! **Never** knows how an id is written in a subject or key: that is `contract::token`.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::ID_BYTES_MAX;

/// Why a string is no id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IdFault {
    /// Nothing was given.
    #[error("is empty; an id has 1 to {ID_BYTES_MAX} bytes")]
    Empty,
    /// Longer than [`ID_BYTES_MAX`].
    #[error("has {0} bytes; an id has 1 to {ID_BYTES_MAX}")]
    TooLong(usize),
    /// A control character, which no terminal and no log shows as it is.
    #[error("holds the control character {0:?} at byte {1}")]
    Control(char, usize),
}

fn check(id: &str) -> Result<(), IdFault> {
    if id.is_empty() {
        return Err(IdFault::Empty);
    }
    if id.len() > ID_BYTES_MAX {
        return Err(IdFault::TooLong(id.len()));
    }
    match id.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, c)) => Err(IdFault::Control(c, at)),
        None => Ok(()),
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<Box<str>>);

        impl $name {
            /// Takes the id if it is one.
            pub fn new(id: impl Into<String>) -> Result<Self, IdFault> {
                let id = id.into();
                check(&id)?;
                Ok(Self::from_valid(id))
            }

            fn from_valid(id: impl Into<Box<str>>) -> Self {
                Self(Arc::new(id.into()))
            }

            /// The id as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdFault;
            fn try_from(id: String) -> Result<Self, IdFault> {
                Self::new(id)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdFault;
            fn from_str(id: &str) -> Result<Self, IdFault> {
                Self::new(id)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.as_str().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
    )*};
}

ids! {
    /// One placed run of a workload on one node; what holds claims (Nomad's *allocation*).
    AllocId;
    /// One call to a plugin or agent: new for every call (rule 2 of the claim protocol).
    AttemptId;
    /// A named template of volumes (A15): one name in the whole fleet.
    ClassId;
    /// What runs instances of a plugin, by the name its scheduler gave it (D5).
    JobId;
    /// A tenant: the same volume id in two namespaces is two volumes (A14).
    Namespace;
    /// A host that runs a node agent.
    NodeId;
    /// Whom an alloc belongs to, such as one instance of a scheduler, by the name it gave itself.
    OwnerId;
    /// A storage plugin, by the name its users gave it; instances on many nodes share it.
    PluginId;
    /// One version of a volume's secrets. It tells nothing of them.
    SecretsId;
    /// A snapshot among those of its volume.
    SnapshotId;
    /// A volume within its namespace.
    VolumeId;
    /// A process that makes calls, such as `volumewatcher/host-7/3121`.
    WorkerId;
}

impl Namespace {
    /// What a caller that asks about all namespaces names: `*`.
    pub fn wildcard() -> Self {
        Self::from_valid("*")
    }

    /// Whether it stands for all namespaces.
    pub fn is_wildcard(&self) -> bool {
        self.as_str() == "*"
    }

    /// Whether a caller that names this asks about the other namespace, too.
    pub fn covers(&self, other: &Self) -> bool {
        self.is_wildcard() || self == other
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::from_valid("default")
    }
}

/// The namespace in which the secrets of classes are stored. No volume is in it.
const CLASS_SECRETS: &str = "=class";

impl ClassId {
    /// What the secrets of the class are stored and sealed for, in place of a volume.
    pub fn to_secrets_key(&self) -> VolumeKey {
        // A class's id keeps the rules of every id.
        VolumeKey::new(Namespace::from_valid(CLASS_SECRETS), VolumeId(self.0.clone()))
    }

    /// The class whose secrets are stored under the key; none for the key of a volume.
    pub fn from_secrets_key(key: &VolumeKey) -> Option<Self> {
        (key.namespace.as_str() == CLASS_SECRETS).then(|| Self(key.volume.0.clone()))
    }
}

/// A volume in its namespace: what locks, subtrees and paths are keyed by (A14).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeKey {
    /// The namespace.
    pub namespace: Namespace,
    /// The volume in it.
    pub volume: VolumeId,
}

impl VolumeKey {
    /// A key of its two parts.
    pub fn new(namespace: Namespace, volume: VolumeId) -> Self {
        Self { namespace, volume }
    }

    /// The first possible key of the namespace's volumes whose ids begin with the prefix.
    pub fn first_of(namespace: Namespace, prefix: &str) -> Self {
        // No id is empty, or begins with a control character: none is less than a space.
        let first = if prefix.is_empty() { " " } else { prefix };
        Self { namespace, volume: VolumeId::from_valid(first) }
    }
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.volume)
    }
}

impl fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_1_to_256_bytes_without_control_characters() {
        assert_eq!(VolumeId::new(""), Err(IdFault::Empty));
        assert_eq!(VolumeId::new("x".repeat(257)), Err(IdFault::TooLong(257)));
        assert_eq!(VolumeId::new("a\nb"), Err(IdFault::Control('\n', 1)));
        for ok in ["x", "ebs.csi.aws.com", "a/b c", "データ", "*", ">", &"x".repeat(256)] {
            assert_eq!(VolumeId::new(ok).unwrap().as_str(), ok);
        }
    }

    #[test]
    fn no_volume_of_a_namespace_is_before_its_first_possible_key() {
        let key = |id: &str| VolumeKey::new(Namespace::default(), VolumeId::new(id).unwrap());
        for id in [" ", "!", "a", "データ"] {
            assert!(VolumeKey::first_of(Namespace::default(), "") <= key(id), "{id}");
        }
        assert!(key("aa") < VolumeKey::first_of(Namespace::default(), "ab"));
        assert!(VolumeKey::first_of(Namespace::default(), "ab") <= key("ab"));
    }

    #[test]
    fn secrets_of_a_class_have_a_key_that_names_the_class() {
        let class = ClassId::new("fast").unwrap();
        let key = class.to_secrets_key();
        assert_eq!(key.to_string(), "=class/fast");
        assert_eq!(ClassId::from_secrets_key(&key), Some(class));
        let volume = VolumeKey::new(Namespace::default(), VolumeId::new("fast").unwrap());
        assert_eq!(ClassId::from_secrets_key(&volume), None);
    }

    #[test]
    fn deserializing_goes_through_the_check() {
        assert!(serde_json::from_str::<NodeId>("\"\"").is_err());
        assert!(serde_json::from_str::<NodeId>("\"a\\u0000\"").is_err());
        assert_eq!(serde_json::from_str::<NodeId>("\"n1\"").unwrap().as_str(), "n1");
    }
}
