//! The driver: one instance, serving one node, of a CSI plugin on directories and images.
//!
//! Owns: the work of each call, in one file per pair of calls that undo each other. Promises: every
//! call is idempotent, and succeeds after its process was killed at any point before. Calls that
//! break a rule of order are refused. An ability that is switched off is neither advertised nor
//! served. Never: deletes or moves a volume's data, except in `DeleteVolume`.
//!
//! ```text
//! services    one row for each RPC: its ability and its function
//! call        around the work of a call: slots, abilities, required fields
//! request     fields of requests, all faults at once
//! refusal     why a call fails, and what it changed before
//! identity    GetPluginInfo, GetPluginCapabilities, Probe
//! controller  what is done to volumes and snapshots from anywhere
//! group       snapshots of several volumes at once
//! node        what is done to volumes on the node of this instance
//! profile     what an instance is, and can do
//! handle      ids, made from names
//! size        how large volumes are
//! recover     what is still mounted when an instance starts
//! ```

mod call;
mod controller;
mod group;
mod handle;
mod health;
mod identity;
mod node;
mod profile;
mod recover;
mod refusal;
mod request;
pub mod services;
mod size;

use std::collections::BTreeMap;

use berth_csi::Code;

use crate::ability::Ability;
use crate::backend::{Attachment, Backend, BackendError, Volume, VolumeMeta, VolumeState};
use crate::capability::Capability;
use crate::rules::{self, Violation};
use crate::topology::{self, Segments};

use refusal::Refusal;

pub use call::SlotGate;
use profile::IgnoredField;
pub use profile::Profile;

/// One running instance.
#[derive(Debug)]
pub struct Driver {
    profile: Profile,
    backend: Backend,
}

impl Driver {
    pub fn new(profile: Profile, backend: Backend) -> Self {
        Self { profile, backend }
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    fn node_id(&self) -> &str {
        &self.profile.node_id
    }

    /// The volume `id`, or `NOT_FOUND`.
    fn volume(&self, id: &str) -> Result<Volume, Refusal> {
        let volume = self.backend.volume(id)?.ok_or_else(|| unknown(id))?;
        self.check_home(id, volume.meta().node.as_deref())?;
        Ok(volume)
    }

    /// With `--bound`: refuses what exists on another node only.
    fn check_home(&self, id: &str, node: Option<&str>) -> Result<(), Refusal> {
        if self.is_home(node) {
            return Ok(());
        }
        let message = format!(
            "volume {id:?}: node {} does not have it, and instances are bound to their nodes; ask \
             the one of {}",
            self.node_id(),
            node.unwrap_or("another node")
        );
        Err(Refusal::new(Code::NotFound, message))
    }

    /// Whether a deletion is answered with OK although nothing is deleted. What another node has is
    /// unknown here, and CSI requires OK for what is unknown.
    fn overlooks(&self, node: Option<&str>) -> bool {
        self.profile.lenient && !self.is_home(node)
    }

    /// Whether this instance has the volumes of `node`.
    fn is_home(&self, node: Option<&str>) -> bool {
        !self.profile.bound || node.is_none_or(|node| node == self.node_id())
    }

    /// Everything in `capability` that the volume, or this instance, does not offer.
    fn unfit(&self, meta: &VolumeMeta, capability: &Capability) -> Vec<String> {
        let mut checked = capability.clone();
        if self.profile.ignores(IgnoredField::FsType) {
            checked.fs = None;
        }
        let mut faults = checked.unfit(meta.backing, meta.fs);
        let needs = [
            (Ability::SingleNodeMultiWriter, capability.mode.is_single_node_multi_writer()),
            (Ability::MountGroup, capability.group.is_some()),
        ];
        for (ability, _) in needs.iter().filter(|(ability, used)| *used && !self.has(*ability)) {
            faults.push(format!("{ability} is not among the capabilities of this plugin"));
        }
        faults
    }

    /// Refuses a capability that the volume, or this instance, does not offer.
    fn check_fit(
        &self,
        code: Code,
        meta: &VolumeMeta,
        capability: &Capability,
    ) -> Result<(), Refusal> {
        let faults = self.unfit(meta, capability);
        if faults.is_empty() {
            return Ok(());
        }
        let faults: Vec<_> =
            faults.iter().map(|fault| format!("volume_capability.{fault}")).collect();
        let message = format!("volume {:?}: {}", meta.volume_id, faults.join("; "));
        Err(Refusal::new(code, message))
    }

    /// Refuses a volume that this node cannot reach.
    fn check_own_reach(&self, volume: &Volume) -> Result<(), Refusal> {
        self.check_reach(volume.meta(), self.node_id(), &self.profile.topology())
    }

    /// Refuses while the node is fenced.
    fn check_fence(&self, volume_id: &str) -> Result<(), Refusal> {
        let node = self.node_id();
        if !self.backend.is_fenced(node)? {
            return Ok(());
        }
        let message = format!("volume {volume_id:?}: the storage has fenced node {node}");
        Err(Refusal::new(Code::Unavailable, message))
    }

    /// Refuses a call that breaks a rule of order, unless this instance is lenient.
    fn insist(&self, volume_id: &str, checked: Result<(), Violation>) -> Result<(), Refusal> {
        match checked {
            Err(_) if self.profile.lenient => Ok(()),
            checked => checked.map_err(|broken| Refusal::violation(volume_id, broken)),
        }
    }

    fn has(&self, ability: Ability) -> bool {
        self.profile.has(ability)
    }

    /// Refuses a volume that `node`, with these segments, cannot reach.
    fn check_reach(
        &self,
        meta: &VolumeMeta,
        node: &str,
        segments: &Segments,
    ) -> Result<(), Refusal> {
        let also = self.profile.also_from();
        let is_also = !also.is_empty() && topology::is_within(segments, &also);
        if is_also || topology::is_within(segments, &meta.topology) {
            return Ok(());
        }
        let message = format!(
            "volume {:?}: accessible from {:?} only, and node {node} is at {segments:?}; use a \
             node there",
            meta.volume_id, meta.topology
        );
        Err(Refusal::new(Code::FailedPrecondition, message))
    }

    /// What a CO must pass from `ControllerPublishVolume` to the node calls.
    fn publish_context(&self, attachment: &Attachment) -> BTreeMap<String, String> {
        if self.profile.no_publish_context {
            return BTreeMap::new();
        }
        // A new value for each attachment, as real device paths may be.
        BTreeMap::from([(self.device_key(), format!("disk-{}", attachment.number))])
    }

    fn device_key(&self) -> String {
        format!("{}/device", self.profile.driver_name)
    }

    /// Refuses a node call while the volume is not attached here, or if the call does not have the
    /// publish context. Returns the attachment; `None` for a plugin that does not attach.
    fn check_attached<'a>(
        &self,
        meta: &VolumeMeta,
        state: &'a VolumeState,
        publish_context: &BTreeMap<String, String>,
    ) -> Result<Option<&'a Attachment>, Refusal> {
        if !self.has(Ability::Attach) {
            return Ok(None);
        }
        if self.profile.lenient {
            return Ok(state.attachments.get(self.node_id()));
        }
        let attachment = rules::check_attached(state, self.node_id());
        let attachment =
            attachment.map_err(|broken| Refusal::violation(&meta.volume_id, broken))?;
        if self.profile.no_publish_context {
            return Ok(Some(attachment));
        }
        let key = self.device_key();
        let current = self.publish_context(attachment);
        let wrong = match publish_context.get(&key) {
            None => "is missing",
            Some(given) if Some(given) == current.get(&key) => return Ok(Some(attachment)),
            Some(_) => "belongs to another attachment",
        };
        Err(Refusal::new(
            Code::InvalidArgument,
            format!(
                "volume {:?} on node {}: publish_context[{key:?}] {wrong}; pass on what \
                 ControllerPublishVolume returned last",
                meta.volume_id,
                self.node_id()
            ),
        ))
    }
}

fn unknown(id: &str) -> Refusal {
    let message = format!(
        "volume {id:?} does not exist; CreateVolume or `berth-csi-dev provision` makes volumes"
    );
    Refusal::new(Code::NotFound, message)
}

/// Changes a volume's state under its lock.
fn update_state(
    volume: &Volume,
    change: impl FnOnce(&mut VolumeState),
) -> Result<(), BackendError> {
    let locked = volume.lock()?;
    let mut state = locked.state()?;
    change(&mut state);
    locked.save(&state)
}
