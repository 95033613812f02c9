//! Monitoring as the services API defines it (NATS ADR-32): `$SRV.PING|INFO|STATS[.name[.id]]`.
//!
//! **Promises** to continue after an answer that could not be sent.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_nats::Message;
use futures_util::StreamExt as _;
use futures_util::stream::select_all;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::endpoint::RunningEndpoint;
use super::inbox::is_inbox;
use super::spec::{ServeError, ServiceSpec};
use super::subscription::listen;
use crate::connection::handle::Bus;

/// The state that monitoring requests are answered from.
#[derive(Debug)]
pub(super) struct ServiceState {
    pub(super) spec: ServiceSpec,
    pub(super) id: String,
    pub(super) started: String,
    pub(super) endpoints: Mutex<Vec<Arc<RunningEndpoint>>>,
    pub(super) facts: CurrentFacts,
}

/// Facts that change while the service runs, read for each answer.
#[derive(Default)]
pub(super) struct CurrentFacts(pub(super) OnceLock<Box<FactsOf>>);
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
    pub(super) fn endpoints(&self) -> Vec<Arc<RunningEndpoint>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The kinds of monitoring requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Ping,
    Info,
    Stats,
}

impl Verb {
    const ALL: [Self; 3] = [Self::Ping, Self::Info, Self::Stats];

    fn name(self) -> &'static str {
        match self {
            Self::Ping => "PING",
            Self::Info => "INFO",
            Self::Stats => "STATS",
        }
    }
}

pub(super) async fn start(
    bus: &Bus,
    state: &Arc<ServiceState>,
) -> Result<JoinHandle<()>, ServeError> {
    let name = &state.spec.name;
    let mut questions = Vec::new();
    for verb in Verb::ALL {
        let every_service = format!("$SRV.{}", verb.name());
        let this_service = format!("{every_service}.{name}");
        let this_instance = format!("{this_service}.{}", state.id);
        for subject in [every_service, this_service, this_instance] {
            let requests = listen(bus, name, &subject, None).await?;
            questions.push(requests.map(move |message| (verb, message)));
        }
    }
    let mut questions = select_all(questions);
    let (bus, state) = (bus.clone(), Arc::clone(state));
    Ok(tokio::spawn(async move {
        while let Some((verb, question)) = questions.next().await {
            let skew_ms = bus.clock_skew().newest_ms();
            let mut answer = state.describe(verb, skew_ms);
            if verb == Verb::Stats {
                answer["buckets"] = bus.standings().describe();
                answer["events"] = json!(bus.kept_events());
                answer["store_faults"] = json!(bus.fault_sources().list_store_faults());
            }
            if let Some(access) = bus.access().filter(|_| verb != Verb::Ping) {
                answer["access"] = json!(access);
            }
            reply(&bus, question, answer).await;
        }
    }))
}

async fn reply(bus: &Bus, question: Message, answer: Value) {
    let Some(reply) = question.reply.filter(|reply| is_inbox(reply)) else { return };
    let sent = bus.client().publish(reply, answer.to_string().into());
    if !matches!(timeout(bus.config().request_timeout, sent).await, Ok(Ok(()))) {
        tracing::debug!(subject = %question.subject, "a monitoring answer could not be sent");
    }
}

impl ServiceState {
    fn describe(&self, verb: Verb, skew_ms: Option<i64>) -> Value {
        let kind = verb.name().to_lowercase();
        let mut answer = json!({
            "type": format!("io.nats.micro.v1.{kind}_response"),
            "name": self.spec.name,
            "id": self.id,
            "version": self.spec.version,
            "metadata": self.spec.metadata,
        });
        if let Some(skew_ms) = skew_ms {
            answer["metadata"]["clock_skew_ms"] = skew_ms.to_string().into();
        }
        for (fact, value) in self.facts.read() {
            answer["metadata"][fact] = value.into();
        }
        if verb == Verb::Info {
            answer["description"] = self.spec.description.clone().into();
            answer["endpoints"] = self.endpoint_infos();
        }
        if verb == Verb::Stats {
            answer["started"] = self.started.clone().into();
            answer["endpoints"] = self.endpoint_stats();
        }
        answer
    }

    fn endpoint_infos(&self) -> Value {
        let info = |endpoint: &Arc<RunningEndpoint>| {
            let mut metadata = endpoint.spec.metadata.clone();
            metadata.insert("description".to_owned(), endpoint.spec.description.clone());
            json!({
                "name": endpoint.spec.name,
                "subject": endpoint.spec.subject,
                "queue_group": endpoint.queue_group,
                "metadata": metadata,
            })
        };
        self.endpoints().iter().map(info).collect()
    }

    fn endpoint_stats(&self) -> Value {
        let stats = |endpoint: &Arc<RunningEndpoint>| {
            let stats = endpoint.stats();
            let nanos = u64::try_from(stats.busy.as_nanos()).unwrap_or(u64::MAX);
            json!({
                "name": endpoint.spec.name,
                "subject": endpoint.spec.subject,
                "queue_group": endpoint.queue_group,
                "num_requests": stats.requests,
                "num_errors": stats.errors,
                "last_error": stats.last_error,
                "processing_time": nanos,
                "average_processing_time": nanos.checked_div(stats.requests).unwrap_or(0),
                "data": {
                    "in_flight": endpoint.places.working(),
                    "max_in_flight": endpoint.spec.max_in_flight,
                    "waiting": endpoint.places.waiting(),
                    "max_per_sender": endpoint.spec.max_per_sender,
                    "busiest": endpoint.places.busiest(),
                    "errors": stats.by_code,
                    "waits": stats.waits,
                    "last_error_at": stats.last_error_at,
                    "last_error_trace": stats.last_error_trace,
                },
            })
        };
        self.endpoints().iter().map(stats).collect()
    }
}
