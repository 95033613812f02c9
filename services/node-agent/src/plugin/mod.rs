//! The plugins on this node.
//!
//! **Owns** one connection per configured socket, what is known of who is behind it
//! ([`View`]), and the task that keeps that current ([`supervise`]).
//!
//! **Promises** that what a plugin can do is unknown until it has said so, and stays known while it
//! is away; that a socket which is not there, or is no plugin, is an unhealthy instance with the
//! reason in words; and that every call ends.
//!
//! **Never** decides which call to make.

mod instance;
mod made;
mod outcome;
mod supervise;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth_contract::event::PluginCall;
use berth_contract::message::registry::ReportedInstance;
use berth_contract::trace::TraceContext;
use berth_csi::advertised::{ControllerCapabilities, NodeCapabilities};
use berth_csi::rpc::Unary;
use berth_csi::{CallError, Client, Fingerprint};
use berth_domain::{PluginId, Timestamp};
use berth_service::clock;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::PluginConfig;

use made::Made;
pub use outcome::problem;
pub use supervise::{Supervision, supervise};

/// What is known of a plugin now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Whether it answered its last probe well.
    pub healthy: bool,
    /// In words.
    pub description: String,
    /// Since when it is healthy, or not.
    pub since: Timestamp,
    /// Who it is and what it can do, as it last said; none until it has.
    pub fingerprint: Option<Fingerprint>,
}

/// A plugin of this node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// Its id.
    pub id: PluginId,
    client: Client,
    patience: Duration,
    view: watch::Receiver<View>,
    made: Made,
}

impl Plugin {
    /// A plugin nobody has asked yet, and where what is learned of it is to be told.
    pub fn new(
        config: &PluginConfig,
        patience: Duration,
        now: Timestamp,
    ) -> (Self, watch::Sender<View>) {
        let unknown = View {
            healthy: false,
            description: "it has not been asked yet".to_owned(),
            since: now,
            fingerprint: None,
        };
        let (sender, view) = watch::channel(unknown);
        let client = Client::new(&config.socket);
        let made = Made::default();
        (Self { id: config.id.clone(), client, patience, view, made }, sender)
    }

    /// What is known of it now.
    pub fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// What is known of it, as it changes.
    pub fn follow(&self) -> watch::Receiver<View> {
        self.view.clone()
    }

    /// The instances it is reported as.
    pub fn instances(&self) -> Vec<ReportedInstance> {
        instance::report(&self.id, &self.view.borrow())
    }

    /// What its node service can do; none until it has said so.
    pub fn node(&self) -> Option<NodeCapabilities> {
        let view = self.view.borrow();
        view.fingerprint.as_ref()?.node.as_ref().map(|node| node.capabilities)
    }

    /// What its controller service can do; none until it has said so.
    pub fn controller(&self) -> Option<ControllerCapabilities> {
        self.view.borrow().fingerprint.as_ref()?.controller
    }

    /// Makes a call and waits for the answer for as long as the agent's patience lasts: the
    /// caller's deadline is not the plugin's, and an answer that is not waited for is one nobody
    /// knows of.
    pub async fn call<R: Unary>(&self, request: R) -> Result<R::Response, CallError> {
        let (at, began) = (clock::now(), Instant::now());
        let answer = self.client.call(request, self.patience).await;
        self.made.note(R::RPC, at, began.elapsed(), answer.as_ref().err());
        answer
    }

    /// The same plugin, for calls that are steps of this trace; they are noted apart.
    #[must_use]
    pub fn at_work(&self, trace: TraceContext) -> Self {
        Self { client: self.client.traced(trace), made: Made::default(), ..self.clone() }
    }

    /// The calls that were made of it since it was put [to work](Self::at_work).
    pub fn made(&self) -> Vec<PluginCall> {
        self.made.list()
    }
}

/// All plugins of this node, by id. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Plugins {
    all: Arc<BTreeMap<PluginId, Plugin>>,
}

impl Plugins {
    /// These.
    pub fn new(plugins: impl IntoIterator<Item = Plugin>) -> Self {
        let all = plugins.into_iter().map(|plugin| (plugin.id.clone(), plugin)).collect();
        Self { all: Arc::new(all) }
    }

    /// The one of this id.
    pub fn get(&self, id: &PluginId) -> Option<&Plugin> {
        self.all.get(id)
    }

    /// Each, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Plugin> {
        self.all.values()
    }
}

impl View {
    /// Whether its controller can be asked now: it is healthy, and serves one (E9).
    pub fn serves_controller(&self) -> bool {
        let fingerprint = self.fingerprint.as_ref().filter(|_| self.healthy);
        fingerprint.is_some_and(|known| known.controller.is_some())
    }
}
