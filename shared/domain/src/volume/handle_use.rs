//! Who uses a volume's handle: other registrations, and claims that were made under other names.

use std::time::Duration;

use super::call::Attempt;
use super::handle::Handle;
use super::record::{Claim, State};
use crate::{AllocId, Namespace, NodeId, Timestamp, VolumeKey};

/// A volume's handle, and who else uses it. The default is a volume without a handle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandleUse {
    /// The handle that the volume has, or is to be registered with.
    pub own: Option<Handle>,
    /// Other volumes with the same handle, named as the caller may know them ([`name_in`]): those
    /// that are registered with it, and those whose registration was lost while claims stand.
    pub others: Vec<String>,
    /// Claims under other names that a controller call for one of the volume's claims has to
    /// consider: of the same handle, and of each other handle that the volume's claims are of.
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

/// A claim under another name of the same handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherClaim {
    /// The other name.
    pub volume: VolumeKey,
    /// What the claim is of.
    pub handle: Handle,
    /// The claim's alloc.
    pub alloc: AllocId,
    /// The claim's node.
    pub node: NodeId,
    /// The plugin's id of the node.
    pub external_node: Option<String>,
    /// Whether the node may have the volume mounted, or is about to get it.
    pub stands: bool,
    /// Its call of a controller.
    pub call: Option<Attempt>,
}

impl OtherClaim {
    /// Reads the claim, if it may keep a controller from a call about the same volume.
    pub fn from_claim(
        volume: &VolumeKey,
        handle: &Handle,
        alloc: &AllocId,
        claim: &Claim,
    ) -> Option<Self> {
        let stands = matches!(claim.state, State::Publishing | State::Taken | State::Unpublishing);
        let call = claim.progress.attempt.clone().filter(|attempt| attempt.call.is_controller());
        (stands || call.is_some()).then(|| Self {
            volume: volume.clone(),
            handle: handle.clone(),
            alloc: alloc.clone(),
            node: claim.node.clone(),
            external_node: claim.external_node.clone(),
            stands,
            call,
        })
    }

    /// Whether a controller unpublish of this claim would detach the other one. A node whose
    /// plugin's id is unknown counts as the same node.
    fn shares_attachment(&self, claim: &Claim) -> bool {
        let same = self.external_node.as_ref().zip(claim.external_node.as_ref());
        self.stands && (self.node == claim.node || same.is_none_or(|(theirs, own)| theirs == own))
    }
}

impl HandleUse {
    /// The claim under another name that keeps the controller from detaching this one now: it
    /// would be detached, too, or a controller may still work on a call for it (rule 3).
    pub fn in_the_way(
        &self,
        claim: &Claim,
        now: Timestamp,
        clock_margin: Duration,
    ) -> Option<&OtherClaim> {
        let handle = claim.handle().or_else(|| self.own.clone())?;
        let is_busy = |other: &OtherClaim| {
            other.call.as_ref().is_some_and(|call| call.may_still_act(now, clock_margin))
        };
        let mut same = self.claims.iter().filter(|other| other.handle == handle);
        same.find(|other| other.shares_attachment(claim) || is_busy(other))
    }
}
