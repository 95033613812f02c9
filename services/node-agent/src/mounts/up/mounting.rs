//! The parts that mounting a volume needs, and the calls that publish it.
//!
//! **Promises** that a volume is journalled as staged before it is published.

use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::message::claim::Grant;
use berth_contract::message::secret::Secrets;
use berth_contract::problem::Problem;
use berth_domain::{AllocId, PluginId, Timestamp, VolumeKey};
use berth_host::MountTable;
use berth_service::clock;
use tokio::time::Instant;

use super::alive;
use super::enforce;
use crate::caller::RequestContext;
use crate::executor::VolumeExecutor;
use crate::fleet::events::{EventPublisher, UsedVolume};
use crate::fleet::gate::Gate;
use crate::fleet::secret::SecretsReader;
use crate::host::paths::VolumePaths;
use crate::journal::{Disk, Journal, JournalledUse};
use crate::mounts::calls::{GrantWithSecrets, NodePlugins, NotPublished, VolumeCalls};
use crate::mounts::claims::ClaimService;
use crate::mounts::expand::expand_pending;
use crate::mounts::health::MountHealths;
use crate::mounts::node_faults::{local_problem, read_mount_table};
use crate::mounts::plan::NodeCall;
use crate::mounts::volumes::LocalVolumes;

/// Mounts what is granted, and mounts it again.
pub struct Mounting {
    pub local: LocalVolumes,
    pub plugins: NodePlugins,
    /// Runs the calls of a volume one after another.
    pub executor: VolumeExecutor,
    /// Refuses mounts while it is closed.
    pub gate: Gate,
    pub claims: ClaimService,
    pub secrets: SecretsReader,
    /// The health of each mount when it was last probed.
    pub healths: MountHealths,
    pub events: EventPublisher,
}

impl Mounting {
    /// Follows the refusal of a claim: if the plugin could not attach the volume to this node for
    /// lack of room, the node is full for other volumes, too.
    pub(super) fn follow_refusal(&self, problem: &Problem) {
        let is_here = |node: &String| *node == self.local.node.as_str();
        if problem.code != Code::PluginExhausted || !problem.node.as_ref().is_some_and(is_here) {
            return;
        }
        let plugin = problem.plugin.as_ref().and_then(|id| id.parse().ok());
        if let Some(Ok(plugin)) = plugin.map(|id: PluginId| self.plugins.get(&id)) {
            let volume = problem.volume.as_deref().unwrap_or_default();
            plugin.record_full(volume, &problem.message);
        }
    }
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

/// A use that is mounted, and answers.
pub(super) struct PublishedUse {
    /// What the plugin left out, in words.
    pub(super) left_out: Vec<String>,
    /// The disk behind the mount.
    pub(super) disk: Option<Disk>,
    /// The mount table, read after the last call of the plugin.
    pub(super) table: Arc<MountTable>,
}

/// The use that is being mounted: its intent is in the journal.
#[derive(Clone, Copy)]
struct JournalledIntent<'a> {
    journal: &'a Journal,
    volume: &'a VolumeKey,
    alloc: &'a AllocId,
}

impl JournalledIntent<'_> {
    /// Journals that the volume is staged.
    async fn write_staged(&self) -> Result<(), Problem> {
        let known = self.journal.volume(self.volume).uses.remove(self.alloc);
        let Some(intent) = known else { return Ok(()) };
        let staged = JournalledUse { staged: true, since: clock::now(), ..intent };
        let written = self.journal.write_use(self.volume, self.alloc, staged).await;
        written.map_err(local_problem(Code::MountFailed))
    }
}

impl Mounting {
    /// Reads the secrets for staging and publishing.
    pub(super) async fn read_secrets(
        &self,
        volume: &VolumeKey,
        grant: &Grant,
        RequestContext { deadline, trace }: RequestContext,
    ) -> Result<Secrets, Problem> {
        self.secrets.read(volume, grant.secrets.as_ref(), deadline, trace).await.map(Secrets)
    }

    /// Refuses while the grant's mount is dead, hangs, or has another disk behind it than `was`.
    pub(super) async fn check_alive(
        &self,
        grant: &Grant,
        at: (&VolumePaths, &MountTable),
        was: Option<&Disk>,
        deadline: Timestamp,
    ) -> Result<Option<Disk>, Problem> {
        alive::check_alive(&self.healths, &self.local.node, grant, at, was, deadline).await
    }

    /// Makes the calls of a grant's plan, and checks what they have published.
    pub(super) async fn publish_granted(
        &self,
        caller: &VolumeCalls,
        granted: &GrantWithSecrets<'_>,
        publication: Publication<'_>,
        context: RequestContext,
    ) -> Result<PublishedUse, Problem> {
        let Publication { volume, place, calls, began } = publication;
        let (grant, journal) = (granted.grant, &self.local.journal);
        let record = JournalledIntent { journal, volume, alloc: &grant.alloc };
        let stages = calls.iter().any(|call| matches!(call, NodeCall::Stage { .. }));
        let brought = caller.bring_up(calls, granted, &record).await;
        let (took, calls) = (began.elapsed(), caller.plugin.calls().list());
        let used =
            UsedVolume { volume, alloc: &grant.alloc, plugin: &caller.plugin.id, took, calls };
        self.events.publish_mount(used, brought.as_ref().err(), context.trace);
        let mut table = brought?;
        if !stages && grant.expand_to.is_some() {
            let at = (place.target.as_path(), None);
            expand_pending(journal, caller, (volume, grant), at, &granted.secrets).await;
            table = read_mount_table(Code::MountFailed).await?;
        }
        let at = (place, &*table);
        let left_out = enforce::enforce_after_publish(caller, grant, at).await?;
        let disk = self.check_alive(grant, at, None, context.deadline).await?;
        Ok(PublishedUse { left_out, disk, table })
    }
}

impl VolumeCalls {
    /// Makes the calls that publish a use. Its intent is in the journal. That the volume is staged
    /// is journalled before it is published. Returns the mount table, read after the last call.
    async fn bring_up(
        &self,
        calls: &[NodeCall],
        using: &GrantWithSecrets<'_>,
        record: &JournalledIntent<'_>,
    ) -> Result<Arc<MountTable>, Problem> {
        let mut table = None;
        let staged_here = calls.iter().any(|call| matches!(call, NodeCall::Stage { .. }));
        for call in calls {
            match call {
                NodeCall::Stage { staging } => {
                    self.stage(staging, using).await?;
                    record.write_staged().await?;
                    let at = (staging.as_path(), Some(staging.as_path()));
                    let about = (record.volume, using.grant);
                    expand_pending(record.journal, self, about, at, &using.secrets).await;
                }
                NodeCall::Publish { staging, target } => {
                    let staging = staging.as_deref();
                    let published = self.publish(staging, target, using).await;
                    let published = match (published, staging) {
                        (Err(NotPublished::Unstaged(_)), Some(staging)) if !staged_here => {
                            // The plan took the volume for staged, because another alloc uses the
                            // staging. It was unmounted by other means.
                            self.stage(staging, using).await?;
                            record.write_staged().await?;
                            self.publish(Some(staging), target, using).await?
                        }
                        (published, _) => published?,
                    };
                    table = Some(published);
                }
                NodeCall::Unpublish { target } => self.unpublish(target).await?,
                NodeCall::Unstage { staging } => self.unstage(staging).await?,
            }
        }
        // A plan ends with a publication.
        match table {
            Some(table) => Ok(table),
            None => read_mount_table(Code::MountFailed).await,
        }
    }
}
