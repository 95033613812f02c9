//! One leads; another takes over when it ends, however it ends (F3).

use berth_bus::{Call, RequestError};
use berth_contract::subject::Global;
use berth_harness::wait;
use serde_json::{Value, json};

use crate::site::{ON_DEMAND, PATIENCE, Pace, Site, trace};

fn times_led(site: &Site) -> Vec<usize> {
    site.collectors.iter().map(|one| one.log().matches("leads fence").count()).collect()
}

/// Waits until another than `before` leads and answers.
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

    // The first one stands by from now on.
    site.collectors[first].restart();
    site.collectors[second].kill9();
    next_leader(&site, second).await;
}

#[tokio::test]
async fn a_leader_that_ends_gives_its_place_up() {
    // A lease that would outlast the test's patience, were it not given up.
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
    // It is still subscribed, and a request that it gets is not answered: people ask again.
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
    let subject = Global::GcForce.subject();
    for (body, good) in [(json!([1]), false), (json!("now"), false), (json!({"newer": 1}), true)] {
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
