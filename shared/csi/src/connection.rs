//! The connection to the process whose socket is at a path.
//!
//! **Owns** the connection that is open, and when another one takes its place.
//!
//! **Promises**
//! - that the first call connects, and that a call after the end of the process connects again;
//! - that a call begins at the process whose socket is at the path, also while an earlier process
//!   with a socket at this path lives or hangs;
//! - that calls go on over the open connection while no socket is at the path, as between unlink
//!   and bind;
//! - that a call which has begun stays on its connection. It may still act, so its caller has to
//!   wait for its answer or its deadline. For the same reason there is no HTTP/2 keepalive: it
//!   would cut the calls of a process that is only stopped, and the kernel closes the connection of
//!   a process that has ended;
//! - that a call about something follows the one before over *its* connection, for as long as that
//!   one had no answer: a process that hangs may still carry it out, and only behind it is the next
//!   call after it. It goes elsewhere once the connection is lost, since the process has ended;
//! - that a connection over which a call got no answer in time, and nothing else was answered
//!   meanwhile, is left for a new one.
//!
//! **Never** repeats a call.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use berth_host::HolderProcess;
use berth_host::socket::{
    ConnectError, FileIdentity, ListenerConnection, connect_trusted, read_identity,
};
use berth_host::trust::{TrustError, TrustedUsers};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::transport::{Channel, Endpoint, Error};
use tower::service_fn;

/// The largest accepted headers of an answer, in bytes. Headers carry the plugin's error text, and
/// some plugins quote a program's whole output. Over the HTTP/2 default of 16 KiB, code and text
/// would be lost.
const HEADER_BYTES_MAX: u32 = 1024 * 1024;

/// Some HTTP/2 servers refuse a socket's path as authority.
const AUTHORITY: &str = "http://localhost";

/// How long a connection is kept over which nothing was ever answered. Each connection to a process
/// that hangs takes one of the few places in its listen queue.
const UNANSWERED_KEPT: Duration = Duration::from_secs(30);

/// Calls without an answer whose connections are remembered. Beyond that many hang at once, the
/// newest process gets the next ones.
const UNANSWERED_MAX: usize = 4096;

/// What a call changes: of two calls about it, the second one follows the first.
type Subject = Arc<str>;

/// The connection to whatever process has its socket at a path. Clones share it.
#[derive(Clone)]
pub struct PathConnection {
    socket: Arc<Path>,
    users: Arc<TrustedUsers>,
    current: Arc<Mutex<Connection>>,
    opened: Arc<AtomicU64>,
    /// The connections of calls without an answer. One call is made at a time about a subject.
    unanswered: Arc<Mutex<HashMap<Subject, Connection>>>,
    /// What the calls over this clone change.
    subject: Option<Subject>,
}

/// A gRPC channel. It connects at the first call, and again when it was lost.
#[derive(Clone)]
struct Connection {
    channel: Channel,
    /// `None` while it is not connected.
    peer: Arc<Mutex<Option<Peer>>>,
    made: Instant,
    /// Number of answers, whatever they say.
    answered: Arc<AtomicU64>,
}

/// What a connection leads to.
struct Peer {
    file: FileIdentity,
    process: Option<HolderProcess>,
}

impl PathConnection {
    /// A connection that the first call opens, if the path and the process behind it belong to
    /// these users. Must be called within a tokio runtime.
    pub(crate) fn new(socket: Arc<Path>, users: TrustedUsers) -> Self {
        let (users, opened) = (Arc::new(users), Arc::default());
        let first = Connection::new(&socket, &users, &opened);
        let (current, unanswered) = (Arc::new(Mutex::new(first)), Arc::default());
        Self { socket, users, current, opened, unanswered, subject: None }
    }

    /// The same, for a call that changes this.
    pub(crate) fn about(&self, subject: Option<Subject>) -> Self {
        Self { subject, ..self.clone() }
    }

    /// The call about this subject has an answer, or its connection was lost.
    pub(crate) fn settle(&self, subject: &str) {
        lock(&self.unanswered).remove(subject);
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Number of connections that were opened.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// The process behind the connection that new calls take.
    pub(crate) fn process(&self) -> Option<HolderProcess> {
        lock(&lock(&self.current).peer).as_ref()?.process.clone()
    }

    /// Number of answers over the connection that new calls take.
    pub(crate) fn answered(&self) -> u64 {
        lock(&self.current).answered.load(Ordering::Relaxed)
    }

    /// To be called when a call had no answer in time. The next call takes a new connection if
    /// nothing at all was answered since there were `before` answers: the connection may be stuck,
    /// or another process may accept at the same socket.
    pub(crate) fn leave_if_silent(&self, before: u64) {
        let mut current = lock(&self.current);
        let answered = current.answered.load(Ordering::Relaxed);
        if answered == before && (answered > 0 || current.made.elapsed() >= UNANSWERED_KEPT) {
            *current = self.connect_anew();
        }
    }

    /// The connection of the next call.
    async fn choose(&self) -> Connection {
        let Some(subject) = &self.subject else { return self.choose_newest().await };
        let before = lock(&self.unanswered).get(subject).cloned();
        if let Some(before) = before {
            return before;
        }
        let chosen = self.choose_newest().await;
        let mut unanswered = lock(&self.unanswered);
        if unanswered.len() < UNANSWERED_MAX {
            unanswered.insert(Arc::clone(subject), chosen.clone());
        }
        chosen
    }

    async fn choose_newest(&self) -> Connection {
        let at_path = read_identity(&self.socket).await;
        let mut current = lock(&self.current);
        if at_path.is_some_and(|file| current.leads_elsewhere(file)) {
            *current = self.connect_anew();
        }
        current.clone()
    }

    fn connect_anew(&self) -> Connection {
        Connection::new(&self.socket, &self.users, &self.opened)
    }
}

impl Connection {
    fn new(socket: &Arc<Path>, users: &Arc<TrustedUsers>, opened: &Arc<AtomicU64>) -> Self {
        let peer: Arc<Mutex<Option<Peer>>> = Arc::default();
        let (path, users) = (Arc::clone(socket), Arc::clone(users));
        let (opened, reached) = (Arc::clone(opened), Arc::clone(&peer));
        let connector = service_fn(move |_| {
            let (path, users) = (Arc::clone(&path), Arc::clone(&users));
            let (opened, reached) = (Arc::clone(&opened), Arc::clone(&reached));
            async move {
                *lock(&reached) = None;
                let connected = connect_trusted(path, users).await.map_err(explain)?;
                let ListenerConnection { stream, file, process } = connected;
                let stream = UnixStream::from_std(stream)?;
                *lock(&reached) = Some(Peer { file, process });
                opened.fetch_add(1, Ordering::Relaxed);
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        });
        let channel = Endpoint::from_static(AUTHORITY)
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .connect_with_connector_lazy(connector);
        Self { channel, peer, made: Instant::now(), answered: Arc::default() }
    }

    /// Whether it leads to another socket than this one.
    fn leads_elsewhere(&self, file: FileIdentity) -> bool {
        lock(&self.peer).as_ref().is_some_and(|peer| peer.file != file)
    }
}

impl Service<http::Request<Body>> for PathConnection {
    type Response = http::Response<Body>;
    type Error = Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // Each call waits for the connection that it takes.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = self.clone();
        Box::pin(async move {
            let Connection { mut channel, answered, .. } = path.choose().await;
            std::future::poll_fn(|context| channel.poll_ready(context)).await?;
            let answer = channel.call(request).await?;
            answered.fetch_add(1, Ordering::Relaxed);
            Ok(answer)
        })
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reason for a failed connection. tonic shows only the top of the chain of errors.
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
