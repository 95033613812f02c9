//! Services: an answer to every request, whatever the handler does.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::HeaderMap;
use berth_bus::{Bus, Call, EndpointSpec, Request, RequestError, ServiceSpec};
use berth_contract::code::Code;
use berth_contract::decode::Unknown;
use berth_contract::header;
use berth_contract::problem::Problem;
use berth_domain::limits::{FAULTS_MAX, WAIT_MAX};
use berth_harness::wait;
use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::request::{endpoint, service};
use crate::support::{PATIENCE, connect, one, silent_subscriber, trace};

async fn ask(bus: &Bus, subject: &str) -> Result<Value, RequestError> {
    bus.request(subject, &(), &Call::within(trace(), PATIENCE)).await
}

fn problem(result: Result<Value, RequestError>) -> Problem {
    match result {
        Err(RequestError::Problem(problem)) => *problem,
        other => panic!("{other:?} is no problem"),
    }
}

/// Messages of a publisher that expects no reply; each handler would take its caller's whole time.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_messages_without_a_reply_subject_keeps_no_request_waiting() {
    let (server, bus) = one().await;
    let service = bus.service(service("mounts")).await.unwrap();
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&handled);
    service
        .endpoint(endpoint("mount", "mount"), move |request: Request| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                if request.body.is_empty() {
                    tokio::time::sleep(request.remaining()).await;
                }
                Ok(json!({}))
            }
        })
        .await
        .unwrap();
    let client = async_nats::connect(&server.url()).await.unwrap();
    for _ in 0..50_000 {
        client.publish("mount.user.test", "".into()).await.unwrap();
    }
    client.flush().await.unwrap();
    wait::until("a request is answered", PATIENCE, async || ask(&bus, "mount").await).await;
    assert_eq!(handled.load(Ordering::Relaxed), 1, "nobody could learn what came of the others");
    let stats = client.request("$SRV.STATS.mounts", "".into()).await.unwrap();
    let stats: Value = serde_json::from_slice(&stats.payload).unwrap();
    // On a busy machine the bus drops some of these messages. Each one that arrived counts as an
    // error; the request that was answered does not.
    let count = |field: &str| stats["endpoints"][0][field].as_u64().unwrap();
    assert!(count("num_errors") > 0, "{stats:#}");
    assert_eq!(count("num_errors") + 1, count("num_requests"), "{stats:#}");
}

#[tokio::test]
async fn a_line_break_in_a_problem_does_not_end_the_endpoint() {
    let (server, bus) = one().await;
    let service = bus.service(service("mounts")).await.unwrap();
    let message = "mount failed:\r\n  exit 32\n\ttry dmesg";
    service
        .endpoint(endpoint("mount", "mount"), move |_| async move {
            Err::<(), _>(Problem::new(Code::MountFailed, message))
        })
        .await
        .unwrap();
    for _ in 0..3 {
        let problem = problem(ask(&bus, "mount").await);
        assert_eq!(problem.message, message, "the body has it as it was");
    }
    let client = async_nats::connect(&server.url()).await.unwrap();
    let reply = client.request("mount.user.test", "".into()).await.unwrap();
    let headers = reply.headers.unwrap();
    assert_eq!(
        headers.get("Nats-Service-Error").unwrap().as_str(),
        "mount failed:    exit 32  try dmesg"
    );
    assert_eq!(headers.get("Nats-Service-Error-Code").unwrap().as_str(), "BERTH0210");
}

#[tokio::test]
async fn a_panic_in_a_handler_is_answered() {
    let (_server, bus) = one().await;
    let service = bus.service(service("panics")).await.unwrap();
    service
        .endpoint(endpoint("panics", "panics"), |request: Request| async move {
            assert!(request.body.is_empty(), "as this test wants it");
            Ok(())
        })
        .await
        .unwrap();
    for _ in 0..20 {
        let problem = problem(ask(&bus, "panics").await);
        assert_eq!(problem.code, Code::Internal);
        assert_eq!(problem.trace.as_deref(), Some(trace().trace_id().as_str()));
    }
    assert_eq!(service.in_flight(), 0, "a panic gives its slot back");
}

#[tokio::test]
async fn a_late_request_is_not_executed() {
    let (server, bus) = one().await;
    let service = bus.service(service("late")).await.unwrap();
    let (executed, count) = watch::channel(0);
    service
        .endpoint(endpoint("late", "late"), move |_| {
            executed.send_modify(|count| *count += 1);
            async { Ok(()) }
        })
        .await
        .unwrap();
    assert!(bus.flush(PATIENCE).await);
    let client = async_nats::connect(&server.url()).await.unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    for (deadline, code) in [
        ((now.as_millis() - 1).to_string(), Some("BERTH0002")),
        ("0".to_owned(), Some("BERTH0002")),
        ("tomorrow".to_owned(), Some("BERTH0001")),
        ((now.as_millis() + 60_000).to_string(), None),
    ] {
        let before = *count.borrow();
        let mut headers = HeaderMap::new();
        headers.insert(header::DEADLINE, deadline.as_str());
        let reply =
            client.request_with_headers("late.user.test", headers, "".into()).await.unwrap();
        let headers = reply.headers.unwrap_or_default();
        let error_code =
            headers.get("Nats-Service-Error-Code").map(async_nats::HeaderValue::as_str);
        assert_eq!(error_code, code, "{deadline}");
        assert_eq!(*count.borrow() - before, i32::from(code.is_none()), "{deadline}");
    }
}

#[tokio::test]
async fn a_request_beyond_the_bound_is_refused_and_not_queued() {
    let (_server, bus) = one().await;
    let service = bus.service(service("bounded")).await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let entrance = Arc::clone(&gate);
    let spec = EndpointSpec { max_in_flight: 3, ..endpoint("bounded", "bounded") };
    service
        .endpoint(spec, move |_| {
            let gate = Arc::clone(&entrance);
            async move {
                gate.acquire().await.unwrap().forget();
                Ok(true)
            }
        })
        .await
        .unwrap();
    let under_way: Vec<_> = (0..3)
        .map(|_| {
            let bus = bus.clone();
            tokio::spawn(async move { ask(&bus, "bounded").await })
        })
        .collect();
    wait::until("three are under way", PATIENCE, async || {
        if service.in_flight() == 3 { Ok(()) } else { Err(service.in_flight()) }
    })
    .await;
    let began = Instant::now();
    let refused = problem(ask(&bus, "bounded").await);
    assert_eq!((refused.code, refused.retryable), (Code::Overloaded, true));
    assert!(began.elapsed() < Duration::from_secs(5));
    gate.add_permits(3);
    for request in under_way {
        assert_eq!(request.await.unwrap().unwrap(), json!(true));
    }
    gate.add_permits(1);
    assert_eq!(ask(&bus, "bounded").await.unwrap(), json!(true));
}

#[tokio::test]
async fn too_large_an_answer_is_a_problem() {
    let (_server, bus) = one().await;
    let service = bus.service(service("large")).await.unwrap();
    let large = || async { Ok("x".repeat(2 * 1024 * 1024)) };
    service.endpoint(endpoint("large", "large"), move |_| large()).await.unwrap();
    let problem = problem(ask(&bus, "large").await);
    assert_eq!(problem.code, Code::Internal);
    assert!(problem.message.contains("2097154 bytes"), "{problem}");
}

struct Take {
    alloc: String,
}
berth_contract::decode_struct!(Take { alloc });

#[tokio::test]
async fn bad_input_is_answered_with_every_fault() {
    let (_server, bus) = one().await;
    let service = bus.service(service("take")).await.unwrap();
    service
        .endpoint(endpoint("take", "take"), |request: Request| async move {
            Ok(request.decode::<Take>("claim.take")?.alloc)
        })
        .await
        .unwrap();
    let call = Call::within(trace(), PATIENCE);
    let taken = bus.request::<String>("take", &json!({"alloc": "a1"}), &call).await;
    assert_eq!(taken.unwrap(), "a1");
    let faulty = problem(bus.request("take", &json!({"alloc": 7, "new": 1}), &call).await);
    assert_eq!((faulty.code, faulty.faults.len()), (Code::BadInput, 2));
    assert_eq!(faulty.step.as_deref(), Some("claim.take"));
}

/// Seen: the answer to a request with very many faults was larger than the bus carries, so its
/// caller got no answer until its deadline.
#[tokio::test]
async fn a_request_full_of_faults_is_answered() {
    let (_server, bus) = one().await;
    let service = bus.service(service("take")).await.unwrap();
    let own = EndpointSpec { unknown: Unknown::Fault, ..endpoint("take", "take") };
    let take = |request: Request| async move { request.decode::<Take>("claim.take").map(|_| ()) };
    service.endpoint(own, take).await.unwrap();
    let refuse = |request: Request| async move {
        let long = String::from_utf8_lossy(&request.body).into_owned();
        Err::<(), _>(Problem::new(Code::PluginFailed, long).next("ask again"))
    };
    service.endpoint(endpoint("refuse", "refuse"), refuse).await.unwrap();
    assert!(bus.flush(PATIENCE).await);
    let call = Call::within(trace(), PATIENCE);
    let many: BTreeMap<String, u8> = (0..60_000).map(|at| (format!("x{at:05}"), 1)).collect();
    let unknown = problem(bus.request("take", &many, &call).await);
    assert_eq!((unknown.code, unknown.faults.len()), (Code::BadInput, FAULTS_MAX + 1));
    // A control character has one byte, and six in JSON.
    let ugly: BTreeMap<String, u8> =
        (0..FAULTS_MAX).map(|at| (format!("{at:05}{}", "\u{1}".repeat(1200)), 1)).collect();
    let ugly = problem(bus.request("take", &ugly, &call).await);
    assert_eq!((ugly.code, ugly.step.as_deref()), (Code::BadInput, Some("claim.take")));
    let long = problem(bus.request("refuse", &"x".repeat(900_000), &call).await);
    assert_eq!((long.code, long.next.as_str()), (Code::PluginFailed, "ask again"));
}

/// A client that states a newer contract learns that the service is of an older version.
#[tokio::test]
async fn a_newer_client_is_told_that_the_service_is_older() {
    let (server, bus) = one().await;
    let service = bus.service(service("take")).await.unwrap();
    let own = EndpointSpec { unknown: Unknown::Fault, ..endpoint("take", "take") };
    let answer = |request: Request| async move { request.decode::<Take>("claim.take").map(|_| ()) };
    service.endpoint(own, answer).await.unwrap();
    let read = EndpointSpec { unknown: Unknown::Ignore, ..endpoint("read", "read") };
    service.endpoint(read, answer).await.unwrap();
    assert!(bus.flush(PATIENCE).await);
    let client = async_nats::connect(&server.url()).await.unwrap();
    for (stated, is_newer) in
        [(None, false), (Some(header::CONTRACT_VERSION), false), (Some(99), true)]
    {
        let mut headers = HeaderMap::new();
        if let Some(stated) = stated {
            headers.insert(header::CONTRACT, stated.to_string());
        }
        let body = r#"{"alloc": "a1", "colour": "red"}"#;
        let asked = client
            .request_with_headers("take.user.test", headers.clone(), body.into())
            .await
            .unwrap();
        let answer: Value = serde_json::from_slice(&asked.payload).unwrap();
        let problem: Problem = serde_json::from_value(answer["error"].clone()).unwrap();
        assert_eq!(problem.faults[0].path, "colour", "{problem}");
        let (next, is_older) = (&problem.next, problem.is_of_older_service());
        assert_eq!(next.contains("version 99") && next.contains("upgrade"), is_newer, "{next}");
        assert_eq!((is_older, problem.retryable), (is_newer, is_newer), "a newer replica may");
        let read =
            client.request_with_headers("read.user.test", headers, body.into()).await.unwrap();
        assert_eq!(&read.payload[..], b"null");
    }
}

#[tokio::test]
async fn a_stopped_service_finishes_what_it_took_and_takes_nothing_new() {
    const REQUESTS: usize = 50;
    let (_server, bus) = one().await;
    let gate = Arc::new(Semaphore::new(0));
    let start = async |replica: &'static str| {
        let service = bus.service(service("drains")).await.unwrap();
        let spec = EndpointSpec { max_in_flight: 100, ..endpoint("drains", "drains") };
        let gate = Arc::clone(&gate);
        let answer = move |_| {
            let gate = Arc::clone(&gate);
            async move {
                let _opened = gate.acquire().await;
                Ok(replica)
            }
        };
        service.endpoint(spec, answer).await.unwrap();
        assert!(bus.flush(PATIENCE).await);
        service
    };
    let ask_many = || {
        let bus = bus.clone();
        tokio::spawn(async move { join_all((0..REQUESTS).map(|_| ask(&bus, "drains"))).await })
    };
    let answered_by = |results: Vec<Result<Value, RequestError>>, replica: &str| {
        assert!(results.iter().all(|answer| *answer.as_ref().unwrap() == replica), "{results:?}");
    };

    let leaving = start("leaving").await;
    let taken = ask_many();
    wait::until("the leaving replica has taken all requests", PATIENCE, async || {
        let count = leaving.in_flight();
        if count == REQUESTS { Ok(()) } else { Err(count) }
    })
    .await;
    let _staying = start("staying").await;
    let (stopped, ()) = join(leaving.stop(PATIENCE), async {
        // The requests in progress end only after the stop has begun.
        tokio::task::yield_now().await;
        gate.add_permits(1);
    })
    .await;
    assert!(stopped, "the stop did not wait for the requests in progress");
    answered_by(taken.await.unwrap(), "leaving");
    assert!(bus.flush(PATIENCE).await);
    answered_by(ask_many().await.unwrap(), "staying");
}

#[tokio::test]
async fn a_stop_gives_up_at_its_deadline() {
    let (_server, bus) = one().await;
    let service = bus.service(service("hangs")).await.unwrap();
    service
        .endpoint(endpoint("hangs", "hangs"), |_| async {
            pending::<()>().await;
            Ok(())
        })
        .await
        .unwrap();
    let hanging = tokio::spawn({
        let bus = bus.clone();
        async move { ask(&bus, "hangs").await }
    });
    wait::until("it is under way", PATIENCE, async || {
        if service.in_flight() == 1 { Ok(()) } else { Err("not yet") }
    })
    .await;
    assert!(!service.stop(Duration::from_millis(200)).await);
    hanging.abort();
}

#[tokio::test]
async fn an_endpoint_that_is_stopped_leaves_no_responder() {
    let (_server, bus) = one().await;
    let service = bus.service(service("comes-and-goes")).await.unwrap();
    for _ in 0..3 {
        let spec = endpoint("rpc", "controller.p.*");
        let endpoint = service.endpoint(spec, |_| async { Ok(1) }).await.unwrap();
        assert_eq!(ask(&bus, "controller.p.publish").await.unwrap(), json!(1));
        assert!(endpoint.stop(PATIENCE).await);
        wait::until("nobody answers", PATIENCE, async || {
            match ask(&bus, "controller.p.publish").await {
                Err(RequestError::NoResponder { .. }) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_queue_group_shares_and_two_groups_both_answer() {
    let (server, bus) = one().await;
    let (count_sender, mut count) = watch::channel(0);
    let mut running = Vec::new();
    for group in [Some("a"), Some("a"), Some("b")] {
        let other = connect(&server.url()).await;
        let service = other.service(service("groups")).await.unwrap();
        let count_sender = count_sender.clone();
        let queue_group = group.map(str::to_owned);
        service
            .endpoint(EndpointSpec { queue_group, ..endpoint("e", "e") }, move |_| {
                count_sender.send_modify(|count| *count += 1);
                async { Ok(()) }
            })
            .await
            .unwrap();
        assert!(other.flush(PATIENCE).await);
        running.push((other, service));
    }
    ask(&bus, "e").await.unwrap();
    let is_counted = count.wait_for(|count| *count == 2);
    tokio::time::timeout(PATIENCE, is_counted).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_service_outlives_its_server() {
    let (server, bus) = one().await;
    let service = bus.service(service("stays")).await.unwrap();
    service.endpoint(endpoint("stays", "stays"), |_| async { Ok(true) }).await.unwrap();
    let asking = connect(&server.url()).await;
    for _ in 0..2 {
        server.kill9();
        server.restart().await;
        wait::until("it answers again", PATIENCE, async || ask(&asking, "stays").await).await;
    }
    let client = async_nats::connect(&server.url()).await.unwrap();
    wait::until("so does its monitoring", PATIENCE, async || {
        client.request("$SRV.PING.stays", "".into()).await
    })
    .await;
    drop(service);
}

#[tokio::test]
async fn tools_see_services_endpoints_and_errors() {
    let (server, bus) = one().await;
    let spec = ServiceSpec {
        description: "tells".into(),
        metadata: [("host", "h1"), ("node", "n.1")].map(|(a, b)| (a.into(), b.into())).into(),
        ..service("tells")
    };
    let service = bus.service(spec).await.unwrap();
    let tell = EndpointSpec { description: "tells it".into(), ..endpoint("tell", "tell.*") };
    service
        .endpoint(tell, |request: Request| async move {
            match request.token(1) {
                Some("good") => Ok("good"),
                Some("wait") => Err(Problem::new(Code::Waiting, "in line for x")),
                _ => Err(Problem::new(Code::Held, "no\r\nno")),
            }
        })
        .await
        .unwrap();
    for subject in ["tell.good", "tell.good", "tell.bad", "tell.wait", "tell.wait"] {
        let _: Result<_, _> = ask(&bus, subject).await;
    }
    let client = async_nats::connect(&server.url()).await.unwrap();
    let monitored = async |subject: &str| -> Value {
        let reply = client.request(subject.to_owned(), "".into()).await.unwrap();
        serde_json::from_slice(&reply.payload).unwrap()
    };
    // The client library's own types are those that other tools parse.
    let ping = monitored("$SRV.PING").await;
    let id = ping["id"].as_str().unwrap().to_owned();
    assert_eq!(ping["type"], "io.nats.micro.v1.ping_response");
    assert!(id.starts_with("n_1-"), "a person sees whose it is: {id}");
    serde_json::from_value::<async_nats::service::PingResponse>(ping).unwrap();
    let info = monitored("$SRV.INFO.tells").await;
    assert_eq!(info["description"], "tells");
    assert_eq!(info["metadata"]["host"], "h1");
    assert_eq!(info["endpoints"][0]["metadata"]["description"], "tells it");
    serde_json::from_value::<async_nats::service::Info>(info).unwrap();
    let stats = monitored(&format!("$SRV.STATS.tells.{id}")).await;
    let endpoint = &stats["endpoints"][0];
    assert_eq!((&endpoint["num_requests"], &endpoint["num_errors"]), (&json!(5), &json!(1)));
    assert_eq!(endpoint["last_error"], "BERTH0106:no  no (BERTH0106)");
    let data = &endpoint["data"];
    assert_eq!((&data["errors"], &data["in_flight"]), (&json!({"BERTH0106": 1}), &json!(0)));
    // Requests that were answered "wait" are counted apart, and nothing failed.
    assert_eq!(data["waits"], json!({"BERTH0116": 2}));
    assert!(data["last_error_at"].is_string() && data["last_error_trace"].is_string(), "{data}");
    serde_json::from_value::<async_nats::service::Stats>(stats).unwrap();
    // A stopped service is not listed any more.
    assert!(service.stop(PATIENCE).await);
    wait::until("it is gone", PATIENCE, async || {
        let mut replies = client.subscribe("_INBOX.replies").await.unwrap();
        client.publish_with_reply("$SRV.PING", "_INBOX.replies", "".into()).await.unwrap();
        let reply = tokio::time::timeout(Duration::from_millis(200), replies.next()).await;
        match reply {
            Ok(Some(message)) if message.status.is_none() => Err("it answers"),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test]
async fn names_that_tools_would_not_accept_are_refused() {
    let (_server, bus) = one().await;
    assert!(bus.service(service("a.b")).await.is_err());
    let spec = ServiceSpec { version: "one".into(), ..service("a") };
    assert!(bus.service(spec).await.is_err());
    let service = bus.service(service("a")).await.unwrap();
    for (name, subject) in [("a b", "a"), ("a", "a b"), ("a", "a..b"), ("a", "a.>")] {
        let spec = endpoint(name, subject);
        assert!(service.endpoint(spec, |_| async { Ok(()) }).await.is_err(), "{name} {subject}");
    }
}

/// A caller whose clock is ahead, or an attacker, sets a deadline of tomorrow.
#[tokio::test]
async fn a_far_deadline_is_shortened_to_the_longest_wait() {
    let (_server, bus) = one().await;
    let service = bus.service(service("left")).await.unwrap();
    let answer_remaining = |request: Request| async move {
        Ok(request.deadline.saturating_duration_since(Instant::now()).as_secs())
    };
    service.endpoint(endpoint("left", "left"), answer_remaining).await.unwrap();
    assert!(bus.flush(PATIENCE).await);
    for deadline_s in [30, 86_400] {
        let call = Call::within(trace(), Duration::from_secs(deadline_s));
        let answer_remaining: u64 = bus.request("left", &(), &call).await.unwrap();
        let max = deadline_s.min(WAIT_MAX.as_secs());
        assert!(
            answer_remaining <= max && answer_remaining + 20 > max,
            "of {deadline_s} s {answer_remaining} s are left"
        );
    }
}

/// A caller with one second sends a request whose handler would wait for a minute.
#[tokio::test]
async fn a_handlers_waits_end_with_its_callers_deadline() {
    const MINUTE: Duration = Duration::from_secs(60);
    let (server, bus) = one().await;
    let service = bus.service(service("waits")).await.unwrap();
    let _silent = silent_subscriber(&server, "silent").await;
    let hangs = endpoint("hangs", "hangs");
    service.endpoint(hangs, |_| pending::<Result<bool, Problem>>()).await.unwrap();
    let inner = bus.clone();
    let handler = move |request: Request| {
        let bus = inner.clone();
        async move {
            let call = Call::within(request.trace, MINUTE);
            let reply = bus.request::<bool>("silent", &(), &call).await;
            reply.map_err(|error| error.into_problem("inner"))
        }
    };
    service.endpoint(endpoint("waits", "waits"), handler).await.unwrap();
    let second = || Call::within(trace(), Duration::from_secs(1));
    let refused = problem(bus.request::<Value>("waits", &(), &second()).await);
    assert_eq!((refused.code, refused.step.as_deref()), (Code::NoAnswer, Some("inner")));
    assert_eq!(service.in_flight(), 0, "the handler has ended too");
    let hung = problem(bus.request::<Value>("hangs", &(), &second()).await);
    assert!(hung.message.contains("takes longer than its deadline allows"), "{hung}");
    assert!(hung.retryable, "{hung}");
}
