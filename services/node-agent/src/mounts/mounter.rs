//! What mounting and taking down works with.

use std::sync::Arc;
use std::time::Duration;

use berth_bus::Bus;
use berth_contract::problem::Problem;
use berth_domain::{PluginId, Timestamp, VolumeKey};

use super::bind::Binds;
use super::claim_use::ClaimUsers;
use super::unstaged::RefusedPaths;
use super::whole_mount::WholeMounts;
use crate::controllers::{CreationAnswers, HostedControllers};
use crate::executor::VolumeExecutor;
use crate::fleet::events::EventPublisher;
use crate::fleet::gate::Gate;
use crate::fleet::secret::SealingKey;
use crate::fleet::unaccounted::UnaccountedMounts;
use crate::host::Host;
use crate::host::paths::{Paths, VolumePaths};
use crate::host::pool::VolumeHost;
use crate::journal::Journal;
use crate::mounts::health::MountHealths;
use crate::plugins::{Plugin, Plugins, no_plugin};
use berth_host::HostPool;
use berth_service::runs::Runs;

/// Mounts and takes down volumes. Cheap to clone.
#[derive(Clone)]
pub struct Mounter {
    pub(super) shared: Arc<MounterContext>,
    pub(super) refused: RefusedPaths,
    /// The allocs whose volumes are claimed and mounted together.
    pub(super) whole_mounts: WholeMounts,
    pub(super) claim_users: ClaimUsers,
}

/// What a [`Mounter`] works with.
pub struct MounterContext {
    pub bus: Bus,
    pub host: Host,
    pub pool: HostPool,
    pub paths: Paths,
    /// Mounts volumes at callers' paths too.
    pub binds: Binds,
    pub journal: Journal,
    /// Called to stage, publish, unpublish and unstage.
    pub plugins: Plugins,
    /// Runs node calls.
    pub executor: VolumeExecutor,
    /// The controllers that this agent serves, for the status.
    pub hosted: HostedControllers,
    /// Runs the calls of those controllers, for the status.
    pub controllers: VolumeExecutor,
    /// What controllers here answered for the names of new things.
    pub answers: CreationAnswers,
    pub events: EventPublisher,
    /// Refuses mounts while it is closed.
    pub gate: Gate,
    /// The health of each mount when it was last probed.
    pub healths: MountHealths,
    pub since: Timestamp,
    /// The commands that use what is mounted.
    pub runs: Runs,
    pub unaccounted: UnaccountedMounts,
    /// The key that secrets are sealed for.
    pub sealing: SealingKey,
    /// How long an alloc keeps what it has claimed while its request is not repeated.
    pub place_kept: Duration,
}

impl Mounter {
    pub fn new(context: MounterContext) -> Self {
        // What was mounted before this start is told of with its wanter, too.
        for (volume, alloc, entry) in context.journal.uses() {
            context.events.learn(&volume.namespace, &alloc, entry.by.as_ref());
        }
        Self {
            shared: Arc::new(context),
            refused: RefusedPaths::default(),
            whole_mounts: WholeMounts::default(),
            claim_users: ClaimUsers::default(),
        }
    }

    pub(super) fn plugin(&self, id: &PluginId) -> Result<Plugin, Problem> {
        self.shared.plugins.get(id).ok_or_else(|| no_plugin(id))
    }

    /// Runs the host operations of a volume.
    pub(super) fn host(&self, plugin: &PluginId, place: &VolumePaths) -> VolumeHost {
        VolumeHost::new(&self.shared.pool, plugin, place)
    }

    /// Adds the volume and this node to a problem.
    pub(super) fn locate_problem(&self, problem: Problem, volume: &VolumeKey) -> Problem {
        problem.volume(volume).node(&self.shared.host.node)
    }
}
