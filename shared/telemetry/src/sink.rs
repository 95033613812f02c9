//! The queue of ended spans, and behind it the SDK's batches.
//!
//! **Promises** that [`Sink::take`] never waits, and that every lost span is counted. The SDK's own
//! queue counts losses without reporting them, so this queue comes first and is never larger.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor,
};

use crate::losses::Losses;

#[derive(Debug)]
pub(crate) struct Sink {
    batches: BatchSpanProcessor,
    /// Spans that were taken and are neither sent nor dropped yet.
    waiting: Arc<AtomicUsize>,
    waiting_max: usize,
    losses: Arc<Losses>,
}

impl Sink {
    pub(crate) fn new(
        exporter: impl SpanExporter + 'static,
        waiting_max: usize,
        losses: Arc<Losses>,
        resource: &Resource,
    ) -> Self {
        let waiting = Arc::<AtomicUsize>::default();
        let counted = CountedSpans { exporter, waiting: waiting.clone(), losses: losses.clone() };
        // The SDK reads the other settings from OTEL_BSP_….
        let config = BatchConfigBuilder::default().with_max_queue_size(waiting_max).build();
        let mut batches = BatchSpanProcessor::builder(counted).with_batch_config(config).build();
        batches.set_resource(resource);
        Self { batches, waiting, waiting_max, losses }
    }

    /// Queues a span to be sent soon, or drops it.
    pub(crate) fn take(&self, span: SpanData) {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < self.waiting_max {
            self.batches.on_end(span);
        } else {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.losses.overflowed();
        }
    }

    /// Sends the queued spans, for at most `within`, and ends. Blocks the thread.
    pub(crate) fn end(&self, within: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(within)
    }

    pub(crate) fn losses(&self) -> &Losses {
        &self.losses
    }
}

/// An exporter whose losses are counted.
#[derive(Debug)]
struct CountedSpans<E> {
    exporter: E,
    waiting: Arc<AtomicUsize>,
    losses: Arc<Losses>,
}

impl<E: SpanExporter> SpanExporter for CountedSpans<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let outcome = self.exporter.export(batch).await;
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        match &outcome {
            Ok(()) => self.losses.sent(),
            Err(error) => self.losses.unsent(count as u64, error),
        }
        outcome
    }

    fn shutdown_with_timeout(&self, within: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(within)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
