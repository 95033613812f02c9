//! The spans of requests and writes: one tree, with ids and codes but no texts.

use std::time::Duration;

use berth_bus::{Call, Request, RequestError};
use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::trace::TraceContext;
use berth_harness::otlp::Collector;
use berth_harness::wait;
use berth_telemetry::{Identity, Protocol, TelemetryConfig};
use serde_json::{Value, json};

use crate::request::{endpoint, service};
use crate::support::{PATIENCE, is_conflict, one_bucket, put};

/// Exports the spans of this process, those of other tests included; other tests pass with and
/// without an exporter.
fn export(collector: &Collector) -> berth_telemetry::Telemetry {
    let identity = Identity {
        service: "bus-test".to_owned(),
        version: "0".to_owned(),
        instance: "1".to_owned(),
        host: "here".to_owned(),
    };
    let config = TelemetryConfig {
        endpoint: Some(collector.grpc()),
        protocol: Some(Protocol::Grpc),
        metrics_listen: None,
    };
    berth_telemetry::start(&identity, &config, None).unwrap()
}

#[tokio::test]
async fn a_request_with_its_writes_is_one_tree() {
    let collector = Collector::start().await;
    let telemetry = export(&collector);
    let (_server, bus, bucket) = one_bucket(&bucket::VOLUMES).await;
    let service = bus.service(service("berth-x")).await.unwrap();
    let spec = endpoint("claim-take", "berth.v1.claim.take.*");
    let handler = move |request: Request| {
        let bucket = bucket.clone();
        async move {
            let mut write = put("ns.v.spec", "the body", "ns.v.>", 0);
            write.trace = request.trace;
            let revision = bucket.commit(write.clone()).await.unwrap();
            assert!(is_conflict(&bucket.commit(write).await));
            Err::<Value, _>(Problem::new(Code::Held, format!("at revision {revision}: hidden")))
        }
    };
    service.endpoint(spec, handler).await.unwrap();
    assert!(bus.flush(PATIENCE).await);

    let begun = TraceContext::begin(&mut rand::rng());
    let call = Call::within(begun, PATIENCE);
    let body = json!({"password": "hidden"});
    let answer: Result<Value, _> = bus.request("berth.v1.claim.take.default", &body, &call).await;
    let Err(RequestError::Problem(problem)) = answer else { panic!("{answer:?}") };
    assert_eq!(problem.trace, Some(begun.trace_id()));
    // Waiting is no error.
    let patient = TraceContext::begin(&mut rand::rng());
    let wait = |_: Request| async { Err::<Value, _>(Problem::new(Code::Waiting, "in line")) };
    service.endpoint(endpoint("claim-status", "berth.v1.claim.status.*"), wait).await.unwrap();
    assert!(bus.flush(PATIENCE).await);
    let call = Call::within(patient, PATIENCE);
    let waits = bus.request::<Value>("berth.v1.claim.status.default", &json!({}), &call).await;
    assert!(waits.is_err());
    // Spans of other tests do not disturb, and those that come later are not exported.
    telemetry.end(Duration::from_secs(3)).await;

    let spans = wait::until("the spans have come", PATIENCE, async || {
        let spans = collector.spans().of(&begun.trace_id());
        if spans.0.len() >= 4 && collector.spans().of(&patient.trace_id()).0.len() >= 2 {
            Ok(spans)
        } else {
            Err(spans.tree())
        }
    })
    .await;
    let waits = collector.spans().of(&patient.trace_id());
    assert_eq!(waits.tree(), "request claim.status\n  berth-x claim-status\n");
    for span in &waits.0 {
        let (outcome, error) = (span.get("berth.outcome"), span.get("error.type"));
        assert_eq!((outcome, error), (Some(Code::Waiting.as_str()), None));
    }
    let code = Code::Held.as_str();
    let commit = "commit berth-volumes";
    assert_eq!(
        spans.tree(),
        format!(
            "request claim.take ! {code}\n  berth-x claim-take ! {code}\n    {commit}\n    \
             {commit}\n"
        )
    );
    let request_span = spans.roots()[0];
    assert_eq!(
        (request_span.kind.as_str(), request_span.get("error.type")),
        ("CLIENT", Some(code))
    );
    let served = spans.children(request_span)[0];
    let signed = bus.actor().sign("berth.v1.claim.take.default");
    for (span, operation, kind) in
        [(request_span, "request", "send"), (served, "answer", "process")]
    {
        for (key, value) in [
            ("messaging.system", "nats"),
            ("messaging.operation.name", operation),
            ("messaging.operation.type", kind),
            ("messaging.destination.name", &signed),
            ("messaging.destination.template", "berth.v1.claim.take.<ns>.<actor>"),
        ] {
            assert_eq!(span.get(key), Some(value), "{key}");
        }
    }
    assert_eq!((served.kind.as_str(), served.get("error.type")), ("SERVER", Some(code)));
    let commits = spans.children(served);
    let of = |at: usize, key| commits[at].get(key);
    assert_eq!((&*commits[0].kind, of(0, "db.operation.name")), ("CLIENT", Some("commit")));
    assert_eq!((of(0, "berth.outcome"), of(0, "berth.key")), (Some("stored"), Some("ns.v.spec")));
    assert_eq!((of(0, "berth.guard"), of(0, "berth.revision")), (Some("0"), Some("1")));
    assert_eq!((of(1, "berth.outcome"), of(1, "berth.revision")), (Some("conflict"), None));
    assert_eq!((of(1, "berth.sent"), of(1, "berth.lost_acknowledgements")), (Some("1"), Some("0")));
    assert!(!collector.mentions("hidden") && !collector.mentions("the body"));

    let [served, made, commits] = ["berth.requests.served", "berth.requests.made", "berth.commits"]
        .map(|name| collector.metrics(name).pop().unwrap());
    let has = |metric: &berth_harness::otlp::Metric, labels: &[(&str, &str)]| {
        let is = |point: &berth_harness::otlp::Point| {
            labels.iter().all(|(key, value)| point.labels.get(*key).is_some_and(|v| v == value))
        };
        assert!(metric.points.iter().any(is), "{labels:?} is not in {metric:?}");
    };
    has(&served, &[("service", "berth-x"), ("endpoint", "claim-take"), ("code", code)]);
    has(&made, &[("step", "claim.take"), ("outcome", code)]);
    has(&commits, &[("bucket", "berth-volumes"), ("outcome", "stored")]);
    has(&commits, &[("bucket", "berth-volumes"), ("outcome", "conflict")]);
}
