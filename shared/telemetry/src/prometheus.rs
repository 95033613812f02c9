//! The metrics in Prometheus's form.

use opentelemetry_prometheus::PrometheusExporter;
use opentelemetry_sdk::error::OTelSdkError;
use prometheus::Registry;

/// A reader of metrics, and the registry from which Prometheus's text is made.
pub(crate) fn reader() -> Result<(PrometheusExporter, Registry), OTelSdkError> {
    let registry = Registry::new();
    let exporter = opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        // All metrics have one scope, so a label for it would add nothing.
        .scope_info_enabled(false)
        .build()?;
    Ok((exporter, registry))
}
