//! The volume handle: what a plugin knows a volume by. One volume at a plugin is registered once.
//!
//! **Why.** A volume's guard and its rules see the claims of one registration. Two registrations of
//! one storage volume would each grant a writer. So each handle has a key of its own that names the
//! volume which is registered for it, and that is written, changed and deleted with the volume's
//! spec, in one atomic batch.

use serde::{Deserialize, Serialize};

use super::claim::{Claim, State};
use crate::{AllocId, Namespace, NodeId, PluginId, VolumeId, VolumeKey};

/// A plugin, and the id that it knows a volume by (CSI's `volume_id`, the orchestrators' volume
/// handle).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// The plugin.
    pub plugin: PluginId,
    /// What it calls the volume.
    pub external_id: String,
}

/// Which volume is registered for a handle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandleOwner {
    /// The volume's namespace.
    pub namespace: Namespace,
    /// The volume.
    pub volume: VolumeId,
}

/// What is known of a volume's handle beside the volume's own record. The default is a volume that
/// is registered once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandleUse {
    /// The other volumes that are registered with the same handle, as a caller may know them
    /// ([`name_in`]).
    pub others: Vec<String>,
    /// Their claims that may be mounted, or are about to be.
    pub claims: Vec<OtherClaim>,
}

/// How a volume is named to callers of a namespace: they may not know the volumes of others.
pub fn name_in(namespace: &Namespace, volume: &VolumeKey) -> String {
    if volume.namespace == *namespace {
        format!("volume {}", volume.volume)
    } else {
        "a volume of another namespace".to_owned()
    }
}

/// A claim of another registration of the same handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherClaim {
    /// On which registration.
    pub volume: VolumeKey,
    /// Whose.
    pub alloc: AllocId,
    /// Where.
    pub node: NodeId,
    /// What the plugin calls the node.
    pub external_node: Option<String>,
}

impl OtherClaim {
    /// Reads the claim, if its node may have the volume mounted, or is about to get it.
    pub fn from_claim(volume: &VolumeKey, alloc: &AllocId, claim: &Claim) -> Option<Self> {
        let stands = matches!(claim.state, State::Publishing | State::Taken | State::Unpublishing);
        stands.then(|| Self {
            volume: volume.clone(),
            alloc: alloc.clone(),
            node: claim.node.clone(),
            external_node: claim.external_node.clone(),
        })
    }
}

impl HandleUse {
    /// The claim of another registration that a controller unpublish for this claim would take the
    /// volume from. A node of which the plugin's name is not known counts as the same node.
    pub fn standing_on(&self, claim: &Claim) -> Option<&OtherClaim> {
        self.claims.iter().find(|other| {
            let same = other.external_node.as_ref().zip(claim.external_node.as_ref());
            other.node == claim.node || same.is_none_or(|(theirs, own)| theirs == own)
        })
    }
}
