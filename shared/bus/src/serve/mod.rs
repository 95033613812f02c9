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
mod verb;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use berth_contract::actor::{self, Actor};
use berth_contract::decode::{self, Decode, Fault, Unknown};
use berth_contract::level;
use berth_contract::problem::Problem;
use berth_contract::service::ServiceName;
use berth_contract::trace::TraceContext;
use bytes::Bytes;
use futures_util::future::join_all;
use rand::RngExt as _;
use serde::Serialize;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::cause::Cause;
use crate::handle::Bus;
use endpoint::RunningEndpoint;
pub use verb::{Listen, VerbRequest};

/// The metadata fields that an instance's id begins with.
const ID_FACTS: [&str; 3] = ["node", "plugin", "worker"];
/// Most characters of each field in the id; the metadata has the whole value.
const ID_FACT_CHARS_MAX: usize = 40;

/// A service as `nats micro info` shows it.
#[derive(Debug, Clone, Default)]
pub struct ServiceSpec {
    /// The name, `[A-Za-z0-9_-]+`.
    pub name: String,
    /// The version, `major.minor.patch`.
    pub version: String,
    /// What it does, in a line.
    pub description: String,
    /// Facts for people: host, build.
    pub metadata: BTreeMap<String, String>,
}

/// An endpoint as `nats micro info` shows it.
#[derive(Debug, Clone, Default)]
pub struct EndpointSpec {
    /// The name, `[A-Za-z0-9_-]+`; short, because operators type it (`nats micro req`).
    pub name: String,
    /// The subject that it answers, without the actor at its end; may contain `*`.
    pub subject: String,
    /// What it does, in a line.
    pub description: String,
    /// Facts for people: the shape of the request and of the reply.
    pub metadata: BTreeMap<String, String>,
    /// The queue group: one member of the group gets each request. `q` if none is named.
    pub queue_group: Option<String>,
    /// Most requests that work at once; at least 1. As many more may wait
    /// ([`caller::wait_aside`](crate::caller::wait_aside)).
    pub max_in_flight: u32,
    /// Most requests of one sender in progress at once. Berth's own services have no such bound.
    /// None: nobody has.
    pub max_per_sender: Option<u32>,
    /// Whether a request is handled even past its deadline or without one. For requests that must
    /// also be handled from a host whose clock is wrong, and that do no harm when late.
    pub any_clock: bool,
    /// What becomes of a request's field that this version does not know.
    pub unknown: Unknown,
}

impl ServiceSpec {
    /// One of Berth's services; `facts` describe this process alone.
    pub fn describe(service: ServiceName, version: &str, facts: &[(&str, &str)]) -> Self {
        let facts = facts.iter().map(|(fact, value)| ((*fact).to_owned(), (*value).to_owned()));
        Self {
            name: service.name.to_owned(),
            version: version.to_owned(),
            description: service.description.to_owned(),
            metadata: service
                .metadata()
                .into_iter()
                .chain(level::facts_of(service))
                .chain(facts)
                .collect(),
        }
    }
}

/// Why a service or endpoint cannot be started.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A name, version or subject that tools would not take.
    #[error("service {service}: {what} {given:?} is not valid; {rule}")]
    Name {
        /// The service.
        service: String,
        /// Which name, version or subject is not valid.
        what: &'static str,
        /// The value.
        given: String,
        /// What a valid value looks like.
        rule: &'static str,
    },
    /// The bus does not accept the subscription now.
    #[error("service {service} cannot listen at {subject} now")]
    Unavailable {
        /// The service.
        service: String,
        /// The subject.
        subject: String,
        /// Why.
        #[source]
        source: Cause,
    },
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The subject on which it arrived, without the actor at its end.
    pub subject: String,
    /// Who sent it; none if the subject does not say so.
    pub actor: Option<Actor>,
    /// Its body.
    pub body: Bytes,
    /// The trace that it belongs to; a new one if it carried none.
    pub trace: TraceContext,
    /// When it must be answered: shortly before its caller stops waiting. A request without a
    /// deadline has five seconds from its arrival.
    pub deadline: Instant,
    /// Whether the deadline that its caller set had passed when it came. Only an endpoint that
    /// accepts [any clock](EndpointSpec::any_clock) gets such a request.
    pub is_late: bool,
    /// The version of the contract that its caller speaks, if it says so.
    pub contract: Option<u32>,
    /// What becomes of a field that this version does not know.
    pub unknown: Unknown,
}

impl Request {
    /// The body as a message, or a problem that names every fault.
    pub fn decode<T: Decode>(&self, step: &str) -> Result<T, Problem> {
        decode::message(&self.body, self.unknown).map_err(|faults| self.bad_input(step, faults))
    }

    /// The problem of a body with these faults.
    pub fn bad_input(&self, step: &str, faults: Vec<Fault>) -> Problem {
        Problem::bad_input_of(self.contract, step, faults).trace(self.trace.trace_id())
    }

    /// The token at `place` (from 0) of the subject.
    pub fn token(&self, place: usize) -> Option<&str> {
        self.subject.split('.').nth(place)
    }

    /// How long the caller still waits.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// A running service. Dropped without [`stop`](Self::stop), it ends at once.
#[derive(Debug)]
pub struct Service {
    bus: Bus,
    state: Arc<ServiceState>,
    monitor: JoinHandle<()>,
}

/// The state that monitoring requests are answered from.
#[derive(Debug)]
struct ServiceState {
    spec: ServiceSpec,
    id: String,
    started: String,
    endpoints: Mutex<Vec<Arc<RunningEndpoint>>>,
    facts: CurrentFacts,
}

/// Facts that change while the service runs, read for each answer.
#[derive(Default)]
struct CurrentFacts(OnceLock<Box<FactsOf>>);
type FactsOf = dyn Fn() -> Vec<(&'static str, String)> + Send + Sync;

impl CurrentFacts {
    fn read(&self) -> Vec<(&'static str, String)> {
        self.0.get().map(|facts| facts()).unwrap_or_default()
    }
}

impl fmt::Debug for CurrentFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CurrentFacts").finish_non_exhaustive()
    }
}

impl ServiceState {
    fn endpoints(&self) -> Vec<Arc<RunningEndpoint>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Bus {
    /// Starts a service without endpoints, which `nats micro ls` shows from now on.
    pub async fn service(&self, spec: ServiceSpec) -> Result<Service, ServeError> {
        check_name(&spec.name, "name", &spec.name)?;
        if crate::version::Version::parse(&spec.version).is_none() {
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

    /// Adds facts to the metadata that change while the service runs. The first call counts.
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

/// The id of a service's instance in `nats micro ls`: the fields of [`ID_FACTS`] that its metadata
/// has, and a random part. It is a token of a subject (`$SRV.INFO.<name>.<id>`), so characters that
/// a name does not allow become `_`.
fn instance_id(metadata: &BTreeMap<String, String>, random: u32) -> String {
    let plain = |fact: &String| -> String {
        let letters = fact.chars().take(ID_FACT_CHARS_MAX);
        letters.map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
    };
    let facts = ID_FACTS.iter().filter_map(|fact| metadata.get(*fact).map(plain));
    facts.chain([format!("{random:08x}")]).collect::<Vec<_>>().join("-")
}

/// Refuses a name that NATS tools do not accept.
fn check_name(service: &str, what: &'static str, name: &str) -> Result<(), ServeError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(invalid(service, what, name, "use letters, digits, - and _"))
}

fn invalid(service: &str, what: &'static str, given: &str, rule: &'static str) -> ServeError {
    ServeError::Name { service: service.to_owned(), what, given: given.to_owned(), rule }
}

fn is_subject(subject: &str) -> bool {
    let tokens: Vec<&str> = subject.split('.').collect();
    let last = tokens.len() - 1;
    tokens.iter().enumerate().all(|(at, token)| {
        !token.is_empty()
            && !token.contains(|c: char| c.is_whitespace() || c.is_control())
            && (*token != ">" || at == last)
    })
}

/// Subscribes, for as long as one exchange may take.
async fn listen(
    bus: &Bus,
    service: &str,
    subject: &str,
    queue_group: Option<&str>,
) -> Result<async_nats::Subscriber, ServeError> {
    let client = bus.client();
    let asked = timeout(bus.config().request_timeout, async {
        match queue_group {
            Some(group) => client.queue_subscribe(subject.to_owned(), group.to_owned()).await,
            None => client.subscribe(subject.to_owned()).await,
        }
    });
    let source = match asked.await {
        Ok(Ok(subscriber)) => return Ok(subscriber),
        Ok(Err(error)) => Cause::new(error),
        Err(_) => Cause::new("the client's queue is full"),
    };
    Err(ServeError::Unavailable {
        service: service.to_owned(),
        subject: subject.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_known_by_its_node_and_plugin() {
        let id = |facts: &[(&str, &str)]| {
            let facts = facts.iter().map(|(fact, of)| ((*fact).to_owned(), (*of).to_owned()));
            instance_id(&facts.collect(), 0x1f)
        };
        assert_eq!(id(&[("plugin", "dev.berth"), ("node", "n2")]), "n2-dev_berth-0000001f");
        assert_eq!(id(&[("worker", "claim/vm/13031")]), "claim_vm_13031-0000001f");
        assert_eq!(id(&[]), "0000001f");
        let odd = id(&[("node", &format!("a b.*>\u{e9}{}", "x".repeat(300)))]);
        assert!(is_subject(&format!("$SRV.INFO.s.{odd}")) && odd.len() < 64, "{odd}");
        assert!(odd.starts_with("a_b____x"), "{odd}");
    }

    #[test]
    fn names_and_subjects_are_what_tools_take() {
        for name in ["claim", "plugin-registry", "a_1"] {
            assert!(check_name("s", "name", name).is_ok(), "{name}");
        }
        for name in ["", "a.b", "a b", "é", "a\r\n"] {
            assert!(check_name("s", "name", name).is_err(), "{name:?}");
        }
        for subject in ["a", "berth.v1.claim.take.*", "a.>", "a.b=2Ec"] {
            assert!(is_subject(subject), "{subject}");
        }
        for subject in ["", "a.", "a..b", "a b", "a.>.b", "a\r\nb"] {
            assert!(!is_subject(subject), "{subject:?}");
        }
    }
}
