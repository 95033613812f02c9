//! Volumes on this node: mounted, taken down, shown.
//!
//! **Owns** what happens here for `agent.mount`, `agent.detach`, `agent.republish` and
//! `agent.status`: the plan says which plugin calls to make ([`crate::plan`]), this makes them.
//!
//! **Promises** that what may be here is in the journal before the first plugin call (E4, E5), that
//! a detach is done when the mount table says so (rule 11), and that nothing is done by a grant but
//! in the request that asked for it (rule 10).
//!
//! **Never** removes a file, nor a directory that is mounted or not empty.

mod account;
mod alive;
mod bind;
mod calls;
mod detach;
mod dirs;
mod endpoints;
mod enforce;
mod grant;
mod holders;
mod mount;
mod observe;
mod republish;
mod status;
mod undo;
mod unmount;
mod unstaged;
mod watch;

use std::error::Error;
use std::sync::Arc;

use berth_bus::Bus;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_domain::{PluginId, Timestamp, VolumeKey};

use crate::controller::HostedControllers;
use crate::events::EventPublisher;
use crate::executor::VolumeExecutor;
use crate::gate::Gate;
use crate::host::Host;
use crate::host_pool::VolumeHost;
use crate::journal::Journal;
use crate::mount_health::MountHealths;
use crate::paths::{Paths, VolumePaths};
use crate::plugin::{Plugin, Plugins};
use crate::unaccounted::UnaccountedMounts;
use berth_host::{HostPool, MountTable};
use berth_service::runs::Runs;

pub use bind::Binds;
use calls::NodeCaller;
pub use endpoints::serve;
pub use status::log_what_is_here;
use unstaged::RefusedPaths;

/// Mounts and takes down volumes. Cheap to clone.
#[derive(Clone)]
pub struct Mounter {
    shared: Arc<MounterContext>,
    refused: RefusedPaths,
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
    /// Stage, publish and undo.
    pub plugins: Plugins,
    /// Runs node calls.
    pub executor: VolumeExecutor,
    /// The controllers that this agent serves, for the status.
    pub hosted: HostedControllers,
    /// Runs the calls of those controllers, for the status.
    pub controllers: VolumeExecutor,
    pub events: EventPublisher,
    /// Refuses mounts while it is closed.
    pub gate: Gate,
    /// The health of each mount when it was last probed.
    pub healths: MountHealths,
    pub since: Timestamp,
    /// The commands that use what is mounted.
    pub runs: Runs,
    pub unaccounted: UnaccountedMounts,
}

impl Mounter {
    /// One that works with these.
    pub fn new(context: MounterContext) -> Self {
        Self { shared: Arc::new(context), refused: RefusedPaths::default() }
    }

    fn plugin(&self, id: &PluginId) -> Result<Plugin, Problem> {
        self.shared.plugins.get(id).ok_or_else(|| no_plugin(id))
    }

    /// A volume on this host.
    fn host(&self, plugin: &PluginId, place: &VolumePaths) -> VolumeHost {
        VolumeHost::new(&self.shared.pool, plugin, place)
    }

    /// Makes the calls of one volume. No person has said that nothing of it is left here.
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

    /// Names what every problem of this node has in common.
    fn locate_problem(&self, problem: Problem, volume: &VolumeKey) -> Problem {
        problem.volume(volume).node(&self.shared.host.node)
    }
}

/// The refusal of a call to a plugin that this node does not have.
fn no_plugin(id: &PluginId) -> Problem {
    let message = format!("this node has no plugin {id}");
    Problem::new(Code::NoSuchPlugin, message).retryable()
}

/// A failure of this node itself, as the caller gets it.
fn local_problem<E: Error + 'static>(code: Code) -> impl Fn(E) -> Problem {
    move |error| Problem::new(code, berth_service::process::chain(&error)).retryable()
}

/// The mount table, read now.
async fn read_mount_table(code: Code) -> Result<Arc<MountTable>, Problem> {
    MountTable::read().await.map_err(local_problem(code))
}
