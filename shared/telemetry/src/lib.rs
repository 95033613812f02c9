//! Spans and metrics: the only crate that sees `OpenTelemetry`.
//!
//! **Owns** spans ([`Span`]), metrics ([`metric`]), and their export ([`start`]: OTLP, by the
//! standard `OTEL_*` variables or the `[telemetry]` part of a configuration); and the HTTP endpoint
//! for scraping, which also answers whether the process works and is ready. All of Berth passes
//! trace contexts as values; a span takes its parent's context and hands on its own.
//!
//! **Promises**
//! - that no work waits for telemetry: the end of a span is a push to a bounded queue. A span that
//!   does not fit or cannot be sent is dropped and counted, and logged once;
//! - that a span costs no allocation where nothing is exported. Its context is then its parent's,
//!   so that no trace names a span that was not recorded.
//!
//! **Never** records a value of a request other than ids, and never shows the value of a header,
//! which may be a credential for the collector.

pub mod attribute;
mod config;
mod endpoint;
mod global;
mod http;
mod losses;
mod meters;
pub mod metric;
mod prometheus;
mod ready;
mod resource;
mod sampler;
mod settings;
mod sink;
mod span;
mod start;
mod tracer;
mod value;

pub use config::{Protocol, TelemetryConfig};
pub use ready::ReadyCheck;
pub use resource::Identity;
pub use span::{Kind, Span};
pub use start::{StartError, Telemetry, start};
pub use tracer::Tracer;
pub use value::Value;
