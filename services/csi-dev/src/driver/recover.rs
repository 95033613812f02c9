//! What a starting instance finds on its node.
//!
//! Owns: bringing the backend's notes about this node in line with its mount table. Promises: a
//! note without a mount goes, as after a reboot; a mount with a note stays as it is. Never: mounts,
//! unmounts, or touches a volume that another instance works on right now.

use std::io;

use super::Driver;
use crate::backend::{BackendError, Lane, State, Volume};
use crate::log::Holding;
use crate::mounts::{self, Presence};

impl Driver {
    /// All that is mounted on this node, after forgetting what is not.
    pub fn recover(&self) -> Result<Vec<Holding>, BackendError> {
        let mut holdings = Vec::new();
        for volume in self.backend.volumes()? {
            let locked = volume.lock()?;
            let mut state = locked.state()?;
            let busy = locked.running(&Lane::Node(self.node_id().to_owned()))?.is_some();
            if !busy && self.forget_what_is_gone(&volume, &mut state) {
                locked.save(&state)?;
            }
            if let Some(on) = state.on(self.node_id()) {
                holdings.push(Holding {
                    volume_id: volume.meta().volume_id.clone(),
                    staging: on.staged.as_ref().map(|staged| staged.path.clone()),
                    targets: on.published.keys().cloned().collect(),
                });
            }
        }
        Ok(holdings)
    }

    /// Notes in the log that this instance starts to serve, on a node that holds this.
    pub fn note_start(&self, holds: Vec<Holding>) -> io::Result<()> {
        self.recorder.start(self.profile.attach, self.profile.stage, holds)
    }

    /// Whether anything was forgotten.
    fn forget_what_is_gone(&self, volume: &Volume, state: &mut State) -> bool {
        let node = self.node_id();
        let data = volume.data();
        let is_gone = |path: &str| match mounts::place(path) {
            Ok(Some(place)) => matches!(mounts::presence(&place, &data), Ok(Presence::Absent)),
            Ok(None) => true,
            // What cannot be looked at may still be there.
            Err(_) => false,
        };
        let before = state.clone();
        if state.staged_on(node).is_some_and(|staged| is_gone(&staged.path)) {
            state.unstage(node);
        }
        for target in before.targets_on(node) {
            if is_gone(&target) {
                state.unpublish(node, &target);
            }
        }
        *state != before
    }
}
