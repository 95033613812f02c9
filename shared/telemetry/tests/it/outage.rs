//! A collector that is down, refuses or hangs costs spans and nothing else.

use std::time::{Duration, Instant};

use berth_harness::otlp::{Collector, Manner};
use berth_harness::ports::Port;
use berth_harness::wait;
use berth_telemetry::{Kind, Protocol, Telemetry};

use crate::{PATIENCE, spans, telemetry};

/// More spans than the queue holds (2048).
const MANY: usize = 50_000;

/// Ends many spans; returns the longest time that one took.
fn slowest(telemetry: &Telemetry) -> Duration {
    let end_span = || {
        let began = Instant::now();
        telemetry.tracer().root("work", Kind::Internal).end();
        began.elapsed()
    };
    (0..MANY).map(|_| end_span()).max().unwrap_or_default()
}

async fn nothing_waits(telemetry: Telemetry) {
    let slowest = slowest(&telemetry);
    // Waiting for the collector would take ten seconds; a busy machine may take some time.
    assert!(slowest < Duration::from_secs(1), "ending a span took {slowest:?}");
    let (unsent, overflowed) = telemetry.dropped_spans();
    assert!(unsent + overflowed >= (MANY - 2 * 2048) as u64, "{unsent} + {overflowed}");
    let began = Instant::now();
    telemetry.end(Duration::from_secs(1)).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "the end was to take a second, and took {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_down_delays_nothing() {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let nobody = Port::reserve();
        nothing_waits(telemetry(format!("http://{}", nobody.address()), protocol)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_delays_nothing() {
    let collector = Collector::start().await;
    collector.behave(Manner::Hangs);
    nothing_waits(telemetry(collector.grpc(), Protocol::Grpc)).await;
    nothing_waits(telemetry(collector.http(), Protocol::Http)).await;
    assert!(collector.requests() >= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_flow_again_once_the_collector_takes_them() {
    let collector = Collector::start().await;
    collector.behave(Manner::Refuses);
    let telemetry = telemetry(collector.http(), Protocol::Http);
    for _ in 0..512 {
        telemetry.tracer().root("lost", Kind::Internal).end();
    }
    wait::until("the refused spans are counted", PATIENCE, async || {
        let counts = telemetry.dropped_spans();
        if counts == (512, 0) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    collector.behave(Manner::Takes);
    telemetry.tracer().root("kept", Kind::Internal).end();
    telemetry.end(Duration::from_secs(3)).await;
    assert_eq!(spans(&collector, 1).await.tree(), "kept\n");
}
