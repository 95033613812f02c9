//! `agent.republish`: takes dead mounts down, and brings them back at the same paths.
//!
//! **Promises** that a mount that is well is left to its workload, unless the request says `force`.
//!
//! The journal lacks what a plugin needs for that, because it may be secret. So each claim is taken
//! again, as its alloc could do itself (B4). A claim whose alloc has ended is not granted again.
//!
//! Bind mounts of the volume, under another name or at a caller's path, are removed. They come back
//! when the caller asks for them again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::hint;
use berth_contract::message::agent::{Mount, Republish, Republished, RepublishedMount};
use berth_contract::message::claim::Grant;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::volume::MountOptions;
use berth_domain::{AllocId, NodeId, VolumeKey};
use berth_host::MountTable;
use berth_service::clock;
use tokio::time::Instant;

use super::mounting::{Mounting, Publication, PublishedUse};
use crate::caller::{Caller, RequestContext};
use crate::executor::{ExecutorWork, PluginVolume, WorkTurn};
use crate::fleet::gate::GatePass;
use crate::journal::{JournalledUse, OptionsFingerprint, UseState};
use crate::mounts::calls::GrantWithSecrets;
use crate::mounts::health::{PROBE_TIMEOUT, ProbeAnswer};
use crate::mounts::holders;
use crate::mounts::node_faults::{local_problem, read_mount_table};
use crate::mounts::plan::{self, NodeCall, RepublishInput, VolumeOnNode};
use crate::plugins::Plugin;

/// What bringing mounts back takes.
struct RepublishTask {
    grants: Vec<Grant>,
    plugin: Plugin,
    pass: GatePass,
    context: RequestContext,
}

impl Mounting {
    /// Takes the mounts down, and brings them back. Returns by the deadline.
    pub async fn republish(
        self: Arc<Self>,
        _: NodeId,
        request: Republish,
        Caller { context, .. }: Caller,
    ) -> Result<Republished, Problem> {
        let volume = VolumeKey::new(request.namespace.clone(), request.volume.clone());
        let locate = |problem: Problem| self.local.locate_problem(problem, &volume);
        let pass = self.gate.check_open().map_err(locate)?;
        let mut uses = self.local.journal.volume(&volume).uses;
        uses.retain(|alloc, _| request.alloc.as_ref().is_none_or(|only| only == alloc));
        let allocs = if request.force {
            uses.into_keys().collect()
        } else {
            self.mounts_to_mend(&volume, uses).await.map_err(locate)?
        };
        let Some(first) = allocs.first().cloned() else {
            let message = "nothing of the volume is mounted on this node for whom it was asked";
            let next = format!(
                "look with `berth node status {}`; an alloc that has no mount gets one by asking \
                 for it",
                self.local.node
            );
            return Err(locate(Problem::new(Code::NoSuchClaim, message).next(next)));
        };
        let mut grants = Vec::new();
        for alloc in &allocs {
            let grant = self.ask_grant_again(&volume, alloc, context).await;
            grants.push(grant.map_err(|problem| locate(name_alloc(alloc, problem)))?);
        }
        let Some(first_grant) = grants.first() else {
            return Ok(Republished { mounts: Vec::new() });
        };
        let plugin =
            self.plugins.get(&first_grant.plugin).map_err(locate)?.with_trace(context.trace);
        let plugin_volume = PluginVolume::new(&plugin.id, &first_grant.external_id);
        let shown = ExecutorWork {
            volume: volume.clone(),
            alloc: first,
            epoch: Some(first_grant.epoch),
            step: verb::AgentRepublish::STEP,
            calls: Some(plugin.calls().clone()),
        };
        let work = {
            let (this, volume) = (Arc::clone(&self), volume.clone());
            let returning = RepublishTask { grants, plugin, pass, context };
            async move { this.remount(&volume, returning).await }
        };
        let locate = |problem: Problem| locate(problem.plugin(&plugin_volume.plugin));
        let deadline = context.deadline;
        let turn = WorkTurn::new(plugin_volume.clone(), deadline);
        let done = self.executor.run_recorded(turn, shown, work).await;
        self.healths.request_probe();
        done.map_err(locate)
    }

    /// The allocs whose mounts are not well. Refused if all are: a workload would lose its mount,
    /// and where the plugin cannot mount the volume again, for good.
    async fn mounts_to_mend(
        &self,
        volume: &VolumeKey,
        uses: BTreeMap<AllocId, JournalledUse>,
    ) -> Result<Vec<AllocId>, Problem> {
        let table = read_mount_table(Code::MountFailed).await?;
        let (mut due, mut well) = (Vec::new(), None);
        for (alloc, entry) in uses {
            if self.needs_mending(&entry, &table).await {
                due.push(alloc);
            } else {
                well.get_or_insert((alloc, entry));
            }
        }
        let Some((alloc, entry)) = well.filter(|_| due.is_empty()) else { return Ok(due) };
        let (node, path) = (&self.local.node, entry.target.display());
        let message = format!(
            "the volume is mounted at {path} for alloc {alloc}, and the mount answers: by force it \
             would be unmounted under its workload, and mounted again"
        );
        let next = format!(
            "nothing is to be mended; once its workload can do without the mount for a moment: \
             `berth volume republish {} --node {node}{} --force`",
            hint::quoted(volume.volume.as_str()),
            hint::namespace_option(&volume.namespace)
        );
        Err(Problem::new(Code::MountWell, message).next(next))
    }

    /// Whether the mount is gone, dead or hung, or was never finished. A mount that cannot be
    /// probed is left alone.
    async fn needs_mending(&self, entry: &JournalledUse, table: &MountTable) -> bool {
        if entry.state == UseState::Intent || entry.boot_id != self.local.boot_id {
            return true;
        }
        let at = (&entry.plugin, entry.target.as_path());
        let was = entry.disk.as_ref();
        let healths = &self.healths;
        let probed = healths.probe_mount(at, entry.attachment, table, was, PROBE_TIMEOUT).await;
        match probed {
            ProbeAnswer::Missing | ProbeAnswer::Dead(_) | ProbeAnswer::Hung(_) => true,
            ProbeAnswer::Well(_) | ProbeAnswer::Unknown(_) => false,
        }
    }

    async fn ask_grant_again(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        context: RequestContext,
    ) -> Result<Grant, Problem> {
        let request = Mount {
            namespace: volume.namespace.clone(),
            alloc: alloc.clone(),
            volume: volume.volume.clone(),
            wait: false,
            alias: None,
            path: None,
        };
        self.claims.take_claim(&request, context).await
    }

    /// Runs while the volume's lock is held.
    async fn remount(
        &self,
        volume: &VolumeKey,
        returning: RepublishTask,
    ) -> Result<Republished, Problem> {
        let RepublishTask { grants, plugin, pass, context } = returning;
        let Some(can) = plugin.node() else {
            let message = format!("plugin {} has not said what its node service can do", plugin.id);
            return Err(Problem::new(Code::PluginUnhealthy, message).retryable());
        };
        let Some(first) = grants.first() else {
            return Ok(Republished { mounts: Vec::new() });
        };
        let entered = self.gate.enter(pass).await?;
        let known = self.local.journal.volume(volume);
        let is_other = |grant: &&Grant| {
            let entry = known.uses.get(&grant.alloc);
            entry.is_some_and(|entry| !entry.is_of(&grant.plugin, &grant.external_id))
        };
        if let Some(grant) = grants.iter().find(is_other) {
            let message =
                format!("alloc {} has another volume of that name mounted here", grant.alloc);
            return Err(Problem::new(Code::GrantVoid, message));
        }
        let target = |alloc: &AllocId| {
            known.uses.get(alloc).map_or_else(PathBuf::new, |entry| entry.target.clone())
        };
        let allocs: Vec<_> = grants
            .iter()
            .map(|grant| (grant.alloc.clone(), grant.epoch, target(&grant.alloc)))
            .collect();
        let place = self.local.paths.volume_paths(&plugin.id, volume, &first.alloc);
        let table = read_mount_table(Code::MountFailed).await?;
        let scene = VolumeOnNode { journal: &known, mounts: &table, place: &place };
        let stages = can.stage_unstage_volume;
        let plan = plan::plan_republish(scene, RepublishInput { allocs: &allocs, stages })
            .map_err(|gone| Problem::new(Code::GrantVoid, gone))?;
        let mut using = Vec::new();
        for grant in &grants {
            let secrets = self.read_secrets(volume, grant, context).await?;
            using.push(GrantWithSecrets { grant, secrets });
        }
        // From here on a killed agent leaves intents, and a caller that asks again gets the mount.
        for (alloc, ..) in &allocs {
            self.journal_republished(volume, alloc, &known.uses, None).await?;
        }
        drop(entered);
        let began = Instant::now();
        let host = self.plugins.host(&plugin.id, &place);
        let caller = self.plugins.calls_for(&plugin, &first.external_id, host, context.deadline);
        for (alloc, ..) in &allocs {
            let place = self.local.paths.volume_paths(&plugin.id, volume, alloc);
            let undone = self.local.binds.remove_binds(&caller.host, &place).await;
            undone.map_err(|problem| explain_held(problem, &plan.down))?;
        }
        caller.take_down(&plan.down).await.map_err(|problem| explain_held(problem, &plan.down))?;
        let mut mounts = Vec::new();
        for ((granted, (alloc, _, target)), calls) in using.iter().zip(&allocs).zip(&plan.up) {
            let (grant, place) =
                (granted.grant, self.local.paths.volume_paths(&plugin.id, volume, alloc));
            let publication = Publication { volume, place: &place, calls, began };
            let published = self.publish_granted(&caller, granted, publication, context).await?;
            let options = plan.restages().then_some(&grant.mount);
            self.journal_republished(volume, alloc, &known.uses, Some((published, options)))
                .await?;
            let path = target.to_string_lossy().into_owned();
            let trace = context.trace.trace_id();
            tracing::info!(%volume, %alloc, path, trace, "mounted again");
            mounts.push(RepublishedMount { alloc: alloc.clone(), path });
        }
        Ok(Republished { mounts })
    }

    async fn journal_republished(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        uses: &BTreeMap<AllocId, JournalledUse>,
        published: Option<(PublishedUse, Option<&MountOptions>)>,
    ) -> Result<(), Problem> {
        let Some(entry) = uses.get(alloc) else { return Ok(()) };
        let (published, options) = published.unzip();
        let options = options.flatten();
        let state = if published.is_some() { UseState::Published } else { UseState::Intent };
        let mount = options.map_or_else(|| entry.mount.clone(), MountOptions::summary);
        let options =
            options.map(|options| OptionsFingerprint::salted_hash(options, rand::random()));
        let options = options.or_else(|| entry.options.clone());
        let boot_id = self.local.boot_id.clone();
        // The old staging is undone first.
        let staged = false;
        let since = clock::now();
        let disk = None;
        let mut entry =
            JournalledUse { state, staged, options, mount, disk, boot_id, since, ..entry.clone() };
        if let Some(PublishedUse { disk, table, .. }) = published {
            let place = self.local.paths.volume_paths(&entry.plugin, volume, alloc);
            entry.disk = disk;
            entry.contents = holders::shown_contents(&table, &place, Some(&entry));
        }
        let written = self.local.journal.write_use(volume, alloc, entry).await;
        written.map_err(local_problem(Code::MountFailed))
    }
}

/// Names the alloc whose claim was not granted again.
fn name_alloc(alloc: &AllocId, problem: Problem) -> Problem {
    let message = format!("alloc {alloc}: {}", problem.message);
    Problem { message, ..problem }
}

/// Adds what to do: mostly the workload that uses a dead mount keeps it from being unmounted.
fn explain_held(problem: Problem, down: &[NodeCall]) -> Problem {
    let paths: Vec<String> = down
        .iter()
        .filter_map(|call| match call {
            NodeCall::Unpublish { target } => Some(target.display().to_string()),
            _ => None,
        })
        .collect();
    let next = format!(
        "end what holds it (`fuser -vm {}`), then ask again; it comes back at the same path",
        paths.first().map(String::as_str).unwrap_or_default()
    );
    problem.next(next)
}
