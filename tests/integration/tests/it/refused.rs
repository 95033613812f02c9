//! A refused request is recorded: as an event that is found by trace, alloc and volume, and as the
//! last refusal in the status of both.

use std::time::{Duration, Instant};

use berth_bus::{Call, RequestError};
use berth_contract::code::Code;
use berth_contract::message::agent::{Mount, Mounted};
use berth_contract::message::alloc::AllocStatus;
use berth_contract::message::claim::Grant;
use berth_contract::message::query::RefusedRequest;
use berth_contract::message::volume::VolumeStatus;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, RECOVERY, System};
use berth_service::clock;
use serde_json::{Value, json};

/// The output of `berth`: each line of JSON or one document; none when it fails.
async fn berth(system: &System, args: &[&str]) -> Option<Vec<Value>> {
    let output =
        system.berth().args(["--nats", &system.url(), "--json"]).args(args).output().await.unwrap();
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    output.status.success().then(|| values.collect::<Result<_, _>>().unwrap())
}

/// The refused requests that `berth trace` shows.
async fn traced(system: &System, subject: &str) -> Vec<Value> {
    let Some(mut printed) = berth(system, &["trace", subject]).await else { return Vec::new() };
    let mut tree = printed.pop().unwrap();
    match tree["refusals"].take() {
        Value::Array(refusals) => refusals,
        _ => Vec::new(),
    }
}

/// The events of refused requests about a volume.
async fn refusal_events(system: &System, volume: &str) -> Vec<Value> {
    let mut events = berth(system, &["events", "--volume", volume]).await.unwrap();
    events.retain(|event| event["event"] == "request.refused");
    events
}

async fn alloc_status(system: &System, alloc: &str) -> AllocStatus {
    let subject = verb::AllocStatus::subject(&Namespace::default());
    system.persist(&subject, &json!({"id": alloc})).await.unwrap()
}

async fn volume_status(system: &System, volume: &str) -> VolumeStatus {
    system.volume_status(volume).await.unwrap()
}

/// Waits until both statuses show the refusal.
async fn last_refusals(system: &System, volume: &str, alloc: &str) -> RefusedRequest {
    wait::until("both statuses show the refusal", RECOVERY, || async {
        let volume_refusal = volume_status(system, volume).await.last_refusal;
        let alloc_refusal = alloc_status(system, alloc).await.last_refusal;
        match (volume_refusal, alloc_refusal) {
            (Some(volume), Some(alloc)) if volume == alloc => Ok(volume),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Each way to find the refusal finds exactly this one.
async fn is_found_everywhere(system: &System, refusal: &RefusedRequest) {
    let (volume, alloc) = (refusal.volume.as_ref().unwrap(), refusal.alloc.as_ref().unwrap());
    let shown = serde_json::to_value(refusal).unwrap();
    let both = format!("{volume}/{alloc}");
    for subject in [refusal.trace.as_deref().unwrap(), volume.as_str(), alloc.as_str(), &both] {
        assert_eq!(
            traced(system, subject).await,
            std::slice::from_ref(&shown),
            "berth trace {subject}"
        );
    }
    let events = refusal_events(system, volume.as_str()).await;
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!((&events[0]["trace"], &events[0]["code"]), (&shown["trace"], &shown["code"]));
}

/// A system with a volume, whose agents accept mounts.
async fn with_volume(nodes: usize) -> System {
    start_with_volume(Options { nodes, patience_ms: 4_000, ..Options::default() }).await
}

async fn start_with_volume(options: Options) -> System {
    let system = System::start(options).await;
    system.volume("data", &["single-node-writer"]).await;
    for node in 0..options.nodes {
        let refused = system.mount("nobody", node, "none").await.unwrap_err();
        assert_eq!(refused.code, Code::NoSuchAlloc, "{refused}");
    }
    system
}

fn plant(system: &System, faults: &Value) {
    for node in 0..system.options.nodes {
        system.plant(node, faults);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attach_is_shown_by_volume_alloc_and_trace_until_a_claim_is_granted() {
    if !or_skip("real mounts") {
        return;
    }
    let system = with_volume(2).await;
    system.alloc("a", 0, "data", false).await;
    plant(&system, &json!([{"rpc": "ControllerPublishVolume", "code": "NOT_FOUND"}]));
    let problem = system.try_mount("a", 0, "data").await.unwrap_err();
    assert_eq!(problem.code, Code::PluginFailed, "{problem}");
    system.stop("a").await;
    system.settle("data").await;

    let refusal = last_refusals(&system, "data", "a").await;
    assert_eq!((refusal.code, &refusal.trace), (problem.code, &problem.trace), "{refusal:?}");
    assert!(refusal.step == "claim.take" && refusal.message.contains("NOT_FOUND"), "{refusal:?}");
    assert_eq!(refusal.node, NodeId::new("n1").ok());
    let volume = volume_status(&system, "data").await;
    assert!(volume.health.healthy && volume.claims.is_empty(), "{volume:?}");
    is_found_everywhere(&system, &refusal).await;

    plant(&system, &json!([]));
    system.run("b", 0, "data").await;
    assert_eq!(volume_status(&system, "data").await.last_refusal, None);
    assert_eq!(
        alloc_status(&system, "a").await.last_refusal,
        Some(refusal),
        "a got no claim since"
    );
    system.stop("b").await;
    system.settle("data").await;
    // The claim is gone, and its events still show the grant.
    assert_eq!(volume_status(&system, "data").await.last_refusal, None);
}

/// The caller's deadline passes during a later try. The previous failure is more useful.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attach_is_told_although_the_next_try_is_under_way() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, patience_ms: 4_000, ..Options::default() };
    let system = start_with_volume(Options { call_timeout_ms: 20_000, ..options }).await;
    system.alloc("a", 0, "data", false).await;
    let publish = "ControllerPublishVolume";
    let fails_once = json!({"rpc": publish, "code": "NOT_FOUND", "times": 1});
    plant(&system, &json!([fails_once, {"rpc": publish, "hang": true}]));
    // One request, whose deadline passes during the second call.
    let take = json!({"alloc": "a", "volume": "data", "node": "n1"});
    let subject = verb::ClaimTake::subject(&Namespace::default());
    let call = Call::within(clock::begin_trace(), Duration::from_secs(4));
    let refused = system.bus.request::<Grant>(&subject, &take, &call).await;
    let Err(RequestError::Problem(problem)) = refused else { panic!("{refused:?}") };
    assert_eq!(problem.code, Code::PluginFailed, "{problem}");
    assert!(problem.message.contains("NOT_FOUND") && problem.retryable, "{problem}");
    plant(&system, &json!([]));
    system.stop("a").await;
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_retries_of_a_refused_claim_are_one_event() {
    if !or_skip("real mounts") {
        return;
    }
    let system = with_volume(2).await;
    system.run("a", 0, "data").await;
    system.alloc("b", 1, "data", false).await;
    let take = json!({"alloc": "b", "volume": "data", "node": "n2"});
    let subject = verb::ClaimTake::subject(&Namespace::default());
    let trace = clock::begin_trace();
    for _ in 0..20 {
        let call = Call::within(trace, Duration::from_secs(10));
        let refused = system.bus.request::<Grant>(&subject, &take, &call).await;
        let Err(RequestError::Problem(problem)) = refused else { panic!("{refused:?}") };
        assert_eq!(problem.code, Code::Held, "{problem}");
    }
    let refusal = last_refusals(&system, "data", "b").await;
    assert_eq!(refusal.trace, Some(trace.trace_id()));
    assert_eq!(alloc_status(&system, "a").await.last_refusal, None, "only b was refused");
    is_found_everywhere(&system, &refusal).await;
    system.stop("a").await;
    system.stop("b").await;
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_refuses_by_itself_is_told_by_the_agent() {
    if !or_skip("real mounts") {
        return;
    }
    let system = with_volume(1).await;
    system.alloc("a", 0, "data", false).await;
    let request = Mount {
        namespace: Namespace::default(),
        alloc: AllocId::new("a").unwrap(),
        volume: VolumeId::new("data").unwrap(),
        wait: false,
        alias: None,
        path: Some("not/absolute".to_owned()),
    };
    let subject =
        verb::AgentMount::subject(&verb::NodeAndNamespace::any_of(NodeId::new("n1").unwrap()));
    let refused: Result<Mounted, Problem> = system.persist(&subject, &request).await;
    let problem = refused.unwrap_err();
    assert_eq!(problem.code, Code::PathRefused, "{problem}");

    let refusal = last_refusals(&system, "data", "a").await;
    assert_eq!((refusal.step.as_str(), refusal.code), ("agent.mount", problem.code));
    is_found_everywhere(&system, &refusal).await;

    // Only the claim service itself reports its refusals.
    plant(&system, &json!([{"rpc": "ControllerPublishVolume", "code": "PERMISSION_DENIED"}]));
    let problem = system.mount("a", 0, "data").await.unwrap_err();
    let events = wait::until("the refusal is recorded", RECOVERY, || async {
        let events = refusal_events(&system, "data").await;
        if events.len() > 1 { Ok(events) } else { Err(format!("{events:#?}")) }
    })
    .await;
    let services: Vec<&Value> = events.iter().map(|event| &event["service"]).collect();
    assert_eq!(services, ["berth-node-agent", "berth-claim"], "{problem}: {events:#?}");
    system.stop("a").await;
    system.settle("data").await;
}

/// A status omits the last refusal while the event stream does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_answered_without_the_event_stream() {
    if !or_skip("real mounts") {
        return;
    }
    let system = with_volume(1).await;
    system.alloc("a", 0, "data", false).await;
    plant(&system, &json!([{"rpc": "ControllerPublishVolume", "code": "PERMISSION_DENIED"}]));
    system.mount("a", 0, "data").await.unwrap_err();
    last_refusals(&system, "data", "a").await;
    let deleted: Value =
        system.ask("$JS.API.STREAM.DELETE.BERTH_EVENTS", &json!({})).await.unwrap();
    assert_eq!(deleted["success"], json!(true), "{deleted}");
    let began = Instant::now();
    assert_eq!(volume_status(&system, "data").await.last_refusal, None);
    assert_eq!(alloc_status(&system, "a").await.last_refusal, None);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    system.stop("a").await;
    system.settle("data").await;
}
