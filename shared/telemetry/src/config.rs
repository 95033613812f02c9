//! The `[telemetry]` part of a service's configuration.

use std::net::SocketAddr;

use berth_contract::decode::{Decode, Decoder};
use berth_contract::decode_leaf;
use serde::Deserialize;
use serde_json::Value;

/// The transport of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Protocol {
    /// Protobuf over gRPC; collectors listen on port 4317.
    #[serde(rename = "grpc")]
    Grpc,
    /// Protobuf over HTTP; collectors listen on port 4318. The standard's default.
    #[default]
    #[serde(rename = "http/protobuf")]
    Http,
}
decode_leaf!(Protocol);

/// The destination of telemetry in the configuration file. The standard variables override it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TelemetryConfig {
    /// The collector, such as `http://127.0.0.1:4318`; without one nothing is exported.
    pub endpoint: Option<String>,
    /// The transport to the collector.
    pub protocol: Option<Protocol>,
    /// The address of `GET /metrics` in Prometheus's text form, of `/healthz` and of `/readyz`;
    /// `None` serves nothing.
    pub metrics_listen: Option<SocketAddr>,
}

impl Decode for TelemetryConfig {
    fn decode(value: Value, decoder: &mut Decoder) -> Option<Self> {
        let mut object = decoder.object(value)?;
        let endpoint: Option<Option<String>> = decoder.field(&mut object, "endpoint");
        let protocol: Option<Option<Protocol>> = decoder.field(&mut object, "protocol");
        let listen: Option<Option<String>> = decoder.field(&mut object, "metrics_listen");
        decoder.finish(&object, &["endpoint", "protocol", "metrics_listen"]);
        let checked = endpoint.iter().flatten().try_for_each(|text| check_endpoint(text));
        let address = listen.flatten().map(|text| text.parse::<SocketAddr>()).transpose();
        let sound = decoder.demand(checked.is_ok(), "endpoint", checked.err().unwrap_or_default())
            & decoder.demand(
                address.is_ok(),
                "metrics_listen",
                "is no address and port such as 127.0.0.1:9464",
            );
        let metrics_listen = address.ok().filter(|_| sound)?;
        Some(Self { endpoint: endpoint?, protocol: protocol?, metrics_listen })
    }
}

/// Checks an endpoint. Credentials must be in `OTEL_EXPORTER_OTLP_HEADERS`, which is not shown
/// anywhere.
pub(crate) fn check_endpoint(endpoint: &str) -> Result<(), &'static str> {
    let authority = match endpoint.split_once("://") {
        Some(("http", rest)) => rest.split('/').next().unwrap_or_default(),
        Some(("https", _)) => {
            return Err("must begin with http://; for an encrypted export run a collector here");
        }
        _ => return Err("must be http://HOST:PORT"),
    };
    if authority.contains('@') {
        return Err("must not hold credentials; give them by OTEL_EXPORTER_OTLP_HEADERS");
    }
    if authority.is_empty() || endpoint.contains(char::is_whitespace) {
        return Err("must be http://HOST:PORT");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use berth_contract::decode::{Unknown, decode};
    use serde_json::json;

    use super::*;

    #[test]
    fn all_faults_come_at_once() {
        let input = json!({
            "endpoint": "https://c:4317", "protocol": "pigeon", "metrics_listen": "9464",
            "colour": 1,
        });
        let faults = decode::<TelemetryConfig>(input, Unknown::Fault).unwrap_err();
        let paths: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert_eq!(paths, ["protocol", "colour", "endpoint", "metrics_listen"]);
    }

    #[test]
    fn an_endpoint_is_a_host_and_no_password() {
        for endpoint in ["http://127.0.0.1:4318", "http://[::1]:4317", "http://c/path"] {
            assert_eq!(check_endpoint(endpoint), Ok(()), "{endpoint}");
        }
        for endpoint in ["", "c:4317", "http://", "http://u:p@c", "https://c", "http://a b"] {
            assert!(check_endpoint(endpoint).is_err(), "{endpoint}");
        }
    }
}
