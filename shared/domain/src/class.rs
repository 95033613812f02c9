//! Classes: named templates of volumes (A15).
//!
//! **Owns** what a class may say, and whether a request keeps within it.
//!
//! **Promises** that a volume has everything that it needs of its class: changing a class changes
//! no volume.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::access::Capability;
use crate::size::describe_bytes;
use crate::volume::MountOptions;
use crate::volume::storage::{Reclaim, Topology};
use crate::{Namespace, PluginId, SecretsId};

/// A class, as its operator wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// The plugin that makes its volumes.
    pub plugin: PluginId,
    /// Opaque parameters of `CreateVolume`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Opaque parameters that may be changed later (`ControllerModifyVolume`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// The capabilities of its volumes, at least one.
    pub capabilities: Vec<Capability>,
    /// File system and mount flags.
    #[serde(default, skip_serializing_if = "MountOptions::is_empty")]
    pub mount: MountOptions,
    /// When the place of a volume is decided.
    #[serde(default)]
    pub topology_policy: TopologyPolicy,
    /// Where its volumes may be; anywhere if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topologies: Vec<Topology>,
    /// The sizes that its volumes may have.
    #[serde(default)]
    pub size: SizeLimits,
    /// What becomes of a volume that is no longer used.
    #[serde(default)]
    pub reclaim: Reclaim,
    /// The namespaces that may use it; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<Namespace>,
    /// How much of it each namespace may use.
    #[serde(default, skip_serializing_if = "Quota::is_unlimited")]
    pub quota: Quota,
    /// The id of the secrets of its volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<SecretsId>,
}

/// When the place of a volume is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyPolicy {
    /// The volume is created at once; the plugin chooses among the allowed topologies.
    #[default]
    Immediate,
    /// The volume is created where its first claim is.
    FirstUse,
}

/// The sizes that volumes of a class may have, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SizeLimits {
    /// The smallest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_bytes: Option<u64>,
    /// The largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// The size of a request that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_bytes: Option<u64>,
}

/// How much of a class one namespace may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    /// The most volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<u64>,
    /// The most bytes of all volumes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl Quota {
    /// Whether there is no bound.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// What a namespace has of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClassUse {
    /// Volumes.
    pub volumes: u64,
    /// Bytes of all volumes together.
    pub bytes: u64,
}

/// Why a class does not allow a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassRefusal {
    /// The namespace may not use the class.
    Namespace,
    /// The size is not within the class's limits.
    Size {
        /// The size, in bytes.
        required: u64,
        /// The limits.
        limits: SizeLimits,
    },
    /// The namespace has as much of the class as it may have.
    Quota {
        /// What it has now.
        used: ClassUse,
        /// What it may have.
        quota: Quota,
        /// What is requested beside it, in bytes.
        more: u64,
    },
}

impl fmt::Display for ClassRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace => f.write_str("the namespace may not use the class"),
            Self::Size { required, limits } => {
                let bounds = match (limits.min_bytes, limits.max_bytes) {
                    (Some(min), Some(max)) => {
                        format!("from {} to {}", describe_bytes(min), describe_bytes(max))
                    }
                    (Some(min), None) => format!("at least {}", describe_bytes(min)),
                    (None, Some(max)) => format!("at most {}", describe_bytes(max)),
                    (None, None) => "any size".to_owned(),
                };
                write!(
                    f,
                    "{} is not within the sizes that the class allows: {bounds}",
                    describe_bytes(*required)
                )
            }
            Self::Quota { used, quota, more } => {
                let bounds = [
                    quota.volumes.map(count_volumes),
                    quota.bytes.map(|bytes| format!("{} altogether", describe_bytes(bytes))),
                ];
                let bounds: Vec<String> = bounds.into_iter().flatten().collect();
                write!(
                    f,
                    "the namespace has {} of it, {} altogether, and {} more is requested; it may \
                     have {}",
                    count_volumes(used.volumes),
                    describe_bytes(used.bytes),
                    describe_bytes(*more),
                    bounds.join(", ")
                )
            }
        }
    }
}

/// `1 volume`, `3 volumes`
fn count_volumes(count: u64) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} volume{s}")
}

impl Class {
    /// Whether the namespace may use the class.
    pub fn is_open_to(&self, namespace: &Namespace) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace)
    }

    /// The size of a request, within the limits.
    pub fn size(&self, requested: Option<u64>) -> Result<u64, ClassRefusal> {
        let limits = self.size;
        let smallest = limits.default_bytes.or(limits.min_bytes).unwrap_or_default();
        let required = requested.unwrap_or(smallest);
        let is_within = limits.min_bytes.is_none_or(|min| required >= min)
            && limits.max_bytes.is_none_or(|max| required <= max);
        if is_within { Ok(required) } else { Err(ClassRefusal::Size { required, limits }) }
    }

    /// Whether the namespace may have this much more.
    pub fn check_quota(
        &self,
        used: ClassUse,
        more_volumes: u64,
        more: u64,
    ) -> Result<(), ClassRefusal> {
        let quota = self.quota;
        let within = quota.volumes.is_none_or(|most| used.volumes + more_volumes <= most)
            && quota.bytes.is_none_or(|most| used.bytes.saturating_add(more) <= most);
        if within { Ok(()) } else { Err(ClassRefusal::Quota { used, quota, more }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(size: SizeLimits, quota: Quota) -> Class {
        Class {
            plugin: PluginId::new("p").unwrap(),
            parameters: BTreeMap::new(),
            mutable_parameters: BTreeMap::new(),
            capabilities: Vec::new(),
            mount: MountOptions::default(),
            topology_policy: TopologyPolicy::Immediate,
            topologies: Vec::new(),
            size,
            reclaim: Reclaim::Delete,
            namespaces: Vec::new(),
            quota,
            secrets: None,
        }
    }

    #[test]
    fn a_size_is_within_the_limits_or_the_default() {
        let limits =
            SizeLimits { min_bytes: Some(10), max_bytes: Some(20), default_bytes: Some(15) };
        let of = |limits| class(limits, Quota::default());
        for (requested, expected) in
            [(None, Some(15)), (Some(10), Some(10)), (Some(20), Some(20)), (Some(9), None)]
        {
            assert_eq!(of(limits).size(requested).ok(), expected, "{requested:?}");
        }
        assert!(of(limits).size(Some(21)).is_err());
        let without_default = SizeLimits { default_bytes: None, ..limits };
        assert_eq!(of(without_default).size(None), Ok(10));
        assert_eq!(of(SizeLimits::default()).size(None), Ok(0));
    }

    #[test]
    fn a_quota_counts_what_is_requested() {
        let used = ClassUse { volumes: 2, bytes: 20 };
        let with = |volumes, bytes| class(SizeLimits::default(), Quota { volumes, bytes });
        assert!(with(Some(3), Some(30)).check_quota(used, 1, 10).is_ok());
        assert!(with(Some(2), None).check_quota(used, 1, 0).is_err());
        assert!(with(Some(2), None).check_quota(used, 0, 10).is_ok(), "an expansion");
        assert!(with(None, Some(29)).check_quota(used, 1, 10).is_err());
        assert!(with(None, Some(u64::MAX)).check_quota(used, 1, u64::MAX).is_ok());
        assert!(with(None, None).check_quota(used, 1, u64::MAX).is_ok());
    }

    #[test]
    fn a_refusal_names_sizes_as_people_write_them() {
        let limits =
            SizeLimits { min_bytes: Some(1 << 30), max_bytes: Some(1 << 40), default_bytes: None };
        let told = ClassRefusal::Size { required: 1 << 20, limits }.to_string();
        assert_eq!(told, "1MiB is not within the sizes that the class allows: from 1GiB to 1TiB");
        let used = ClassUse { volumes: 1, bytes: 10 << 30 };
        let quota = Quota { volumes: Some(2), bytes: Some(15 << 30) };
        let told = ClassRefusal::Quota { used, quota, more: 10 << 30 }.to_string();
        let expected = "the namespace has 1 volume of it, 10GiB altogether, and 10GiB more is \
                        requested; it may have 2 volumes, 15GiB altogether";
        assert_eq!(told, expected);
    }

    #[test]
    fn a_class_is_open_to_the_namespaces_that_it_names() {
        let named = Namespace::new("a").unwrap();
        let mut class = class(SizeLimits::default(), Quota::default());
        assert!(class.is_open_to(&named) && class.is_open_to(&Namespace::default()));
        class.namespaces = vec![named.clone()];
        assert!(class.is_open_to(&named) && !class.is_open_to(&Namespace::default()));
    }
}
