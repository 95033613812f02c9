//! The controllers that this agent hosts.
//!
//! **Owns** when this agent answers for a plugin's controller: only while its instance here is
//! healthy and has a controller service (E9). The bus spreads the calls over the agents that
//! answer, and "no responders" is how a caller learns that no controller is healthy. Beside that it
//! answers at a subject of its own, for calls that have to get to the controller of this node.
//!
//! **Promises** that an unhealthy controller takes nothing new at once, and that what it has taken
//! is still answered.
//!
//! **Never** knows which volume is attached where: a call carries all that it needs.

mod confirm;
mod execute;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_bus::serve::ServeError;
use berth_bus::{Bus, Listen, Request, Service, ServiceSpec, VerbRequest};
use berth_contract::problem::Problem;
use berth_contract::service::CONTROLLER;
use berth_contract::verb::{self, PluginOnNode, Verb};
use berth_domain::limits::WAIT_MAX;
use berth_domain::retry::Schedule;
use berth_domain::{NodeId, PluginId};
use berth_service::clock;
use berth_service::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::lane::Lanes;
use crate::plugin::{Plugin, View};
use crate::tell::Teller;

use execute::Executor;
pub(crate) use execute::may_be_at_work;

/// Calls of one kind under way at once.
const MAX_IN_FLIGHT: u32 = 256;
/// How soon, and how often, it is tried again when the bus does not take a subscription.
const AGAIN: Schedule = Schedule { first: Duration::from_millis(100), max: Duration::from_secs(2) };

/// Which controllers are served now. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Hosted {
    plugins: Arc<Mutex<BTreeSet<PluginId>>>,
}

impl Hosted {
    /// The plugins, by id.
    pub fn list(&self) -> Vec<PluginId> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn set(&self, plugin: &PluginId, hosted: bool) {
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        if hosted {
            plugins.insert(plugin.clone());
        } else {
            plugins.remove(plugin);
        }
    }
}

/// What hosting a controller takes.
#[derive(Debug, Clone)]
pub struct Hosting {
    /// The bus.
    pub bus: Bus,
    /// The node.
    pub node: NodeId,
    /// One call at a time for each volume.
    pub lanes: Lanes,
    /// Where it is noted what is hosted.
    pub hosted: Hosted,
    /// Who is told.
    pub tell: Teller,
    /// How long what is under way may go on after the shutdown.
    pub drain: Duration,
}

/// Serves a plugin's controller whenever it can be asked, until the shutdown.
pub async fn host(plugin: Plugin, hosting: Hosting, shutdown: Shutdown) {
    let mut view = plugin.follow();
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
                    () = sleep(AGAIN.wait(tries, clock::jitter())) => continue,
                    () = shutdown.requested() => break,
                }
            }
        };
        tries = 0;
        hosting.hosted.set(&plugin.id, true);
        tracing::info!(plugin = %plugin.id, "its controller is served here");
        tokio::select! {
            _ = becomes(&mut view, false) => {}
            () = shutdown.requested() => {}
        }
        hosting.hosted.set(&plugin.id, false);
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

/// Waits until the controller can, or can no longer, be asked; false when nobody watches any more.
async fn becomes(view: &mut watch::Receiver<View>, able: bool) -> bool {
    view.wait_for(|view| view.serves_controller() == able).await.is_ok()
}

async fn serve(plugin: &Plugin, hosting: &Hosting) -> Result<Service, ServeError> {
    let facts = [("plugin", plugin.id.as_str()), ("node", hosting.node.as_str())];
    let service =
        hosting.bus.service(ServiceSpec::of(CONTROLLER, env!("CARGO_PKG_VERSION"), &facts)).await?;
    let executor = Executor {
        plugin: plugin.clone(),
        node: hosting.node.clone(),
        lanes: hosting.lanes.clone(),
        bus: hosting.bus.clone(),
        tell: hosting.tell.clone(),
    };
    let on = Endpoints { service: &service, executor: &executor };
    let any = &plugin.id;
    let own = &PluginOnNode { plugin: plugin.id.clone(), node: hosting.node.clone() };
    on.verb::<verb::ControllerPublish, _>(any, Executor::publish).await?;
    on.verb::<verb::ControllerPublishOnNode, _>(own, Executor::publish).await?;
    on.verb::<verb::ControllerUnpublish, _>(any, Executor::unpublish).await?;
    on.verb::<verb::ControllerUnpublishOnNode, _>(own, Executor::unpublish).await?;
    on.verb::<verb::ControllerValidate, _>(any, Executor::validate).await?;
    on.verb::<verb::ControllerValidateOnNode, _>(own, Executor::validate).await?;
    Ok(service)
}

struct Endpoints<'a> {
    service: &'a Service,
    executor: &'a Executor,
}

impl Endpoints<'_> {
    async fn verb<V: Verb, F>(
        &self,
        to: &V::To,
        handler: impl Fn(Executor, V::Request, Request) -> F + Copy + Send + Sync + 'static,
    ) -> Result<(), ServeError>
    where
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
