//! `agent.mount`: claims a volume for an alloc, and mounts it (E4, rule 10).

use berth_bus::caller::wait_aside;
use berth_contract::code::Code;
use berth_contract::message::agent::{Mount, Mounted};
use berth_contract::message::claim::Grant;
use berth_contract::message::secret::Secrets;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, NodeAndNamespace, Verb as _};
use berth_domain::access::{AttachmentMode, Mode};
use berth_domain::{PluginId, VolumeKey};
use berth_service::clock;
use tokio::time::Instant;

use super::account::{AccountedUse, ClaimsBeside};
use super::bind::BindPath;
use super::calls::{GrantWithSecrets, JournalledIntent, NodeCaller};
use super::grant::time_left;
use super::local::{local_problem, read_mount_table};
use super::mounter::Mounter;
use super::{bind, enforce, grant, holders};
use crate::caller::check_namespace;
use crate::caller::{Caller, RequestContext};
use crate::executor::{ExecutorWork, PluginVolume, WorkTurn};
use crate::fleet::events::UsedVolume;
use crate::fleet::gate::GatePass;
use crate::fleet::secret::SecretsQuery;
use crate::host::paths::VolumePaths;
use crate::journal::{Disk, JournalledUse, OptionsFingerprint, UseState};
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
pub(super) struct MountRequest {
    pub(super) mount: Mount,
    /// The path of the caller's choice.
    pub(super) spot: Option<BindPath>,
    pub(super) pass: GatePass,
    pub(super) context: RequestContext,
}

/// The calls that publish one use.
#[derive(Clone, Copy)]
pub(super) struct Publication<'a> {
    pub(super) volume: &'a VolumeKey,
    pub(super) place: &'a VolumePaths,
    pub(super) calls: &'a [NodeCall],
    /// When the work began. The event of the mount says how long it took.
    pub(super) began: Instant,
}

impl Mounter {
    /// Claims the volume for the alloc, and mounts it. Returns by the deadline.
    pub async fn mount(
        self,
        to: NodeAndNamespace,
        request: Mount,
        caller: Caller,
    ) -> Result<Mounted, Problem> {
        let context = caller.context;
        let volume = VolumeKey::new(request.namespace.clone(), request.volume.clone());
        let locate = |problem: Problem| self.locate_problem(problem, &volume);
        check_namespace(&to.namespace, &request.namespace).map_err(locate)?;
        // Before the claim is taken: if the gate closes after this, the grant is not used.
        let pass = self.shared.gate.check_open().map_err(locate)?;
        let spot = match &request.path {
            Some(path) => Some(self.shared.binds.check_path(path).await.map_err(locate)?),
            None => None,
        };
        let use_key = (volume.clone(), request.alloc.clone());
        let using = self.claim_users.enter(use_key, time_left(context.deadline)).await;
        let _using = using.map_err(locate)?;
        let (namespace, alloc) = (request.namespace.clone(), request.alloc.clone());
        let request = MountRequest { mount: request, spot, pass, context };
        let mounted = self.clone().claim_and_mount(request).await?;
        // While the claim is in use, so that it is not given up before this is noted.
        self.whole_mounts.acknowledge(&namespace, &alloc, &volume.volume);
        Ok(mounted)
    }

    /// Takes the claim, and mounts what it grants.
    pub(super) async fn claim_and_mount(self, request: MountRequest) -> Result<Mounted, Problem> {
        let MountRequest { mount, context, .. } = &request;
        let volume = VolumeKey::new(mount.namespace.clone(), mount.volume.clone());
        let (bus, node) = (&self.shared.bus, &self.shared.host.node);
        let deadline = grant::held_until(mount.wait, context.deadline);
        let taking = grant::take_claim(bus, node, mount, RequestContext { deadline, ..*context });
        let grant = if mount.wait { wait_aside(taking).await.flatten() } else { taking.await };
        let grant = grant.map_err(|problem| self.locate_problem(problem, &volume))?;
        self.mount_with(request, grant).await
    }

    /// Mounts what is granted.
    pub(super) async fn mount_with(
        self,
        request: MountRequest,
        grant: Grant,
    ) -> Result<Mounted, Problem> {
        let MountRequest { mount, spot, pass, context } = request;
        let volume = VolumeKey::new(mount.namespace, mount.volume);
        let locate = |problem: Problem| self.locate_problem(problem, &volume);
        self.shared.events.learn(&grant.namespace, &grant.alloc, grant.by.as_ref());
        let shown = ExecutorWork {
            volume: volume.clone(),
            alloc: grant.alloc.clone(),
            epoch: Some(grant.epoch),
            step: verb::AgentMount::STEP,
            calls: None,
        };
        let plugin = self.plugin(&grant.plugin).map_err(|problem| {
            self.shared.executor.record_failure(&shown, &problem);
            locate(problem)
        })?;
        let plugin = plugin.with_trace(context.trace);
        let shown = ExecutorWork { calls: Some(plugin.calls().clone()), ..shown };
        let plugin_volume = PluginVolume::new(&plugin.id, &grant.external_id);
        // The work owns the grant, so the grant cannot be used later or by another process.
        let work = {
            let (mounter, volume) = (self.clone(), volume.clone());
            let mounting = MountTask { plugin, spot, pass, context };
            Box::pin(async move { mounter.mount_granted(&volume, &grant, mounting).await })
        };
        let locate = |problem: Problem| locate(problem.plugin(&plugin_volume.plugin));
        let deadline = context.deadline;
        let turn = WorkTurn::new(plugin_volume.clone(), deadline);
        self.shared.executor.run_recorded(turn, shown, work).await.map_err(locate)
    }

    /// Reads the secrets for staging and publishing.
    pub(super) async fn secrets(
        &self,
        volume: &VolumeKey,
        grant: &Grant,
        RequestContext { deadline, trace }: RequestContext,
    ) -> Result<Secrets, Problem> {
        let (bus, node) = (self.shared.bus.clone(), self.shared.host.node.clone());
        let sealing = self.shared.sealing.clone();
        let asking = SecretsQuery { bus, node, sealing, deadline, trace };
        asking.read_secrets(volume, grant.secrets.as_ref()).await.map(Secrets)
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
        let entered = self.shared.gate.enter(pass).await?;
        let place = self.shared.paths.volume_paths(&grant.plugin, volume, &grant.alloc);
        let journal = self.shared.journal.volume(volume);
        let table = read_mount_table(Code::MountFailed).await?;
        let scene = VolumeOnNode { journal: &journal, mounts: &table, place: &place };
        let handle = PluginVolume::new(&plugin.id, &grant.external_id);
        let wanted = AccountedUse { volume, handle: &handle, alloc: &grant.alloc };
        self.check_mountable(wanted, ClaimsBeside::from_grant(grant).as_ref(), scene)?;
        let arrival = MountInput {
            alloc: &grant.alloc,
            epoch: grant.epoch,
            stages: can.stage_unstage_volume,
            attachment: grant.attachment,
            options: &grant.mount,
        };
        let calls = plan::plan_mount(scene, arrival).map_err(problem_from_refusal)?;
        let host = self.host(&plugin.id, &place);
        if calls.is_empty() {
            // The use is in the journal, where a task that undoes everything finds it.
            drop(entered);
            let boot_id = &self.shared.host.boot_id;
            let entry = journal.uses.get(&grant.alloc).filter(|entry| entry.boot_id == *boot_id);
            let was = entry.and_then(|entry| entry.disk.as_ref());
            self.check_alive(grant, &place, was, context.deadline).await?;
            // An earlier version of the agent may have mounted it.
            enforce::enforce_flags(&host, grant, &place).await?;
        } else {
            let secrets = self.secrets(volume, grant, context).await?;
            let entry = self.intent(grant, &place, &calls);
            let write = |entry| self.shared.journal.write_use(volume, &grant.alloc, entry);
            write(entry.clone()).await.map_err(local_problem(Code::MountFailed))?;
            // From here on a task that undoes everything finds the use.
            drop(entered);
            let granted = GrantWithSecrets { grant, secrets };
            let began = Instant::now();
            let deadline = context.deadline;
            let caller = self.node_caller(&plugin, &grant.external_id, host.clone(), deadline);
            if calls.iter().any(|call| matches!(call, NodeCall::Unpublish { .. })) {
                self.shared.binds.remove_binds(&host, &place).await?;
            }
            let publication = Publication { volume, place: &place, calls: &calls, began };
            let (left_out, disk) =
                self.publish_granted(&caller, &granted, publication, context).await?;
            let (state, since) = (UseState::Published, clock::now());
            let mut published = JournalledUse { state, disk, left_out, since, ..entry };
            let table = read_mount_table(Code::MountFailed).await?;
            let known = self.shared.journal.volume(volume).uses.remove(&grant.alloc);
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
        let seen = self.shared.binds.make_requested_binds(&host, grant, &place, spot).await?;
        let mode = grant.view.as_ref().map_or(grant.mode, |view| view.mode);
        Ok(Mounted {
            path: seen.to_string_lossy().into_owned(),
            read_only: mode == Mode::Read,
            epoch: grant.epoch,
        })
    }

    /// Makes the calls of a grant's plan, and checks what they have published. Returns what the
    /// plugin left out, and the disk behind the mount.
    pub(super) async fn publish_granted(
        &self,
        caller: &NodeCaller,
        granted: &GrantWithSecrets<'_>,
        publication: Publication<'_>,
        context: RequestContext,
    ) -> Result<(Vec<String>, Option<Disk>), Problem> {
        let Publication { volume, place, calls, began } = publication;
        let (grant, journal) = (granted.grant, &self.shared.journal);
        let record = JournalledIntent { journal, mounter: self, volume, alloc: &grant.alloc };
        let stages = calls.iter().any(|call| matches!(call, NodeCall::Stage { .. }));
        let brought = caller.bring_up(calls, granted, &record).await;
        let (took, calls) = (began.elapsed(), caller.plugin.calls().list());
        let used =
            UsedVolume { volume, alloc: &grant.alloc, plugin: &caller.plugin.id, took, calls };
        self.shared.events.publish_mount(used, brought.as_ref().err(), context.trace);
        brought?;
        if !stages {
            let at = (place.target.as_path(), None);
            self.expand_pending(caller, (volume, grant), at, &granted.secrets).await;
        }
        let left_out = enforce::enforce_after_publish(caller, grant, place).await?;
        let disk = self.check_alive(grant, place, None, context.deadline).await?;
        Ok((left_out, disk))
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
            target: place.target.clone(),
            disk: None,
            left_out: Vec::new(),
            contents: Vec::new(),
            expansion: None,
            by: grant.by.clone(),
            boot_id: self.shared.host.boot_id.clone(),
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
