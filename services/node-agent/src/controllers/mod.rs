//! The controllers that this agent hosts.
//!
//! **Owns** when this agent answers for a plugin's controller: only while the plugin's instance
//! here is healthy and has a controller service (E9). The bus spreads the calls over the agents
//! that answer. A caller learns from "no responders" that no controller is healthy. The agent also
//! answers at a subject of its own, for calls that must reach the controller of this node.
//!
//! **Promises** that an unhealthy controller gets no new call, and that the calls under way are
//! still answered.
//!
//! **Never** knows which volume is attached where: a call carries all that it needs.

mod answers;
mod confirm;
mod execute;
mod health;
mod provision;
mod query;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_bus::serve::ServeError;
use berth_bus::{Bus, Listen, Request, Service, ServiceSpec, VerbRequest};
use berth_contract::problem::Problem;
use berth_contract::role::Role;
use berth_contract::service::CONTROLLER;
use berth_contract::verb::{self, PluginOnNode, Verb};
use berth_domain::limits::WAIT_MAX;
use berth_domain::retry::Schedule;
use berth_domain::{NodeId, PluginId};
use berth_service::access_check::{AccessCheck, check_access};
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::executor::VolumeExecutor;
use crate::fleet::events::EventPublisher;
use crate::fleet::secret::SealingKey;
use crate::plugins::{InstanceView, Plugin};

pub use answers::CreationAnswers;
use execute::ControllerExecutor;
pub(crate) use execute::may_be_at_work;
pub(crate) use provision::{range, storage_problem};

/// Largest number of calls of one kind that are under way.
const MAX_IN_FLIGHT: u32 = 256;
/// Pauses between attempts to subscribe.
const RETRY: Schedule = Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };

/// The plugins whose controllers this agent serves now. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct HostedControllers {
    plugins: Arc<Mutex<BTreeSet<PluginId>>>,
}

impl HostedControllers {
    /// The plugins, by id.
    pub fn list(&self) -> Vec<PluginId> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn set_hosted(&self, plugin: &PluginId, hosted: bool) {
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        if hosted {
            plugins.insert(plugin.clone());
        } else {
            plugins.remove(plugin);
        }
    }
}

/// What the controllers on this node are served with.
#[derive(Debug, Clone)]
pub struct ControllerHosting {
    /// The bus.
    pub bus: Bus,
    /// The node.
    pub node: NodeId,
    /// One call at a time for each volume.
    pub executor: VolumeExecutor,
    /// The controllers that are served now.
    pub hosted: HostedControllers,
    /// Publishes the events of calls.
    pub events: EventPublisher,
    /// The key that secrets are sealed for.
    pub sealing: SealingKey,
    /// What each plugin answered for which name.
    pub answers: CreationAnswers,
    /// How long calls may go on after the shutdown.
    pub drain: Duration,
}

/// Serves a plugin's controller whenever it can be asked, until the shutdown.
pub async fn host(plugin: Plugin, hosting: ControllerHosting, shutdown: Shutdown) {
    let mut view = plugin.follow_controller();
    let mut ending = JoinSet::new();
    let mut tries = 0;
    loop {
        tokio::select! {
            able = becomes(&mut view, true) => if !able { break },
            () = shutdown.requested() => break,
        }
        let service = match serve(&plugin, &hosting).await {
            Ok(service) => service,
            Err(error) => {
                let why = berth_service::process::chain(&error);
                tracing::warn!(plugin = %plugin.id, why, "its controller cannot be served yet");
                tries += 1;
                tokio::select! {
                    () = sleep(RETRY.wait(tries, clock::jitter())) => continue,
                    () = shutdown.requested() => break,
                }
            }
        };
        tries = 0;
        hosting.hosted.set_hosted(&plugin.id, true);
        tracing::info!(plugin = %plugin.id, "its controller is served here");
        warn_of_missing_right(&plugin.id, &hosting);
        tokio::select! {
            _ = becomes(&mut view, false) => {}
            () = shutdown.requested() => {}
        }
        hosting.hosted.set_hosted(&plugin.id, false);
        tracing::info!(plugin = %plugin.id, "its controller is no longer served here");
        // What is under way may take long; the controller may be well again before it has ended.
        ending.spawn(service.stop(WAIT_MAX));
        while ending.try_join_next().is_some() {}
    }
    let ended = tokio::time::timeout(hosting.drain, ending.join_all()).await;
    if ended.is_err() {
        tracing::warn!(plugin = %plugin.id, "calls to its controller were still under way");
    }
}

/// Logs that nats-server delivers no calls to the controller, and what to do.
fn warn_of_missing_right(plugin: &PluginId, hosting: &ControllerHosting) {
    let role = Role::Node { node: hosting.node.clone(), controllers: vec![plugin.clone()] };
    let check = check_access(&role, hosting.bus.credentials());
    if let Ok(Some(AccessCheck { name, not_hosted, remedy, .. })) = check
        && !not_hosted.is_empty()
    {
        let (identity, next) = (name, remedy);
        tracing::warn!(%plugin, identity, next, "the identity may not host its controller");
    }
}

/// Waits until the controller can be called, or cannot. Returns false if the plugin is gone.
async fn becomes(view: &mut watch::Receiver<InstanceView>, able: bool) -> bool {
    view.wait_for(|view| view.serves_controller() == able).await.is_ok()
}

async fn serve(plugin: &Plugin, hosting: &ControllerHosting) -> Result<Service, ServeError> {
    let facts = [("plugin", plugin.id.as_str()), ("node", hosting.node.as_str())];
    let service = hosting
        .bus
        .service(ServiceSpec::describe(CONTROLLER, berth_version::current(), &facts))
        .await?;
    let executor = ControllerExecutor {
        plugin: plugin.clone(),
        node: hosting.node.clone(),
        executor: hosting.executor.clone(),
        bus: hosting.bus.clone(),
        events: hosting.events.clone(),
        sealing: hosting.sealing.clone(),
        answers: hosting.answers.clone(),
    };
    let on = ControllerEndpoints { service: &service, executor: &executor };
    let any = &plugin.id;
    let own = &PluginOnNode { plugin: plugin.id.clone(), node: hosting.node.clone() };
    on.verb::<verb::ControllerPublish, _, _>(any, ControllerExecutor::publish).await?;
    on.verb::<verb::ControllerPublishOnNode, _, _>(own, ControllerExecutor::publish).await?;
    on.verb::<verb::ControllerUnpublish, _, _>(any, ControllerExecutor::unpublish).await?;
    on.verb::<verb::ControllerUnpublishOnNode, _, _>(own, ControllerExecutor::unpublish).await?;
    on.verb::<verb::ControllerValidate, _, _>(any, ControllerExecutor::validate).await?;
    on.verb::<verb::ControllerValidateOnNode, _, _>(own, ControllerExecutor::validate).await?;
    on.verb::<verb::ControllerProvision, _, _>(any, ControllerExecutor::provision).await?;
    on.verb::<verb::ControllerProvisionOnNode, _, _>(own, ControllerExecutor::provision).await?;
    on.verb::<verb::ControllerQuery, _, _>(any, ControllerExecutor::query).await?;
    on.verb::<verb::ControllerQueryOnNode, _, _>(own, ControllerExecutor::query).await?;
    Ok(service)
}

struct ControllerEndpoints<'a> {
    service: &'a Service,
    executor: &'a ControllerExecutor,
}

impl ControllerEndpoints<'_> {
    async fn verb<V: Verb, F, H>(&self, to: &V::To, handler: H) -> Result<(), ServeError>
    where
        H: Fn(ControllerExecutor, V::Request, Request) -> F + Copy + Send + Sync + 'static,
        F: Future<Output = Result<V::Reply, Problem>> + Send + 'static,
    {
        let executor = self.executor.clone();
        let answer = move |request: VerbRequest<V>| {
            let executor = executor.clone();
            async move { handler(executor, request.message()?, request.into_inner()).await }
        };
        self.service.on(Listen::At(to), MAX_IN_FLIGHT, answer).await.map(drop)
    }
}
