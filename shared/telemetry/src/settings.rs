//! What is exported, to which endpoint and how: the standard variables override the configuration
//! file.
//!
//! **Owns** the precedence: a signal's own variable, the variable for all signals, the file.
//!
//! **Promises** that an invalid variable stops telemetry but not the service, as the standard
//! requires: it is named in a note for the log.
//!
//! **Never** reads headers: the exporter reads those itself.

use std::time::Duration;

use crate::config::{Protocol, TelemetryConfig, check_endpoint};
use crate::sampler::Sampler;

/// Timeout of an export; `OTEL_EXPORTER_OTLP_TIMEOUT` overrides it.
const EXPORT_MAX: Duration = Duration::from_secs(10);
/// Default number of spans in the queue; `OTEL_BSP_MAX_QUEUE_SIZE` overrides it.
const QUEUED_DEFAULT: usize = 2048;
/// The largest queue that the variable can set, in spans.
const QUEUED_MAX: usize = 65_536;

/// The signals that are exported.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) traces: Option<Target>,
    pub(crate) metrics: Option<Target>,
    pub(crate) sampler: Sampler,
    pub(crate) waiting_max: usize,
    /// Notes for the log: invalid variables, which have no effect.
    pub(crate) notes: Vec<String>,
}

/// The destination of one signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) endpoint: String,
    pub(crate) protocol: Protocol,
    pub(crate) timeout: Duration,
}

#[derive(Clone, Copy)]
enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    fn upper(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }
}

impl Settings {
    /// Reads the settings; `variable` returns a variable's value.
    pub(crate) fn read(
        config: &TelemetryConfig,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Self {
        // By the standard, an empty variable counts as not set.
        let get = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let mut settings = Self { waiting_max: QUEUED_DEFAULT, ..Self::default() };
        if get("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return settings;
        }
        settings.traces = settings.target(Signal::Traces, config, &get);
        settings.metrics = settings.target(Signal::Metrics, config, &get);
        if let Some(name) = get("OTEL_TRACES_SAMPLER") {
            match Sampler::parse(&name, get("OTEL_TRACES_SAMPLER_ARG").as_deref()) {
                Ok(sampler) => settings.sampler = sampler,
                Err(note) => settings.notes.push(note),
            }
        }
        if let Some(text) = get("OTEL_BSP_MAX_QUEUE_SIZE") {
            if let Ok(size @ 1..=QUEUED_MAX) = text.trim().parse() {
                settings.waiting_max = size;
            } else {
                let note = format!("OTEL_BSP_MAX_QUEUE_SIZE must be 1 to {QUEUED_MAX}");
                settings.notes.push(note);
            }
        }
        settings
    }

    fn target(
        &mut self,
        signal: Signal,
        config: &TelemetryConfig,
        get: &impl Fn(&str) -> Option<String>,
    ) -> Option<Target> {
        let exporter = format!("OTEL_{}_EXPORTER", signal.upper());
        match get(&exporter).as_deref().map(str::trim) {
            None | Some("otlp") => {}
            Some("none") => return None,
            Some(unknown) => {
                self.notes.push(format!("{exporter}: {unknown:?} is neither otlp nor none"));
                return None;
            }
        }
        let own = |suffix: &str| format!("OTEL_EXPORTER_OTLP_{}_{suffix}", signal.upper());
        let for_all = |suffix: &str| format!("OTEL_EXPORTER_OTLP_{suffix}");
        let either = |what: &str| {
            let names = [own(what), for_all(what)].into_iter();
            names.map(|name| (get(&name), name)).find_map(|(text, name)| Some((name, text?)))
        };
        let protocol = match either("PROTOCOL") {
            None => config.protocol.unwrap_or_default(),
            Some((name, text)) => match text.trim() {
                "grpc" => Protocol::Grpc,
                "http/protobuf" => Protocol::Http,
                other => {
                    let fault = "is neither grpc nor http/protobuf";
                    self.notes.push(format!("{name}: {other:?} {fault}"));
                    return None;
                }
            },
        };
        let based = |base: String| match protocol {
            Protocol::Grpc => base,
            Protocol::Http => format!("{}{}", base.trim_end_matches('/'), signal.path()),
        };
        let (name, endpoint) = match (get(&own("ENDPOINT")), get(&for_all("ENDPOINT"))) {
            // A signal's own endpoint is used unchanged.
            (Some(endpoint), _) => (own("ENDPOINT"), endpoint),
            (None, Some(base)) => (for_all("ENDPOINT"), based(base)),
            (None, None) => ("telemetry.endpoint".to_owned(), based(config.endpoint.clone()?)),
        };
        let endpoint = match (protocol, endpoint.contains("://")) {
            (Protocol::Grpc, false) => format!("http://{}", endpoint.trim()),
            _ => endpoint.trim().to_owned(),
        };
        if let Err(what) = check_endpoint(&endpoint) {
            self.notes.push(format!("{name} {what}"));
            return None;
        }
        let timeout = match either("TIMEOUT").map(|(name, text)| (text.trim().parse(), name)) {
            None => EXPORT_MAX,
            Some((Ok(ms @ 1..), _)) => Duration::from_millis(ms),
            Some((_, name)) => {
                self.notes.push(format!("{name} must be milliseconds, at least 1"));
                EXPORT_MAX
            }
        };
        Some(Target { endpoint, protocol, timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(config: &TelemetryConfig, variables: &[(&str, &str)]) -> Settings {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::read(config, |name| find(name).map(|(_, text)| (*text).to_owned()))
    }

    fn endpoints(settings: &Settings) -> (Option<&str>, Option<&str>) {
        (
            settings.traces.as_ref().map(|target| target.endpoint.as_str()),
            settings.metrics.as_ref().map(|target| target.endpoint.as_str()),
        )
    }

    #[test]
    fn nothing_is_exported_unless_somebody_says_where() {
        let settings = read(&TelemetryConfig::default(), &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]);
        assert_eq!(settings, Settings { waiting_max: QUEUED_DEFAULT, ..Settings::default() });
    }

    #[test]
    fn variables_go_over_the_file_and_a_signals_own_over_all() {
        let file =
            TelemetryConfig { endpoint: Some("http://file:1/".to_owned()), ..Default::default() };
        let settings = read(&file, &[]);
        let from_file = (Some("http://file:1/v1/traces"), Some("http://file:1/v1/metrics"));
        assert_eq!(endpoints(&settings), from_file);
        let settings = read(
            &file,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:2"),
                ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://own:3/as/is"),
                ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "7"),
            ],
        );
        assert_eq!(endpoints(&settings), (Some("http://all:2"), Some("http://own:3/as/is")));
        let traces = settings.traces.unwrap();
        assert_eq!((traces.protocol, traces.timeout.as_millis()), (Protocol::Grpc, 250));
        assert_eq!(settings.metrics.unwrap().protocol, Protocol::Http);
        assert_eq!((settings.waiting_max, settings.notes.len()), (7, 0));
    }

    #[test]
    fn what_is_switched_off_stays_off() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        let off = read(&TelemetryConfig::default(), &[endpoint, ("OTEL_SDK_DISABLED", "True")]);
        assert_eq!(endpoints(&off), (None, None));
        let none =
            read(&TelemetryConfig::default(), &[endpoint, ("OTEL_METRICS_EXPORTER", "none")]);
        assert_eq!(endpoints(&none), (Some("http://c:4318/v1/traces"), None));
    }

    #[test]
    fn what_cannot_be_used_is_noted_without_its_value_where_that_may_be_secret() {
        let settings = read(
            &TelemetryConfig::default(),
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:hidden@c:4318"),
                ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"),
                ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ],
        );
        assert_eq!(endpoints(&settings), (None, None));
        assert_eq!(settings.notes.len(), 4, "{:?}", settings.notes);
        assert!(!settings.notes.concat().contains("hidden"));
    }
}
