//! A service's own program, with variables and without.

use std::time::Duration;

use berth_harness::dirs::Dir;
use berth_harness::nats::Server;
use berth_harness::otlp::Collector;
use berth_harness::ports::Port;
use berth_harness::process::{Program, binary};
use berth_harness::wait;

use crate::PATIENCE;
use crate::metrics::{get, series};

#[tokio::test]
async fn a_service_is_scraped_and_exports_what_is_left_when_it_ends() {
    let collector = Collector::start().await;
    let (server, dir, port) = (Server::start().await, Dir::new("telemetry"), Port::reserve());
    let service = binary("berth-plugin-registry");
    let service = Program::new("plugin-registry", service, dir.join("log"))
        .env("BERTH__NATS__URL", server.url())
        .env("BERTH__NATS__INSECURE", "true")
        .env("BERTH__TELEMETRY__METRICS_LISTEN", port.address().to_string())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.grpc())
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .start();
    wait::until("the endpoint says that the service is connected", PATIENCE, async || {
        if !service.log().contains("started") {
            return Err("not started".to_owned());
        }
        let (status, body) = get(port.address(), "/metrics").await;
        match series(&body).get("berth_bus_connected") {
            Some(connected) if *connected > 0.5 => Ok(()),
            _ => Err(format!("{status}\n{body}")),
        }
    })
    .await;
    // The next export by interval would come after a minute.
    assert!(collector.metrics("berth.bus.connected").is_empty());
    assert!(service.terminate().await.success(), "{}", service.log());
    let connected = collector.metrics("berth.bus.connected").pop().unwrap();
    assert_eq!(connected.resource["service.name"], "berth-plugin-registry");
    assert!(connected.resource["service.instance.id"].starts_with("plugin-registry/"));
    let orphans = collector.spans();
    assert!(orphans.orphans().is_empty(), "{}", orphans.tree());
}

#[tokio::test]
async fn a_service_that_nobody_could_scrape_says_so_and_ends() {
    let (dir, taken) = (Dir::new("telemetry"), Port::reserve());
    let _listener = tokio::net::TcpListener::bind(taken.address()).await.unwrap();
    let service = binary("berth-plugin-registry");
    let service = Program::new("plugin-registry", service, dir.join("log"))
        .env("BERTH__TELEMETRY__METRICS_LISTEN", taken.address().to_string())
        .start();
    let status = service.wait_exit(Duration::from_secs(20)).await;
    assert!(!status.success());
    let log = service.log();
    assert!(log.contains("telemetry.metrics_listen") && log.contains("take a free port"), "{log}");
}
