//! What a starting instance finds on its node.
//!
//! Owns: bringing the backend's notes about this node in line with its mount table. Promises: a
//! note without a mount goes, as after a reboot; a mount with a note stays as it is; a loop device
//! that nothing needs is released. Never: mounts, unmounts, or touches a volume that another
//! instance works on right now.

use std::io;

use super::Driver;
use super::node::device;
use crate::ability::Ability;
use crate::backend::{BackendError, CallSlot, State, Volume};
use crate::capability::Capability;
use crate::log::HeldVolume;
use crate::mounts::{self, Presence};

impl Driver {
    /// All that is mounted on this node, after forgetting what is not.
    pub fn recover(&self) -> Result<Vec<HeldVolume>, BackendError> {
        let mut holdings = Vec::new();
        for volume in self.backend.volumes()? {
            let locked = volume.lock()?;
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

    /// Notes in the log that this instance starts to serve, on a node that holds this. An instance
    /// that serves no node can say nothing about one.
    pub fn note_start(&self, holds: Vec<HeldVolume>) -> io::Result<()> {
        if !self.profile.is_node() {
            return Ok(());
        }
        self.recorder.start(self.has(Ability::Attach), self.has(Ability::Stage), holds)
    }

    /// Whether anything was forgotten.
    fn forget_what_is_gone(&self, volume: &Volume, state: &mut State) -> bool {
        let node = self.node_id();
        // What cannot be looked at may still be there.
        let Ok(content) = device::content(volume) else { return false };
        let is_gone = |path: &str| match mounts::resolve_place(path) {
            Ok(Some(place)) => {
                matches!(mounts::find_presence(&place, &content), Ok(Presence::Absent))
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

    /// Releases the devices that nothing here needs any more, as far as that is possible now.
    fn release_what_is_unused(&self, volume: &Volume, state: &mut State) {
        let node = self.node_id();
        if state.staged_on(node).is_some() || !state.targets_on(node).is_empty() {
            return;
        }
        if device::release(volume, state, state.device_on(node).as_slice()).is_ok() {
            state.set_device(node, None);
        }
    }
}
