//! One request to a service.
//!
//! **Owns** the end of each request's subject, which says who sends it, and its headers: the trace,
//! and the deadline after which no handler begins it. Owns the client span and the metrics.
//!
//! **Promises** an end by the deadline, and an error that says whether the request may have been
//! done. A request is sent once, unless its caller says otherwise ([`Call::hedged`],
//! [`Call::sent_again_early`]). Every request of Berth's is idempotent, so a caller may retry.
//!
//! **Never** queues: while disconnected a request fails at once. The client would deliver it after
//! the reconnect, after its caller has stopped waiting.

use std::time::Duration;

use async_nats::HeaderMap;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_contract::verb::Verb;
use berth_contract::{header, subject};
use berth_domain::limits;
use berth_telemetry::metric::{Label, REQUESTS_MADE, REQUESTS_MADE_DURATION, STEPS};
use berth_telemetry::{Kind, Span, attribute};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::time::Instant;

use crate::cause::{Cause, chain};
use crate::clock::now;
use crate::connection::exchange::ExchangeError;
use crate::connection::handle::Bus;
use crate::connection::headers;
use crate::rpc::{caller, span};

/// A request's trace and deadline, and whether it may be sent more than once.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The trace that the request belongs to.
    pub trace: TraceContext,
    /// When the caller stops waiting.
    pub deadline: Instant,
    /// Whether the request gets a client span.
    spanned: bool,
    /// Whether the request is also sent to other replicas, which may answer sooner.
    hedged: bool,
    /// Whether the request is sent again before the deadline if no answer comes.
    sent_again_early: bool,
}

/// How long the first replica has for a request that is
/// [sent again early](Call::sent_again_early); each later one has twice as long.
const FIRST_TRY_MAX: Duration = Duration::from_millis(1_200);

impl Call {
    /// A call whose deadline is `within` from now.
    pub fn within(trace: TraceContext, within: Duration) -> Self {
        Self::until(trace, Instant::now() + within)
    }

    /// A call with this deadline.
    pub const fn until(trace: TraceContext, deadline: Instant) -> Self {
        Self { trace, deadline, spanned: true, hedged: false, sent_again_early: false }
    }

    /// The same call without a client span: the service's span becomes a child of the caller's. For
    /// a caller that may be killed while it waits, and whose step another process exports: the
    /// client span would be lost with the caller.
    #[must_use]
    pub const fn without_client_span(self) -> Self {
        Self { spanned: false, ..self }
    }

    /// The same call. If it only reads and no answer has come for a moment, it is sent to another
    /// replica too. So a stalled replica does not delay the caller. A request that changes
    /// something is sent to one replica. If that one stalls, it may carry the request out after the
    /// caller has requested something else.
    #[must_use]
    pub const fn hedged(self, only_reads: bool) -> Self {
        Self { hedged: only_reads, ..self }
    }

    /// The same call. If it is brief and changes something, it is sent again before the deadline if
    /// no answer has come: its replica may have been killed. Each request carries the deadline of
    /// its own try, so a stalled replica does not begin it after that.
    #[must_use]
    pub const fn sent_again_early(self, is_brief: bool) -> Self {
        Self { sent_again_early: is_brief, ..self }
    }
}

/// Why there is no result.
#[derive(Debug, Error)]
pub enum RequestError {
    /// Not done: no service subscribes to the subject.
    #[error("no service answers at {subject}")]
    NoResponder {
        /// The request's subject.
        subject: String,
    },
    /// Perhaps done: no answer came in time, or the connection broke.
    #[error("no answer from {subject} within {within:.1?}")]
    NoAnswer {
        /// The request's subject.
        subject: String,
        /// How long the caller waited.
        within: Duration,
        /// What ended the wait early.
        #[source]
        source: Option<Cause>,
    },
    /// Not done: the bus is not connected.
    #[error("the bus is not connected, so the request to {subject} was not sent")]
    Unavailable {
        /// The subject.
        subject: String,
    },
    /// Not done: the server's permissions do not allow the request.
    #[error("these credentials may not send to {subject}")]
    NotAllowed {
        /// The subject.
        subject: String,
    },
    /// Not done: it cannot be sent.
    #[error("the request to {subject} cannot be sent")]
    Unsendable {
        /// The subject.
        subject: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// Not done: the body is larger than the bus carries.
    #[error("the request to {subject} has {bytes} bytes, more than the bus carries")]
    TooLarge {
        /// The subject.
        subject: String,
        /// How large the body is.
        bytes: usize,
    },
    /// Perhaps done: the answer cannot be read.
    #[error("the answer from {subject} cannot be read")]
    BadReply {
        /// The request's subject.
        subject: String,
        /// What is wrong with it.
        #[source]
        source: Cause,
    },
    /// The service's own answer: not done, and why.
    #[error(transparent)]
    Problem(Box<Problem>),
}

impl RequestError {
    /// The reason in one word: a problem's code, or what kept the request from being answered.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoResponder { .. } => "no_responder",
            Self::NoAnswer { .. } => "no_answer",
            Self::Unavailable { .. } => "bus_unavailable",
            Self::NotAllowed { .. } => "not_allowed",
            Self::Unsendable { .. } => "unsendable",
            Self::TooLarge { .. } => "too_large",
            Self::BadReply { .. } => "bad_reply",
            Self::Problem(problem) => problem.code.as_str(),
        }
    }

    /// Whether the service surely has not begun, so that a retry is safe and may succeed.
    pub fn is_undone(&self) -> bool {
        match self {
            Self::NoResponder { .. } | Self::Unavailable { .. } => true,
            Self::Problem(problem) => {
                matches!(problem.code, Code::NoResponder | Code::Overloaded | Code::BusUnavailable)
            }
            _ => false,
        }
    }

    fn is_wait(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.code.is_wait())
    }

    fn is_no_answer(&self) -> bool {
        match self {
            Self::NoAnswer { .. } => true,
            Self::Problem(problem) => problem.code == Code::NoAnswer,
            _ => false,
        }
    }

    /// The problem to answer the service's caller with.
    pub fn into_problem(self, step: &str) -> Problem {
        let (code, retryable) = match self {
            Self::Problem(problem) => return problem.at_step(step),
            Self::NoResponder { .. } => (Code::NoResponder, true),
            Self::NoAnswer { .. } => (Code::NoAnswer, true),
            Self::Unavailable { .. } => (Code::BusUnavailable, true),
            Self::NotAllowed { .. } => (Code::NotAllowed, false),
            Self::TooLarge { .. } => (Code::BadInput, false),
            Self::BadReply { .. } | Self::Unsendable { .. } => (Code::Internal, false),
        };
        let problem = Problem::new(code, chain(&self)).at_step(step);
        if retryable { problem.retryable() } else { problem }
    }
}

/// The error half of a reply.
#[derive(Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) error: Problem,
}

impl Bus {
    /// Sends a verb's request to its service, once, and returns the verb's reply.
    pub async fn ask_service<V: Verb>(
        &self,
        to: &V::To,
        request: &V::Request,
        call: &Call,
    ) -> Result<V::Reply, RequestError> {
        self.request(&V::subject(to), request, call).await
    }

    /// Sends a request to a subject, with the actor appended: the body as JSON, the answer from
    /// JSON. Subjects of nats-server and of the services' monitoring (`$JS…`, `$SRV…`) have no
    /// actor.
    pub async fn request<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &(impl Serialize + ?Sized),
        call: &Call,
    ) -> Result<T, RequestError> {
        let record = RequestRecord::begin(subject, call, || self.signed(subject));
        let trace = record.span.as_ref().map_or(call.trace, Span::context);
        let call = Call { trace, deadline: caller::earlier_deadline(call.deadline), ..*call };
        caller::set_blocker(|| format!("{subject} has not answered yet"));
        let answer = if call.sent_again_early {
            self.ask_in_tries(subject, body, call).await
        } else {
            self.send(subject, body, &call).await
        };
        caller::clear_blocker();
        record.end(answer.as_ref().err());
        answer
    }

    async fn ask_in_tries<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &(impl Serialize + ?Sized),
        call: Call,
    ) -> Result<T, RequestError> {
        let mut within = FIRST_TRY_MAX;
        loop {
            let until = Instant::now() + within;
            // The remaining time would be too short for another try.
            let is_last = until + FIRST_TRY_MAX / 2 >= call.deadline;
            let deadline = if is_last { call.deadline } else { until };
            let answer = self.send(subject, body, &Call { deadline, ..call }).await;
            match answer {
                Err(error) if !is_last && error.is_no_answer() => within *= 2,
                answer => return answer,
            }
        }
    }

    fn signed(&self, subject: &str) -> String {
        if subject.starts_with('$') {
            return subject.to_owned();
        }
        self.config().actor.sign(subject)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &(impl Serialize + ?Sized),
        call: &Call,
    ) -> Result<T, RequestError> {
        let within = call.deadline.saturating_duration_since(Instant::now());
        let subject = || subject.to_owned();
        let body = serde_json::to_vec(body).map_err(|error| RequestError::Unsendable {
            subject: subject(),
            source: Cause::new(error),
        })?;
        let bytes = body.len();
        if bytes > limits::MESSAGE_BYTES_MAX {
            return Err(RequestError::TooLarge { subject: subject(), bytes });
        }
        let headers = call_headers(call, within);
        let body = Bytes::from(body);
        let signed = self.signed(&subject());
        let answer = if call.hedged {
            self.exchange_hedged(signed, headers, body, within).await
        } else {
            self.exchange(signed, headers, body, within).await
        };
        let answer = answer.map_err(|error| match error {
            ExchangeError::Disconnected => RequestError::Unavailable { subject: subject() },
            ExchangeError::Denied(_) => RequestError::NotAllowed { subject: subject() },
            ExchangeError::NoResponder => RequestError::NoResponder { subject: subject() },
            ExchangeError::TooLarge => RequestError::TooLarge { subject: subject(), bytes },
            ExchangeError::Subject => {
                RequestError::Unsendable { subject: subject(), source: Cause::new(error) }
            }
            ExchangeError::TimedOut(_) => {
                RequestError::NoAnswer { subject: subject(), within, source: None }
            }
            ExchangeError::Broken(source) => {
                RequestError::NoAnswer { subject: subject(), within, source: Some(source) }
            }
        })?;
        let empty = HeaderMap::new();
        read_reply(answer.headers.as_ref().unwrap_or(&empty), &answer.payload)
            .map_err(|error| error.into_request_error(subject))
    }
}

/// The span and the metrics of a request.
struct RequestRecord {
    span: Option<Span>,
    step: Label,
    began: Instant,
}

impl RequestRecord {
    fn begin(subject: &str, call: &Call, signed: impl FnOnce() -> String) -> Self {
        let (noun, verb) = subject::step(subject).unwrap_or(("other", "other"));
        let span = call.spanned.then(|| {
            let name = format_args!("request {noun}.{verb}");
            let span = Span::child_of(call.trace, name, Kind::Client)
                .with(attribute::MESSAGING_OPERATION, "request")
                .with(attribute::MESSAGING_OPERATION_TYPE, "send");
            span::with_subject(span, &signed())
        });
        Self { span, step: STEPS.label(&format!("{noun}.{verb}")), began: Instant::now() }
    }

    fn end(mut self, error: Option<&RequestError>) {
        let outcome = error.map_or("ok", RequestError::reason);
        if let (Some(span), Some(error)) = (&mut self.span, error) {
            span::record_refusal(span, outcome, error.is_wait());
        }
        REQUESTS_MADE.add(1, [self.step.clone(), outcome.into()]);
        REQUESTS_MADE_DURATION.record(self.began.elapsed(), [self.step]);
    }
}

/// Why an answer is no result.
enum ReplyFault {
    Problem(Box<Problem>),
    Bad(Cause),
}

impl ReplyFault {
    fn into_request_error(self, subject: impl Fn() -> String) -> RequestError {
        match self {
            Self::Problem(problem) => RequestError::Problem(problem),
            Self::Bad(source) => RequestError::BadReply { subject: subject(), source },
        }
    }
}

fn read_reply<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, ReplyFault> {
    let service_error = headers::get(headers, headers::SERVICE_ERROR);
    if service_error.is_none() {
        // An empty answer counts as `null`: a handler may return nothing.
        let body = if body.is_empty() { b"null" } else { body };
        match serde_json::from_slice(body) {
            Ok(result) => return Ok(result),
            Err(error) => {
                return Err(
                    decode_failure(body).unwrap_or_else(|| ReplyFault::Bad(Cause::new(error)))
                );
            }
        }
    }
    Err(decode_failure(body).unwrap_or_else(|| {
        // A service that is not Berth's reports an error in headers only.
        let header_error = service_error.unwrap_or_default();
        ReplyFault::Bad(Cause::new(format!("a service error without a problem: {header_error}")))
    }))
}

fn decode_failure(body: &[u8]) -> Option<ReplyFault> {
    let failure: Failure = serde_json::from_slice(body).ok()?;
    Some(ReplyFault::Problem(Box::new(failure.error)))
}

fn call_headers(call: &Call, within: Duration) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers::set(&mut headers, header::TRACEPARENT, call.trace);
    headers::set(&mut headers, header::DEADLINE, now().after(within).unix_ms());
    headers::set(&mut headers, header::CONTRACT, header::CONTRACT_VERSION);
    headers
}
