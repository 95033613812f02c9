//! Mounts without a claim: where a volume may be in use although no claim says so.
//!
//! **Owns** the identity of such a mount, and what a decision is told of them.
//!
//! **Why.** A claim's record may be lost: a key is deleted by hand, or a backup that is older than
//! the claim is restored. The workload writes on. So nothing that destroys, forgets or gives away
//! the volume rests on the claims alone.
//!
//! **Promises** that a mount is matched by what it is: the plugin and the plugin's id. A name is
//! given again, so it is compared only where an older agent reported nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::handle::Handle;
use crate::access::{AccessMode, AttachmentMode, Mode};
use crate::{AllocId, Namespace, NodeId, PluginId, VolumeId, VolumeKey};

/// A mount that no claim covers: the claim's record was deleted by hand, or is not in a backup that
/// was restored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnaccountedMount {
    /// The namespace of the volume, when it was mounted.
    pub namespace: Namespace,
    /// The volume's id, when it was mounted.
    pub volume: VolumeId,
    /// The mount's alloc.
    pub alloc: AllocId,
    /// Where it is mounted.
    pub path: String,
    /// The plugin that mounted it. None from an agent of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginId>,
    /// What the plugin calls the volume. None from an agent of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    /// How its claim had the volume. None from an agent of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<MountUse>,
}

/// How a mount uses its volume: what a claim says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MountUse {
    /// Read or write.
    pub mode: Mode,
    /// How the volume may be shared.
    pub access: AccessMode,
    /// File system or block device.
    pub attachment: AttachmentMode,
}

impl UnaccountedMount {
    /// The volume, by the name that it had when it was mounted.
    pub fn volume_key(&self) -> VolumeKey {
        VolumeKey::new(self.namespace.clone(), self.volume.clone())
    }

    /// Whether it is this alloc's mount of the volume with this name.
    pub fn is_of(&self, volume: &VolumeKey, alloc: &AllocId) -> bool {
        let named = (&self.namespace, &self.volume) == (&volume.namespace, &volume.volume);
        named && self.alloc == *alloc
    }

    /// What is mounted; none from an agent of an earlier version.
    pub fn handle(&self) -> Option<Handle> {
        let (plugin, external_id) = (self.plugin.clone()?, self.external_id.clone()?);
        Some(Handle { plugin, external_id })
    }

    /// Whether it is, or may be, a mount of the volume with this name and this handle. A volume
    /// that was never created has no handle, and is mounted nowhere.
    pub fn may_be_of(&self, volume: &VolumeKey, handle: Option<&Handle>) -> bool {
        match (self.handle(), handle) {
            (Some(mounted), handle) => Some(&mounted) == handle,
            // In doubt there may be a writer.
            (None, _) => self.is_named(volume),
        }
    }

    /// Whether the volume had this name when it was mounted.
    pub fn is_named(&self, volume: &VolumeKey) -> bool {
        self.namespace == volume.namespace && self.volume == volume.volume
    }
}

impl fmt::Display for UnaccountedMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, alloc, .. } = self;
        let volume = self.volume_key();
        write!(f, "volume {volume} is mounted at {path} for alloc {alloc}, and no claim covers it")
    }
}

/// Where a volume may be mounted although no claim says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountDoubt {
    /// The node.
    pub node: NodeId,
    /// Why it may be.
    pub reason: DoubtReason,
    /// The mount that the node reports, where it may be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<UnaccountedMount>,
}

/// Why a volume may be mounted on a node although no claim says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoubtReason {
    /// The node reports a mount of it.
    Mounted,
    /// The node has the volume's plugin, and has not said yet what it has mounted.
    NotSaid,
    /// Something that a newer version knows.
    #[serde(other)]
    Unknown,
}

impl MountDoubt {
    /// The node reports this mount.
    pub fn mounted(node: &NodeId, mount: &UnaccountedMount) -> Self {
        let (node, mount) = (node.clone(), Some(mount.clone()));
        Self { node, reason: DoubtReason::Mounted, mount }
    }

    /// The node has not said what it has mounted.
    pub fn not_said(node: &NodeId) -> Self {
        Self { node: node.clone(), reason: DoubtReason::NotSaid, mount: None }
    }

    /// Whether the node says that it has a mount of the volume.
    pub const fn is_mounted(&self) -> bool {
        matches!(self.reason, DoubtReason::Mounted)
    }

    /// The same, as callers of a namespace may know it: a name of another one is left out.
    #[must_use]
    pub fn as_seen_in(self, namespace: &Namespace) -> Self {
        Self { mount: self.mount.filter(|mount| mount.namespace == *namespace), ..self }
    }
}

impl fmt::Display for MountDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, reason, mount } = self;
        match (reason, mount) {
            (_, Some(mount)) => write!(f, "on node {node}, {mount}"),
            (DoubtReason::Mounted, None) => write!(
                f,
                "on node {node}, it is mounted as a volume of another namespace, and no claim \
                 covers it"
            ),
            (DoubtReason::NotSaid, None) => {
                write!(f, "node {node} has not said yet what it has mounted")
            }
            (DoubtReason::Unknown, None) => write!(f, "node {node} may have it mounted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> VolumeKey {
        VolumeKey::new(Namespace::default(), VolumeId::new(name).unwrap())
    }

    fn handle(plugin: &str, external_id: &str) -> Handle {
        Handle { plugin: PluginId::new(plugin).unwrap(), external_id: external_id.to_owned() }
    }

    fn mount(name: &str, known: Option<(&str, &str)>) -> UnaccountedMount {
        let known = known.map(|(plugin, external_id)| handle(plugin, external_id));
        UnaccountedMount {
            namespace: Namespace::default(),
            volume: VolumeId::new(name).unwrap(),
            alloc: AllocId::new("a").unwrap(),
            path: "/p".to_owned(),
            plugin: known.as_ref().map(|known| known.plugin.clone()),
            external_id: known.map(|known| known.external_id),
            used: None,
        }
    }

    #[test]
    fn a_mount_is_matched_by_plugin_and_id_and_by_name_only_where_an_older_agent_said_no_more() {
        let one = Some(("p", "x"));
        for (mounted, name, of, expected) in [
            // The name says nothing: it may have been given again, or the volume another name.
            (mount("d", one), "d", one, true),
            (mount("d", one), "e", one, true),
            (mount("d", one), "d", Some(("p", "y")), false),
            (mount("d", one), "d", Some(("q", "x")), false),
            (mount("d", one), "d", None, false),
            (mount("d", None), "d", one, true),
            (mount("d", None), "d", None, true),
            (mount("d", None), "e", one, false),
        ] {
            let of = of.map(|(plugin, external_id)| handle(plugin, external_id));
            let found = mounted.may_be_of(&key(name), of.as_ref());
            assert_eq!(found, expected, "{mounted:?} of {name} {of:?}");
        }
    }

    #[test]
    fn a_mount_of_another_namespace_is_told_without_its_names() {
        let node = NodeId::new("n1").unwrap();
        let doubt = MountDoubt::mounted(&node, &mount("secret", Some(("p", "x"))));
        assert!(doubt.clone().as_seen_in(&Namespace::default()).to_string().contains("secret"));
        let elsewhere = doubt.as_seen_in(&Namespace::new("other").unwrap());
        assert!(elsewhere.is_mounted() && !elsewhere.to_string().contains("secret"));
    }
}
