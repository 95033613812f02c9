//! Takes one claim, and mounts what it grants (E4, rule 10): for `agent.mount` and
//! `agent.mount-all`.

use std::sync::Arc;

use berth_bus::caller::wait_aside;
use berth_contract::code::Code;
use berth_contract::message::agent::{Mount, Mounted};
use berth_contract::message::claim::Grant;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::access::{AttachmentMode, Mode};
use berth_domain::{PluginId, VolumeKey};
use berth_service::clock;
use tokio::time::Instant;

use super::enforce;
use super::mounting::{Mounting, Publication, PublishedUse};
use crate::caller::RequestContext;
use crate::executor::{ExecutorWork, PluginVolume, WorkTurn};
use crate::fleet::gate::GatePass;
use crate::host::paths::VolumePaths;
use crate::journal::{JournalledUse, OptionsFingerprint, UseState};
use crate::mounts::beside::{AccountedUse, ToldClaims};
use crate::mounts::bind;
use crate::mounts::bind::BindPath;
use crate::mounts::calls::GrantWithSecrets;
use crate::mounts::claims;
use crate::mounts::holders;
use crate::mounts::node_faults::{local_problem, read_mount_table};
use crate::mounts::plan::{self, MountInput, MountRefusal, NodeCall, VolumeOnNode};
use crate::plugins::Plugin;

/// What mounting a granted volume takes.
struct MountTask {
    plugin: Plugin,
    /// The path of the caller's choice.
    spot: Option<BindPath>,
    pass: GatePass,
    context: RequestContext,
}

/// One volume that is to be mounted.
pub(super) struct VolumeToMount {
    pub(super) mount: Mount,
    /// The path of the caller's choice.
    pub(super) spot: Option<BindPath>,
    pub(super) pass: GatePass,
    pub(super) context: RequestContext,
}

impl Mounting {
    /// Takes the claim, and mounts what it grants.
    pub(super) async fn claim_and_mount(
        self: Arc<Self>,
        request: VolumeToMount,
    ) -> Result<Mounted, Problem> {
        let VolumeToMount { mount, context, .. } = &request;
        let volume = VolumeKey::new(mount.namespace.clone(), mount.volume.clone());
        let deadline = claims::held_until(mount.wait, context.deadline);
        let taking = self.claims.take_claim(mount, RequestContext { deadline, ..*context });
        let grant = if mount.wait { wait_aside(taking).await.flatten() } else { taking.await };
        let grant = grant.map_err(|problem| {
            self.follow_refusal(&problem);
            self.local.locate_problem(problem, &volume)
        })?;
        self.mount_with(request, grant).await
    }

    /// Mounts what is granted.
    pub(super) async fn mount_with(
        self: Arc<Self>,
        request: VolumeToMount,
        grant: Grant,
    ) -> Result<Mounted, Problem> {
        let VolumeToMount { mount, spot, pass, context } = request;
        let volume = VolumeKey::new(mount.namespace, mount.volume);
        let locate = |problem: Problem| self.local.locate_problem(problem, &volume);
        self.events.learn(&grant.namespace, &grant.alloc, grant.by.as_ref());
        let shown = ExecutorWork {
            volume: volume.clone(),
            alloc: grant.alloc.clone(),
            epoch: Some(grant.epoch),
            step: verb::AgentMount::STEP,
            calls: None,
        };
        if let Some(problem) = self.executor.hold_back(&shown) {
            return Err(locate(problem.plugin(&grant.plugin)));
        }
        let plugin = self.plugins.get(&grant.plugin).map_err(|problem| {
            self.executor.record_failure(&shown, &problem);
            locate(problem)
        })?;
        let plugin = plugin.with_trace(context.trace);
        let shown = ExecutorWork { calls: Some(plugin.calls().clone()), ..shown };
        let plugin_volume = PluginVolume::new(&plugin.id, &grant.external_id);
        // The work owns the grant, so the grant cannot be used later or by another process.
        let work = {
            let (this, volume) = (Arc::clone(&self), volume.clone());
            let mounting = MountTask { plugin, spot, pass, context };
            Box::pin(async move { this.mount_granted(&volume, &grant, mounting).await })
        };
        let locate = |problem: Problem| locate(problem.plugin(&plugin_volume.plugin));
        let deadline = context.deadline;
        let turn = WorkTurn::new(plugin_volume.clone(), deadline);
        self.executor.run_recorded(turn, shown, work).await.map_err(locate)
    }

    /// Runs while the volume's lock is held.
    async fn mount_granted(
        &self,
        volume: &VolumeKey,
        grant: &Grant,
        mounting: MountTask,
    ) -> Result<Mounted, Problem> {
        let MountTask { plugin, spot, pass, context } = mounting;
        let Some(can) = plugin.node() else {
            let message = format!(
                "plugin {} has not said what its node service can do: {}",
                plugin.id,
                plugin.view().description
            );
            return Err(Problem::new(Code::PluginUnhealthy, message).retryable());
        };
        check_options(grant, &plugin.id, can.volume_mount_group)?;
        let entered = self.gate.enter(pass).await?;
        let place = self.local.paths.volume_paths(&grant.plugin, volume, &grant.alloc);
        let journal = self.local.journal.volume(volume);
        let handle = PluginVolume::new(&plugin.id, &grant.external_id);
        let wanted = AccountedUse { volume, handle: &handle, alloc: &grant.alloc };
        let beside = match ToldClaims::from_grant(grant) {
            Some(told) => {
                let here = (&journal, &place);
                Some(self.claims.list_beside(&told, wanted, here, context).await?)
            }
            None => None,
        };
        // Read after whatever takes long.
        let table = read_mount_table(Code::MountFailed).await?;
        let scene = VolumeOnNode { journal: &journal, mounts: &table, place: &place };
        self.local.check_mountable(wanted, beside.as_ref(), scene)?;
        let arrival = MountInput {
            alloc: &grant.alloc,
            epoch: grant.epoch,
            stages: can.stage_unstage_volume,
            attachment: grant.attachment,
            options: &grant.mount,
        };
        let calls = plan::plan_mount(scene, arrival).map_err(problem_from_refusal)?;
        let host = self.plugins.host(&plugin.id, &place);
        if calls.is_empty() {
            // The use is in the journal, where a task that undoes everything finds it.
            drop(entered);
            let boot_id = &self.local.boot_id;
            let entry = journal.uses.get(&grant.alloc).filter(|entry| entry.boot_id == *boot_id);
            let was = entry.and_then(|entry| entry.disk.as_ref());
            self.check_alive(grant, (&place, &table), was, context.deadline).await?;
            // An earlier version of the agent may have mounted it.
            enforce::enforce_flags(&host, grant, (&place, &table)).await?;
        } else {
            let secrets = self.read_secrets(volume, grant, context).await?;
            let entry = self.intent(grant, &place, &calls);
            let write = |entry| self.local.journal.write_use(volume, &grant.alloc, entry);
            write(entry.clone()).await.map_err(local_problem(Code::MountFailed))?;
            // From here on a task that undoes everything finds the use.
            drop(entered);
            let granted = GrantWithSecrets { grant, secrets };
            let began = Instant::now();
            let deadline = context.deadline;
            let caller =
                self.plugins.calls_for(&plugin, &grant.external_id, host.clone(), deadline);
            if calls.iter().any(|call| matches!(call, NodeCall::Unpublish { .. })) {
                self.local.binds.remove_binds(&host, &place).await?;
            }
            let publication = Publication { volume, place: &place, calls: &calls, began };
            let PublishedUse { left_out, disk, table } =
                self.publish_granted(&caller, &granted, publication, context).await?;
            let (state, since) = (UseState::Published, clock::now());
            let mut published = JournalledUse { state, disk, left_out, since, ..entry };
            let known = self.local.journal.volume(volume).uses.remove(&grant.alloc);
            published.expansion = known.and_then(|known| known.expansion);
            published.contents = holders::shown_contents(&table, &place, Some(&published));
            write(published).await.map_err(local_problem(Code::MountFailed))?;
            tracing::info!(
                %volume,
                alloc = %grant.alloc,
                epoch = grant.epoch,
                target = %place.target.display(),
                trace = context.trace.trace_id(),
                "mounted"
            );
        }
        let seen = self.local.binds.make_requested_binds(&host, grant, &place, spot).await?;
        let mode = grant.view.as_ref().map_or(grant.mode, |view| view.mode);
        Ok(Mounted {
            path: seen.to_string_lossy().into_owned(),
            read_only: mode == Mode::Read,
            epoch: grant.epoch,
        })
    }

    /// The journal entry before the first call of a plan.
    fn intent(&self, grant: &Grant, place: &VolumePaths, calls: &[NodeCall]) -> JournalledUse {
        // A staging that the plan only undoes stays in the journal until it is undone.
        let staging = calls.iter().find_map(|call| match call {
            NodeCall::Stage { staging } | NodeCall::Unstage { staging } => Some(staging.clone()),
            NodeCall::Publish { staging, .. } => staging.clone(),
            NodeCall::Unpublish { .. } => None,
        });
        JournalledUse {
            state: UseState::Intent,
            epoch: grant.epoch,
            plugin: grant.plugin.clone(),
            external_id: grant.external_id.clone(),
            access: grant.access,
            attachment: grant.attachment,
            mode: grant.mode,
            staging,
            staged: false,
            options: Some(OptionsFingerprint::salted_hash(&grant.mount, rand::random())),
            mount: grant.mount.summary(),
            target: place.target.clone(),
            disk: None,
            left_out: Vec::new(),
            contents: Vec::new(),
            expansion: None,
            by: grant.by.clone(),
            boot_id: self.local.boot_id.clone(),
            since: clock::now(),
        }
    }
}

/// The problem for a grant that must not be used.
fn problem_from_refusal(void: MountRefusal) -> Problem {
    match void {
        // By the next try the other allocs may have ended.
        MountRefusal::Differs { .. } => Problem::new(Code::MountOptionsRefused, void)
            .retryable()
            .next("ask for the volume as they do, or wait until they have ended"),
        MountRefusal::Detached { .. } | MountRefusal::Superseded { .. } => {
            Problem::new(Code::GrantVoid, void)
        }
    }
}

/// Refuses options that the plugin or a view cannot provide, before the first call.
fn check_options(grant: &Grant, plugin: &PluginId, has_groups: bool) -> Result<(), Problem> {
    let is_directory = grant.attachment == AttachmentMode::FileSystem;
    if grant.mount.group.is_some() && is_directory && !has_groups {
        let said = format!(
            "a group is asked for, and plugin {plugin} cannot mount a volume for one here \
             (VOLUME_MOUNT_GROUP)"
        );
        return Err(Problem::new(Code::MountOptionsRefused, said));
    }
    grant.view.as_ref().map_or(Ok(()), |view| bind::check_view(grant, view).map(drop))
}
