//! `agent.mount`, and the requests of allocs that are under way.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use berth_contract::message::agent::{Mount, MountRequests, Mounted};
use berth_contract::problem::Problem;
use berth_contract::verb::NodeAndNamespace;
use berth_domain::VolumeKey;
use berth_service::runs::Runs;

use super::claim_use::ClaimUsers;
use super::mount::VolumeToMount;
use super::mounting::Mounting;
use super::whole_mount::WholeMounts;
use crate::caller::{Caller, check_namespace};
use crate::mounts::claims::time_left;

/// Answers `agent.mount` (one volume of an alloc) and `agent.mount-all` (all of them).
pub struct MountHandlers {
    pub(super) mounting: Arc<Mounting>,
    /// The allocs whose volumes are claimed and mounted together.
    pub(super) whole_mounts: WholeMounts,
    pub(super) claim_users: ClaimUsers,
    /// How long an alloc keeps what it has claimed while its request is not repeated.
    pub(super) place_kept: Duration,
    /// Where it is noted what an alloc had before.
    pub(super) state_dir: PathBuf,
}

impl MountHandlers {
    pub fn new(mounting: Arc<Mounting>, runs: &Runs, place_kept: Duration) -> Self {
        Self {
            mounting,
            whole_mounts: WholeMounts::default(),
            claim_users: ClaimUsers::default(),
            place_kept,
            state_dir: runs.dir().parent().unwrap_or(runs.dir()).to_owned(),
        }
    }

    /// The requests for mounts that are under way.
    pub fn under_way(&self) -> Vec<MountRequests> {
        let of_whole = self
            .whole_mounts
            .list()
            .into_iter()
            .map(|(namespace, alloc)| MountRequests { namespace, alloc, volume: None, count: 1 });
        let of_one = self.claim_users.list().into_iter().map(|((volume, alloc), count)| {
            let VolumeKey { namespace, volume } = volume;
            MountRequests { namespace, alloc, volume: Some(volume), count }
        });
        of_whole.chain(of_one).collect()
    }

    /// Claims the volume for the alloc, and mounts it. Returns by the deadline.
    pub async fn mount(
        self: Arc<Self>,
        to: NodeAndNamespace,
        request: Mount,
        caller: Caller,
    ) -> Result<Mounted, Problem> {
        let context = caller.context;
        let volume = VolumeKey::new(request.namespace.clone(), request.volume.clone());
        let locate = |problem: Problem| self.mounting.local.locate_problem(problem, &volume);
        check_namespace(&to.namespace, &request.namespace).map_err(locate)?;
        // Before the claim is taken: if the gate closes after this, the grant is not used.
        let pass = self.mounting.gate.check_open().map_err(locate)?;
        let spot = match &request.path {
            Some(path) => Some(self.mounting.local.binds.check_path(path).await.map_err(locate)?),
            None => None,
        };
        let use_key = (volume.clone(), request.alloc.clone());
        let using = self.claim_users.enter(use_key, time_left(context.deadline)).await;
        let _using = using.map_err(locate)?;
        let (namespace, alloc) = (request.namespace.clone(), request.alloc.clone());
        let request = VolumeToMount { mount: request, spot, pass, context };
        let mounted = Arc::clone(&self.mounting).claim_and_mount(request).await?;
        // While the claim is in use, so that it is not given up before this is noted.
        self.whole_mounts.acknowledge(&namespace, &alloc, &volume.volume);
        Ok(mounted)
    }
}
