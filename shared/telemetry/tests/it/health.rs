//! `/healthz` and `/readyz`.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use berth_harness::dirs::Dir;
use berth_harness::nats::Server;
use berth_harness::ports::Port;
use berth_harness::process::{Program, binary};
use berth_harness::wait;
use berth_telemetry::{ReadyCheck, Telemetry, TelemetryConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::metrics::get;
use crate::{PATIENCE, identity};

const WELL: &str = "HTTP/1.1 200 OK";
const ILL: &str = "HTTP/1.1 503 Service Unavailable";

fn listening(ready: Option<ReadyCheck>) -> Telemetry {
    listening_at(SocketAddr::from(([127, 0, 0, 1], 0)), ready)
}

fn listening_at(address: SocketAddr, ready: Option<ReadyCheck>) -> Telemetry {
    let config = TelemetryConfig { metrics_listen: Some(address), ..TelemetryConfig::default() };
    Telemetry::new(&identity(), &config, ready).unwrap()
}

#[tokio::test]
async fn readiness_is_the_reasons_one_a_line() {
    let (reasons, known) = watch::channel(vec!["the bus is away".to_owned(), "a\nb".to_owned()]);
    // The port is reserved, so that no other test listens there after the end.
    let port = Port::reserve();
    let ready = ReadyCheck::new(move || {
        let now = known.borrow().clone();
        async move { now }
    });
    let telemetry = listening_at(port.address(), Some(ready));
    let address = telemetry.metrics_address().unwrap();
    let (status, body) = get(address, "/readyz").await;
    assert_eq!((status.as_str(), body.as_str()), (ILL, "the bus is away\na b\n"));
    // A process that is not ready is still healthy.
    assert_eq!(get(address, "/healthz").await, (WELL.to_owned(), "healthy\n".to_owned()));
    reasons.send_replace(Vec::new());
    assert_eq!(get(address, "/readyz").await, (WELL.to_owned(), "ready\n".to_owned()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"POST /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    telemetry.end(Duration::from_secs(3)).await;
    assert!(TcpStream::connect(address).await.is_err(), "it is answered after the end");

    let without = listening(None);
    let (status, body) = get(without.metrics_address().unwrap(), "/readyz").await;
    assert_eq!(status, "HTTP/1.1 404 Not Found", "{body}");
}

/// The process's only thread is busy: it answers no request, but the endpoint does.
#[tokio::test]
async fn a_process_that_hangs_is_not_healthy() {
    let (tell, told) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let (end, ends) = tokio::sync::oneshot::channel::<()>();
    let process = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let ready = ReadyCheck::new(|| async { Vec::new() });
            let telemetry = listening(Some(ready));
            tell.send(telemetry.metrics_address().unwrap()).unwrap();
            goes_on.recv().unwrap();
            ends.await.unwrap();
        });
    });
    let address = told.recv().unwrap();
    let (status, body) = get(address, "/healthz").await;
    assert_eq!(status, ILL);
    assert!(body.contains("has run no task for 2s"), "{body}");
    let (status, body) = get(address, "/readyz").await;
    assert_eq!((status.as_str(), body.contains("has not said")), (ILL, true), "{body}");
    assert_eq!(get(address, "/metrics").await.0, WELL);
    go_on.send(()).unwrap();
    wait::until("the process turns over again", PATIENCE, async || {
        let (status, body) = get(address, "/healthz").await;
        if status == WELL { Ok(()) } else { Err(body) }
    })
    .await;
    assert_eq!(get(address, "/readyz").await.0, WELL);
    end.send(()).unwrap();
    process.join().unwrap();
}

#[tokio::test]
async fn a_service_is_ready_while_its_bus_is_there() {
    let (bus_port, dir, port) = (Port::reserve(), Dir::new("telemetry"), Port::reserve());
    let start = |url: String, log: &str| {
        Program::new("plugin-registry", binary("berth-plugin-registry"), dir.join(log))
            .env("BERTH__NATS__URL", url)
            .env("BERTH__NATS__INSECURE", "true")
            .env("BERTH__TELEMETRY__METRICS_LISTEN", port.address().to_string())
            .start()
    };
    let becomes = async |status: &str, reason: &str| {
        wait::until(&format!("{status}: {reason}"), PATIENCE, async || {
            // The program may not listen yet.
            let Ok(stream) = TcpStream::connect(port.address()).await else {
                return Err("no endpoint".to_owned());
            };
            drop(stream);
            let answer = get(port.address(), "/readyz").await;
            let is_so = answer.0 == status && answer.1.contains(reason);
            if is_so { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    };
    let early = start(format!("nats://{}", bus_port.address()), "early.log");
    becomes(ILL, "starting: the bus is not connected yet").await;
    assert_eq!(get(port.address(), "/healthz").await.0, WELL);
    assert!(early.terminate().await.success(), "{}", early.log());

    let server = Server::start().await;
    let service = start(server.url(), "log");
    becomes(WELL, "ready").await;
    drop(server);
    becomes(ILL, "the bus is not connected").await;
    becomes(ILL, "what is known of bucket berth-nodes may be").await;
    assert_eq!(get(port.address(), "/healthz").await.0, WELL);
    assert!(service.terminate().await.success(), "{}", service.log());
}
