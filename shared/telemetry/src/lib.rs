//! Spans and metrics: the only crate that sees `OpenTelemetry`.
//!
//! **Owns** what a span is here ([`Span`]), where spans and metrics go ([`start`]: OTLP by the
//! standard `OTEL_*` variables or the `[telemetry]` part of a configuration) and when they are
//! given up. Trace contexts are passed as values through all of Berth; a span takes one and hands
//! on its own.
//!
//! **Promises** that no work waits for telemetry: ending a span is a push to a bounded queue, what
//! does not fit or cannot be sent is dropped and counted, and that is logged once rather than each
//! time. Where nothing is exported a span costs nothing: no allocation, and its context is its
//! parent's, so that no trace names a span nobody recorded.
//!
//! **Never** takes a value of a request but its ids, and never shows a header's value: collectors
//! are given credentials in them.

pub mod attribute;
mod config;
mod global;
mod http;
mod losses;
mod meters;
pub mod metric;
mod prometheus;
mod resource;
mod sampler;
mod settings;
mod sink;
mod span;
mod start;
mod tracer;
mod value;

pub use config::{Protocol, TelemetryConfig};
pub use resource::Identity;
pub use span::{Kind, Span};
pub use start::{StartError, Telemetry, start};
pub use tracer::Tracer;
pub use value::Value;
