//! `agent.detach`: takes an alloc's use of a volume down (rules 10 and 11).

use berth_contract::code::Code;
use berth_contract::event::PluginCall;
use berth_contract::message::call::{Called, ClaimCall};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::proof::Proof;
use berth_domain::volume::CallKind;
use berth_domain::{AllocId, NodeId, PluginId, VolumeKey};
use berth_host::{Mount, MountTable};
use tokio::time::Instant;

use super::account::{AccountedUse, ClaimsBeside};
use super::calls::NodeCaller;
use super::local::{local_problem, read_mount_table};
use super::mounter::Mounter;
use super::{dirs, unstaged};
use crate::caller::{Caller, RequestContext};
use crate::executor::{ExecutorWork, PluginVolume, WorkTurn};
use crate::fleet::events::{ExecutedCall, UsedVolume};
use crate::journal::{JournalledDetach, JournalledUse};
use crate::mounts::plan::{self, DetachInput, NodeCall, VolumeOnNode};
use crate::mounts::runs;
use crate::plugins::Plugin;
use crate::plugins::no_plugin;

/// The use that is taken down.
#[derive(Debug)]
pub(super) struct DepartingUse {
    pub(super) volume: VolumeKey,
    pub(super) alloc: AllocId,
    pub(super) epoch: u64,
    pub(super) plugin: PluginId,
    pub(super) external_id: String,
    /// The other claims on this node that the caller knows. `None` if they do not matter.
    pub(super) beside: Option<ClaimsBeside>,
    /// The operator's word that nothing of the volume is left here (rule 18).
    pub(super) unstaged_by: Option<Proof>,
    /// Whether it was read from the journal. If it is gone there, another request has taken it
    /// down.
    pub(super) is_journalled: bool,
}

impl DepartingUse {
    fn from_call(call: &ClaimCall) -> Self {
        Self {
            volume: call.volume_key(),
            alloc: call.details.alloc.clone(),
            epoch: call.details.epoch,
            plugin: call.plugin.clone(),
            external_id: call.external_id.clone(),
            beside: ClaimsBeside::from_call(call),
            unstaged_by: call.details.unstaged_by.clone(),
            is_journalled: false,
        }
    }
}

/// Whether the journal names a mount of another volume, under another claim of the alloc: nothing
/// of the volume that leaves is here, since its paths are taken. The mount has no claim, and a
/// workload may use it.
fn is_of_another_volume(leaving: &DepartingUse, entry: &JournalledUse) -> bool {
    entry.epoch != leaving.epoch && !entry.is_of(&leaving.plugin, &leaving.external_id)
}

impl Mounter {
    /// Takes the alloc's use of the volume down. Success if nothing is here.
    pub async fn detach(
        self,
        _: NodeId,
        call: ClaimCall,
        caller: Caller,
    ) -> Result<Called, Problem> {
        let (attempts, attempt) = (self.shared.executor.attempts.clone(), call.attempt.clone());
        attempts.once(&attempt, Box::pin(self.make_detach(call, caller.context))).await
    }

    async fn make_detach(
        self,
        call: ClaimCall,
        context: RequestContext,
    ) -> Result<Called, Problem> {
        let (volume, trace) = (call.volume_key(), context.trace);
        let locate = |problem: Problem, plugin: &PluginId| {
            let problem = self.locate_problem(problem, &volume);
            problem.plugin(plugin)
        };
        self.check_addressee(&call).map_err(|problem| locate(problem, &call.plugin))?;
        let (began, mut leaving) = (Instant::now(), DepartingUse::from_call(&call));
        // The call may name another volume: the registration was lost, and the name given again.
        let known = self.shared.journal.volume(&volume).uses;
        if let Some(entry) =
            known.get(&call.details.alloc).filter(|entry| entry.epoch == call.details.epoch)
        {
            leaving.plugin = entry.plugin.clone();
            leaving.external_id.clone_from(&entry.external_id);
        }
        let plugin = leaving.plugin.clone();
        let context = RequestContext { deadline: call.deadline.min(context.deadline), trace };
        let order = Some((volume.clone(), call.revision));
        let (done, calls) = self.run_take_down(leaving, order, context).await;
        self.shared.events.learn(&call.namespace, &call.details.alloc, call.details.by.as_ref());
        let executed = ExecutedCall::of_claim(&call, began.elapsed(), calls);
        self.shared.events.publish_call(executed, done.as_ref().err(), trace);
        done.map(|()| Called::default()).map_err(|problem| locate(problem, &plugin))
    }

    /// Takes a use down in its volume's turn. Returns the plugin calls that were made, too.
    pub(super) async fn run_take_down(
        &self,
        leaving: DepartingUse,
        order: Option<(VolumeKey, u64)>,
        context: RequestContext,
    ) -> (Result<(), Problem>, Vec<PluginCall>) {
        let plugin = self.shared.plugins.get(&leaving.plugin);
        let plugin = plugin.map(|plugin| plugin.with_trace(context.trace));
        let calls = plugin.as_ref().map(|plugin| plugin.calls().clone());
        let plugin_volume = PluginVolume::new(&leaving.plugin, &leaving.external_id);
        let mut turn = WorkTurn::new(plugin_volume, context.deadline);
        if let Some((volume, revision)) = order {
            turn = turn.in_order(volume, revision);
        }
        let shown = ExecutorWork {
            volume: leaving.volume.clone(),
            alloc: leaving.alloc.clone(),
            epoch: Some(leaving.epoch),
            step: verb::AgentDetach::STEP,
            calls: calls.clone(),
        };
        let mounter = self.clone();
        let work = async move {
            mounter.take_down_use(&leaving, plugin, context).await?;
            // The mount of another volume of that name stays, and stays unaccounted.
            let left = mounter.shared.journal.volume(&leaving.volume).uses;
            if !left.contains_key(&leaving.alloc) {
                mounter.shared.unaccounted.remove(&leaving.volume, &leaving.alloc);
            }
            Ok(())
        };
        let done = self.shared.executor.run_recorded(turn, shown, work).await;
        (done, calls.map(|calls| calls.list()).unwrap_or_default())
    }

    /// Refuses a call that is for another node or of another kind.
    fn check_addressee(&self, call: &ClaimCall) -> Result<(), Problem> {
        if call.call != CallKind::NodeDetach {
            let message = format!("a call of {} came to an agent", call.call);
            return Err(Problem::new(Code::BadInput, message));
        }
        if call.details.node != self.shared.host.node {
            let message =
                format!("a call for node {} came to {}", call.details.node, self.shared.host.node);
            return Err(Problem::new(Code::BadInput, message));
        }
        Ok(())
    }

    /// Runs while the volume's lock is held.
    async fn take_down_use(
        &self,
        leaving: &DepartingUse,
        plugin: Option<Plugin>,
        context: RequestContext,
    ) -> Result<(), Problem> {
        let DepartingUse {
            volume,
            alloc,
            epoch,
            plugin: plugin_id,
            external_id,
            beside,
            unstaged_by,
            is_journalled,
        } = leaving;
        let epoch = *epoch;
        let journal = &self.shared.journal;
        let known = journal.volume(volume);
        // By now the controller may be at its call.
        if *is_journalled && !known.uses.contains_key(alloc) {
            return Ok(());
        }
        // Written first: the handler of a grant that is on its way must find it (rule 10).
        if known.detached.get(alloc).is_none_or(|known| known.epoch < epoch) {
            let written =
                journal.write_detach(volume, alloc, JournalledDetach { epoch, done: false }).await;
            written.map_err(local_problem(Code::UnmountFailed))?;
        }
        let place = self.shared.paths.volume_paths(plugin_id, volume, alloc);
        let table = read_mount_table(Code::UnmountFailed).await?;
        let scene = VolumeOnNode { journal: &known, mounts: &table, place: &place };
        if known.uses.get(alloc).is_some_and(|entry| is_of_another_volume(leaving, entry)) {
            tracing::info!(%volume, %alloc, epoch, "another volume of that name stays mounted");
            return Ok(());
        }
        if let Some(beside) = beside {
            let handle = PluginVolume::new(plugin_id, external_id);
            let accounted = AccountedUse { volume, handle: &handle, alloc };
            self.check_accounted(accounted, beside, scene)?;
        }
        // A plugin that has not said whether it stages may have staged.
        let can = plugin.as_ref().and_then(Plugin::node);
        let stages = can.is_none_or(|can| can.stage_unstage_volume);
        let calls = plan::plan_detach(scene, DetachInput { alloc, epoch, stages })
            .map_err(|newer| Problem::new(Code::OldCall, newer))?;
        if calls.is_empty() {
            return Ok(());
        }
        runs::check_not_running(&self.shared.runs, volume, alloc).await?;
        let plugin = plugin.ok_or_else(|| no_plugin(plugin_id))?;
        let noted = known.uses.get(alloc);
        let noted = noted.filter(|entry| entry.boot_id == self.shared.host.boot_id);
        check_not_foreign(&calls, noted, &table)?;
        let host = self.host(plugin_id, &place);
        let departing = self.prepare_holder_check(&host, volume, alloc, scene).await?;
        self.check_before(&host, &plugin, &departing).await?;
        let began = Instant::now();
        self.shared.binds.remove_binds(&host, &place).await?;
        if unstaged_by.is_some() {
            unstaged::check_device_unused(&host, noted).await?;
        }
        let caller = self.node_caller(&plugin, external_id, host, context.deadline);
        let caller = NodeCaller { unstaged_by: unstaged_by.clone(), ..caller };
        caller.take_down(&calls).await?;
        self.check_after(&caller.host, &plugin, &departing).await?;
        let failed = local_problem(Code::UnmountFailed);
        dirs::remove_unless_used(&caller.host, &place.alloc_dir).await.map_err(&failed)?;
        dirs::remove_if_empty(&caller.host, &place.volume_dir).await.map_err(&failed)?;
        let gone =
            journal.write_detach(volume, alloc, JournalledDetach { epoch, done: true }).await;
        gone.map_err(local_problem(Code::UnmountFailed))?;
        // The plugin calls are in the event of the protocol's call.
        let (took, calls) = (began.elapsed(), Vec::new());
        let used = UsedVolume { volume, alloc, plugin: plugin_id, took, calls };
        self.shared.events.publish_unmount(used, context.trace);
        Ok(())
    }
}

/// Refuses while something else is mounted where the journal says the volume is: the plugin would
/// unmount it. A mount of the same type and source counts as the volume, because a plugin that
/// restarted may have mounted the volume again on another device.
fn check_not_foreign(
    calls: &[NodeCall],
    noted: Option<&JournalledUse>,
    table: &MountTable,
) -> Result<(), Problem> {
    let Some(entry) = noted.filter(|entry| !entry.contents.is_empty()) else { return Ok(()) };
    let is_ours = |mount: &Mount| {
        let found = mount.content();
        entry.contents.iter().any(|one| {
            one.is_shown_by(mount) || (one.fs_type == found.fs_type && one.source == found.source)
        })
    };
    let paths = calls.iter().filter_map(|call| match call {
        NodeCall::Unpublish { target } => Some(target),
        NodeCall::Unstage { staging } => Some(staging),
        NodeCall::Stage { .. } | NodeCall::Publish { .. } => None,
    });
    let mut tops = paths.filter_map(|path| table.top_at(path));
    let Some(foreign) = tops.find(|mount| !is_ours(mount)) else { return Ok(()) };
    let path = foreign.point.display();
    let message = format!(
        "{} is mounted at {path}, where the volume was, and is not the volume; see it with \
         `findmnt --mountpoint {path}`",
        foreign.fs_type
    );
    let next = format!("`umount {path}` once you know what it is; the release goes on by itself");
    Err(Problem::new(Code::ForeignMount, message).retryable().next(next))
}
