//! Micro services: they answer requests on the bus, and `nats micro` shows them.
//!
//! **Owns** a service, its endpoints and their bounds. Each request is handled in a task of its
//! own: at most [`EndpointSpec::max_in_flight`] at once work, and as many wait. One sender has a
//! share of them. A request beyond that is answered "overloaded" at
//! once, and is not queued.
//!
//! **Promises** an answer to every request that arrives in time:
//! - If a handler panics or its result is too large, the caller gets a problem.
//! - No text of a problem can end an endpoint. (A line break in an error header ends an endpoint of
//!   the client library.)
//! - A request past its deadline is answered "late" and not begun (safety rule 8), unless the
//!   endpoint accepts [any clock](EndpointSpec::any_clock).
//! - A request whose handler outlasts the deadline is answered before the deadline with what blocks
//!   it. The handler runs to its end.
//!
//! [`Service::stop`] accepts no new request and lets the requests in progress finish. A request
//! that the server is sending at that very moment may get no answer: the client library forgets a
//! subscription before the server does ([nats.rs
//! 1325](https://github.com/nats-io/nats.rs/issues/1325)).
//!
//! **Never** handles a message without a reply subject, because no caller would learn its outcome,
//! or with one that is no inbox, because the reply would replace a record or be a request.
//! The message is counted. The client library's own service panics there ([nats.rs
//! 1511](https://github.com/nats-io/nats.rs/issues/1511)). Never ends because an answer could not
//! be sent, or because the connection was lost.

mod endpoint;
mod inbox;
mod monitor;
mod request;
mod spec;
mod subscription;
mod verb;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_contract::actor;
use berth_contract::problem::Problem;
use futures_util::future::join_all;
use rand::RngExt as _;
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::connection::handle::Bus;
use endpoint::RunningEndpoint;
use monitor::{CurrentFacts, ServiceState};
pub use request::Request;
pub use spec::{EndpointSpec, ServeError, ServiceSpec};
use spec::{check_name, instance_id, invalid, is_subject};
pub use verb::{Listen, VerbRequest};

/// A running service. Dropped without [`stop`](Self::stop), it ends at once.
#[derive(Debug)]
pub struct Service {
    bus: Bus,
    state: Arc<ServiceState>,
    monitor: JoinHandle<()>,
}

impl Bus {
    /// Starts a service without endpoints, which `nats micro ls` shows from now on.
    pub async fn service(&self, spec: ServiceSpec) -> Result<Service, ServeError> {
        check_name(&spec.name, "name", &spec.name)?;
        if crate::connection::version::Version::parse(&spec.version).is_none() {
            let rule = "write major.minor.patch";
            return Err(invalid(&spec.name, "version", &spec.version, rule));
        }
        let state = Arc::new(ServiceState {
            id: instance_id(&spec.metadata, rand::rng().random()),
            started: crate::clock::now().to_string(),
            endpoints: Mutex::default(),
            facts: CurrentFacts::default(),
            spec,
        });
        let monitor = monitor::start(self, &state).await?;
        Ok(Service { bus: self.clone(), state, monitor })
    }
}

impl Service {
    /// Answers requests on a subject, until the endpoint or the service is stopped. For a verb of
    /// Berth's use [`Service::on`].
    pub async fn endpoint<R, F>(
        &self,
        spec: EndpointSpec,
        handler: impl Fn(Request) -> F + Send + Sync + 'static,
    ) -> Result<Endpoint, ServeError>
    where
        F: Future<Output = Result<R, Problem>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        let service = &self.state.spec.name;
        check_name(service, "endpoint name", &spec.name)?;
        let subject = format!("{}.{}", spec.subject, actor::ANY);
        if !is_subject(&subject) {
            let rule = "write tokens between dots, and `*` for any one; the actor follows";
            return Err(invalid(service, "subject", &spec.subject, rule));
        }
        let spec = EndpointSpec { subject, ..spec };
        let running = endpoint::start(&self.bus, service, spec, handler).await?;
        let mut endpoints = self.state.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.push(Arc::clone(&running));
        drop(endpoints);
        Ok(Endpoint { state: Arc::clone(&self.state), running })
    }

    /// Adds facts that change while the service runs to the metadata. Only the first call has an
    /// effect.
    pub fn tell_facts(
        &self,
        facts: impl Fn() -> Vec<(&'static str, String)> + Send + Sync + 'static,
    ) {
        let _ = self.state.facts.0.set(Box::new(facts));
    }

    /// How many requests are in progress.
    pub fn in_flight(&self) -> usize {
        self.state.endpoints().iter().map(|endpoint| endpoint.in_flight()).sum()
    }

    /// Accepts no new request and waits until the requests in progress are answered. False if some
    /// were not answered by the deadline; those are given up.
    pub async fn stop(self, within: Duration) -> bool {
        let endpoints = self.state.endpoints();
        let stopped = join_all(endpoints.iter().map(|endpoint| endpoint.stop(within))).await;
        stopped.into_iter().all(|stopped| stopped)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.monitor.abort();
        for endpoint in self.state.endpoints() {
            endpoint.abort();
        }
    }
}

/// A handle to one endpoint, for endpoints that come and go while the service runs. If it is
/// dropped, the endpoint continues.
#[derive(Debug)]
pub struct Endpoint {
    state: Arc<ServiceState>,
    running: Arc<RunningEndpoint>,
}

impl Endpoint {
    /// Accepts no new request and waits until the requests in progress are answered. False if some
    /// were not answered by the deadline; those are given up.
    pub async fn stop(self, within: Duration) -> bool {
        let stopped = self.running.stop(within).await;
        let mut endpoints = self.state.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|endpoint| !Arc::ptr_eq(endpoint, &self.running));
        stopped
    }
}
