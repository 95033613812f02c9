//! Spans and metrics as a collector receives them.

#![expect(clippy::unwrap_used, reason = "what fails is a failed test")]

mod export;
mod health;
mod metrics;
mod outage;
mod service;
mod variables;

use std::time::Duration;

use berth_harness::otlp::{Collector, Spans};
use berth_harness::wait;
use berth_telemetry::{Identity, Protocol, Telemetry, TelemetryConfig};

/// The deadline of each wait, which only a failing test reaches.
const PATIENCE: Duration = Duration::from_secs(20);

fn identity() -> Identity {
    Identity {
        service: "tested".to_owned(),
        version: "0.0.1".to_owned(),
        instance: "tested/1".to_owned(),
        host: "here".to_owned(),
    }
}

fn config(endpoint: String, protocol: Protocol) -> TelemetryConfig {
    TelemetryConfig {
        endpoint: Some(endpoint),
        protocol: Some(protocol),
        ..TelemetryConfig::default()
    }
}

fn telemetry(endpoint: String, protocol: Protocol) -> Telemetry {
    Telemetry::new(&identity(), &config(endpoint, protocol), None).unwrap()
}

/// Waits until the collector has this many spans.
async fn spans(collector: &Collector, count: usize) -> Spans {
    wait::until("the spans have come", PATIENCE, async || {
        let spans = collector.spans();
        if spans.0.len() >= count { Ok(spans) } else { Err(spans.tree()) }
    })
    .await
}
