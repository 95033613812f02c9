//! A plugin of this node, and the list of them.
//!
//! **Promises** that every call ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use berth_contract::message::plugin::SourceFault;
use berth_contract::message::registry::ReportedInstance;
use berth_contract::trace::TraceContext;
use berth_csi::advertised::{ControllerCapabilities, NodeCapabilities};
use berth_csi::rpc::Unary;
use berth_csi::{CallError, Code, Effect, Failure, Rpc};
use berth_domain::PluginId;
use berth_domain::plugin::StorageTrouble;
use berth_host::process::read_mount_namespace;
use berth_service::clock;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::call_log::PluginCallLog;
use super::member::PluginInstance;
use super::pool::InstancePool;
use super::reported::{self, NodeWord};
use super::view::InstanceView;
use crate::fleet::events::EventPublisher;

/// How long it may take to reach a plugin's socket.
const PEER_WITHIN: Duration = Duration::from_secs(1);
/// How long a call that timed out stays the call in flight. The plugin hears of its cancellation by
/// itself: the next call for the volume must not reach the plugin first (safety rule 4).
const CANCELLATION_ARRIVES_WITHIN: Duration = Duration::from_secs(1);

/// A plugin of this node, with all of its instances. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// The plugin id that operators configure.
    pub id: PluginId,
    pub(crate) pool: Arc<InstancePool>,
    call_timeout: Duration,
    trace: Option<TraceContext>,
    calls: PluginCallLog,
}

impl Plugin {
    /// The view of the instance that node calls go to.
    pub fn view(&self) -> InstanceView {
        self.pool.halves().node
    }

    /// Follows the view of the instance that controller calls go to.
    pub fn follow_controller(&self) -> watch::Receiver<InstanceView> {
        self.pool.follow_controller()
    }

    /// Whether a probe has ended. Before, it is not known which halves the plugin has.
    pub fn is_probed(&self) -> bool {
        self.pool.is_probed()
    }

    /// The instances that the agent reports to the registry.
    pub fn instances(&self) -> Vec<ReportedInstance> {
        let word = NodeWord { full: self.pool.why_full(), storage: self.pool.storage_troubles() };
        reported::report_halves(&self.id, &self.pool.halves(), word)
    }

    /// The mount namespaces that processes of this plugin serve in, as far as they are there.
    pub async fn mount_namespaces(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for member in self.pool.list() {
            let connected = timeout(PEER_WITHIN, UnixStream::connect(&member.socket)).await;
            let peer = connected.ok().and_then(|stream| stream.ok()?.peer_cred().ok()?.pid());
            let pid = peer.and_then(|pid| u32::try_from(pid).ok());
            found.extend(pid.and_then(|pid| read_mount_namespace(pid).ok().flatten()));
        }
        found
    }

    /// Capabilities of its node service. `None` until it has reported them.
    pub fn node(&self) -> Option<NodeCapabilities> {
        self.view().fingerprint?.node.map(|node| node.capabilities)
    }

    /// Capabilities of its controller service. `None` until it has reported them.
    pub fn controller(&self) -> Option<ControllerCapabilities> {
        self.pool.halves().controller.fingerprint?.controller
    }

    /// Stores the result of a probe and chooses again which instances are called.
    pub fn set_instance_view(&self, member: &PluginInstance, view: InstanceView) {
        member.set_view(view);
        self.pool.choose_instances();
    }

    /// Makes a call to the instance that is chosen now. The agent waits for the plugin's answer up
    /// to its own call timeout, even past the caller's deadline: otherwise the plugin's
    /// answer would be lost.
    pub async fn call<R: Unary>(&self, request: R) -> Result<R::Response, CallError> {
        self.call_within(request, self.call_timeout).await
    }

    /// As [`Self::call`], with a timeout of its own: for a call that changes nothing.
    pub async fn call_within<R: Unary>(
        &self,
        request: R,
        timeout: Duration,
    ) -> Result<R::Response, CallError> {
        let (started_at, started) = (clock::now(), Instant::now());
        self.calls.start_call(R::RPC, started_at);
        let in_flight = self.pool.start_call(R::RPC);
        if let (Rpc::NodeStageVolume | Rpc::NodePublishVolume, Some(volume)) =
            (R::RPC, request.volume_id())
        {
            self.pool.record_volume(&in_flight.member, volume).await;
        }
        let client = &in_flight.member.client;
        let volume = request.volume_id().map(str::to_owned).unwrap_or_default();
        let answer = match self.trace {
            Some(trace) => client.traced(trace).call(request, timeout).await,
            None => client.call(request, timeout).await,
        };
        self.follow_room(R::RPC, &volume, &answer);
        if let Err(CallError { failure: Failure::Unreachable { .. }, .. }) = &answer {
            in_flight.member.probe_requested.notify_one();
        }
        self.calls.finish_call(R::RPC, started_at, started.elapsed(), answer.as_ref().err());
        let is_late = matches!(&answer, Err(CallError { failure: Failure::Late { .. }, .. }));
        if is_late && R::RPC.effect() != Effect::Reads {
            sleep(CANCELLATION_ARRIVES_WITHIN).await;
        }
        answer
    }

    /// Stores what the plugin says of its storage, seen from this node.
    pub(super) fn record_storage(&self, troubles: Vec<StorageTrouble>) {
        self.pool.record_storage(troubles);
    }

    /// Whether calls of the node go to this instance.
    pub(super) fn mounts_by(&self, member: &PluginInstance) -> bool {
        self.pool.mounts_by(member)
    }

    /// The plugin has no room for a further volume on this node, as it answered to an attach.
    pub(crate) fn record_full(&self, volume: &str, why: &str) {
        self.pool.record_full(volume, why);
    }

    /// Forgets that the plugin had no room, once that is long ago.
    pub(crate) fn expire_full(&self) {
        self.pool.expire_full();
    }

    /// Learns from an answer whether the plugin has room on this node.
    fn follow_room<T>(&self, rpc: Rpc, volume: &str, answer: &Result<T, CallError>) {
        match (rpc, answer) {
            (Rpc::NodeStageVolume | Rpc::NodePublishVolume, Err(error))
                if error.code() == Some(Code::ResourceExhausted) =>
            {
                self.pool.record_full(volume, &error.failure.to_string());
            }
            (Rpc::NodeUnstageVolume | Rpc::NodeUnpublishVolume, Ok(_)) => self.pool.record_room(),
            _ => {}
        }
    }

    /// The same plugin, with a call log of its own and calls that are steps of this trace.
    #[must_use]
    pub fn with_trace(&self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), calls: PluginCallLog::default(), ..self.clone() }
    }

    /// The calls since [`Self::with_trace`].
    pub fn calls(&self) -> &PluginCallLog {
        &self.calls
    }
}

/// All plugins of this node, by id. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Plugins {
    all: Arc<RwLock<BTreeMap<PluginId, Plugin>>>,
    changes: watch::Sender<u64>,
    faults: Arc<Mutex<Vec<SourceFault>>>,
    call_timeout: Duration,
    events: Option<EventPublisher>,
}

impl Plugins {
    /// An empty set of plugins. A call to any of them ends after `call_timeout`.
    pub fn new(call_timeout: Duration, events: Option<EventPublisher>) -> Self {
        let (all, faults) = (Arc::default(), Arc::default());
        Self { all, changes: watch::Sender::new(0), faults, call_timeout, events }
    }

    /// Adds an instance. True if it is the first of its plugin.
    pub fn add_instance(&self, member: Arc<PluginInstance>) -> (Plugin, bool) {
        let id = member.declaration.id.clone();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(plugin) = all.get(&id) {
            plugin.pool.add_instance(member);
            return (plugin.clone(), false);
        }
        let pool = InstancePool::new(member, self.changes.clone(), self.events.clone());
        let (call_timeout, calls) = (self.call_timeout, PluginCallLog::default());
        let plugin = Plugin { id: id.clone(), pool, call_timeout, trace: None, calls };
        all.insert(id, plugin.clone());
        self.changes.send_modify(|count| *count += 1);
        (plugin, true)
    }

    /// Removes an instance. True if it was the last of its plugin.
    pub(crate) fn remove_instance(&self, member: &PluginInstance) -> bool {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let Some(plugin) = all.get(&member.declaration.id) else { return true };
        if !plugin.pool.remove_instance(&member.key) {
            return false;
        }
        all.remove(&member.declaration.id);
        self.changes.send_modify(|count| *count += 1);
        true
    }

    /// The plugin with this id.
    pub fn get(&self, id: &PluginId) -> Option<Plugin> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// All plugins, in the order of their ids.
    pub fn list(&self) -> Vec<Plugin> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Changes with everything that the agent reports to the registry.
    pub fn follow_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The plugins of which no probe has ended.
    pub fn list_unprobed(&self) -> BTreeSet<PluginId> {
        let plugins = self.list().into_iter();
        plugins.filter(|plugin| !plugin.is_probed()).map(|plugin| plugin.id).collect()
    }

    /// The faults of plugin files and records.
    pub fn faults(&self) -> Vec<SourceFault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the faults. False if they were the same before.
    pub(crate) fn set_faults(&self, new: &[SourceFault]) -> bool {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if *faults == new {
            return false;
        }
        *faults = new.to_vec();
        self.changes.send_modify(|count| *count += 1);
        true
    }
}
