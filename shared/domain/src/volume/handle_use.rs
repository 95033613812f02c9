//! Who uses a volume's handle: other registrations, and claims that were made under other names.

use super::claim::{Claim, State};
use super::handle::Handle;
use crate::{AllocId, Namespace, NodeId, VolumeKey};

/// A volume's handle, and who else uses it. The default is a volume without a handle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandleUse {
    /// The handle that the volume has, or is to be registered with.
    pub own: Option<Handle>,
    /// Other volumes with the same handle, named as the caller may know them ([`name_in`]): those
    /// that are registered with it, and those whose registration was lost while claims stand.
    pub others: Vec<String>,
    /// Claims of those volumes that may be mounted, or are about to be.
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
    /// The other registration.
    pub volume: VolumeKey,
    /// The claim's alloc.
    pub alloc: AllocId,
    /// The claim's node.
    pub node: NodeId,
    /// The plugin's id of the node.
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
    /// The claim of another registration that a controller unpublish of this claim would detach. A
    /// node whose plugin's id is unknown counts as the same node.
    pub fn standing_on(&self, claim: &Claim) -> Option<&OtherClaim> {
        self.claims.iter().find(|other| {
            let same = other.external_node.as_ref().zip(claim.external_node.as_ref());
            other.node == claim.node || same.is_none_or(|(theirs, own)| theirs == own)
        })
    }
}
