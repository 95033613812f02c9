//! The standard variables, in a process of its own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use berth_harness::dirs::Dir;
use berth_harness::otlp::Collector;
use berth_harness::ports::Port;
use berth_harness::process::Program;

use crate::{PATIENCE, spans};

/// `examples/emit.rs`, which cargo builds along with the tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().find(|dir| dir.ends_with("deps")).and_then(Path::parent);
    let path = profile.unwrap().join("examples/emit");
    assert!(path.is_file(), "build the examples too: cargo test -p berth-telemetry");
    path
}

/// Runs the example to its end; returns its log.
async fn emit(variables: &[(&str, &str)]) -> String {
    let dir = Dir::new("emit");
    let mut program = Program::new("emit", example(), dir.join("log"));
    for (name, value) in variables {
        program = program.env(name, value);
    }
    let daemon = program.start();
    let status = daemon.wait_exit(PATIENCE).await;
    assert!(status.success(), "{}", daemon.log());
    daemon.log()
}

#[tokio::test]
async fn variables_say_where_how_and_as_whom() {
    let collector = Collector::start().await;
    let endpoints = [(collector.grpc(), "grpc"), (collector.http(), "http/protobuf")];
    for (at, (endpoint, protocol)) in endpoints.iter().enumerate() {
        let log = emit(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hidden"),
            ("OTEL_SERVICE_NAME", "renamed"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,host.name=there"),
        ])
        .await;
        assert!(!log.contains("hidden") && !log.contains("WARN"), "{log}");
        let all = spans(&collector, 2 * (at + 1)).await;
        assert_eq!(all.tree(), "outer\n  inner\n".repeat(at + 1));
        let inner = all.named("inner").0.pop().unwrap();
        assert_eq!(inner.service(), "renamed");
        assert_eq!(inner.resource["deployment.environment.name"], "test");
        assert_eq!(inner.resource["host.name"], "there");
        assert_eq!(inner.resource["service.version"], "1.2.3");
    }
    assert!(collector.had_header("authorization", "Bearer hidden"));
    assert!(!collector.mentions("hidden"), "a header's value is in what was exported");
}

#[tokio::test]
async fn a_signals_own_variables_go_over_those_for_all() {
    let collector = Collector::start().await;
    let traces = format!("{}/v1/traces", collector.http());
    emit(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &traces),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-tenant=a"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ])
    .await;
    assert_eq!(spans(&collector, 2).await.tree(), "outer\n  inner\n");
    assert!(collector.had_header("x-tenant", "a"));
}

#[tokio::test]
async fn nothing_is_sent_when_it_is_switched_off() {
    let collector = Collector::start().await;
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.http());
    emit(&[endpoint, ("OTEL_SDK_DISABLED", "true")]).await;
    let no_metrics = ("OTEL_METRICS_EXPORTER", "none");
    emit(&[endpoint, no_metrics, ("OTEL_TRACES_EXPORTER", "none")]).await;
    emit(&[endpoint, no_metrics, ("OTEL_TRACES_SAMPLER", "always_off")]).await;
    assert_eq!(collector.requests(), 0);
    emit(&[endpoint]).await;
    assert!(collector.requests() > 0, "nothing would have been seen to be sent");
}

#[tokio::test]
async fn a_variable_that_cannot_be_used_costs_telemetry_and_is_named_once() {
    let log = emit(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://user:hidden@collector")]).await;
    assert!(log.contains("OTEL_EXPORTER_OTLP_ENDPOINT must begin with http://"), "{log}");
    assert!(!log.contains("hidden"), "{log}");
}

#[tokio::test]
async fn a_short_lived_process_ends_soon_without_its_collector() {
    let nobody = Port::reserve();
    let endpoint = format!("http://{}", nobody.address());
    let began = Instant::now();
    let log =
        emit(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), ("OTEL_METRICS_EXPORTER", "none")])
            .await;
    // Three seconds for the end, and the time that a busy machine takes to start a process.
    assert!(began.elapsed() < Duration::from_secs(8), "it took {:?}", began.elapsed());
    assert_eq!(log.matches("cannot be exported").count(), 1, "{log}");
}
