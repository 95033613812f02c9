//! `NodeExpandVolume`: the file system or device of a volume grows on this node (rule 22).
//!
//! **Owns** the call of `agent.expand`, and the expansion that was pending when a volume is staged.
//!
//! **Promises** that an expansion is in the journal before its call and after it, and that the size
//! counts by the kernel's word where the volume has a device of its own.
//!
//! **Never** undoes an expansion: the call may always be repeated.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_contract::code::Code;
use berth_contract::message::call::{Called, StorageCall};
use berth_contract::message::claim::Grant;
use berth_contract::message::secret::Secrets;
use berth_contract::message::storage_call::StorageWork;
use berth_contract::problem::Problem;
use berth_csi::capability::volume_capability;
use berth_csi::v1;
use berth_domain::access::{AttachmentMode, Capability};
use berth_domain::volume::{MountOptions, SecretCall, StorageAnswer};
use berth_domain::{AllocId, NodeId, VolumeKey};
use berth_host::MountTable;
use tokio::time::Instant;

use super::calls::{NodePlugins, VolumeCalls};
use super::node_faults::{local_problem, read_mount_table};
use super::volume_size::read_size;
use super::volumes::LocalVolumes;
use crate::caller::{Caller, RequestContext};
use crate::controllers::{range, storage_problem};
use crate::executor::{VolumeExecutor, WorkTurn, check_deadline};
use crate::fleet::events::{EventPublisher, ExecutedCall};
use crate::fleet::secret::SecretsReader;
use crate::host::pool::VolumeHost;
use crate::journal::{Journal, JournalledExpansion, JournalledUse, UseState};
use crate::plugins::{Plugin, no_plugin};

/// How a volume is to grow on this node.
#[derive(Debug, Clone)]
pub(super) struct NodeExpansion {
    pub(super) required_bytes: u64,
    pub(super) limit_bytes: Option<u64>,
    pub(super) capability: Capability,
    pub(super) mount: MountOptions,
    /// Where the volume is: its target, or its staging path before it is published.
    pub(super) path: PathBuf,
    pub(super) staging: Option<PathBuf>,
}

/// Expands what is mounted here.
pub struct Expanding {
    pub local: LocalVolumes,
    pub plugins: NodePlugins,
    /// Runs the calls of a volume one after another.
    pub executor: VolumeExecutor,
    pub secrets: SecretsReader,
    pub events: EventPublisher,
}

impl Expanding {
    /// Expands a volume that is staged here.
    pub async fn expand(
        self: Arc<Self>,
        _: NodeId,
        call: StorageCall,
        caller: Caller,
    ) -> Result<Called, Problem> {
        let (attempts, attempt) = (self.executor.attempts.clone(), call.attempt.clone());
        attempts.once(&attempt, Box::pin(self.make_expansion(call, caller.context))).await
    }

    async fn make_expansion(
        self: Arc<Self>,
        call: StorageCall,
        context: RequestContext,
    ) -> Result<Called, Problem> {
        let volume = call.volume_key();
        let locate = |problem: Problem| {
            let problem = self.local.locate_problem(problem, &volume);
            problem.plugin(&call.plugin)
        };
        let StorageWork::Expand { required_bytes, limit_bytes, capability, mount } =
            &call.details.work
        else {
            let message = format!("a call of {} came to an agent", call.call);
            return Err(locate(Problem::new(Code::BadInput, message)));
        };
        let plugin = self.plugins.get(&call.plugin).map_err(locate)?.with_trace(context.trace);
        let deadline = call.deadline.min(context.deadline);
        let turn = WorkTurn::of_storage(&call, deadline);
        let wish = NodeExpansion {
            required_bytes: *required_bytes,
            limit_bytes: *limit_bytes,
            capability: *capability,
            mount: mount.clone(),
            path: PathBuf::new(),
            staging: None,
        };
        let uses = self.local.journal.uses_of(&call.plugin, &call.external_id);
        let alloc = uses.into_iter().next().map(|(_, alloc, _)| alloc);
        let (began, calls) = (Instant::now(), plugin.calls().clone());
        let work = {
            let (this, volume, call) = (Arc::clone(&self), volume.clone(), call.clone());
            let context = RequestContext { deadline, ..context };
            async move { this.expand_staged(&volume, &call, &plugin, wish, context).await }
        };
        let done = self.executor.run_shown(turn, &call, work).await;
        let executed = ExecutedCall::of_storage(&call, alloc, began.elapsed(), calls.list());
        self.events.publish_call(executed, done.as_ref().err(), context.trace);
        done.map_err(locate)
    }

    /// Runs while the volume's lock is held.
    async fn expand_staged(
        &self,
        volume: &VolumeKey,
        call: &StorageCall,
        plugin: &Plugin,
        wish: NodeExpansion,
        context: RequestContext,
    ) -> Result<Called, Problem> {
        let journal = self.local.journal.volume(volume);
        let boot_id = &self.local.boot_id;
        // Another volume of that name may be mounted.
        let is_here = |entry: &JournalledUse| {
            entry.state == UseState::Published
                && entry.boot_id == *boot_id
                && entry.is_of(&call.plugin, &call.external_id)
        };
        let here = journal.uses.iter().find(|(_, entry)| is_here(entry));
        let Some((alloc, entry)) = here else {
            let message = "the volume is not mounted on this node; it is expanded when it is";
            return Err(Problem::new(Code::NotDue, message).retryable());
        };
        let RequestContext { deadline, trace } = context;
        let secrets = self.secrets.read(volume, call.secrets.as_ref(), deadline, trace).await?;
        let place = self.local.paths.volume_paths(&call.plugin, volume, alloc);
        let host = self.plugins.host(&plugin.id, &place);
        let caller = self.plugins.calls_for(plugin, &call.external_id, host, deadline);
        let wish = NodeExpansion {
            path: entry.target.clone(),
            staging: entry.staging.clone(),
            capability: Capability { access: entry.access, attachment: entry.attachment },
            ..wish
        };
        let (journal, about) = (&self.local.journal, (volume, alloc));
        let bytes = expand_and_check(journal, &caller, about, &wish, Secrets(secrets)).await?;
        let answer = StorageAnswer::Capacity { bytes, node_expansion_required: false };
        Ok(answer.into())
    }
}

/// Expands a volume for a grant, if an expansion was pending when it was granted. A failure
/// does not keep the volume from its workload: the volumewatcher repeats the call.
pub(super) async fn expand_pending(
    journal: &Journal,
    caller: &VolumeCalls,
    (volume, grant): (&VolumeKey, &Grant),
    (path, staging): (&Path, Option<&Path>),
    secrets: &Secrets,
) {
    let Some(required_bytes) = grant.expand_to else { return };
    let wish = NodeExpansion {
        required_bytes,
        limit_bytes: None,
        capability: Capability { access: grant.access, attachment: grant.attachment },
        mount: grant.mount.clone(),
        path: path.to_owned(),
        staging: staging.map(Path::to_owned),
    };
    let about = (volume, &grant.alloc);
    if let Err(problem) = expand_and_check(journal, caller, about, &wish, secrets.clone()).await {
        tracing::warn!(%volume, alloc = %grant.alloc, %problem, "not expanded yet");
    }
}

/// Makes the call, between two writes of the journal. Returns the size that the plugin answers.
async fn expand_and_check(
    journal: &Journal,
    caller: &VolumeCalls,
    (volume, alloc): (&VolumeKey, &AllocId),
    wish: &NodeExpansion,
    secrets: Secrets,
) -> Result<u64, Problem> {
    let Some(can) = caller.plugin.node() else { return Err(no_plugin(&caller.plugin.id)) };
    if !can.expand_volume {
        let message = format!(
            "nodes have to expand the volume, and the node service of plugin {} does not say here \
             that it has the ability EXPAND_VOLUME",
            caller.plugin.id
        );
        return Err(Problem::new(Code::PluginUnable, message).retryable());
    }
    let to_bytes = wish.required_bytes;
    journal_expansion(journal, volume, alloc, JournalledExpansion { to_bytes, done: false })
        .await?;
    check_deadline(caller.deadline)?;
    let later_modes = can.single_node_multi_writer;
    let request = v1::NodeExpandVolumeRequest {
        volume_id: caller.external_id.clone(),
        volume_path: wish.path.to_string_lossy().into_owned(),
        capacity_range: Some(range(wish.required_bytes, wish.limit_bytes)),
        staging_target_path: wish
            .staging
            .as_ref()
            .map(|staging| staging.to_string_lossy().into_owned())
            .unwrap_or_default(),
        volume_capability: Some(volume_capability(wish.capability, &wish.mount, later_modes)),
        secrets: secrets.for_call(SecretCall::Expand).0,
    };
    let answer = caller.plugin.call(request).await;
    let answer = answer.map_err(|error| storage_problem(&error))?;
    check_size(&caller.host, wish).await?;
    journal_expansion(journal, volume, alloc, JournalledExpansion { to_bytes, done: true }).await?;
    Ok(u64::try_from(answer.capacity_bytes).unwrap_or_default())
}

async fn journal_expansion(
    journal: &Journal,
    volume: &VolumeKey,
    alloc: &AllocId,
    expansion: JournalledExpansion,
) -> Result<(), Problem> {
    let Some(entry) = journal.volume(volume).uses.remove(alloc) else { return Ok(()) };
    let entry = JournalledUse { expansion: Some(expansion), ..entry };
    let written = journal.write_use(volume, alloc, entry).await;
    written.map_err(local_problem(Code::MountFailed))
}

/// Checks that the volume has the size, where it has a device of its own. A directory of a larger
/// file system has none.
async fn check_size(host: &VolumeHost, wish: &NodeExpansion) -> Result<(), Problem> {
    let table = read_mount_table(Code::MountFailed).await?;
    let is_device = wish.capability.attachment == AttachmentMode::BlockDevice;
    let source = own_device(&table, &wish.path);
    if !is_device && source.is_none() {
        return Ok(());
    }
    let (path, source) = (wish.path.clone(), source.filter(|_| !is_device));
    let read = host.run("read the size", move || read_size(&path, source.as_deref())).await;
    let read = read.map_err(local_problem(Code::MountFailed))?;
    let Some(size) = read.map_err(local_problem(Code::MountFailed))? else {
        return Ok(());
    };
    let required = wish.required_bytes;
    if size.reaches(required) {
        return Ok(());
    }
    let file_system = size.file_system.map(|it| format!(" and its file system {}", it.bytes));
    let message = format!(
        "the plugin answered NodeExpandVolume with OK, and the device at {} has {} bytes{}; \
         {required} were requested",
        wish.path.display(),
        size.device,
        file_system.unwrap_or_default()
    );
    Err(Problem::new(Code::PluginFailed, message).retryable())
}

/// The device of which the whole is mounted at the path.
fn own_device(table: &MountTable, path: &Path) -> Option<PathBuf> {
    let mount = table.top_at(path)?;
    let is_whole = mount.root == Path::new("/");
    let source = Path::new(&mount.source);
    (is_whole && source.starts_with("/dev")).then(|| source.to_owned())
}
