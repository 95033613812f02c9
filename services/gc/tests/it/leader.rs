//! One collector leads; another takes over when it ends, however it ends (F3).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use berth_bus::{Call, Listen, RequestError, ServiceSpec, VerbRequest};
use berth_contract::message::alloc::Forgotten;
use berth_contract::message::claim::{Claims, Released};
use berth_contract::message::collect::{Force, Sweep};
use berth_contract::service;
use berth_contract::verb::{self, Verb as _};
use berth_harness::wait;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::site::{ON_DEMAND, PATIENCE, Pace, Site, trace};

fn times_led(site: &Site) -> Vec<usize> {
    site.collectors.iter().map(|collector| collector.log().matches("leads fence").count()).collect()
}

/// Waits until a collector other than `before` leads and answers.
async fn next_leader(site: &Site, before: usize) -> usize {
    wait::until("another leads and answers", PATIENCE, async || match site.leader().await {
        Some(leader) if leader != before => {
            site.force().await.map(|_| leader).map_err(|error| error.to_string())
        }
        now => Err(format!("{now:?} leads")),
    })
    .await
}

#[tokio::test]
async fn one_leads_and_another_takes_over_when_it_is_killed() {
    let site = Site::start(3, ON_DEMAND).await;
    let first = site.leader().await.unwrap();
    assert_eq!(times_led(&site).iter().sum::<usize>(), 1);
    site.collectors[first].kill9();
    let second = next_leader(&site, first).await;
    assert_eq!(times_led(&site).iter().sum::<usize>(), 2);

    // The restarted replica is a standby now.
    site.collectors[first].restart();
    site.collectors[second].kill9();
    next_leader(&site, second).await;
}

/// No collector leads for as long as the lease lasts, plus the time in which a standby notices.
#[tokio::test]
async fn another_takes_over_in_the_time_that_the_lease_says() {
    let site = Site::start(2, Pace { lease_ttl_s: 4, ..ON_DEMAND }).await;
    let first = site.leader().await.unwrap();
    let killed = Instant::now();
    site.collectors[first].kill9();
    wait::until("another leads", PATIENCE, async || {
        site.leader().await.filter(|leader| *leader != first).ok_or("not yet")
    })
    .await;
    let empty = killed.elapsed();
    // The lease is renewed every third of its TTL, so at least two thirds were left; and a standby
    // tries every second.
    let (shortest, longest) = (Duration::from_secs(2), Duration::from_secs(4 + 8));
    assert!((shortest..=longest).contains(&empty), "it was empty for {empty:?}");
}

fn empty<T: DeserializeOwned>(field: &str) -> T {
    serde_json::from_value(json!({ field: [], "index": 1 })).unwrap()
}

/// A claim whose alloc is not there.
fn leaving(volume: &str) -> Value {
    json!({"namespace": "team/a", "volume": volume, "alloc": "gone", "state": "taken", "epoch": 1,
        "node": "n1", "mode": "write", "since": "2026-01-01T00:00:00Z"})
}

/// A leader that was paused in a sweep sends no more requests when it goes on.
#[tokio::test]
async fn a_leader_that_was_paused_in_a_sweep_does_not_go_on_with_it() {
    const CLAIMS: usize = 40;
    const AT_ONCE: usize = 8;
    let site = Site::start(2, ON_DEMAND).await;
    // A claim service that answers releases once `closed` is set.
    let (open, closed) = watch::channel(false);
    let request_count = Arc::new(AtomicUsize::new(0));
    let own_trace = trace().trace_id();
    let service =
        site.bus.service(ServiceSpec::describe(service::CLAIM, "0.0.0", &[])).await.unwrap();
    let count = Arc::clone(&request_count);
    let answer = move |request: VerbRequest<verb::ClaimRelease>| {
        let mut closed = closed.clone();
        // The leader also sweeps by itself: requests of one trace belong to one sweep.
        count.fetch_add(usize::from(request.trace.trace_id() == own_trace), Ordering::SeqCst);
        async move {
            let _ = closed.wait_for(|open| *open).await;
            Ok(Released { state: None })
        }
    };
    let _endpoint = service.on(Listen::All, 1024, answer).await.unwrap();
    let no_alloc = |_: VerbRequest<verb::AllocForget>| async { Ok(Forgotten { known: false }) };
    let _endpoint = service.on(Listen::All, 1024, no_alloc).await.unwrap();
    let no_volumes = |_: VerbRequest<verb::VolumeList>| async { Ok(empty("volumes")) };
    let _endpoint = service.on(Listen::All, 1024, no_volumes).await.unwrap();
    let listed: Vec<Value> = (0..CLAIMS).map(|at| leaving(&format!("v{at}"))).collect();
    let claims = move |_: VerbRequest<verb::ClaimStatus>| {
        let page = json!({"claims": listed});
        async move { Ok(serde_json::from_value::<Claims>(page).unwrap()) }
    };
    let _endpoint = service.on(Listen::All, 1024, claims).await.unwrap();

    let first = site.leader().await.unwrap();
    let (bus, subject) = (site.bus.clone(), verb::GcForce::subject(&()));
    let forced = tokio::spawn(async move {
        bus.request::<Sweep>(&subject, &Force::default(), &Call::within(trace(), PATIENCE)).await
    });
    wait::until("the sweep stands at its first claims", PATIENCE, async || {
        let request_count = request_count.load(Ordering::SeqCst);
        if request_count == AT_ONCE { Ok(()) } else { Err(request_count) }
    })
    .await;
    site.collectors[first].pause();
    wait::until("another leads", PATIENCE, async || {
        site.leader().await.filter(|leader| *leader != first).ok_or("not yet")
    })
    .await;
    open.send_replace(true);
    site.collectors[first].resume();
    wait::until("the first has stepped down", PATIENCE, async || {
        let log = site.collectors[first].log();
        if log.contains("leads no more") { Ok(()) } else { Err(log) }
    })
    .await;
    // The sweep ends with the request; its answer does not matter here.
    let _ = forced.await;
    assert_eq!(request_count.load(Ordering::SeqCst), AT_ONCE, "it went on when it woke up");
}

#[tokio::test]
async fn a_leader_that_ends_gives_its_place_up() {
    // The lease would last longer than the test, if it were not released.
    let site = Site::start(2, Pace { lease_ttl_s: 300, ..ON_DEMAND }).await;
    let first = site.leader().await.unwrap();
    let status = site.collectors[first].terminate().await;
    assert!(status.success(), "{status}");
    next_leader(&site, first).await;
}

#[tokio::test]
async fn a_leader_that_was_paused_steps_down_when_it_wakes() {
    let site = Site::start(2, ON_DEMAND).await;
    let first = site.leader().await.unwrap();
    site.collectors[first].pause();
    // The old leader is still subscribed, and a request that it gets is not answered: callers
    // retry.
    let second = wait::until("another leads", PATIENCE, async || {
        site.leader().await.filter(|leader| *leader != first).ok_or("not yet")
    })
    .await;
    site.collectors[first].resume();
    wait::until("the first has stepped down", PATIENCE, async || {
        let log = site.collectors[first].log();
        if log.contains("leads no more") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(site.leader().await, Some(second));
    for _ in 0..4 {
        site.force().await.unwrap();
    }
}

#[tokio::test]
async fn collectors_go_on_after_the_server_was_away() {
    let site = Site::start(2, ON_DEMAND).await;
    site.server.restart().await;
    site.led().await;
}

#[tokio::test]
async fn bad_input_is_answered_and_nothing_more() {
    let site = Site::start(1, ON_DEMAND).await;
    let call = Call::within(trace(), PATIENCE);
    let subject = verb::GcForce::subject(&());
    for (body, good) in [
        (json!([1]), false),
        (json!("now"), false),
        (json!({"kinds": ["everything"]}), false),
        (json!({"grace_ms": -1}), false),
        (json!({"newer": 1, "kinds": ["claims", "claims"], "grace_ms": 1}), false),
        (json!({"kinds": ["plugins", "plugins"], "grace_ms": 1}), true),
    ] {
        let answer = site.bus.request::<Value>(&subject, &body, &call).await;
        match answer {
            Ok(_) => assert!(good, "{body}"),
            Err(RequestError::Problem(problem)) => {
                assert!(!good, "{body}: {problem}");
                assert_eq!((problem.code.as_str(), problem.faults.len()), ("BERTH0001", 1));
            }
            Err(error) => panic!("{body}: {error}"),
        }
    }
}
