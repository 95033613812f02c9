//! The health of mounted volumes, as their plugins tell it: by `NodeGetVolumeHealth`, or by the
//! condition in `NodeGetVolumeStats` where they are of CSI 1.12.
//!
//! **Owns** the question about each published volume, again and again.
//!
//! **Promises** that what a plugin calls abnormal is on the claim's record and in the node's status
//! until the plugin takes it back, that a question is the volume's only call while it lasts, and
//! that a mount which does not answer is not asked about.
//!
//! **Never** acts on it: CSI means it for people.

use std::path::Path;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::agent::MountHealth;
use berth_contract::problem::Problem;
use berth_csi::advertised::NodeCapabilities;
use berth_csi::{CallError, health, v1};
use berth_domain::{AllocId, VolumeKey};
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use futures_util::{StreamExt as _, stream};
use tokio::time::sleep;

use crate::executor::{PluginVolume, VolumeExecutor, WorkTurn};
use crate::journal::{Journal, JournalledUse, UseState};
use crate::mounts::calls::NodePlugins;
use crate::mounts::health::{MountHealths, PROBE_TIMEOUT, ProbeAnswer};
use crate::mounts::node_faults::read_mount_table;
use crate::plugins::{Plugin, problem_from_call};

/// How long a plugin may take to answer. A release waits for that long at most.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Largest number of volumes that are asked about at once.
const QUESTIONS_AT_ONCE_MAX: usize = 4;

/// Asks plugins for the condition of the volumes that are mounted here.
pub(super) struct ConditionWatcher {
    pub(super) journal: Journal,
    pub(super) plugins: NodePlugins,
    pub(super) executor: VolumeExecutor,
    pub(super) healths: MountHealths,
    pub(super) interval: Duration,
}

impl ConditionWatcher {
    /// Asks until the shutdown.
    pub(super) async fn run(self, shutdown: Shutdown) {
        loop {
            // Agents that started together do not ask together.
            let pause = self.interval.mul_f64(0.75 + rand::random::<f64>() / 2.0);
            tokio::select! {
                () = async { sleep(pause).await; self.ask_all().await } => {}
                () = shutdown.requested() => return,
            }
        }
    }

    async fn ask_all(&self) {
        let uses = self.journal.uses().into_iter();
        let published = uses.filter(|(.., entry)| entry.state == UseState::Published);
        stream::iter(published)
            .for_each_concurrent(QUESTIONS_AT_ONCE_MAX, |(volume, alloc, entry)| async move {
                if let Err(problem) = self.ask_about(&volume, &alloc, entry).await {
                    tracing::debug!(%volume, %alloc, %problem, "its condition is not known");
                }
            })
            .await;
    }

    /// Whether the mount answers now. About one that hangs, a plugin that looks at it would hang,
    /// too, and nothing else could be asked of it for the volume meanwhile.
    async fn is_well(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        entry: &JournalledUse,
    ) -> Result<bool, Problem> {
        let healths = &self.healths;
        let last = healths.get_health(volume, alloc, entry.epoch);
        if last.is_none_or(|last| last.health != MountHealth::Well) {
            return Ok(false);
        }
        let table = read_mount_table(Code::Internal).await?;
        let at = (&entry.plugin, entry.target.as_path());
        let found = healths.probe_mount(at, entry.attachment, &table, None, PROBE_TIMEOUT).await;
        Ok(matches!(found, ProbeAnswer::Well(_)))
    }

    async fn ask_about(
        &self,
        volume: &VolumeKey,
        alloc: &AllocId,
        entry: JournalledUse,
    ) -> Result<(), Problem> {
        let (journal, healths) = (self.journal.clone(), self.healths.clone());
        let plugin = self.plugins.get(&entry.plugin)?;
        let can = plugin.node().filter(|_| plugin.view().healthy).unwrap_or_default();
        if !can.get_volume_health && !can.volume_condition {
            return Ok(());
        }
        if !self.is_well(volume, alloc, &entry).await? {
            return Ok(());
        }
        let turn = WorkTurn::new(
            PluginVolume::new(&entry.plugin, &entry.external_id),
            clock::now().after(ANSWER_MAX),
        );
        let (volume, alloc) = (volume.clone(), alloc.clone());
        let question = async move {
            // It may have left while the question waited for its turn.
            if journal.volume(&volume).uses.get(&alloc) != Some(&entry) {
                return Ok(());
            }
            let unwell = ask_plugin(&plugin, can, &entry).await;
            let unwell = unwell.map_err(|error| problem_from_call(&error))?;
            let said = unwell.map(|words| {
                format!("plugin {} says that the volume is not well: {words}", entry.plugin)
            });
            let key = (volume, alloc);
            if healths.record_condition(&key, entry.epoch, said.clone()) {
                let (volume, alloc) = key;
                if let Some(said) = said {
                    tracing::warn!(%volume, %alloc, said, "a volume is not well");
                } else {
                    tracing::info!(%volume, %alloc, "a volume is well again");
                }
            }
            Ok(())
        };
        self.executor.run(turn, question).await
    }
}

/// What the plugin says is wrong with the volume.
async fn ask_plugin(
    plugin: &Plugin,
    can: NodeCapabilities,
    entry: &JournalledUse,
) -> Result<Option<String>, CallError> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let volume_id = entry.external_id.clone();
    let at = path(&entry.target);
    let staging_target_path = entry.staging.as_deref().map(path).unwrap_or_default();
    if can.get_volume_health {
        let volume_publish_path = at;
        let request =
            v1::NodeGetVolumeHealthRequest { volume_id, volume_publish_path, staging_target_path };
        let answer = plugin.call_within(request, ANSWER_MAX).await?;
        return Ok(answer.volume_health.as_ref().and_then(health::of_volume));
    }
    let request = v1::NodeGetVolumeStatsRequest { volume_id, volume_path: at, staging_target_path };
    let answer = plugin.call_within(request, ANSWER_MAX).await?;
    Ok(health::of_condition(answer.volume_condition))
}
