//! Events are told without waiting, and read again.

use std::time::Duration;

use berth_contract::stream::EVENTS;
use berth_harness::wait;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::support::{PATIENCE, one, plain, trace};

fn subject(kind: &str) -> String {
    format!("berth.v1.event.default.{kind}.v1")
}

#[tokio::test]
async fn events_are_read_in_order_with_their_trace() {
    let (_server, bus) = one().await;
    let events = bus.events(&EVENTS, 1).await.unwrap();
    assert_eq!(events.drift(), []);
    let mut followed = events.follow("berth.v1.event.>").await.unwrap();
    for count in 0..50 {
        let kind = if count % 10 == 0 { "rare" } else { "often" };
        events.publish(&subject(kind), &json!({ "count": count }), trace());
    }
    events.flush(PATIENCE).await;
    for count in 0..50 {
        let event = timeout(PATIENCE, followed.next()).await.unwrap();
        let body: Value = serde_json::from_slice(&event.body).unwrap();
        assert_eq!(body["count"], count);
        assert_eq!(event.trace, Some(trace()));
    }
    let last = |filter: &str, count| {
        let (events, filter) = (events.clone(), filter.to_owned());
        async move {
            let last = events.last(&filter, count, PATIENCE).await.unwrap();
            let read = last.iter().map(|event| serde_json::from_slice::<Value>(&event.body));
            read.map(|body| body.unwrap()["count"].as_u64().unwrap()).collect::<Vec<_>>()
        }
    };
    assert_eq!(last("berth.v1.event.>", 3).await, [47, 48, 49]);
    assert_eq!(last(&subject("rare"), 3).await, [20, 30, 40]);
    assert_eq!(last(&subject("rare"), 100).await, [0, 10, 20, 30, 40]);
    assert_eq!(last(&subject("none"), 10).await, [0; 0]);
    assert_eq!(last("berth.v1.event.>", 0).await, [0; 0]);
}

#[tokio::test]
async fn an_event_log_on_one_server_is_written_without_waiting_for_the_disk() {
    let (server, bus) = one().await;
    bus.events(&EVENTS, 1).await.unwrap();
    // A second service finds it as it is to be.
    assert_eq!(bus.events(&EVENTS, 1).await.unwrap().drift(), []);
    let stream = plain(&server.url()).await.get_stream(EVENTS.name).await.unwrap();
    let config = serde_json::to_value(&stream.cached_info().config).unwrap();
    assert_eq!(config["persist_mode"], "async", "{config}");
}

#[tokio::test]
async fn telling_takes_no_time_without_a_server_and_a_full_queue_loses_and_counts() {
    let (server, bus) = one().await;
    let events = bus.events(&EVENTS, 1).await.unwrap();
    server.kill9();
    wait::until("the loss is noticed", PATIENCE, async || {
        if bus.connected() { Err("connected") } else { Ok(()) }
    })
    .await;
    let began = Instant::now();
    for count in 0..5000 {
        events.publish(&subject("many"), &json!({ "count": count }), trace());
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let lost = events.lost();
    assert!((3000..5000).contains(&lost), "{lost}");
    server.restart().await;
    events.flush(PATIENCE).await;
    let kept = usize::try_from(5000 - lost).unwrap();
    wait::until("what was kept is stored", PATIENCE, async || {
        let stored = events.last("berth.v1.event.>", 5000, PATIENCE).await.unwrap().len();
        if stored == kept { Ok(()) } else { Err(format!("{stored} of {kept}")) }
    })
    .await;
}

#[tokio::test]
async fn a_follower_goes_on_after_a_restart_without_a_gap() {
    let (server, bus) = one().await;
    let events = bus.events(&EVENTS, 1).await.unwrap();
    let mut followed = events.follow("berth.v1.event.>").await.unwrap();
    for round in 0..3 {
        events.publish(&subject("k"), &json!({ "round": round }), trace());
        events.flush(PATIENCE).await;
        let event = timeout(PATIENCE, followed.next()).await.unwrap();
        let body: Value = serde_json::from_slice(&event.body).unwrap();
        assert_eq!(body["round"], round);
        server.terminate().await;
        server.restart().await;
        wait::until("the bus is back", PATIENCE, async || {
            if bus.connected() { Ok(()) } else { Err("not yet") }
        })
        .await;
    }
}
