//! The socket: HTTP/1.1, one request a connection.
//!
//! **Owns** the socket's file, which only root may use.
//!
//! **Promises** that an answer which was not written is not taken for one: the reference that goes
//! with it is dropped. Hence one request a connection: its end says whether the answer went out.

use std::convert::Infallible;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::delivery::Delivery;
use super::driver::Driver;
use super::protocol::{self, Answer, Endpoint, Question};

/// Connections served at once.
const CONNECTIONS_MAX: usize = 256;
/// How long one may last: longer than the engine waits for anything.
const CONNECTION: Duration = Duration::from_secs(130);
/// The longest question.
const QUESTION_BYTES_MAX: usize = 1024 * 1024;

/// Why the plugin's socket cannot be had.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Its directory is missing, and cannot be made.
    #[error("its directory {} cannot be made", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// Others than trusted users may put files there.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// What is there is left alone.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The listening socket. Its file goes with it: Docker asks nobody then, rather than a socket that
/// nobody answers.
#[derive(Debug)]
pub struct Listening {
    listener: UnixListener,
    _file: Socket,
}

impl Listening {
    /// Listens. A socket that an earlier life left is replaced, and anything else left alone.
    pub fn at(path: &Path) -> Result<Self, ListenError> {
        if let Some(dir) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
            made.map_err(|error| ListenError::Directory(dir.to_owned(), error))?;
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

/// Answers until the shutdown, and then for `drain` what is under way.
pub async fn serve(socket: Listening, driver: Driver, shutdown: Shutdown, drain: Duration) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = async {
            let place = Arc::clone(&room).acquire_owned().await;
            (socket.listener.accept().await, place)
        };
        let (stream, place) = tokio::select! {
            (Ok((stream, _)), Ok(place)) = accepted => (stream, place),
            () = shutdown.requested() => break,
            else => {
                // Out of file descriptors, perhaps: that passes, and a busy loop does not help.
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let driver = driver.clone();
        connections.spawn(async move {
            connection(stream, driver).await;
            drop(place);
        });
    }
    drop(socket);
    let rest = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(drain, rest).await;
}

/// One connection: one question, one answer, and whether it went out.
async fn connection(stream: UnixStream, driver: Driver) {
    let (delivery, written) = (Arc::new(Delivery::default()), Arc::new(AtomicBool::new(false)));
    let service = {
        let (driver, delivery, written) = (driver.clone(), Arc::clone(&delivery), written.clone());
        service_fn(move |request| {
            let (driver, delivery, written) =
                (driver.clone(), Arc::clone(&delivery), written.clone());
            async move {
                Ok::<_, Infallible>(response(driver.respond(request, delivery).await, written))
            }
        })
    };
    let served =
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    let served = matches!(timeout(CONNECTION, served).await, Ok(Ok(())));
    if let Some(reference) = delivery.end(served && written.load(Ordering::SeqCst)) {
        driver.undelivered(reference).await;
    }
}

impl Driver {
    async fn respond(
        &self,
        request: Request<Incoming>,
        delivery: Arc<Delivery>,
    ) -> (StatusCode, Answer) {
        let refused = |status, error: &str| (status, Answer::error(error.to_owned()));
        let Some(endpoint) = Endpoint::of(request.uri().path()) else {
            return refused(StatusCode::NOT_FOUND, "there is no such endpoint");
        };
        if request.method() != Method::POST {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "everything here is a POST");
        }
        let body = match Limited::new(request.into_body(), QUESTION_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return refused(StatusCode::BAD_REQUEST, &error.to_string()),
        };
        let question = if body.iter().all(u8::is_ascii_whitespace) {
            Question::default()
        } else {
            match serde_json::from_slice(&body) {
                Ok(question) => question,
                Err(error) => {
                    let error = format!("the question cannot be read: {error}");
                    return refused(StatusCode::BAD_REQUEST, &error);
                }
            }
        };
        // A task of its own: a connection that ends must not end a change half-way.
        let (driver, name) = (self.clone(), question.name.clone());
        let answer =
            tokio::spawn(async move { driver.answer(endpoint, question, delivery).await }).await;
        match answer {
            Ok(Ok(answer)) => (StatusCode::OK, answer),
            Ok(Err(error)) => {
                tracing::warn!(?endpoint, name, error, "Docker was refused");
                (StatusCode::INTERNAL_SERVER_ERROR, Answer::error(error))
            }
            Err(error) => {
                tracing::error!(?endpoint, name, %error, "no answer for Docker");
                refused(StatusCode::INTERNAL_SERVER_ERROR, "berth-docker ended before it answered")
            }
        }
    }
}

fn response(
    (status, answer): (StatusCode, Answer),
    written: Arc<AtomicBool>,
) -> Response<Answered> {
    let text = serde_json::to_vec(&answer).unwrap_or_default();
    let mut response = Response::new(Answered { body: Full::new(text.into()), written });
    *response.status_mut() = status;
    let form = HeaderValue::from_static(protocol::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, form);
    response
}

/// An answer's body that says when it was taken to be written.
struct Answered {
    body: Full<Bytes>,
    written: Arc<AtomicBool>,
}

impl Body for Answered {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        self.written.store(true, Ordering::SeqCst);
        frame
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
    async fn a_file_at_the_sockets_path_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("berth.sock");
        fs::write(&path, "somebody's data").unwrap();
        let refused = Listening::at(&path).unwrap_err().to_string();
        assert!(refused.contains("berth.sock is a file, not a socket"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's data");
        fs::remove_file(&path).unwrap();

        let listening = Listening::at(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let served = Listening::at(&path).unwrap_err().to_string();
        assert!(served.contains("another process"), "{served}");
        drop(listening);
        assert!(!path.exists());

        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let refused = Listening::at(&path).unwrap_err().to_string();
        assert!(refused.contains("writable by others"), "{refused}");
    }
}
