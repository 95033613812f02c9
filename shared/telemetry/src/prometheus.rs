//! `GET /metrics`, for Prometheus to scrape.
//!
//! **Promises** a bounded number of connections, each for ten seconds at most.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry_prometheus::PrometheusExporter;
use opentelemetry_sdk::error::OTelSdkError;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Connections served at once.
const CONNECTIONS_MAX: usize = 16;
/// The longest time of a connection.
const CONNECTION: Duration = Duration::from_secs(10);

/// The endpoint. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Endpoint {
    /// Starts to listen.
    pub(crate) async fn listen(address: SocketAddr, registry: Registry) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, serving: tokio::spawn(serve(listener, registry)) })
    }

    /// The address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A reader of metrics, and what it is scraped from.
pub(crate) fn reader() -> Result<(PrometheusExporter, Registry), OTelSdkError> {
    let registry = Registry::new();
    let exporter = opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        // All metrics have one scope, so a label for it says nothing.
        .scope_info_enabled(false)
        .build()?;
    Ok((exporter, registry))
}

async fn serve(listener: TcpListener, registry: Registry) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Perhaps no file descriptor is left. The pause prevents a busy loop.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let registry = registry.clone();
        tokio::spawn(async move {
            // An error means that the client left or speaks no HTTP.
            let _ = timeout(CONNECTION, answer(stream, registry)).await;
            drop(slot);
        });
    }
}

async fn answer(stream: TcpStream, registry: Registry) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let response = respond(&request, &registry);
        async { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await
}

fn respond(request: &Request<Incoming>, registry: &Registry) -> Response<Full<Bytes>> {
    let status = |code, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = code;
        response
    };
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => {
            match TextEncoder::new().encode_to_string(&registry.gather()) {
                Ok(text) => {
                    let mut response = status(StatusCode::OK, text);
                    let form = HeaderValue::from_static(TEXT_FORMAT);
                    response.headers_mut().insert(CONTENT_TYPE, form);
                    response
                }
                Err(error) => status(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            }
        }
        (_, "/metrics") => status(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        _ => status(StatusCode::NOT_FOUND, "see /metrics\n".to_owned()),
    }
}
