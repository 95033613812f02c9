//! Logs: structured, to standard error, with the trace id if there is one. Also names the process
//! in its exported spans and metrics.

use std::io::IsTerminal;

use berth_contract::decode_leaf;
use berth_contract::decode_struct;
use berth_telemetry::{Identity, ReadyCheck, StartError, Telemetry, TelemetryConfig};
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object per line, for programs.
    Json,
}
decode_leaf!(LogFormat);

/// The default filter. The client library's `info` lines are left out, because the bus logs the
/// same events.
const USUAL_FILTER: &str = "info,async_nats=warn";

/// The `[log]` part of a service's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// The log filter, in the form of `RUST_LOG`, such as `info,berth_bus=debug`.
    pub filter: String,
    /// How they are written.
    pub format: LogFormat,
}
decode_struct!(LogConfig { filter = USUAL_FILTER.to_owned(), format = LogFormat::Text });

impl Default for LogConfig {
    fn default() -> Self {
        Self { filter: USUAL_FILTER.to_owned(), format: LogFormat::Text }
    }
}

/// Why logging could not be started.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is not valid.
    #[error("`log.filter` is no filter: {0}")]
    Filter(String),
    /// Logging was started before.
    #[error("logging was started twice")]
    Twice,
}

/// Starts logging; once per process.
pub fn start(config: &LogConfig) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(&config.filter)
        .map_err(|error| TelemetryError::Filter(error.to_string()))?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match config.format {
        LogFormat::Text => logs.try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    }
    .map_err(|_| TelemetryError::Twice)
}

/// Exports this process's spans and metrics from now on, if a receiver is configured. `instance`
/// distinguishes this process from others of the same service. `ready` answers whether the process
/// is ready.
pub fn export(
    service: &str,
    instance: &str,
    config: &TelemetryConfig,
    ready: Option<ReadyCheck>,
) -> Result<Telemetry, StartError> {
    let identity = Identity {
        service: service.to_owned(),
        version: berth_version::current().to_owned(),
        instance: instance.to_owned(),
        host: host(),
    };
    berth_telemetry::start(&identity, config, ready)
}

/// This host's name.
pub fn host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => "unnamed-host".to_owned(),
        host => host.to_owned(),
    }
}
