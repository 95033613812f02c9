//! The connection to one plugin over its unix socket.
//!
//! **Owns** the deadline of each call, and the span and metrics of a call. The connection is that
//! of [`crate::connection`].
//!
//! **Promises** that a call ends within its timeout, whatever serves the path; that it begins at
//! the process whose socket is at the path; and that a call which certainly never reached the
//! plugin is distinguished from one that may have.
//!
//! **Never** retries a call: [`crate::outcome`] and the caller decide that.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use berth_contract::trace::TraceContext;
use berth_host::HolderProcess;
use berth_host::trust::TrustedUsers;
use berth_telemetry::metric::{PLUGIN_CALLS, PLUGIN_CALLS_DURATION};
use berth_telemetry::{Kind, Span, attribute};
use tokio::time::Instant;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use crate::code::Code;
use crate::connection::PathConnection;
use crate::failure::{CallError, Failure, one_line};
use crate::redact::Secrets;
use crate::rpc::{Effect, Rpc, Unary};
use crate::v1;

/// The largest accepted answer, in bytes. gRPC's default of 4 MiB is too small for long lists.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The gRPC metadata of the trace (W3C trace context).
const TRACEPARENT: &str = "traceparent";

/// A plugin behind its socket. Clones share one connection.
#[derive(Clone)]
pub struct Client {
    connection: PathConnection,
    /// `None` for calls outside of any trace, such as probes.
    trace: Option<TraceContext>,
}

impl Client {
    /// A client for the plugin at `socket`. The first call connects, so the socket need not exist
    /// yet. Must be called within a tokio runtime.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self::trusting(socket, TrustedUsers::own())
    }

    /// The same, for a plugin that runs as one of these users. Requests contain secrets, so they
    /// are sent only if the path and the listening process belong to these users.
    pub fn trusting(socket: impl Into<PathBuf>, users: TrustedUsers) -> Self {
        Self { connection: PathConnection::new(socket.into().into(), users), trace: None }
    }

    /// The path of the plugin's socket.
    pub fn socket(&self) -> &Path {
        self.connection.socket()
    }

    /// The connection itself, for calls that are passed on.
    pub fn connection(&self) -> PathConnection {
        self.connection.clone()
    }

    /// The number of connections so far. A new connection may lead to another process with another
    /// version.
    pub fn connections(&self) -> u64 {
        self.connection.opened()
    }

    /// The process that the connection leads to. `None` before a connection is open, and if the
    /// process is not known.
    pub fn process(&self) -> Option<HolderProcess> {
        self.connection.process()
    }

    /// The same client within a trace: each call makes a span, and the plugin receives its context
    /// as `traceparent`. Calls of other clients make no span, and send a `traceparent` that is not
    /// sampled.
    #[must_use]
    pub fn traced(&self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self.clone() }
    }

    /// Makes one call. The plugin receives `timeout`, and the call ends after it at the latest.
    ///
    /// The type of the request selects the call: `call(v1::GetPluginInfoRequest {}, timeout)`.
    ///
    /// If the caller drops the future, the plugin may still be working.
    pub async fn call<R: Unary>(
        &self,
        request: R,
        timeout: Duration,
    ) -> Result<R::Response, CallError> {
        let (rpc, socket) = (R::RPC, self.socket().display());
        let started = Instant::now();
        let answered_before = self.connection.answered();
        let mut span = self.span(&request);
        let secrets = Secrets::values_in(&request);
        let subject = subject_of(&request);
        let sent = self.send(request.clone(), subject.clone(), timeout, span.context());
        let outcome = tokio::time::timeout(timeout, sent).await;
        let elapsed = started.elapsed();
        let is_late = |status: &tonic::Status| {
            matches!(read_failure(status, &secrets, timeout), Failure::Late { .. })
        };
        let is_settled = match &outcome {
            Ok(Ok(_)) => true,
            Ok(Err(status)) => !is_late(status),
            Err(_) => false,
        };
        if let Some(subject) = subject.filter(|_| is_settled) {
            self.connection.settle(&subject);
        }
        let failure = match outcome {
            Ok(Ok(response)) => {
                let Some(fault) = request.check_answer(&response) else {
                    record_call(&mut span, rpc, elapsed, None);
                    tracing::debug!(%rpc, %socket, ?elapsed, "the plugin did it");
                    return Ok(response);
                };
                Failure::Contradicts(fault)
            }
            Ok(Err(status)) => read_failure(&status, &secrets, timeout),
            Err(_) => Failure::Late { timeout },
        };
        if matches!(failure, Failure::Late { .. }) {
            self.connection.leave_if_silent(answered_before);
        }
        record_call(&mut span, rpc, elapsed, Some(&failure));
        tracing::debug!(%rpc, %socket, ?elapsed, %failure, "the call failed");
        Err(CallError { rpc, socket: self.socket().to_path_buf(), failure })
    }

    fn span<R: Unary>(&self, request: &R) -> Span {
        let parent = self.trace.unwrap_or_else(|| {
            // A probe.
            TraceContext::begin_unrecorded(&mut rand::rng())
        });
        let name = R::RPC.path().trim_start_matches('/');
        let mut span = Span::child_of(parent, name, Kind::Client)
            .with(attribute::RPC_SYSTEM, "grpc")
            .with(attribute::RPC_METHOD, name);
        if let Some(volume) = request.volume_id() {
            span.set(attribute::EXTERNAL_VOLUME, volume);
        }
        span
    }

    async fn send<R: Unary>(
        &self,
        request: R,
        subject: Option<Arc<str>>,
        timeout: Duration,
        trace: TraceContext,
    ) -> Result<R::Response, tonic::Status> {
        let mut grpc = tonic::client::Grpc::new(self.connection.about(subject))
            .max_decoding_message_size(ANSWER_BYTES_MAX);
        let mut request = tonic::Request::new(request);
        request.set_timeout(timeout);
        if let Ok(trace) = trace.to_string().parse() {
            request.metadata_mut().insert(TRACEPARENT, trace);
        }
        let path = PathAndQuery::from_static(R::RPC.path());
        let codec = ProstCodec::<R, R::Response>::default();
        grpc.ready().await.map_err(|error| tonic::Status::from_error(error.into()))?;
        Ok(grpc.unary(request, path, codec).await?.into_inner())
    }
}

/// What the call changes, by the plugin's id or the name that it is made with.
fn subject_of<R: Unary>(request: &R) -> Option<Arc<str>> {
    if R::RPC.effect() == Effect::Reads {
        return None;
    }
    let request_any: &dyn Any = request;
    let volume = request_any.downcast_ref().map(|it: &v1::CreateVolumeRequest| it.name.as_str());
    let snapshot = || {
        request_any
            .downcast_ref()
            .map(|it: &v1::CreateSnapshotRequest| it.source_volume_id.as_str())
    };
    request.volume_id().or(volume).or_else(snapshot).map(Arc::from)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("socket", &self.socket()).finish_non_exhaustive()
    }
}

/// The span and metrics of an ended call. They never have the plugin's text, which may quote a
/// request.
fn record_call(span: &mut Span, rpc: Rpc, elapsed: Duration, failure: Option<&Failure>) {
    let code = match failure {
        None => Code::Ok.as_str(),
        Some(Failure::Unreachable { .. }) => "UNREACHABLE",
        Some(Failure::Late { .. }) => "LATE",
        Some(Failure::Broken { .. }) => "BROKEN",
        Some(Failure::TooLarge { .. }) => "TOO_LARGE",
        Some(Failure::Contradicts(_)) => "CONTRADICTS",
        Some(Failure::Answered { code, .. }) => code.as_str(),
    };
    let answered = match failure {
        None | Some(Failure::Contradicts(_)) => Some(Code::Ok),
        Some(Failure::Answered { code, .. }) => Some(*code),
        Some(_) => None,
    };
    if let Some(answered) = answered {
        span.set(attribute::RPC_STATUS, answered.as_str());
    }
    if failure.is_some() {
        span.set(attribute::ERROR_TYPE, code);
        span.fail(code);
    }
    PLUGIN_CALLS.add(1, [rpc.name().into(), code.into()]);
    PLUGIN_CALLS_DURATION.record(elapsed, [rpc.name().into()]);
}

/// Interprets the status of a failed call.
fn read_failure(status: &tonic::Status, secrets: &Secrets, timeout: Duration) -> Failure {
    // Only a status that was made in this process has a source.
    if let Some(root) = chain(status).last() {
        let reason = one_line(&secrets.strike(&root.to_string()));
        return if is_caused_by::<tonic::ConnectError>(status) {
            Failure::Unreachable { reason }
        } else if is_caused_by::<tonic::TimeoutExpired>(status) {
            Failure::Late { timeout }
        } else {
            Failure::Broken { reason }
        };
    }
    let message = one_line(&secrets.strike(status.message()));
    // tonic reports an answer over the size limit as OUT_OF_RANGE, as if the plugin had answered
    // so.
    if status.code() == tonic::Code::OutOfRange && message.contains("message length too large") {
        return Failure::TooLarge { reason: message };
    }
    Failure::Answered { code: crate::code::of_status(status), message }
}

fn chain(status: &tonic::Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |&error| error.source())
}

fn is_caused_by<E: Error + 'static>(status: &tonic::Status) -> bool {
    chain(status).any(|error| error.downcast_ref::<E>().is_some())
}
