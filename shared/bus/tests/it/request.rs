//! Requests: one answer or one reason, by the deadline.

use std::time::Duration;

use berth_bus::{Bus, Call, Config, EndpointSpec, Request, RequestError, Service, ServiceSpec};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_harness::wait;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::support::{PATIENCE, connect, one, silent_subscriber, trace};

fn call() -> Call {
    Call::within(trace(), PATIENCE)
}

fn within(ms: u64) -> Call {
    Call::within(trace(), Duration::from_millis(ms))
}

pub fn service(name: &str) -> ServiceSpec {
    ServiceSpec { name: name.into(), version: "0.1.0".into(), ..ServiceSpec::default() }
}

pub fn endpoint(name: &str, subject: &str) -> EndpointSpec {
    let (name, subject) = (name.to_owned(), subject.to_owned());
    EndpointSpec { name, subject, max_in_flight: 8, ..EndpointSpec::default() }
}

#[tokio::test]
async fn a_request_brings_its_result_and_carries_trace_and_deadline() {
    let (server, bus) = one().await;
    let service = bus.service(service("echo")).await.unwrap();
    service
        .endpoint(endpoint("echo", "echo.*"), |request: Request| async move {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let is_in_time = request.remaining() <= PATIENCE && request.remaining() > PATIENCE / 2;
            Ok(json!({
                "body": body, "trace": request.trace.trace_id(),
                "token": request.token(1), "left": is_in_time,
            }))
        })
        .await
        .unwrap();
    assert!(bus.flush(PATIENCE).await, "an endpoint is heard from everywhere after a flush");
    let other = connect(&server.url()).await;
    let answer: Value = other.request("echo.one", &json!({"a": 1}), &call()).await.unwrap();
    assert_eq!(
        answer,
        json!({"body": {"a": 1}, "trace": trace().trace_id(), "token": "one", "left": true})
    );
}

#[tokio::test]
async fn a_request_without_a_responder_fails_at_once() {
    let (_server, bus) = one().await;
    let began = Instant::now();
    let error = bus.request::<Value>("nobody", &(), &call()).await.unwrap_err();
    assert!(matches!(error, RequestError::NoResponder { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
    let problem = error.into_problem("claim.take");
    assert_eq!((problem.code, problem.retryable), (Code::NoResponder, true));
    assert_eq!(problem.step.as_deref(), Some("claim.take"));
    assert!(problem.message.contains("nobody"), "{problem}");
}

#[tokio::test]
async fn an_unanswered_request_fails_at_its_deadline() {
    let (server, bus) = one().await;
    let _silent = silent_subscriber(&server, "slow").await;
    let began = Instant::now();
    let error = bus.request::<()>("slow", &(), &within(300)).await.unwrap_err();
    assert!(matches!(error, RequestError::NoAnswer { .. }), "{error}");
    assert!((Duration::from_millis(300)..Duration::from_secs(5)).contains(&began.elapsed()));
    assert_eq!(error.into_problem("x").code, Code::NoAnswer);
}

/// A service that does not answer its first `many` requests. Returns also the count of requests.
async fn standing_still(bus: &Bus, many: u32) -> (Service, watch::Receiver<u32>) {
    let service = bus.service(service("half")).await.unwrap();
    let (counted, count) = watch::channel(0);
    let answer = move |_| {
        counted.send_modify(|count| *count += 1);
        let stands_still = *counted.borrow() <= many;
        async move {
            if stands_still {
                sleep(PATIENCE).await;
            }
            Ok("another")
        }
    };
    service.endpoint(endpoint("half", "half"), answer).await.unwrap();
    assert!(bus.flush(PATIENCE).await);
    (service, count)
}

#[tokio::test]
async fn a_hedged_request_is_sent_again_before_its_deadline() {
    let (_server, bus) = one().await;
    let (_service, count) = standing_still(&bus, 1).await;
    let began = Instant::now();
    let answer: String = bus.request("half", &(), &call().hedged(true)).await.unwrap();
    assert_eq!((answer.as_str(), *count.borrow()), ("another", 2));
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
}

/// The replica that gets the first request is killed: the caller does not wait until its deadline.
#[tokio::test]
async fn a_brief_request_is_sent_again_before_its_deadline() {
    let (_server, bus) = one().await;
    let (service, count) = standing_still(&bus, 1).await;
    let began = Instant::now();
    let answer: String = bus.request("half", &(), &call().sent_again_early(true)).await.unwrap();
    assert_eq!((answer.as_str(), *count.borrow()), ("another", 2));
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    drop(service);
    let (_service, count) = standing_still(&bus, 9).await;
    let error =
        bus.request::<()>("half", &(), &within(4_500).sent_again_early(true)).await.unwrap_err();
    assert_eq!(error.into_problem("x").code, Code::NoAnswer);
    assert_eq!(*count.borrow(), 3, "1.2 s, 2.4 s, and what is left");
}

/// A replica that is slow because of its load does not get ever more requests.
#[tokio::test]
async fn an_unanswered_hedged_request_is_sent_three_times() {
    let (_server, bus) = one().await;
    let (_service, count) = standing_still(&bus, 9).await;
    let error = bus.request::<()>("half", &(), &within(2500).hedged(true)).await.unwrap_err();
    assert_eq!(error.into_problem("x").code, Code::NoAnswer);
    assert_eq!(*count.borrow(), 3);
    let error = bus.request::<()>("nobody", &(), &call().hedged(true)).await.unwrap_err();
    assert!(matches!(error, RequestError::NoResponder { .. }), "{error}");
}

#[tokio::test]
async fn a_problem_comes_back_as_it_was_answered() {
    let (_server, bus) = one().await;
    let service = bus.service(service("no")).await.unwrap();
    let sent = Problem::new(Code::Held, "held by alloc a1").volume("ns/v").at_step("claim.take");
    let answer = sent.clone();
    service
        .endpoint(endpoint("no", "no"), move |_| {
            let answer = answer.clone();
            async move { Err::<(), _>(answer) }
        })
        .await
        .unwrap();
    let error = bus.request::<Value>("no", &(), &call()).await.unwrap_err();
    let problem = error.into_problem("berth.volume.mount");
    assert_eq!(problem, sent.trace(trace().trace_id()));
}

#[tokio::test]
async fn a_malformed_answer_is_a_bad_reply() {
    let (_server, bus) = one().await;
    let service = bus.service(service("odd")).await.unwrap();
    service.endpoint(endpoint("odd", "odd"), |_| async { Ok("text") }).await.unwrap();
    let error = bus.request::<u32>("odd", &(), &call()).await.unwrap_err();
    assert!(matches!(error, RequestError::BadReply { .. }), "{error}");
    assert_eq!(error.into_problem("x").code, Code::Internal);
}

#[tokio::test]
async fn too_large_a_request_is_not_sent() {
    let (_server, bus) = one().await;
    let large = "x".repeat(2 * 1024 * 1024);
    let error = bus.request::<()>("any", &large, &call()).await.unwrap_err();
    assert!(matches!(error, RequestError::TooLarge { .. }), "{error}");
    // The body fits Berth's own limit, but not the server's together with its headers.
    let error = bus.request::<()>("any", &large[..1024 * 1024 - 10], &call()).await.unwrap_err();
    assert!(matches!(error, RequestError::TooLarge { .. }), "{error}");
    let error = bus.request::<()>("a b", &(), &call()).await.unwrap_err();
    assert!(matches!(error, RequestError::Unsendable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_while_disconnected_fail_at_once_and_are_never_delivered() {
    let (server, bus) = one().await;
    server.kill9();
    wait::until("the loss is noticed", PATIENCE, async || {
        if bus.connected() { Err("connected") } else { Ok(()) }
    })
    .await;
    let began = Instant::now();
    for _ in 0..3000 {
        let error = bus.request::<()>("count", &(), &call()).await.unwrap_err();
        assert!(matches!(error, RequestError::Unavailable { .. }), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    server.restart().await;
    let other = connect(&server.url()).await;
    let counting = other.service(service("count")).await.unwrap();
    let (counted, mut count) = watch::channel(0);
    let endpoint = endpoint("count", "count");
    counting
        .endpoint(endpoint, move |_| {
            counted.send_modify(|count| *count += 1);
            async { Ok(()) }
        })
        .await
        .unwrap();
    assert!(other.flush(PATIENCE).await);
    wait::until("the bus is back", PATIENCE, async || {
        bus.request::<()>("count", &(), &call()).await
    })
    .await;
    // A queued request would have come before this one, over the same connection.
    assert_eq!(*count.borrow_and_update(), 1);
}

#[tokio::test]
async fn a_request_waits_through_a_reconnect_for_a_slow_answer() {
    let server = berth_harness::nats::Server::start().await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.port()));
    let proxy = berth_harness::proxy::Proxy::start(address).await;
    let asking = Bus::connect(Config::new([proxy.url()], "test/asks/1").insecure()).await.unwrap();
    let answering = connect(&server.url()).await;
    let (go, going) = watch::channel(false);
    let service = answering.service(service("slow")).await.unwrap();
    service
        .endpoint(endpoint("slow", "slow"), move |_| {
            let mut going = going.clone();
            async move {
                going.wait_for(|go| *go).await.unwrap();
                Ok("done")
            }
        })
        .await
        .unwrap();
    assert!(answering.flush(PATIENCE).await);
    let request = tokio::spawn({
        let asking = asking.clone();
        async move { asking.request::<String>("slow", &(), &call()).await }
    });
    wait::until("it is under way", PATIENCE, async || {
        if service.in_flight() == 1 { Ok(()) } else { Err("not yet") }
    })
    .await;
    proxy.cut();
    wait::until("the loss is noticed", PATIENCE, async || {
        if asking.connected() { Err("connected") } else { Ok(()) }
    })
    .await;
    proxy.heal();
    // After a round trip the client is back, and listens at its inbox again.
    wait::until("the bus is back", PATIENCE, async || {
        match asking.request::<()>("nobody", &(), &call()).await.unwrap_err() {
            RequestError::NoResponder { .. } => Ok(()),
            error => Err(error),
        }
    })
    .await;
    go.send_replace(true);
    assert_eq!(request.await.unwrap().unwrap(), "done");
}
