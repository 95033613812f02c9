//! Starts telemetry, and ends it within a bound.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::config::{Protocol, TelemetryConfig};
use crate::endpoint::{Endpoint, Sources};
use crate::http::OnRuntime;
use crate::losses::Losses;
use crate::meters::CountedMetrics;
use crate::prometheus;
use crate::ready::ReadyCheck;
use crate::resource::Identity;
use crate::settings::{Settings, Target};
use crate::sink::Sink;
use crate::tracer::Tracer;
use crate::{global, metric};

/// Why telemetry could not be started. An unreachable collector is no error here.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is no tokio runtime, on which exports would run.
    #[error("telemetry was started outside of a tokio runtime")]
    NoRuntime,
    /// The address for scraping cannot be bound.
    #[error("`telemetry.metrics_listen` {address} cannot be listened on; take a free port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The SDK has no reader of metrics.
    #[error("metrics cannot be scraped")]
    Reader(#[source] OTelSdkError),
}

/// The exports of a process, until [`end`](Self::end).
#[derive(Debug)]
pub struct Telemetry {
    tracer: Tracer,
    meters: Option<SdkMeterProvider>,
    scraped: Option<Endpoint>,
}

/// Starts the exports that the variables and the configuration request, for the whole process: the
/// spans of [`Span::root`](crate::Span::root) and its like are exported, and the values of all
/// [metrics](metric) are kept. `ready` answers `/readyz`. Call it once per process, within its
/// runtime.
pub fn start(
    identity: &Identity,
    config: &TelemetryConfig,
    ready: Option<ReadyCheck>,
) -> Result<Telemetry, StartError> {
    let telemetry = Telemetry::new(identity, config, ready)?;
    if let Some(meters) = &telemetry.meters {
        metric::bind(&meters.meter("berth"));
    }
    if !global::set(telemetry.tracer.clone()) {
        tracing::warn!("telemetry was started twice; the first goes on");
    }
    Ok(telemetry)
}

impl Telemetry {
    /// Starts the requested exports, for spans that are made by its [`tracer`](Self::tracer).
    pub fn new(
        identity: &Identity,
        config: &TelemetryConfig,
        ready: Option<ReadyCheck>,
    ) -> Result<Self, StartError> {
        let settings = Settings::read(config, |name| std::env::var(name).ok());
        let runtime = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        for note in &settings.notes {
            tracing::warn!(note, "telemetry goes without what it cannot use");
        }
        let making = Making { settings, resource: identity.resource(), runtime };
        let mut meters = SdkMeterProvider::builder().with_resource(making.resource.clone());
        let pushed =
            make_or_log("metrics", making.settings.metrics.as_ref(), |to| making.metrics(to));
        let any = pushed.is_some() || config.metrics_listen.is_some();
        if let Some(exporter) = pushed {
            // The SDK reads the interval from OTEL_METRIC_EXPORT_INTERVAL.
            meters = meters.with_reader(PeriodicReader::builder(exporter).build());
        }
        let mut scraped = None;
        if let Some(address) = config.metrics_listen {
            let (reader, registry) = prometheus::reader().map_err(StartError::Reader)?;
            meters = meters.with_reader(reader);
            let sources = Sources { registry, process: making.runtime.clone(), ready };
            let endpoint = Endpoint::listen(address, sources);
            scraped = Some(endpoint.map_err(|source| StartError::Listen { address, source })?);
        }
        let sink = make_or_log("traces", making.settings.traces.as_ref(), |to| making.spans(to));
        let tracer = Tracer::new(sink.map(Arc::new), making.settings.sampler);
        Ok(Self { tracer, meters: any.then(|| meters.build()), scraped })
    }

    /// The tracer that makes this telemetry's spans.
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// The address of `GET /metrics`, `/healthz` and `/readyz`, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.scraped.as_ref().map(Endpoint::address)
    }

    /// The numbers of spans dropped so far: those that could not be sent, and those that did not
    /// fit into the queue.
    pub fn dropped_spans(&self) -> (u64, u64) {
        self.tracer.sink().map_or((0, 0), |sink| sink.losses().counts())
    }

    /// Sends the queued spans and metrics, for at most `within`; the rest is lost. Call it last in
    /// a process.
    pub async fn end(self, within: Duration) {
        let Self { tracer, meters, scraped } = self;
        if let Some(endpoint) = scraped {
            endpoint.stop(within).await;
        }
        // Both block. A thread that still hangs after the time ends with the process.
        let spans = spawn_blocking(move || tracer.sink().map(|sink| sink.end(within)));
        let metrics =
            spawn_blocking(move || meters.map(|provider| provider.shutdown_with_timeout(within)));
        let ending = async { tokio::join!(spans, metrics) };
        let ended = tokio::time::timeout(within, ending).await;
        if !matches!(ended, Ok((Ok(None | Some(Ok(()))), Ok(None | Some(Ok(())))))) {
            tracing::debug!(?within, "not all telemetry was sent before the end");
        }
    }
}

/// Makes the exporter of a target. If that fails, the log has the reason, and the process goes on
/// without it.
fn make_or_log<T>(
    signal: &'static str,
    target: Option<&Target>,
    make: impl FnOnce(&Target) -> Result<T, ExporterBuildError>,
) -> Option<T> {
    let target = target?;
    match make(target) {
        Ok(exporter) => {
            tracing::info!(signal, endpoint = target.endpoint, "telemetry is exported");
            Some(exporter)
        }
        Err(error) => {
            tracing::warn!(signal, %error, "telemetry is not exported");
            None
        }
    }
}

/// The parts of the exporters of both signals.
struct Making {
    settings: Settings,
    resource: Resource,
    runtime: Handle,
}

/// An exporter to a target. The builders of both signals have the same form and different types.
macro_rules! exporter {
    ($signal:ident, $to:expr, $runtime:expr) => {
        match $to.protocol {
            Protocol::Grpc => $signal::builder()
                .with_tonic()
                .with_endpoint(&$to.endpoint)
                .with_timeout($to.timeout)
                .build(),
            Protocol::Http => $signal::builder()
                .with_http()
                .with_http_client(OnRuntime::new($runtime.clone(), $to.timeout))
                .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
                .with_endpoint(&$to.endpoint)
                .with_timeout($to.timeout)
                .build(),
        }
    };
}

impl Making {
    fn spans(&self, to: &Target) -> Result<Sink, ExporterBuildError> {
        let exporter = exporter!(SpanExporter, to, self.runtime)?;
        let losses = Arc::new(Losses::new("traces", to.endpoint.clone()));
        Ok(Sink::new(exporter, self.settings.waiting_max, losses, &self.resource))
    }

    fn metrics(&self, to: &Target) -> Result<CountedMetrics<MetricExporter>, ExporterBuildError> {
        let exporter = exporter!(MetricExporter, to, self.runtime)?;
        let losses = Arc::new(Losses::new("metrics", to.endpoint.clone()));
        Ok(CountedMetrics { exporter, losses })
    }
}
