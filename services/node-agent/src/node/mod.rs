//! Mounts volumes on this node, takes them down, and shows them.
//!
//! **Owns** the work of `agent.mount`, `agent.mount-all`, `agent.guard`, `agent.detach`,
//! `agent.expand`, `agent.republish`, `agent.unmount` and `agent.status`. The plan says which
//! plugin calls to make ([`crate::plan`]); this module makes them.
//!
//! **Promises** that a use is in the journal before its first plugin call (E4, E5), that a detach
//! is done when the mount table says so (rule 11), and that a grant is used only by the request
//! that took it (rule 10).
//!
//! **Never** removes a file, a mount point, or a directory that is not empty.

mod account;
mod alive;
mod bind;
mod calls;
mod claim_use;
mod claims_before;
mod condition;
mod detach;
mod dirs;
mod endpoints;
mod enforce;
mod expand;
mod grant;
mod guard;
mod holders;
mod mount;
mod mount_all;
mod observe;
mod republish;
mod status;
mod still_mounted;
mod undo;
mod unmount;
mod unstaged;
mod volume_size;
mod watch;
mod whole_mount;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use berth_bus::Bus;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::{Namespace, PluginId, Timestamp, VolumeKey};

use crate::controller::{CreationAnswers, HostedControllers};
use crate::events::EventPublisher;
use crate::executor::VolumeExecutor;
use crate::gate::Gate;
use crate::host::Host;
use crate::host_pool::VolumeHost;
use crate::journal::Journal;
use crate::mount_health::MountHealths;
use crate::paths::{Paths, VolumePaths};
use crate::plugin::{Plugin, Plugins};
use crate::secret::SealingKey;
use crate::unaccounted::UnaccountedMounts;
use berth_host::{HostPool, MountTable};
use berth_service::runs::Runs;

pub use bind::Binds;
use calls::NodeCaller;
use claim_use::ClaimUsers;
pub use endpoints::serve;
pub use status::log_leftovers;
use unstaged::RefusedPaths;
use whole_mount::WholeMounts;

/// Mounts and takes down volumes. Cheap to clone.
#[derive(Clone)]
pub struct Mounter {
    shared: Arc<MounterContext>,
    refused: RefusedPaths,
    /// The allocs whose volumes are claimed and mounted together.
    whole_mounts: WholeMounts,
    claim_users: ClaimUsers,
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

    fn plugin(&self, id: &PluginId) -> Result<Plugin, Problem> {
        self.shared.plugins.get(id).ok_or_else(|| no_plugin(id))
    }

    /// Runs the host operations of a volume.
    fn host(&self, plugin: &PluginId, place: &VolumePaths) -> VolumeHost {
        VolumeHost::new(&self.shared.pool, plugin, place)
    }

    /// A caller without an operator's word that nothing of the volume is left here.
    fn node_caller(
        &self,
        plugin: &Plugin,
        external_id: &str,
        host: VolumeHost,
        deadline: Timestamp,
    ) -> NodeCaller {
        NodeCaller {
            plugin: plugin.clone(),
            external_id: external_id.to_owned(),
            host,
            deadline,
            refused: self.refused.clone(),
            unstaged_by: None,
        }
    }

    /// Adds the volume and this node to a problem.
    fn locate_problem(&self, problem: Problem, volume: &VolumeKey) -> Problem {
        problem.volume(volume).node(&self.shared.host.node)
    }
}

/// Refuses a request whose namespace is not that of its subject: rights are given for the latter.
fn check_namespace(asked_of: &Namespace, named: &Namespace) -> Result<(), Problem> {
    if asked_of.is_wildcard() || asked_of == named {
        return Ok(());
    }
    let message = "`namespace` must be the namespace of the request's subject";
    Err(Problem::new(Code::BadInput, message))
}

/// The refusal of a call to a plugin that this node does not have.
fn no_plugin(id: &PluginId) -> Problem {
    let message = format!("this node has no plugin {id}");
    Problem::new(Code::NoSuchPlugin, message).retryable()
}

/// A failure of this node itself.
fn local_problem<E: Error + 'static>(code: Code) -> impl Fn(E) -> Problem {
    move |error| Problem::new(code, berth_service::process::chain(&error)).retryable()
}

/// The mount table, read now.
async fn read_mount_table(code: Code) -> Result<Arc<MountTable>, Problem> {
    MountTable::read().await.map_err(local_problem(code))
}
