//! The two endpoints: gRPC, and HTTP with protobuf.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;

use super::{Manner, Received, lock, metric, span};

type SharedReceived = Arc<Mutex<Received>>;

/// Takes or refuses a request, by the collector's manner. False when it is refused.
async fn take(
    received: &SharedReceived,
    headers: &HeaderMap<HeaderValue>,
    raw: &[u8],
    keep: impl FnOnce(&mut Received),
) -> bool {
    let manner = {
        let mut received = lock(received);
        received.requests += 1;
        for (name, value) in headers {
            received.headers.push(format!("{name}: {}", value.to_str().unwrap_or("?")));
        }
        if received.manner == Manner::Takes {
            received.raw.extend_from_slice(raw);
            keep(&mut received);
        }
        received.manner
    };
    match manner {
        Manner::Takes => true,
        Manner::Refuses => false,
        Manner::Hangs => std::future::pending().await,
    }
}

fn refused() -> tonic::Status {
    tonic::Status::permission_denied("the test has the collector refuse")
}

struct Grpc(SharedReceived);

#[tonic::async_trait]
impl TraceService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let (headers, _, request) = request.into_parts();
        let (raw, spans) = (request.encode_to_vec(), span::read(&request));
        let headers = headers.into_headers();
        let taken = take(&self.0, &headers, &raw, |received| received.spans.extend(spans)).await;
        taken
            .then(|| tonic::Response::new(ExportTraceServiceResponse::default()))
            .ok_or_else(refused)
    }
}

#[tonic::async_trait]
impl MetricsService for Grpc {
    async fn export(
        &self,
        request: tonic::Request<ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<ExportMetricsServiceResponse>, tonic::Status> {
        let (headers, _, request) = request.into_parts();
        let (raw, metrics) = (request.encode_to_vec(), metric::read(&request));
        let headers = headers.into_headers();
        let taken =
            take(&self.0, &headers, &raw, |received| received.metrics.extend(metrics)).await;
        taken
            .then(|| tonic::Response::new(ExportMetricsServiceResponse::default()))
            .ok_or_else(refused)
    }
}

pub(super) async fn grpc(address: SocketAddr, received: SharedReceived) -> JoinHandle<()> {
    let listener = TcpListener::bind(address).await.expect("the port is reserved");
    let server = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(Grpc(Arc::clone(&received))))
        .add_service(MetricsServiceServer::new(Grpc(received)))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(async move {
        server.await.expect("the collector's gRPC server runs");
    })
}

pub(super) async fn http(address: SocketAddr, received: SharedReceived) -> JoinHandle<()> {
    let listener = TcpListener::bind(address).await.expect("the port is reserved");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let received = Arc::clone(&received);
            let service = service_fn(move |request| answer(Arc::clone(&received), request));
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new();
                // A client that disconnects is not a failure.
                let _ = connection.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}

async fn answer(
    received: SharedReceived,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let taken = match parts.uri.path() {
        "/v1/traces" => match ExportTraceServiceRequest::decode(body.clone()) {
            Ok(request) => {
                let spans = span::read(&request);
                take(&received, &parts.headers, &body, |received| received.spans.extend(spans))
                    .await
            }
            Err(_) => false,
        },
        "/v1/metrics" => match ExportMetricsServiceRequest::decode(body.clone()) {
            Ok(request) => {
                let metrics = metric::read(&request);
                take(&received, &parts.headers, &body, |received| received.metrics.extend(metrics))
                    .await
            }
            Err(_) => false,
        },
        _ => false,
    };
    let mut response = Response::new(Full::new(Bytes::new()));
    if !taken {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    Ok(response)
}
