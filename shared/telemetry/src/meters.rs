//! The export of metrics by OTLP, with its losses counted.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;

use crate::losses::Losses;

/// An exporter whose losses are counted. A lost export is repaired by the next one, which has the
/// sums since the start.
#[derive(Debug)]
pub(crate) struct CountedMetrics<E> {
    pub(crate) exporter: E,
    pub(crate) losses: Arc<Losses>,
}

impl<E: PushMetricExporter> PushMetricExporter for CountedMetrics<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let outcome = self.exporter.export(metrics).await;
        match &outcome {
            Ok(()) => self.losses.sent(),
            Err(error) => {
                let scopes = metrics.scope_metrics();
                let count = scopes.map(|scope| scope.metrics().count() as u64).sum();
                self.losses.unsent(count, error);
            }
        }
        outcome
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, within: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(within)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}
