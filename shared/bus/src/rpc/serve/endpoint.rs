//! One endpoint: its subscription, its requests in progress, and their answers.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{HeaderMap, Message, PublishErrorKind, Subscriber};
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::header;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_domain::{Timestamp, limits};
use berth_telemetry::metric::{
    ENDPOINTS, Label, REQUESTS_SERVED, REQUESTS_SERVED_DURATION, SERVICES,
};
use berth_telemetry::{Kind, Span, attribute};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::inbox::is_inbox;
use super::request::Request;
use super::spec::{EndpointSpec, ServeError};
use super::subscription::listen;
use crate::clock::now;
use crate::connection::handle::Bus;
use crate::connection::headers;
use crate::rpc::caller::Caller;
use crate::rpc::places::{RequestPlace, RequestPlaces};
use crate::rpc::request::Failure;
use crate::rpc::span;

/// How long before the caller's deadline a handler must end, so that the answer arrives in time.
const MARGIN_MAX: Duration = Duration::from_millis(100);

/// The queue group of the services API if the endpoint names none.
const QUEUE_GROUP: &str = "q";

/// What `nats micro stats` shows of an endpoint.
#[derive(Debug, Clone, Default)]
pub(super) struct EndpointStats {
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) last_error: String,
    /// When the last error happened, and in which trace.
    pub(super) last_error_at: Option<Timestamp>,
    pub(super) last_error_trace: Option<String>,
    /// How many requests were answered with which error.
    pub(super) by_code: BTreeMap<Code, u64>,
    /// How many requests were answered "wait", by code. They are not errors.
    pub(super) waits: BTreeMap<Code, u64>,
    pub(super) busy: Duration,
}

#[derive(Debug)]
pub(super) struct RunningEndpoint {
    pub(super) spec: EndpointSpec,
    pub(super) queue_group: String,
    /// The service's name in spans and metrics.
    service: String,
    labels: [Label; 2],
    stats: Mutex<EndpointStats>,
    pub(super) places: Arc<RequestPlaces>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

pub(super) async fn start<R, F>(
    bus: &Bus,
    service: &str,
    spec: EndpointSpec,
    handler: impl Fn(Request) -> F + Send + Sync + 'static,
) -> Result<Arc<RunningEndpoint>, ServeError>
where
    F: Future<Output = Result<R, Problem>> + Send + 'static,
    R: Serialize + Send + 'static,
{
    let queue_group = spec.queue_group.clone().unwrap_or_else(|| QUEUE_GROUP.to_owned());
    let requests = listen(bus, service, &spec.subject, Some(&queue_group)).await?;
    let places = RequestPlaces::new(spec.max_in_flight.max(1), spec.max_per_sender);
    let running = Arc::new(RunningEndpoint {
        service: service.to_owned(),
        labels: [SERVICES.label(service), ENDPOINTS.label(&spec.name)],
        spec,
        queue_group,
        stats: Mutex::default(),
        places,
        stop: CancellationToken::new(),
        task: Mutex::default(),
    });
    let serving = serve(bus.clone(), Arc::clone(&running), requests, Arc::new(handler));
    *running.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(tokio::spawn(serving));
    Ok(running)
}

async fn serve<R, F, H>(
    bus: Bus,
    running: Arc<RunningEndpoint>,
    mut requests: Subscriber,
    handler: Arc<H>,
) where
    H: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, Problem>> + Send + 'static,
    R: Serialize + Send + 'static,
{
    let mut drained = false;
    loop {
        let message = tokio::select! {
            message = requests.next() => message,
            () = running.stop.cancelled(), if !drained => None,
        };
        if !drained && running.stop.is_cancelled() {
            drained = true;
            // Messages that the server has sent already still arrive; then the subscription ends.
            let draining = timeout(bus.config().request_timeout, requests.drain()).await;
            if !matches!(draining, Ok(Ok(()))) {
                return;
            }
            if message.is_none() {
                continue;
            }
        }
        let Some(message) = message else { return };
        if !message.reply.as_deref().is_some_and(is_inbox) {
            running.record_outcome(Err(&no_caller()), Duration::ZERO);
            continue;
        }
        let actor = Actor::split(&message.subject).1;
        let answering = RequestAnswer { bus: bus.clone(), running: Arc::clone(&running), message };
        match running.places.enter(actor.as_ref()) {
            Ok(place) => {
                let handler = Arc::clone(&handler);
                tokio::spawn(async move { answering.handle(&*handler, Arc::new(place)).await });
            }
            Err(full) => {
                let mut span = answering.span();
                span::record_refusal(&mut span, full.code.as_str(), full.code.is_wait());
                let trace = span.context();
                let full = full.trace(trace.trace_id());
                answering.answer(Err(full), Duration::ZERO, trace).await;
            }
        }
    }
}

/// The problem of a message without an inbox for the reply: no caller would learn its outcome.
fn no_caller() -> Problem {
    Problem::new(Code::BadInput, "the message's reply subject is no inbox, so it is not handled")
}

impl RunningEndpoint {
    pub(super) fn stats(&self) -> EndpointStats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests are in progress, at work and waiting.
    pub(super) fn in_flight(&self) -> usize {
        self.places.working() + self.places.waiting()
    }

    /// Ends the subscription, then waits for the requests in progress; false if that takes longer
    /// than `within`.
    pub(super) async fn stop(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        self.stop.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && timeout_at(deadline, &mut task).await.is_err()
        {
            task.abort();
        }
        self.places.drain(deadline).await
    }

    pub(super) fn abort(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    fn record_outcome(&self, outcome: Result<(), &Problem>, busy: Duration) {
        let [service, endpoint] = self.labels.clone();
        let code = outcome.map_or_else(|problem| problem.code.as_str(), |()| "ok");
        REQUESTS_SERVED.add(1, [service, endpoint, code.into()]);
        REQUESTS_SERVED_DURATION.record(busy, self.labels.clone());
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.requests += 1;
        stats.busy += busy;
        if let Err(problem) = outcome {
            if problem.code.is_wait() {
                *stats.waits.entry(problem.code).or_default() += 1;
                return;
            }
            stats.errors += 1;
            stats.last_error =
                format!("{}:{}", problem.code, headers::one_line(&problem.to_string()));
            stats.last_error_at = Some(now());
            stats.last_error_trace.clone_from(&problem.trace);
            *stats.by_code.entry(problem.code).or_default() += 1;
        }
    }
}

/// Names both clocks: if they differ by far more than a request takes, one of them is wrong.
fn late_message(headers: &HeaderMap, now: Timestamp) -> String {
    let deadline = headers::number(headers, header::DEADLINE).map(Timestamp::from_unix_ms);
    deadline.map_or_else(String::new, |deadline| {
        format!(
            "the request came after its deadline: its caller's clock set {deadline}, and the \
             clock here says {now}"
        )
    })
}

/// One request on its way to an answer.
struct RequestAnswer {
    bus: Bus,
    running: Arc<RunningEndpoint>,
    message: Message,
}

impl RequestAnswer {
    async fn handle<R, F>(self, handler: &impl Fn(Request) -> F, place: Arc<RequestPlace>)
    where
        F: Future<Output = Result<R, Problem>>,
        R: Serialize,
    {
        let began = Instant::now();
        let span = self.span();
        let trace = span.context();
        // The records in memory may be gone from the bucket, so nothing is answered from them.
        let step = self.running.spec.name.replace('-', ".");
        let lost = self.bus.losses().any();
        let lost = lost.map(|loss| loss.problem().at_step(step).trace(trace.trace_id()));
        let request = lost.map_or_else(|| self.request(trace), Err);
        let (request, answer_by) = match request {
            Ok(request) => request,
            Err(problem) => return self.end(span, Err(problem), began).await,
        };
        let (id, caller) =
            (request.trace.trace_id(), Caller::new(request.deadline, Arc::clone(&place)));
        // A panic is answered too: the caller must not wait until its deadline.
        let work = AssertUnwindSafe(async { handler(request).await }).catch_unwind();
        let mut work = pin!(caller.run(work));
        let Ok(worked) = timeout_at(answer_by, &mut work).await else {
            let problem = self.unfinished(caller.blocker()).trace(id);
            self.end(span, Err(problem), began).await;
            // The handler runs to its end: dropped in the middle, it could leave a flow half done.
            // It keeps its place, so that the number of running handlers stays bounded.
            drop(work.await);
            return;
        };
        let outcome = match worked {
            Ok(Ok(result)) => serde_json::to_vec(&result).map(Bytes::from).map_err(|error| {
                Problem::new(Code::Internal, format!("the answer is no JSON: {error}"))
            }),
            Ok(Err(problem)) => Err(problem),
            Err(_) => {
                let endpoint = &self.running.spec.name;
                tracing::error!(endpoint, trace = id, "a handler panicked");
                Err(Problem::new(Code::Internal, format!("{endpoint} panicked")))
            }
        };
        self.end(span, outcome.map_err(|problem| problem.trace(id)), began).await;
        drop(place);
    }

    /// The answer to a caller whose deadline comes before the handler has ended. The request may be
    /// done now, or later.
    fn unfinished(&self, blocker: Option<String>) -> Problem {
        let step = self.running.spec.name.replace('-', ".");
        let reason = blocker
            .unwrap_or_else(|| "the request takes longer than its deadline allows".to_owned());
        let message = format!("{reason}; the service continues with the request, so retry");
        Problem::new(Code::NoAnswer, message).retryable().at_step(step)
    }

    /// Answers, and records the outcome in the span and metrics.
    async fn end(&self, mut span: Span, outcome: Result<Bytes, Problem>, began: Instant) {
        let trace = span.context();
        if let Err(problem) = &outcome {
            span::record_refusal(&mut span, problem.code.as_str(), problem.code.is_wait());
            if problem.code == Code::NotAllowed {
                // The last tokens of the subject name the sender. An honest sender does not send
                // such a request.
                let subject = self.message.subject.as_str();
                tracing::warn!(subject, trace = trace.trace_id(), %problem, "refused: not allowed");
            }
        }
        // The span ends before the answer is sent, because the receiver may look for it.
        span.end();
        self.answer(outcome, began.elapsed(), trace).await;
    }

    /// The request's span: a child of the caller's span, or the root of a new trace.
    fn span(&self) -> Span {
        let traced = self.message.headers.as_ref();
        let parent = traced
            .and_then(|headers| headers::get(headers, header::TRACEPARENT))
            .and_then(TraceContext::parse)
            .unwrap_or_else(|| TraceContext::begin(&mut rand::rng()));
        let (service, endpoint) = (&self.running.service, &self.running.spec.name);
        let span = Span::child_of(parent, format_args!("{service} {endpoint}"), Kind::Server)
            .with(attribute::MESSAGING_OPERATION, "answer")
            .with(attribute::MESSAGING_OPERATION_TYPE, "process")
            .with(attribute::MESSAGING_BODY_SIZE, self.message.payload.len());
        span::with_subject(span, self.message.subject.as_str())
    }

    /// The request, and the time at which it is answered although its handler still runs. Fails if
    /// the request comes too late.
    fn request(&self, trace: TraceContext) -> Result<(Request, Instant), Problem> {
        let empty = HeaderMap::new();
        let headers = self.message.headers.as_ref().unwrap_or(&empty);
        let now = now();
        let within = match headers::get(headers, header::DEADLINE) {
            // An operator with the NATS CLI sets no deadline.
            None => limits::REQUEST_TIMEOUT,
            Some(given) => {
                let deadline = given.parse().map(Timestamp::from_unix_ms).map_err(|_| {
                    let message = format!("the header {} is no number", header::DEADLINE);
                    Problem::new(Code::BadInput, message).trace(trace.trace_id())
                })?;
                deadline.since(now).min(limits::WAIT_MAX)
            }
        };
        let is_late = within.is_zero();
        let within =
            if is_late && self.running.spec.any_clock { limits::REQUEST_TIMEOUT } else { within };
        if within.is_zero() {
            let problem = Problem::new(Code::Late, late_message(headers, now));
            return Err(problem.retryable().trace(trace.trace_id()));
        }
        let (deadline, margin) = (Instant::now() + within, (within / 10).min(MARGIN_MAX));
        let (asked, actor) = Actor::split(&self.message.subject);
        let request = Request {
            subject: asked.to_owned(),
            actor,
            body: self.message.payload.clone(),
            trace,
            deadline: deadline - margin,
            is_late,
            contract: headers::number(headers, header::CONTRACT)
                .and_then(|version| u32::try_from(version).ok()),
            unknown: self.running.spec.unknown,
        };
        Ok((request, deadline - margin / 2))
    }

    async fn answer(&self, outcome: Result<Bytes, Problem>, busy: Duration, trace: TraceContext) {
        self.running.record_outcome(outcome.as_ref().map(|_| ()), busy);
        let sent = match outcome {
            Ok(body) => {
                let bytes = body.len();
                let sent = self.send(HeaderMap::new(), body).await;
                if sent == Err(PublishErrorKind::MaxPayloadExceeded) {
                    let message =
                        format!("the answer has {bytes} bytes, more than the bus carries");
                    let problem = Problem::new(Code::Internal, message);
                    self.send_problem(&problem.next("request less at once")).await
                } else {
                    sent
                }
            }
            Err(problem) => match self.send_problem(&problem).await {
                Err(PublishErrorKind::MaxPayloadExceeded) => {
                    self.send_problem(&problem.shortened()).await
                }
                sent => sent,
            },
        };
        if let Err(kind) = sent {
            let endpoint = &self.running.spec.name;
            let trace = trace.trace_id();
            tracing::warn!(endpoint, trace, %kind, "an answer could not be sent");
        }
    }

    async fn send_problem(&self, problem: &Problem) -> Result<(), PublishErrorKind> {
        let mut headers = HeaderMap::new();
        headers::set(&mut headers, headers::SERVICE_ERROR, &problem.message);
        headers::set(&mut headers, headers::SERVICE_ERROR_CODE, problem.code);
        let body = serde_json::to_vec(&Failure { error: problem.clone() }).unwrap_or_default();
        self.send(headers, body.into()).await
    }

    async fn send(&self, headers: HeaderMap, body: Bytes) -> Result<(), PublishErrorKind> {
        let Some(reply) = self.message.reply.clone() else { return Ok(()) };
        let client = self.bus.client();
        let sent = client.publish_with_headers(reply, headers, body);
        match timeout(self.bus.config().request_timeout, sent).await {
            Ok(sent) => sent.map_err(|error| error.kind()),
            Err(_) => Err(PublishErrorKind::Send),
        }
    }
}
