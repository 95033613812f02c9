//! Makes the plugin calls of a plan, one after another, and checks their effects.
//!
//! **Promises** that a volume counts as published, or as gone, only by the kernel's word (rule 11):
//! the mount table or the device node. A plugin's OK is not enough.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::message::claim::Grant;
use berth_contract::message::secret::Secrets;
use berth_contract::problem::Problem;
use berth_csi::capability::volume_capability;
use berth_csi::rpc::Unary;
use berth_csi::{Class, Remedy, Rpc, v1};
use berth_domain::access::{AttachmentMode, Capability, Mode};
use berth_domain::proof::Proof;
use berth_domain::volume::SecretCall;
use berth_domain::{PluginId, Timestamp};
use berth_host::{HostPool, MountTable};

use super::node_faults::{local_problem, read_mount_table};
use super::unstaged::RefusedPaths;
use super::{dirs, still_mounted};
use crate::controllers::may_be_at_work;
use crate::executor::check_deadline;
use crate::host::paths::VolumePaths;
use crate::host::pool::VolumeHost;
use crate::mounts::plan::NodeCall;
use crate::plugins::{self, Plugin, Plugins, no_plugin};

/// A grant, and the secrets that staging and publishing take.
#[derive(Debug)]
pub(super) struct GrantWithSecrets<'a> {
    pub(super) grant: &'a Grant,
    pub(super) secrets: Secrets,
}

/// The plugins of this node, as they are called for volumes. Cheap to clone.
#[derive(Clone)]
pub struct NodePlugins {
    plugins: Plugins,
    pool: HostPool,
    refused: RefusedPaths,
}

impl NodePlugins {
    /// Host operations of the volumes run in the pool.
    pub fn new(plugins: Plugins, pool: HostPool) -> Self {
        Self { plugins, pool, refused: RefusedPaths::default() }
    }

    pub(super) fn find(&self, id: &PluginId) -> Option<Plugin> {
        self.plugins.get(id)
    }

    /// The plugin, or the refusal of a call to one that this node does not have.
    pub(super) fn get(&self, id: &PluginId) -> Result<Plugin, Problem> {
        self.find(id).ok_or_else(|| no_plugin(id))
    }

    /// Runs the host operations of a volume.
    pub(super) fn host(&self, plugin: &PluginId, place: &VolumePaths) -> VolumeHost {
        VolumeHost::new(&self.pool, plugin, place)
    }

    /// A caller without an operator's word that nothing of the volume is left here.
    pub(super) fn calls_for(
        &self,
        plugin: &Plugin,
        external_id: &str,
        host: VolumeHost,
        deadline: Timestamp,
    ) -> VolumeCalls {
        VolumeCalls {
            plugin: plugin.clone(),
            external_id: external_id.to_owned(),
            host,
            deadline,
            refused: self.refused.clone(),
            unstaged_by: None,
        }
    }
}

/// Makes the node calls of one volume, while its lock is held.
#[derive(Debug, Clone)]
pub(super) struct VolumeCalls {
    pub(super) plugin: Plugin,
    pub(super) external_id: String,
    pub(super) host: VolumeHost,
    /// No call starts after this.
    pub(super) deadline: Timestamp,
    /// The paths at which the plugin refused to undo anything although nothing was mounted.
    pub(super) refused: RefusedPaths,
    /// The operator's word that nothing of the volume is left here (rule 18).
    pub(super) unstaged_by: Option<Proof>,
}

impl VolumeCalls {
    pub(super) async fn take_down(&self, calls: &[NodeCall]) -> Result<(), Problem> {
        for call in calls {
            match call {
                NodeCall::Unpublish { target } => self.unpublish(target).await?,
                NodeCall::Unstage { staging } => self.unstage(staging).await?,
                NodeCall::Stage { .. } | NodeCall::Publish { .. } => {
                    let message = "a plan to take a volume down would mount it";
                    return Err(Problem::new(Code::Internal, message));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn stage(
        &self,
        staging: &Path,
        using: &GrantWithSecrets<'_>,
    ) -> Result<(), Problem> {
        let at = |problem: Problem| problem.at_step("node.stage");
        check_deadline(self.deadline).map_err(at)?;
        let made = dirs::make_dir(&self.host, staging).await;
        made.map_err(local_problem(Code::MountFailed)).map_err(at)?;
        self.refused.forget_refusal(staging);
        let request = v1::NodeStageVolumeRequest {
            volume_id: self.external_id.clone(),
            publish_context: using.grant.publish_context.clone(),
            staging_target_path: text(staging),
            volume_capability: Some(self.capability(using.grant)),
            volume_context: using.grant.context.clone(),
            secrets: using.secrets.clone().for_call(SecretCall::Stage).0,
        };
        self.plugin.call(request).await.map_err(|error| at(plugins::problem_from_call(&error)))?;
        Ok(())
    }

    /// Returns the mount table, read after the plugin's answer.
    pub(super) async fn publish(
        &self,
        staging: Option<&Path>,
        target: &Path,
        using: &GrantWithSecrets<'_>,
    ) -> Result<Arc<MountTable>, NotPublished> {
        let at = |problem: Problem| NotPublished::Failed(problem.at_step("node.publish"));
        check_deadline(self.deadline).map_err(at)?;
        self.refused.forget_refusal(target);
        // The target itself is the plugin's to make (CSI, NodePublishVolume).
        let parent = target.parent().unwrap_or(target);
        let made = dirs::make_dir(&self.host, parent).await;
        made.map_err(local_problem(Code::MountFailed)).map_err(at)?;
        let request = v1::NodePublishVolumeRequest {
            volume_id: self.external_id.clone(),
            publish_context: using.grant.publish_context.clone(),
            staging_target_path: staging.map(text).unwrap_or_default(),
            target_path: text(target),
            volume_capability: Some(self.capability(using.grant)),
            readonly: using.grant.mode == Mode::Read,
            volume_context: using.grant.context.clone(),
            secrets: using.secrets.clone().for_call(SecretCall::Publish).0,
        };
        if let Err(error) = self.plugin.call(request).await {
            let problem = plugins::problem_from_call(&error).at_step("node.publish");
            return Err(match error.class() {
                Class::Retry(Remedy::StageFirst) => NotPublished::Unstaged(problem),
                _ => NotPublished::Failed(problem),
            });
        }
        let table = read_mount_table(Code::MountFailed).await.map_err(at)?;
        // In a bare directory or file a workload would write to the host's own disk.
        let lacking = match using.grant.attachment {
            AttachmentMode::FileSystem => (!table.has(target)).then_some("nothing is mounted"),
            AttachmentMode::BlockDevice => {
                let found = dirs::is_block_device(&self.host, target).await;
                let found = found.map_err(local_problem(Code::MountFailed)).map_err(at)?;
                (!found).then_some("there is no block device")
            }
        };
        let Some(lacking) = lacking else { return Ok(table) };
        let message = format!(
            "plugin {} answered NodePublishVolume with OK, but {lacking} at {}",
            self.plugin.id,
            target.display()
        );
        Err(at(Problem::new(Code::MountFailed, message).retryable()))
    }

    pub(super) async fn unpublish(&self, target: &Path) -> Result<(), Problem> {
        let at = |problem: Problem| problem.at_step("node.unpublish");
        check_deadline(self.deadline).map_err(at)?;
        let request = v1::NodeUnpublishVolumeRequest {
            volume_id: self.external_id.clone(),
            target_path: text(target),
        };
        self.undo(request, target).await.map_err(at)
    }

    pub(super) async fn unstage(&self, staging: &Path) -> Result<(), Problem> {
        let at = |problem: Problem| problem.at_step("node.unstage");
        check_deadline(self.deadline).map_err(at)?;
        let request = v1::NodeUnstageVolumeRequest {
            volume_id: self.external_id.clone(),
            staging_target_path: text(staging),
        };
        self.undo(request, staging).await.map_err(at)
    }

    /// Makes an unpublish or unstage call. The kernel's word counts, not the plugin's (rule 11):
    /// the plugin may say falsely that the mount is gone, or that it never was.
    async fn undo<R: Unary>(&self, request: R, path: &Path) -> Result<(), Problem> {
        let Err(error) = self.plugin.call(request).await else {
            return self.confirm_gone(path, R::RPC).await;
        };
        let problem = plugins::problem_from_call(&error);
        if may_be_at_work(&error) {
            return Err(Problem { code: Code::StillBusy, ..problem });
        }
        let Some(code) = error.code() else { return Err(problem) };
        let shown = path.display();
        if read_mount_table(Code::UnmountFailed).await?.has(path) {
            let message = format!("{}; the volume is still mounted at {shown}", problem.message);
            return Err(still_mounted::explain(Problem { message, ..problem }, path).await);
        }
        if !dirs::is_bare(&self.host, path).await {
            let message = format!("{}; something lies at {shown}", problem.message);
            let next = format!(
                "see what it is with `ls -la {shown}`, and take it away by hand; the release goes \
                 on by itself then"
            );
            return Err(Problem::new(Code::UnmountFailed, message).retryable().next(next));
        }
        // A plugin that has lost the volume answers NOT_FOUND for ever. That alone is no success.
        // It is one because nothing is mounted at the path and nothing lies there.
        if code == berth_csi::Code::NotFound {
            tracing::warn!(%error, path = %shown, "nothing is there: taken as undone");
            return Ok(());
        }
        let refused_before = self.refused.add_refusal(path);
        if let Some(word) = self.unstaged_by.as_ref().filter(|_| refused_before) {
            tracing::warn!(%error, path = %shown, %word, "taken as undone by a person's word");
            return Ok(());
        }
        let message = format!("{}; nothing is mounted at {shown}", problem.message);
        Err(Problem { message, next: problem.code.next().to_owned(), ..problem })
    }

    async fn confirm_gone(&self, path: &Path, rpc: Rpc) -> Result<(), Problem> {
        if read_mount_table(Code::UnmountFailed).await?.has(path) {
            let message = format!(
                "plugin {} answered {rpc} with OK, but {} is still mounted",
                self.plugin.id,
                path.display()
            );
            let problem = Problem::new(Code::UnmountFailed, message);
            return Err(still_mounted::explain(
                Problem { rpc: Some(rpc.to_string()), ..problem },
                path,
            )
            .await);
        }
        dirs::remove_unless_used(&self.host, path).await.map_err(local_problem(Code::UnmountFailed))
    }

    fn capability(&self, grant: &Grant) -> v1::VolumeCapability {
        let capability = Capability { access: grant.access, attachment: grant.attachment };
        let later_modes = self.plugin.node().is_some_and(|can| can.single_node_multi_writer);
        volume_capability(capability, &grant.mount, later_modes)
    }
}

/// Why a volume is not published.
pub(super) enum NotPublished {
    /// The plugin says that the volume must be staged first.
    Unstaged(Problem),
    Failed(Problem),
}

impl From<NotPublished> for Problem {
    fn from(error: NotPublished) -> Self {
        match error {
            NotPublished::Unstaged(problem) | NotPublished::Failed(problem) => problem,
        }
    }
}

fn text(path: impl Into<PathBuf>) -> String {
    path.into().to_string_lossy().into_owned()
}
