//! A collector of spans and metrics, in the test's own process.
//!
//! Owns: what it received over gRPC and HTTP, and queries of it: which spans make a trace, which
//! spans have a parent that was not sent ([`Spans::orphans`]), and whether a secret is anywhere in
//! it ([`Collector::mentions`]). Promises: it takes what any exporter of OTLP sends. Never: knows
//! what Berth's spans mean.

mod metric;
mod receive;
mod span;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;

use crate::ports::Port;

pub use metric::{Metric, Point};
pub use span::{Span, Spans};

/// How a collector answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// It takes everything.
    #[default]
    Takes,
    /// It refuses everything with an error that must not be retried.
    Refuses,
    /// It takes the request and never answers.
    Hangs,
}

/// A running collector; it ends when it is dropped.
#[derive(Debug)]
pub struct Collector {
    grpc: Port,
    http: Port,
    received: Arc<Mutex<Received>>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Received {
    manner: Manner,
    requests: usize,
    spans: Vec<Span>,
    metrics: Vec<Metric>,
    /// Headers of the requests, as `name: value`.
    headers: Vec<String>,
    /// Every request as it was sent.
    raw: Vec<u8>,
}

impl Collector {
    /// Starts a collector that takes everything.
    ///
    /// # Panics
    /// When its ports cannot be listened on.
    pub async fn start() -> Self {
        let (grpc, http) = (Port::reserve(), Port::reserve());
        let received = Arc::<Mutex<Received>>::default();
        let tasks = vec![
            receive::grpc(grpc.address(), Arc::clone(&received)).await,
            receive::http(http.address(), Arc::clone(&received)).await,
        ];
        Self { grpc, http, received, tasks }
    }

    /// Its gRPC endpoint, for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn grpc(&self) -> String {
        url(self.grpc.address())
    }

    /// Its HTTP endpoint, for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn http(&self) -> String {
        url(self.http.address())
    }

    /// Answers like this from now on.
    pub fn behave(&self, manner: Manner) {
        self.lock().manner = manner;
    }

    /// How many requests came, also refused and unanswered ones.
    pub fn requests(&self) -> usize {
        self.lock().requests
    }

    /// Every span it took.
    pub fn spans(&self) -> Spans {
        Spans(self.lock().spans.clone())
    }

    /// Every metric of this name that it took, from all processes; the newest comes last.
    pub fn metrics(&self, name: &str) -> Vec<Metric> {
        self.lock().metrics.iter().filter(|metric| metric.name == name).cloned().collect()
    }

    /// Whether a request had this header.
    pub fn had_header(&self, name: &str, value: &str) -> bool {
        self.lock().headers.contains(&format!("{name}: {value}"))
    }

    /// Whether this text is anywhere in what it received: a name, a value, a message, a label.
    pub fn mentions(&self, text: &str) -> bool {
        let received = self.lock();
        // Protobuf keeps every string in one piece.
        !text.is_empty() && received.raw.windows(text.len()).any(|part| part == text.as_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, Received> {
        lock(&self.received)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn lock(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}")
}
