//! `agent.status`: the journal, the mount table and the last known health of each mount.

use std::sync::Arc;

use berth_bus::Bus;
use berth_contract::code::Code;
use berth_contract::message::agent::{
    AgentQuery, AgentStatus, GuardStatus, MountHealth, MountState, MountStatus,
};
use berth_contract::problem::Problem;
use berth_contract::verb::NodeAndNamespace;
use berth_domain::access::AttachmentMode;
use berth_domain::{AllocId, Timestamp, VolumeKey};

use super::guard;
use super::node_faults::read_mount_table;
use super::up::MountHandlers;
use super::volumes::LocalVolumes;
use crate::caller::Caller;
use crate::controllers::{CreationAnswers, HostedControllers};
use crate::executor::VolumeExecutor;
use crate::host::paths::{Paths, is_in_view};
use crate::journal::{Journal, JournalledUse, UseState};
use crate::mounts::health::{LastMountHealth, MountHealths};
use crate::mounts::runs;
use berth_host::{MountTable, MountTableError};
use berth_service::runs::Runs;

/// Shows what is here. Reads everything, and changes nothing.
pub struct NodeStatus {
    pub local: LocalVolumes,
    /// When the agent began to answer.
    pub since: Timestamp,
    pub healths: MountHealths,
    pub runs: Runs,
    /// Runs the node calls.
    pub executor: VolumeExecutor,
    /// Runs the calls of the controllers here.
    pub controllers: VolumeExecutor,
    pub hosted: HostedControllers,
    /// What controllers here answered for the names of new things.
    pub answers: CreationAnswers,
    pub requests: Arc<MountHandlers>,
    pub bus: Bus,
}

impl NodeStatus {
    /// What is here of a namespace; or of all of them, with what is in none.
    pub async fn status(
        self: Arc<Self>,
        NodeAndNamespace { namespace, .. }: NodeAndNamespace,
        _: AgentQuery,
        _: Caller,
    ) -> Result<AgentStatus, Problem> {
        let mut status = self.whole_status().await?;
        if !namespace.is_wildcard() {
            status.mounts.retain(|mount| mount.namespace == namespace);
            let requests = status.requests.iter_mut();
            requests.for_each(|all| all.retain(|request| request.namespace == namespace));
            status.work.retain(|work| work.namespace == namespace);
            status.storage.retain(|call| call.namespace == namespace);
            status.late.retain(|answer| answer.namespace == namespace);
            status.failures.retain(|failure| failure.namespace == namespace);
            status.guards.retain(|guard| guard.namespace == namespace);
            status.strays.clear();
        }
        Ok(status)
    }

    async fn whole_status(&self) -> Result<AgentStatus, Problem> {
        let table = read_mount_table(Code::Internal).await?;
        let uses = self.local.journal.uses();
        let strays = stray_mounts(&table, &self.local.paths, &uses);
        let shown = uses
            .iter()
            .map(|(volume, alloc, entry)| self.mount_status(&table, volume, alloc, entry));
        Ok(AgentStatus {
            node: self.local.node.clone(),
            boot_id: self.local.boot_id.clone(),
            since: self.since,
            mounts: shown.collect(),
            strays,
            requests: Some(self.requests.under_way()),
            work: [self.executor.under_way(), self.controllers.under_way()].concat(),
            storage: [self.executor.storage_under_way(), self.controllers.storage_under_way()]
                .concat(),
            late: self.answers.late(),
            failures: self.executor.failures(),
            controllers: self.hosted.list(),
            guards: self.guards().await?,
            runs: Some(self.runs.dir().to_string_lossy().into_owned()),
            access: self.bus.access(),
        })
    }

    /// What runs allocs here, as far as it was named.
    async fn guards(&self) -> Result<Vec<GuardStatus>, Problem> {
        let (seen, _) = runs::list_runs(&self.runs).await?;
        let shown = seen.into_iter().map(|one| GuardStatus {
            guard: guard::runner(&one),
            lives: !one.is_over(),
            unknown: one.unknown,
            namespace: one.run.namespace,
            alloc: one.run.alloc,
        });
        Ok(shown.collect())
    }

    fn mount_status(
        &self,
        table: &MountTable,
        volume: &VolumeKey,
        alloc: &AllocId,
        entry: &JournalledUse,
    ) -> MountStatus {
        let detach = self.local.journal.volume(volume).detached.get(alloc).copied();
        let leaves = detach.is_some_and(|detach| detach.epoch >= entry.epoch);
        let state = match entry.state {
            _ if leaves => MountState::Leaving,
            UseState::Intent => MountState::Begun,
            UseState::Published => MountState::Published,
        };
        let mounted = table.has(&entry.target);
        let seen = self.healths.get_health(volume, alloc, entry.epoch);
        // The mount table is newer than the last probe, so it counts more. A device need not be in
        // it.
        let is_device = entry.attachment == AttachmentMode::BlockDevice;
        let agrees = |seen: &LastMountHealth| (seen.health != MountHealth::Missing) == mounted;
        let seen = seen.filter(|seen| is_device || agrees(seen));
        let seen = seen.filter(|_| state == MountState::Published);
        let missing = state == MountState::Published && !mounted && !is_device;
        let health = match &seen {
            Some(seen) => seen.health,
            None if missing => MountHealth::Missing,
            None => MountHealth::Unknown,
        };
        MountStatus {
            namespace: volume.namespace.clone(),
            volume: volume.volume.clone(),
            alloc: alloc.clone(),
            epoch: entry.epoch,
            plugin: Some(entry.plugin.clone()),
            external_id: Some(entry.external_id.clone()),
            options: entry.mount.clone(),
            mounted,
            path: entry.target.to_string_lossy().into_owned(),
            staged: entry.staging.as_ref().is_some_and(|staging| table.has(staging)),
            staging: entry.staging.as_ref().map(|staging| staging.to_string_lossy().into_owned()),
            state,
            since: entry.since,
            earlier_boot: entry.boot_id != self.local.boot_id,
            health,
            trouble: seen.as_ref().and_then(|seen| seen.trouble.clone()),
            left_out: entry.left_out.clone(),
            health_since: seen.map(|seen| seen.since),
        }
    }
}

/// What is mounted below the agent's paths and belongs to no use in the journal.
fn stray_mounts(
    table: &MountTable,
    paths: &Paths,
    uses: &[(VolumeKey, AllocId, JournalledUse)],
) -> Vec<String> {
    let known = |point: &std::path::Path| {
        uses.iter().any(|(.., entry)| {
            point.starts_with(&entry.target)
                || is_in_view(&entry.target, point)
                || entry.staging.as_ref().is_some_and(|staging| point.starts_with(staging))
        })
    };
    let points = table.beneath(paths.root()).filter(|point| !known(point));
    points.map(|point| point.to_string_lossy().into_owned()).collect()
}

/// Logs what an earlier agent process left. Changes nothing: callers ask again for their volumes,
/// and the claim service detaches the rest (rule 10).
pub async fn log_leftovers(
    journal: &Journal,
    paths: &Paths,
    boot_id: &str,
) -> Result<(), MountTableError> {
    let table = MountTable::read().await?;
    let uses = journal.uses();
    for (volume, alloc, entry) in &uses {
        let mounted = table.has(&entry.target);
        let state = entry.progress();
        let (epoch, earlier_boot) = (entry.epoch, entry.boot_id != boot_id);
        tracing::info!(
            %volume, %alloc, epoch, state, mounted, earlier_boot,
            "found in the journal"
        );
    }
    for path in stray_mounts(&table, paths, &uses) {
        tracing::warn!(path, "mounted, and not in the journal; it goes when its claim is released");
    }
    Ok(())
}
