//! Metrics as a collector and as Prometheus receive them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use berth_harness::otlp::Collector;
use berth_harness::repository;
use berth_telemetry::metric::{ALL, CLAIMS_WAITING, COMMITS, COMMITS_DURATION, PLUGINS, page};
use berth_telemetry::{Protocol, TelemetryConfig, start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::identity;

/// One request over HTTP/1.1; the status line and the body.
pub async fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// Prometheus's text form: each series with its value.
pub fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

// One test, because a process has one set of metrics.
#[tokio::test]
async fn values_come_by_otlp_and_can_be_scraped() {
    let collector = Collector::start().await;
    let config = TelemetryConfig {
        endpoint: Some(collector.http()),
        protocol: Some(Protocol::Http),
        metrics_listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
    };
    // Before the start, nothing is kept and nothing fails.
    COMMITS.add(1, ["lost".into(), "stored".into()]);
    let telemetry = start(&identity(), &config, None).unwrap();
    COMMITS.add(2, ["volumes".into(), "stored".into()]);
    COMMITS.add(1, ["volumes".into(), "conflict".into()]);
    COMMITS_DURATION.record(Duration::from_millis(3), ["volumes".into()]);
    CLAIMS_WAITING.set(5, []);
    CLAIMS_WAITING.set(4, []);

    let address = telemetry.metrics_address().unwrap();
    let (status, body) = get(address, "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    let values = series(&body);
    let expected = [
        (r#"berth_commits_total{bucket="volumes",outcome="stored"}"#, 2.0),
        (r#"berth_commits_total{bucket="volumes",outcome="conflict"}"#, 1.0),
        (r#"berth_commits_duration_seconds_count{bucket="volumes"}"#, 1.0),
        (r#"berth_commits_duration_seconds_bucket{bucket="volumes",le="0.0025"}"#, 0.0),
        (r#"berth_commits_duration_seconds_bucket{bucket="volumes",le="0.005"}"#, 1.0),
        ("berth_claims_waiting", 4.0),
    ];
    for (name, value) in expected {
        assert_eq!(values.get(name), Some(&value), "{name} in\n{body}");
    }
    assert!(!body.contains("lost"), "{body}");
    assert!(body.contains("# HELP berth_commits_total") && body.contains("# TYPE"), "{body}");
    assert_eq!(get(address, "/").await.0, "HTTP/1.1 404 Not Found");
    // A client that connects and sends nothing delays no other.
    let _silent = TcpStream::connect(address).await.unwrap();
    assert_eq!(get(address, "/metrics").await.0, "HTTP/1.1 200 OK");

    telemetry.end(Duration::from_secs(3)).await;
    let commits = collector.metrics("berth.commits").pop().unwrap();
    assert_eq!((commits.unit.as_str(), &*commits.resource["service.name"]), ("{write}", "tested"));
    let total: f64 = commits.points.iter().map(|point| point.value).sum();
    assert!((total - 3.0).abs() < f64::EPSILON, "{commits:?}");
    let duration = collector.metrics("berth.commits.duration").pop().unwrap();
    assert_eq!(duration.points[0].count, Some(1));
    assert!(TcpStream::connect(address).await.is_err(), "it is answered after the end");
}

#[test]
fn every_metric_is_named_and_documented_in_one_way() {
    let mut names = std::collections::BTreeSet::new();
    for metric in ALL {
        let about = metric.about();
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '.' || c == '_';
        assert!(about.name.starts_with("berth.") && about.name.chars().all(is_plain), "{about:?}");
        assert!(names.insert(about.name), "{} is there twice", about.name);
        assert!(about.meaning.len() > 10 && !about.unit.is_empty(), "{about:?}");
        assert_eq!(metric.kind() == "histogram", about.unit == "s", "{about:?}");
        // Prometheus would call a plain 1 a ratio.
        let is_time = matches!(about.unit, "s" | "ms");
        assert!(is_time || about.unit.starts_with('{'), "{about:?}");
        let unbounded = ["volume", "alloc", "node", "namespace", "claim", "trace"];
        assert!(!about.labels.iter().any(|label| unbounded.contains(label)), "{about:?}");
    }
    // The purpose of the bound: many plugins do not make many series.
    for at in 0..1000 {
        let _ = PLUGINS.label(&format!("plugin-{at}"));
    }
    assert!(format!("{:?}", PLUGINS.label("one more")).contains("other"));
}

#[test]
fn the_reference_page_is_current() {
    let path = repository().join("docs/metrics.md");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "write it anew: cargo run -p berth-telemetry --example metrics-page > docs/metrics.md"
    );
}
