//! `GET /metrics`, `/healthz` and `/readyz`, for the programs that monitor a process.
//!
//! **Owns** the listener, its thread, and the answer of each path.
//!
//! **Promises**
//!
//! - An answer while the process's own runtime hangs: the thread has a runtime of its own, so
//!   `/healthz` can report that.
//! - A bounded number of connections, each for ten seconds at most.
//!
//! **Never** decides whether the process is ready: its [`ReadyCheck`] does.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use crate::ready::ReadyCheck;

/// Most connections served at once.
const CONNECTIONS_MAX: usize = 16;
/// Longest time of a connection.
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// How long the process's runtime may take to run an empty task before the process counts as hung.
const TURN_MAX: Duration = Duration::from_secs(2);
/// How long the process may take to report whether it is ready.
const READY_MAX: Duration = Duration::from_secs(4);

/// The endpoint. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

/// The sources of the answers.
pub(crate) struct Sources {
    /// The metrics.
    pub(crate) registry: Registry,
    /// The runtime of the process's work.
    pub(crate) process: Handle,
    /// Whether the process is ready; `/readyz` does not exist without it.
    pub(crate) ready: Option<ReadyCheck>,
}

impl Endpoint {
    /// Starts to listen.
    pub(crate) fn listen(address: SocketAddr, sources: Sources) -> io::Result<Self> {
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (finished, ended) = oneshot::channel();
        thread::Builder::new().name("metrics-http".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, Arc::new(sources)) => {}
                    // The wait also ends when the endpoint is dropped.
                    _ = stopped => {}
                }
            });
            drop(runtime);
            // If the endpoint was dropped, no caller waits.
            let _ = finished.send(());
        })?;
        Ok(Self { address, stop, ended })
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes the listener and every connection, and waits for that.
    pub(crate) async fn stop(self, within: Duration) {
        drop(self.stop);
        if timeout(within, self.ended).await.is_err() {
            tracing::debug!(?within, "the HTTP endpoint did not end in time");
        }
    }
}

async fn serve(listener: StdListener, sources: Arc<Sources>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "nothing is served at `telemetry.metrics_listen`");
            return;
        }
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // The process may have no file descriptor left. The pause prevents a busy loop.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let sources = Arc::clone(&sources);
        tokio::spawn(async move {
            // An error means that the client has gone, or does not speak HTTP.
            let _ = timeout(CONNECTION_MAX, answer(stream, sources)).await;
            drop(slot);
        });
    }
}

async fn answer(stream: TcpStream, sources: Arc<Sources>) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let sources = Arc::clone(&sources);
        async move { Ok::<_, Infallible>(respond(&request, &sources).await) }
    });
    http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await
}

async fn respond(request: &Request<Incoming>, sources: &Sources) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let is_known = match path {
        "/metrics" | "/healthz" => true,
        "/readyz" => sources.ready.is_some(),
        _ => false,
    };
    if !is_known {
        return text(StatusCode::NOT_FOUND, "see /metrics, /healthz and /readyz\n".to_owned());
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
    }
    match (path, &sources.ready) {
        ("/metrics", _) => metrics(&sources.registry),
        ("/readyz", Some(ready)) => verdict("ready", check_ready(&sources.process, ready).await),
        _ => verdict("healthy", check_turning(&sources.process).await),
    }
}

fn metrics(registry: &Registry) -> Response<Full<Bytes>> {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(page) => {
            let mut response = text(StatusCode::OK, page);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
            response
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// Why the process does not work; empty if it works.
async fn check_turning(process: &Handle) -> Vec<String> {
    match timeout(TURN_MAX, process.spawn(async {})).await {
        Ok(Ok(())) => Vec::new(),
        Ok(Err(_)) => vec!["the process is ending".to_owned()],
        Err(_) => vec![format!(
            "the process has run no task for {TURN_MAX:?}: it hangs, or has no CPU time; look at \
             its log, and restart it if it stays so"
        )],
    }
}

async fn check_ready(process: &Handle, ready: &ReadyCheck) -> Vec<String> {
    match timeout(READY_MAX, process.spawn(ready.reasons())).await {
        Ok(Ok(reasons)) => reasons,
        Ok(Err(_)) => vec!["the process is ending".to_owned()],
        Err(_) => vec![format!("the process has not said within {READY_MAX:?} that it is ready")],
    }
}

/// `200` with the word, or `503` with the reasons, one line each.
fn verdict(word: &str, reasons: Vec<String>) -> Response<Full<Bytes>> {
    if reasons.is_empty() {
        return text(StatusCode::OK, format!("{word}\n"));
    }
    let lines = reasons.iter().map(|reason| reason.replace(['\r', '\n'], " ") + "\n");
    text(StatusCode::SERVICE_UNAVAILABLE, lines.collect())
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
