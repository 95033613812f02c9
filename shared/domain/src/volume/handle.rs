//! The volume handle: a plugin and its id of a volume. Each handle is registered once.
//!
//! **Why.** A volume's guard and its rules see the claims of one registration. Two registrations of
//! one storage volume would each grant a writer. So each handle has a key of its own that names the
//! volume which is registered for it, and that is written, changed and deleted with the volume's
//! spec, in one atomic batch.

use serde::{Deserialize, Serialize};

use crate::{Namespace, PluginId, VolumeId};

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
