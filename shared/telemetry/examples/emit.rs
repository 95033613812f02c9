//! One trace of two spans, exported as the `OTEL_*` variables say: what a short-lived process does.

use std::time::Duration;

use berth_telemetry::{Identity, Kind, Span, StartError, TelemetryConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), StartError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let identity = Identity {
        service: "emit".to_owned(),
        version: "1.2.3".to_owned(),
        instance: format!("emit/{}", std::process::id()),
        host: "here".to_owned(),
    };
    let telemetry = berth_telemetry::start(&identity, &TelemetryConfig::default(), None)?;
    let root = Span::root("outer", Kind::Client).with("berth.volume", "default/v1");
    Span::child_of(root.context(), "inner", Kind::Internal).end();
    root.end();
    telemetry.end(Duration::from_secs(3)).await;
    Ok(())
}
