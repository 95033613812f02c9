//! The parts that taking a use of a volume down needs, and the order of its steps.
//!
//! **Promises** that a detach is journalled before the first call, and that it is done when the
//! mount tables of the host say so.

use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::event::PluginCall;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::proof::Proof;
use berth_domain::{AllocId, PluginId, VolumeKey};
use berth_host::{Holder, Mount, MountTable};
use berth_service::runs::Runs;
use tokio::time::Instant;

use crate::caller::RequestContext;
use crate::executor::{ExecutorWork, PluginVolume, VolumeExecutor, WorkTurn};
use crate::fleet::events::{EventPublisher, UsedVolume};
use crate::host::paths::VolumePaths;
use crate::host::pool::VolumeHost;
use crate::journal::{JournalledDetach, JournalledUse, VolumeUses};
use crate::mounts::beside::{AccountedUse, ToldClaims};
use crate::mounts::calls::{NodePlugins, VolumeCalls};
use crate::mounts::claims::ClaimService;
use crate::mounts::dirs;
use crate::mounts::holders::HolderCheck;
use crate::mounts::node_faults::{local_problem, read_mount_table};
use crate::mounts::plan::{self, DetachInput, NodeCall, VolumeOnNode};
use crate::mounts::runs;
use crate::mounts::unstaged;
use crate::mounts::volumes::LocalVolumes;
use crate::plugins::{Plugin, no_plugin};

/// Takes down what is mounted here.
pub struct Unmounting {
    pub local: LocalVolumes,
    pub plugins: NodePlugins,
    /// Runs the calls of a volume one after another.
    pub executor: VolumeExecutor,
    /// The commands that use what is mounted.
    pub runs: Runs,
    pub claims: ClaimService,
    pub events: EventPublisher,
}

/// The use that is taken down.
#[derive(Debug)]
pub(super) struct DepartingUse {
    pub(super) volume: VolumeKey,
    pub(super) alloc: AllocId,
    pub(super) epoch: u64,
    pub(super) plugin: PluginId,
    pub(super) external_id: String,
    /// The other claims on this node that the caller knows. `None` if they do not matter.
    pub(super) beside: Option<ToldClaims>,
    /// The operator's word that nothing of the volume is left here (rule 18).
    pub(super) unstaged_by: Option<Proof>,
    /// Whether it was read from the journal. If it is gone there, another request has taken it
    /// down.
    pub(super) is_journalled: bool,
}

/// A use that is to be taken down, before the first unmount.
struct PreparedTakeDown<'a> {
    calls: Vec<NodeCall>,
    plugin: Plugin,
    host: VolumeHost,
    departing: HolderCheck<'a>,
    /// The mounts that the agent's unmounts would leave.
    surviving: Vec<Holder>,
}

/// Whether the journal names a mount of another volume, under another claim of the alloc: nothing
/// of the volume that leaves is here, since its paths are taken. The mount has no claim, and a
/// workload may use it.
fn is_of_another_volume(leaving: &DepartingUse, entry: &JournalledUse) -> bool {
    entry.epoch != leaving.epoch && !entry.is_of(&leaving.plugin, &leaving.external_id)
}

impl Unmounting {
    /// Takes a use down in its volume's turn. Returns the plugin calls that were made, too.
    pub(super) async fn run_take_down(
        self: &Arc<Self>,
        leaving: DepartingUse,
        order: Option<(VolumeKey, u64)>,
        context: RequestContext,
    ) -> (Result<(), Problem>, Vec<PluginCall>) {
        let plugin = self.plugins.find(&leaving.plugin);
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
        let this = Arc::clone(self);
        let work = async move {
            this.take_down_use(&leaving, plugin, context).await?;
            // The mount of another volume of that name stays, and stays unaccounted.
            let left = this.local.journal.volume(&leaving.volume).uses;
            if !left.contains_key(&leaving.alloc) {
                this.local.unaccounted.remove(&leaving.volume, &leaving.alloc);
            }
            Ok(())
        };
        let done = self.executor.run_recorded(turn, shown, work).await;
        (done, calls.map(|calls| calls.list()).unwrap_or_default())
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
            unstaged_by,
            is_journalled,
            ..
        } = leaving;
        let epoch = *epoch;
        let journal = &self.local.journal;
        let known = journal.volume(volume);
        // By now the controller may be at its call.
        if *is_journalled && !known.uses.contains_key(alloc) {
            return Ok(());
        }
        let place = self.local.paths.volume_paths(plugin_id, volume, alloc);
        let record = async {
            // Written before anything is unmounted: the handler of a grant that is on its way must
            // find it (rule 10).
            if known.detached.get(alloc).is_none_or(|known| known.epoch < epoch) {
                let detach = JournalledDetach { epoch, done: false };
                let written = journal.write_detach(volume, alloc, detach).await;
                written.map_err(local_problem(Code::UnmountFailed))?;
            }
            Ok::<_, Problem>(runs::check_not_running(&self.runs, volume, alloc).await)
        };
        // What only looks need not wait until the disk has the journal.
        let (recorded, prepared) = tokio::join!(
            record,
            self.prepare_take_down(leaving, plugin, (&known, &place), context)
        );
        let not_running = recorded?;
        let Some(prepared) = prepared? else { return Ok(()) };
        not_running?;
        let PreparedTakeDown { calls, plugin, host, departing, surviving } = prepared;
        departing.check_before(&host, &plugin, surviving).await?;
        let began = Instant::now();
        self.local.binds.remove_binds(&host, &place).await?;
        if unstaged_by.is_some() {
            let noted = known.uses.get(alloc);
            let noted = noted.filter(|entry| entry.boot_id == self.local.boot_id);
            unstaged::check_device_unused(&host, noted).await?;
        }
        let caller = self.plugins.calls_for(&plugin, external_id, host, context.deadline);
        let caller = VolumeCalls { unstaged_by: unstaged_by.clone(), ..caller };
        caller.take_down(&calls).await?;
        departing.check_after(&caller.host, &plugin).await?;
        let failed = local_problem(Code::UnmountFailed);
        dirs::remove_unless_used(&caller.host, &place.alloc_dir).await.map_err(&failed)?;
        dirs::remove_if_empty(&caller.host, &place.volume_dir).await.map_err(&failed)?;
        let gone =
            journal.write_detach(volume, alloc, JournalledDetach { epoch, done: true }).await;
        gone.map_err(local_problem(Code::UnmountFailed))?;
        // The plugin calls are in the event of the protocol's call.
        let (took, calls) = (began.elapsed(), Vec::new());
        let used = UsedVolume { volume, alloc, plugin: plugin_id, took, calls };
        self.events.publish_unmount(used, context.trace);
        Ok(())
    }

    /// Looks at what is to be taken down, and who has it. `None` if nothing is here. Changes
    /// nothing but the journal.
    async fn prepare_take_down<'a>(
        &'a self,
        leaving: &'a DepartingUse,
        plugin: Option<Plugin>,
        (known, place): (&VolumeUses, &VolumePaths),
        context: RequestContext,
    ) -> Result<Option<PreparedTakeDown<'a>>, Problem> {
        let DepartingUse { volume, alloc, plugin: plugin_id, external_id, .. } = leaving;
        let epoch = leaving.epoch;
        if known.uses.get(alloc).is_some_and(|entry| is_of_another_volume(leaving, entry)) {
            tracing::info!(%volume, %alloc, epoch, "another volume of that name stays mounted");
            return Ok(None);
        }
        let handle = PluginVolume::new(plugin_id, external_id);
        let accounted = AccountedUse { volume, handle: &handle, alloc };
        let beside = match &leaving.beside {
            Some(told) => {
                let here = (known, place);
                Some(self.claims.list_beside(told, accounted, here, context).await?)
            }
            None => None,
        };
        // Read after whatever takes long.
        let table = read_mount_table(Code::UnmountFailed).await?;
        let scene = VolumeOnNode { journal: known, mounts: &table, place };
        if let Some(beside) = beside {
            self.local.check_accounted(accounted, &beside, scene)?;
        }
        // A plugin that has not said whether it stages may have staged.
        let can = plugin.as_ref().and_then(Plugin::node);
        let stages = can.is_none_or(|can| can.stage_unstage_volume);
        let calls = plan::plan_detach(scene, DetachInput { alloc, epoch, stages })
            .map_err(|newer| Problem::new(Code::OldCall, newer))?;
        if calls.is_empty() {
            return Ok(None);
        }
        let plugin = plugin.ok_or_else(|| no_plugin(plugin_id))?;
        let noted = known.uses.get(alloc);
        let noted = noted.filter(|entry| entry.boot_id == self.local.boot_id);
        check_not_foreign(&calls, noted, &table)?;
        let host = self.plugins.host(plugin_id, place);
        let departing = self.local.prepare_holder_check(&host, volume, alloc, scene).await?;
        let surviving = departing.list_surviving().await?;
        Ok(Some(PreparedTakeDown { calls, plugin, host, departing, surviving }))
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
