//! Metrics: counters, gauges and histograms with labels from closed sets.
//!
//! **Owns** the kinds of metric (`instrument`) and the bound on labels. The list of metrics is
//! [`registry`].
//!
//! **Promises** a bounded number of series: a label's value is a text of the program, or one of
//! the first 64 values ([`Bounded`]), and `other` for further ones. Where nothing is exported,
//! recording costs the load of one pointer.
//!
//! **Never** has an id of a volume, alloc, node or namespace as label: those belong into spans.

mod instrument;
mod label;
mod registry;

use opentelemetry::metrics::Meter;

pub use instrument::{About, Bound, Counter, Gauge, Histogram, Metric};
pub use label::{BUCKETS, Bounded, ENDPOINTS, Label, PLUGINS, SERVICES, STEPS};
pub use registry::*;

/// Starts to keep the values of all metrics.
pub(crate) fn bind(meter: &Meter) {
    for metric in ALL {
        metric.bind(&Bound(meter));
    }
}
