//! The plugins on this node.
//!
//! **Owns** one connection per instance, what is known of the plugin behind it ([`InstanceView`]),
//! the task that keeps that current ([`supervise`]), and the record of each instance on disk.
//!
//! **Promises** that what a plugin can do is unknown until it has said so, and stays known while it
//! is away; that a socket which is not there, or is no plugin, is an unhealthy instance with the
//! reason in words; and that every call ends.
//!
//! **Never** decides which call to make, nor which instances there are ([`crate::roster`]).
//!
//! | | |
//! | --- | --- |
//! | [`declaration`] | one plugin, as the configuration or a file declares it |
//! | [`member`], [`supervise`], [`fold`] | one instance; whether it is well; which one is asked |
//! | [`process`] | the process of one that the agent runs |
//! | [`record`] | what is kept of an instance on disk |

pub mod declaration;
mod fold;
mod instance;
pub(crate) mod member;
mod outcome;
pub(crate) mod process;
pub mod record;
mod slot;
mod supervise;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use berth_contract::message::plugin::SourceFault;
use berth_contract::message::registry::ReportedInstance;
use berth_contract::trace::TraceContext;
use berth_csi::advertised::{ControllerCapabilities, NodeCapabilities};
use berth_csi::rpc::Unary;
use berth_csi::{CallError, Failure, Fingerprint, Rpc};
use berth_domain::{PluginId, Timestamp};
use berth_service::clock;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::call_log::PluginCallLog;
use crate::events::EventPublisher;

pub use member::PluginInstance;
pub use outcome::problem_from_call;
use slot::InstancePool;
pub use supervise::{ProbeTiming, supervise};

/// What is known of an instance, or of a plugin by the instance that is asked, now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceView {
    /// Whether it answered its last probe well.
    pub healthy: bool,
    /// In words.
    pub description: String,
    /// Since when it is healthy, or not.
    pub since: Timestamp,
    /// Who it is and what it can do, as it last said; none until it has.
    pub fingerprint: Option<Fingerprint>,
}

impl InstanceView {
    /// Whether its controller can be asked now: it is healthy, and serves one (E9).
    pub fn serves_controller(&self) -> bool {
        let fingerprint = self.fingerprint.as_ref().filter(|_| self.healthy);
        fingerprint.is_some_and(|known| known.controller.is_some())
    }
}

/// A plugin by the instances that calls of each half go to; mostly one and the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PluginHalves {
    controller: InstanceView,
    node: InstanceView,
}

/// A plugin of this node, whichever instance of it is asked. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// Its id.
    pub id: PluginId,
    pub(crate) slot: Arc<InstancePool>,
    patience: Duration,
    trace: Option<TraceContext>,
    calls: PluginCallLog,
}

impl Plugin {
    /// What is known of it now, as a plugin that mounts.
    pub fn view(&self) -> InstanceView {
        self.slot.halves().node
    }

    /// What is known of it, as a plugin that attaches, as it changes.
    pub fn follow_controller(&self) -> watch::Receiver<InstanceView> {
        self.slot.follow_controller()
    }

    /// The instances it is reported as.
    pub fn instances(&self) -> Vec<ReportedInstance> {
        instance::report_halves(&self.id, &self.slot.halves())
    }

    /// What its node service can do; none until it has said so.
    pub fn node(&self) -> Option<NodeCapabilities> {
        self.view().fingerprint?.node.map(|node| node.capabilities)
    }

    /// What its controller service can do; none until it has said so.
    pub fn controller(&self) -> Option<ControllerCapabilities> {
        self.slot.halves().controller.fingerprint?.controller
    }

    /// What is known of one of its instances now.
    pub fn set_instance_view(&self, member: &PluginInstance, view: InstanceView) {
        member.set_view(view);
        self.slot.choose_instances();
    }

    /// Makes a call and waits for the answer for as long as the agent's patience lasts: the
    /// caller's deadline is not the plugin's, and an answer that is not waited for is one nobody
    /// knows of. It is made of the instance that is to be asked now, and ends there.
    pub async fn call<R: Unary>(&self, request: R) -> Result<R::Response, CallError> {
        let (at, began) = (clock::now(), Instant::now());
        self.calls.start_call(R::RPC, at);
        let asked = self.slot.start_call(R::RPC);
        if let (Rpc::NodeStageVolume | Rpc::NodePublishVolume, Some(volume)) =
            (R::RPC, request.volume_id())
        {
            self.slot.attribute(&asked.member, volume).await;
        }
        let client = &asked.member.client;
        let answer = match self.trace {
            Some(trace) => client.traced(trace).call(request, self.patience).await,
            None => client.call(request, self.patience).await,
        };
        if let Err(CallError { failure: Failure::Unreachable { .. }, .. }) = &answer {
            asked.member.probe_requested.notify_one();
        }
        self.calls.finish_call(R::RPC, at, began.elapsed(), answer.as_ref().err());
        answer
    }

    /// The same plugin, for calls that are steps of this trace; they are noted apart.
    #[must_use]
    pub fn at_work(&self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), calls: PluginCallLog::default(), ..self.clone() }
    }

    /// The calls since it was put [to work](Self::at_work).
    pub fn calls(&self) -> &PluginCallLog {
        &self.calls
    }
}

/// All plugins of this node, by id; they come and go. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Plugins {
    all: Arc<RwLock<BTreeMap<PluginId, Plugin>>>,
    changes: watch::Sender<u64>,
    faults: Arc<Mutex<Vec<SourceFault>>>,
    patience: Duration,
    events: Option<EventPublisher>,
}

impl Plugins {
    /// None yet; each call is waited for as long as `patience` lasts.
    pub fn new(patience: Duration, events: Option<EventPublisher>) -> Self {
        let (all, faults) = (Arc::default(), Arc::default());
        Self { all, changes: watch::Sender::new(0), faults, patience, events }
    }

    /// Takes an instance in, and says whether its plugin is new here.
    pub fn add_instance(&self, member: Arc<PluginInstance>) -> (Plugin, bool) {
        let id = member.declaration.id.clone();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(plugin) = all.get(&id) {
            plugin.slot.add_instance(member);
            return (plugin.clone(), false);
        }
        let slot = InstancePool::new(member, self.changes.clone(), self.events.clone());
        let (patience, calls) = (self.patience, PluginCallLog::default());
        let plugin = Plugin { id: id.clone(), slot, patience, trace: None, calls };
        all.insert(id, plugin.clone());
        self.changes.send_modify(|count| *count += 1);
        (plugin, true)
    }

    /// Lets an instance go, and says whether it was the last of its plugin.
    pub(crate) fn remove_instance(&self, member: &PluginInstance) -> bool {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let Some(plugin) = all.get(&member.declaration.id) else { return true };
        if !plugin.slot.remove_instance(&member.key) {
            return false;
        }
        all.remove(&member.declaration.id);
        self.changes.send_modify(|count| *count += 1);
        true
    }

    /// The one of this id.
    pub fn get(&self, id: &PluginId) -> Option<Plugin> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Each, by id.
    pub fn list(&self) -> Vec<Plugin> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Changes whenever a report is worth sending.
    pub fn follow_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is wrong with where plugins come from.
    pub fn faults(&self) -> Vec<SourceFault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on this is wrong; false when it was before.
    pub(crate) fn set_faults(&self, now: &[SourceFault]) -> bool {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if *faults == now {
            return false;
        }
        *faults = now.to_vec();
        self.changes.send_modify(|count| *count += 1);
        true
    }
}
