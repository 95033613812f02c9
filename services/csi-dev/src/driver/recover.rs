//! Recovery at the start of an instance.
//!
//! Owns: correcting the recorded state of this node by its mount table. Promises: a record without
//! a mount is removed, as after a reboot. A record with a mount stays. An unused loop device is
//! released. Never: mounts or unmounts, or touches a volume while another instance has a call about
//! it.

use berth_csi_proxy::log::HeldVolume;

use super::Driver;
use super::node::device;
use crate::backend::{BackendError, CallSlot, Volume, VolumeState};
use crate::capability::Capability;
use crate::mounts::{self, Presence};

impl Driver {
    /// Everything mounted on this node, after removing records without a mount.
    pub fn recover(&self) -> Result<Vec<HeldVolume>, BackendError> {
        let mut holdings = Vec::new();
        for volume in self.backend.volumes()? {
            let Some(locked) = volume.lock_unless_gone()? else { continue };
            let mut state = locked.state()?;
            let busy = locked.running(&CallSlot::Node(self.node_id().to_owned()))?.is_some();
            if self.profile.is_node() && !busy && self.forget_what_is_gone(&volume, &mut state) {
                locked.save(&state)?;
            }
            if let Some(on) = state.on(self.node_id()) {
                holdings.push(HeldVolume {
                    volume_id: volume.meta().volume_id.clone(),
                    staging: on.staged.as_ref().map(|staged| staged.path.clone()),
                    targets: on.published.keys().cloned().collect(),
                });
            }
        }
        Ok(holdings)
    }

    /// Removes the records without a mount. True if there was one.
    fn forget_what_is_gone(&self, volume: &Volume, state: &mut VolumeState) -> bool {
        let node = self.node_id();
        // If the content cannot be identified, its mounts may still exist.
        let Ok(content) = device::content(volume) else { return false };
        let is_gone = |path: &str| match mounts::resolve_place(path) {
            Ok(Some(mount_point)) => {
                matches!(mounts::find_presence(&mount_point, &content), Ok(Presence::Absent))
            }
            Ok(None) => true,
            Err(_) => false,
        };
        let is_unbound = || matches!(device::current(volume, state.device_on(node)), Ok(None));
        let before = state.clone();
        let stage_is_gone = state.staged_on(node).is_some_and(|staged| match staged.capability {
            Capability { block: true, .. } => is_unbound(),
            _ => is_gone(&staged.path),
        });
        if stage_is_gone {
            state.unstage(node);
        }
        for target in before.targets_on(node) {
            if is_gone(&target) {
                state.unpublish(node, &target);
            }
        }
        self.release_what_is_unused(volume, state);
        *state != before
    }

    /// Releases unused devices. A failure is left to the next call.
    fn release_what_is_unused(&self, volume: &Volume, state: &mut VolumeState) {
        let node = self.node_id();
        if state.staged_on(node).is_some() || !state.targets_on(node).is_empty() {
            return;
        }
        if device::release(volume, state, state.device_on(node).as_slice()).is_ok() {
            state.set_device(node, None);
        }
    }
}
