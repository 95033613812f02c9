//! The plugin's socket: HTTP/1.1, with one request per connection.
//!
//! **Owns** the socket's file, which only root may use.
//!
//! **Promises** that a reference is dropped if its response was not written. Hence one request per
//! connection: the end of the connection tells whether the response was written.

use std::convert::Infallible;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use berth_host::socket::{self, ServeError, Socket};
use berth_host::trust::{self, TrustError, TrustedUsers};
use berth_service::shutdown::Shutdown;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::delivery::ResponseDelivery;
use super::driver::VolumeDriver;
use super::protocol::{self, Endpoint, PluginRequest};

/// Connections served at once.
const CONNECTIONS_MAX: usize = 256;
/// How long one connection may last: longer than any wait of the engine.
const CONNECTION_MAX: Duration = Duration::from_secs(130);
/// The longest body of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// Why the plugin's socket cannot be served.
#[derive(Debug, Error)]
pub enum ListenError {
    #[error("its directory {} cannot be made", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    #[error(transparent)]
    CountTrust(#[from] TrustError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The listening socket. Its file is removed on drop, so that Docker finds no driver instead of one
/// that does not answer.
#[derive(Debug)]
pub struct PluginSocket {
    listener: UnixListener,
    _file: Socket,
}

impl PluginSocket {
    /// Listens. A socket that a killed process left is replaced; any other file is not touched.
    pub fn listen(path: &Path) -> Result<Self, ListenError> {
        if let Some(dir) = path.parent() {
            let result = DirBuilder::new().recursive(true).mode(0o755).create(dir);
            result.map_err(|error| ListenError::Directory(dir.to_owned(), error))?;
            trust::open(dir, &TrustedUsers::own())?;
        }
        let failed = |source| ServeError::Io { path: path.to_owned(), source };
        let (listener, mut file) = socket::listen(path)?;
        file.set_mode(0o600).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        Ok(Self { listener, _file: file })
    }
}

/// Serves until the shutdown. Requests under way may then take `drain` longer.
pub async fn serve(
    socket: PluginSocket,
    driver: VolumeDriver,
    shutdown: Shutdown,
    drain: Duration,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = async {
            let permit = Arc::clone(&room).acquire_owned().await;
            (socket.listener.accept().await, permit)
        };
        let (stream, permit) = tokio::select! {
            (Ok((stream, _)), Ok(permit)) = accepted => (stream, permit),
            () = shutdown.requested() => break,
            else => {
                // File descriptors may have run out: that passes, and a busy loop does not help.
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let driver = driver.clone();
        connections.spawn(async move {
            serve_connection(stream, driver).await;
            drop(permit);
        });
    }
    drop(socket);
    let rest = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(drain, rest).await;
}

/// Serves one request, and drops its reference if the response was not written.
async fn serve_connection(stream: UnixStream, driver: VolumeDriver) {
    let delivery = Arc::new(ResponseDelivery::default());
    let service = service_fn(|request| {
        let (driver, delivery) = (driver.clone(), Arc::clone(&delivery));
        async move {
            let (status, body) = handle(driver, request, Arc::clone(&delivery)).await;
            Ok::<_, Infallible>(response(status, &body, delivery))
        }
    });
    let served =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    let is_flushed = matches!(timeout(CONNECTION_MAX, served).await, Ok(Ok(())));
    if let Some(reference) = delivery.end(is_flushed) {
        driver.sessions.drop_undelivered(reference).await;
    }
}

async fn handle(
    driver: VolumeDriver,
    request: Request<Incoming>,
    delivery: Arc<ResponseDelivery>,
) -> (StatusCode, Value) {
    let refuse = |status, text: &str| (status, protocol::error(text));
    let Some(endpoint) = Endpoint::parse(request.uri().path()) else {
        return refuse(StatusCode::NOT_FOUND, "there is no such endpoint");
    };
    if request.method() != Method::POST {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "everything here is a POST");
    }
    let body = match Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let request = if body.iter().all(u8::is_ascii_whitespace) {
        PluginRequest::default()
    } else {
        match serde_json::from_slice(&body) {
            Ok(request) => request,
            Err(error) => {
                let error = format!("the request cannot be read: {error}");
                return refuse(StatusCode::BAD_REQUEST, &error);
            }
        }
    };
    // A separate task: the end of the connection must not interrupt a change.
    let name = request.name.clone();
    let handled = tokio::spawn(async move { driver.handle(endpoint, request, delivery).await });
    match handled.await {
        Ok(Ok(body)) => (StatusCode::OK, body),
        Ok(Err(error)) => {
            tracing::warn!(?endpoint, name, error, "Docker was refused");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &error)
        }
        Err(error) => {
            tracing::error!(?endpoint, name, %error, "no response for Docker");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, "berth-docker ended before it answered")
        }
    }
}

fn response(
    status: StatusCode,
    body: &Value,
    delivery: Arc<ResponseDelivery>,
) -> Response<TrackedBody> {
    let body = Full::new(body.to_string().into());
    let mut response = Response::new(TrackedBody { body, delivery });
    *response.status_mut() = status;
    let form = HeaderValue::from_static(protocol::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, form);
    response
}

/// The body of a response. It notes when hyper takes it to write it.
struct TrackedBody {
    body: Full<Bytes>,
    delivery: Arc<ResponseDelivery>,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.delivery.mark_taken();
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[tokio::test]
    async fn file_at_the_sockets_path_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("berth.sock");
        fs::write(&path, "somebody's data").unwrap();
        let refused = PluginSocket::listen(&path).unwrap_err().to_string();
        assert!(refused.contains("berth.sock is a file, not a socket"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's data");
        fs::remove_file(&path).unwrap();

        let listening = PluginSocket::listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let served = PluginSocket::listen(&path).unwrap_err().to_string();
        assert!(served.contains("another process"), "{served}");
        drop(listening);
        assert!(!path.exists());

        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let refused = PluginSocket::listen(&path).unwrap_err().to_string();
        assert!(refused.contains("writable by others"), "{refused}");
    }
}
