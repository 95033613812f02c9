//! The volumes that are, or may be, on this node.

use berth_contract::problem::Problem;
use berth_domain::{NodeId, VolumeKey};

use super::bind::Binds;
use crate::fleet::unaccounted::UnaccountedMounts;
use crate::host::paths::Paths;
use crate::journal::Journal;

/// Where volumes are on this node, and what is known of them. Its functions may write the journal;
/// they call no plugin and send nothing. Cheap to clone.
#[derive(Clone)]
pub struct LocalVolumes {
    pub node: NodeId,
    /// Mounts of another boot are gone.
    pub boot_id: String,
    pub paths: Paths,
    pub journal: Journal,
    /// The volumes' mounts under further names and at callers' paths.
    pub binds: Binds,
    /// The mounts that no claim covers.
    pub unaccounted: UnaccountedMounts,
}

impl LocalVolumes {
    /// Adds the volume and this node to a problem.
    pub(super) fn locate_problem(&self, problem: Problem, volume: &VolumeKey) -> Problem {
        problem.volume(volume).node(&self.node)
    }
}
