//! A collector receives exactly the spans that were made.

use std::time::Duration;

use berth_contract::trace::TraceContext;
use berth_domain::Timestamp;
use berth_harness::otlp::Collector;
use berth_telemetry::{Kind, Protocol, Telemetry, TelemetryConfig, Tracer, Value};

use crate::{identity, spans, telemetry};

/// Makes a trace with everything that a span may have.
fn make(tracer: &Tracer) -> TraceContext {
    let root = tracer.root("take", Kind::Client).with("berth.volume", "default/v1");
    let mut served = tracer.child_of(root.context(), "claim take", Kind::Server);
    served.set("berth.attempt", Value::shown(&7));
    served.set("berth.attempt", Value::shown(&8));
    served.set("berth.bytes", 3_u64);
    served.set("berth.ok", true);
    served.link(tracer.root("other", Kind::Internal).context());
    served.fail("held");
    tracer.child_of(served.context(), "commit", Kind::Internal).end();
    root.context()
}

async fn arrives(collector: &Collector, telemetry: Telemetry) {
    let trace = make(telemetry.tracer());
    telemetry.end(Duration::from_secs(3)).await;
    let received = spans(collector, 4).await;
    let own_spans = received.of(&trace.trace_id());
    assert_eq!(own_spans.tree(), "take\n  claim take ! held\n    commit\n");
    assert!(received.orphans().is_empty());

    let root = own_spans.roots()[0].clone();
    assert_eq!(Some(&root.id), trace.span().map(|span| span.to_string()).as_ref());
    assert_eq!((root.kind.as_str(), root.get("berth.volume")), ("CLIENT", Some("default/v1")));
    let served = own_spans.children(&root)[0].clone();
    assert_eq!(served.kind, "SERVER");
    assert_eq!(served.get("berth.attempt"), Some("8"));
    assert_eq!((served.get("berth.bytes"), served.get("berth.ok")), (Some("3"), Some("true")));
    assert!(root.start_ns <= served.start_ns && served.end_ns <= root.end_ns);
    let other_span = received.named("other").0[0].clone();
    assert_eq!(served.links, [(other_span.trace, other_span.id)]);

    assert_eq!(served.service(), "tested");
    for (key, value) in
        [("service.version", "0.0.1"), ("service.instance.id", "tested/1"), ("host.name", "here")]
    {
        assert_eq!(served.resource.get(key).map(String::as_str), Some(value), "{key}");
    }
}

#[tokio::test]
async fn spans_arrive_whole_over_grpc() {
    let collector = Collector::start().await;
    arrives(&collector, telemetry(collector.grpc(), Protocol::Grpc)).await;
}

#[tokio::test]
async fn spans_arrive_whole_over_http() {
    let collector = Collector::start().await;
    arrives(&collector, telemetry(collector.http(), Protocol::Http)).await;
}

#[tokio::test]
async fn a_span_that_another_process_began_is_emitted_by_whoever_ends_it() {
    let collector = Collector::start().await;
    let first = telemetry(collector.http(), Protocol::Http);
    let root = first.tracer().root("asked", Kind::Server);
    // The process records this and is then killed.
    let (identity, parent) = (first.tracer().reserve(root.context()), root.context().span());
    let began = Timestamp::from_unix_ms(1_700_000_000_000);
    first.tracer().child_of(identity, "before the kill", Kind::Internal).end();
    root.end();
    first.end(Duration::from_secs(3)).await;

    let second = telemetry(collector.grpc(), Protocol::Grpc);
    let recorded: TraceContext =
        serde_json::from_str(&serde_json::to_string(&identity).unwrap()).unwrap();
    let attempt = second.tracer().resume(recorded, parent, "attempt", Kind::Internal, began);
    assert_eq!(attempt.context(), identity);
    second.tracer().child_of(attempt.context(), "after the kill", Kind::Internal).end();
    attempt.end();
    second.end(Duration::from_secs(3)).await;

    let received = spans(&collector, 4).await;
    assert_eq!(received.tree(), "asked\n  attempt\n    before the kill\n    after the kill\n");
    let attempt = &received.named("attempt").0[0];
    assert_eq!(attempt.start_ns, 1_700_000_000_000_000_000);
    assert!(attempt.end_ns > received.named("after the kill").0[0].start_ns);
}

#[tokio::test]
async fn a_trace_begun_by_somebody_who_records_nothing_has_no_orphan() {
    let collector = Collector::start().await;
    let off = Telemetry::new(&identity(), &TelemetryConfig::default(), None).unwrap();
    let unrecorded = off.tracer().root("not recorded", Kind::Client);
    let passed_on =
        off.tracer().child_of(unrecorded.context(), "not recorded either", Kind::Client);
    assert!(!passed_on.is_recorded());
    assert_eq!(passed_on.context(), unrecorded.context(), "a span that nobody records is named");

    let on = telemetry(collector.http(), Protocol::Http);
    // In the form in which it is sent.
    let header = TraceContext::parse(&passed_on.context().to_string()).unwrap();
    let served = on.tracer().child_of(header, "served", Kind::Server);
    // Through a process that records nothing, to a process that does.
    let through = off.tracer().child_of(served.context(), "not recorded", Kind::Server);
    on.tracer().child_of(through.context(), "called", Kind::Client).end();
    served.end();
    on.end(Duration::from_secs(3)).await;
    let received = spans(&collector, 2).await;
    assert_eq!(received.of(&unrecorded.context().trace_id()).tree(), "served\n  called\n");
}

#[tokio::test]
async fn a_trace_that_is_not_to_be_recorded_is_not() {
    let collector = Collector::start().await;
    let on = telemetry(collector.http(), Protocol::Http);
    let unwanted = TraceContext::begin(&mut rand::rng()).with_sampled(false);
    let span = on.tracer().child_of(unwanted, "unwanted", Kind::Server);
    assert!(!span.is_recorded() && !span.context().sampled());
    on.tracer().child_of(span.context(), "unwanted too", Kind::Client).end();
    span.end();
    on.tracer().root("wanted", Kind::Client).end();
    on.end(Duration::from_secs(3)).await;
    assert_eq!(spans(&collector, 1).await.tree(), "wanted\n");
}

#[tokio::test]
async fn what_a_span_holds_is_bounded() {
    let collector = Collector::start().await;
    let on = telemetry(collector.http(), Protocol::Http);
    let mut span = on.tracer().root("n".repeat(10_000), Kind::Internal);
    let keys: Vec<&'static str> =
        (0..100).map(|at| &*Box::leak(format!("key.{at}").into_boxed_str())).collect();
    for key in keys {
        span.set(key, &"v".repeat(10_000));
        span.link(on.tracer().reserve(span.context()));
    }
    span.end();
    on.end(Duration::from_secs(3)).await;
    let span = spans(&collector, 1).await.0.remove(0);
    assert_eq!((span.attributes.len(), span.links.len()), (32, 8));
    assert_eq!((span.name.len(), span.get("key.0").map(str::len)), (512, Some(512)));
}
