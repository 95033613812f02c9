//! The connection to one plugin over its unix socket.
//!
//! **Owns** the socket, the gRPC channel on it and the deadline of each call; and what is told of a
//! call, a client span and its metrics.
//!
//! **Promises** that a call ends within its timeout, whatever sits at the path; that it connects
//! when first needed and again after the plugin restarted; and that a call which certainly never
//! reached the plugin is told apart from one that may have.
//!
//! **Never** repeats a call: whether that is safe is for [`crate::outcome`] and the caller.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_contract::trace::TraceContext;
use berth_host::socket::{ConnectError, connect_trusted};
use berth_host::trust::{TrustError, TrustedUsers};
use berth_telemetry::metric::{PLUGIN_CALLS, PLUGIN_CALLS_DURATION};
use berth_telemetry::{Kind, Span, attribute};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use tower::service_fn;

use crate::code::Code;
use crate::failure::{CallError, Failure, one_line};
use crate::redact::Secrets;
use crate::rpc::{Rpc, Unary};

/// The largest answer taken, in bytes: gRPC's own 4 MiB are too few for long listings.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The largest headers taken with an answer, in bytes. A plugin's error text travels in them, and
/// some quote a program's whole output; HTTP/2 libraries take 16 KiB, and drop the code with the
/// text.
pub const HEADER_BYTES_MAX: u32 = 1024 * 1024;

/// Some HTTP/2 servers refuse a socket's path as authority, so all are given this.
const AUTHORITY: &str = "http://localhost";

/// The gRPC metadata in which a plugin is given the trace (W3C trace context).
const TRACEPARENT: &str = "traceparent";

/// A plugin behind its socket. Clones share one connection.
#[derive(Clone)]
pub struct Client {
    socket: Arc<Path>,
    channel: Channel,
    connections: Arc<AtomicU64>,
    /// None for calls that belong to nobody's work, such as probes.
    trace: Option<TraceContext>,
}

impl Client {
    /// A client for the plugin at `socket`, which need not be there yet: nothing is opened before
    /// the first call. Must be made within a tokio runtime.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self::trusting(socket, TrustedUsers::own())
    }

    /// The same, for a plugin that runs as one of these users. Requests hold secrets, so none is
    /// sent unless the path and the process that listens there belong to them.
    pub fn trusting(socket: impl Into<PathBuf>, users: TrustedUsers) -> Self {
        let socket: Arc<Path> = socket.into().into();
        let (path, users) = (Arc::clone(&socket), Arc::new(users));
        let connections = Arc::new(AtomicU64::new(0));
        let opened = Arc::clone(&connections);
        let connector = service_fn(move |_| {
            let (path, users) = (Arc::clone(&path), Arc::clone(&users));
            let opened = Arc::clone(&opened);
            async move {
                let stream = connect(path, users).await?;
                opened.fetch_add(1, Ordering::Relaxed);
                Ok::<_, io::Error>(stream)
            }
        });
        let channel = Endpoint::from_static(AUTHORITY)
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .connect_with_connector_lazy(connector);
        Self { socket, channel, connections, trace: None }
    }

    /// Where the plugin is.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// How often a connection was opened: behind another one there may be another process, of
    /// another version.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// The same client, for calls that are steps of this trace: each makes a span, and the plugin
    /// is given its context as `traceparent`. Other calls make none, and give the plugin a trace
    /// that is not to be recorded.
    #[must_use]
    pub fn traced(&self, trace: TraceContext) -> Self {
        Self { trace: Some(trace), ..self.clone() }
    }

    /// Makes one call and waits for its answer, at most for `timeout`, which the plugin is told.
    ///
    /// The request's type says which call it is:
    ///
    /// ```no_run
    /// # use berth_csi::{Client, CallError, v1};
    /// # async fn show(client: &Client) -> Result<(), CallError> {
    /// let timeout = std::time::Duration::from_secs(5);
    /// let info = client.call(v1::GetPluginInfoRequest {}, timeout).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// When the caller stops waiting (drops the future), the plugin may still be at work.
    pub async fn call<R: Unary>(
        &self,
        request: R,
        timeout: Duration,
    ) -> Result<R::Response, CallError> {
        let (rpc, socket) = (R::RPC, self.socket.display());
        let started = Instant::now();
        let mut span = self.span(&request);
        let secrets = Secrets::of(&request);
        let sent = self.send(request, timeout, span.context());
        let outcome = tokio::time::timeout(timeout, sent).await;
        let elapsed = started.elapsed();
        let failure = match outcome {
            Ok(Ok(response)) => {
                tell(&mut span, rpc, elapsed, None);
                tracing::debug!(%rpc, %socket, ?elapsed, "the plugin did it");
                return Ok(response);
            }
            Ok(Err(status)) => read_failure(&status, &secrets, timeout),
            Err(_) => Failure::Late { timeout },
        };
        tell(&mut span, rpc, elapsed, Some(&failure));
        tracing::debug!(%rpc, %socket, ?elapsed, %failure, "the call failed");
        Err(CallError { rpc, socket: self.socket.to_path_buf(), failure })
    }

    fn span<R: Unary>(&self, request: &R) -> Span {
        let parent = self.trace.unwrap_or_else(|| {
            // Nobody wants a trace of every probe.
            TraceContext::begin(&mut rand::rng()).with_sampled(false)
        });
        let name = R::RPC.path().trim_start_matches('/');
        let mut span = Span::child_of(parent, name, Kind::Client)
            .with(attribute::RPC_SYSTEM, "grpc")
            .with(attribute::RPC_SERVICE, name.split('/').next().unwrap_or_default())
            .with(attribute::RPC_METHOD, R::RPC.name());
        if let Some(volume) = request.volume_id() {
            span.set(attribute::EXTERNAL_VOLUME, volume);
        }
        span
    }

    async fn send<R: Unary>(
        &self,
        request: R,
        timeout: Duration,
        trace: TraceContext,
    ) -> Result<R::Response, tonic::Status> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone())
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

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// What is told of a call that has ended. Never the plugin's words: they may quote a request.
fn tell(span: &mut Span, rpc: Rpc, elapsed: Duration, failure: Option<&Failure>) {
    let code = match failure {
        None => Code::Ok.as_str(),
        Some(Failure::Unreachable { .. }) => "UNREACHABLE",
        Some(Failure::Late { .. }) => "LATE",
        Some(Failure::Broken { .. }) => "BROKEN",
        Some(Failure::Answered { code, .. }) => code.as_str(),
    };
    let answered = match failure {
        None => Some(Code::Ok),
        Some(Failure::Answered { code, .. }) => Some(*code),
        Some(_) => None,
    };
    if let Some(answered) = answered {
        span.set(attribute::RPC_STATUS, answered.number());
    }
    if failure.is_some() {
        span.set(attribute::ERROR_TYPE, code);
        span.fail(code);
    }
    PLUGIN_CALLS.add(1, [rpc.name().into(), code.into()]);
    PLUGIN_CALLS_DURATION.record(elapsed, [rpc.name().into()]);
}

async fn connect(socket: Arc<Path>, users: Arc<TrustedUsers>) -> io::Result<TokioIo<UnixStream>> {
    let stream = connect_trusted(socket, users).await.map_err(explain)?;
    Ok(TokioIo::new(UnixStream::from_std(stream)?))
}

/// Why there is no connection, in words: of the whole chain of errors only one is shown.
fn explain(error: ConnectError) -> io::Error {
    let another_user = |user| {
        format!("or run the plugin as root, or trust that user with `owner = {user}` beside `id`")
    };
    let kind = match &error {
        ConnectError::Path(path) => path.kind(),
        ConnectError::Io(error) => Some(error.kind()),
        ConnectError::NotASocket(_) | ConnectError::Peer { .. } => None,
    };
    let reason = match (&error, kind) {
        (_, Some(io::ErrorKind::NotFound)) => "there is no such file".to_owned(),
        (_, Some(io::ErrorKind::PermissionDenied)) => "this user may not open it".to_owned(),
        (_, Some(io::ErrorKind::ConnectionRefused)) => {
            "no process listens on this socket".to_owned()
        }
        (ConnectError::Path(TrustError::Open { path, source }), _) => {
            format!("{} cannot be opened: {source}", path.display())
        }
        (ConnectError::Path(TrustError::Owner { user, .. }), _) => {
            format!("{error}, {}", another_user(*user))
        }
        (ConnectError::Peer { user }, _) => {
            format!("{error}: stop that process, {}", another_user(*user))
        }
        _ => error.to_string(),
    };
    io::Error::new(kind.unwrap_or(io::ErrorKind::PermissionDenied), reason)
}

/// What became of the call, from what the gRPC library reports.
fn read_failure(status: &tonic::Status, secrets: &Secrets, timeout: Duration) -> Failure {
    // A status that was sent by the plugin has no source; what failed on this side has one.
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
    // The library says OUT_OF_RANGE of an answer that is too long, as if the plugin had.
    if status.code() == tonic::Code::OutOfRange && message.contains("message length too large") {
        return Failure::Broken { reason: message };
    }
    Failure::Answered { code: status.code().into(), message }
}

fn chain(status: &tonic::Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |&error| error.source())
}

fn is_caused_by<E: Error + 'static>(status: &tonic::Status) -> bool {
    chain(status).any(|error| error.downcast_ref::<E>().is_some())
}
