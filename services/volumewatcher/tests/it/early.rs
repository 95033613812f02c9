//! Early tries when the cause of failed calls is gone.

use std::time::Duration;

use berth_contract::verb::{self};
use berth_domain::volume::{CallKind, State};
use berth_harness::wait;
use berth_service::clock;
use serde_json::json;

use crate::executor::Answer;
use crate::site::{NODE, PATIENCE, Site};

/// A release whose next try is minutes away is tried when its controller is healthy again. However
/// often the controller flaps, it is not tried more often than the configured interval.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_well_again_is_asked_at_once_and_not_at_each_flap() {
    let site = Site::start(&[
        ("BERTH__POLICY__RETRY_FIRST_MS", "600000"),
        ("BERTH__POLICY__RETRY_MAX_MS", "600000"),
        ("BERTH__WATCHER__EARLY_MS", "3000"),
    ])
    .await;
    let unpublish = CallKind::ControllerUnpublish;
    site.plugin("p", true).await;
    // A try between two flaps asks whether the controller still works on the first call.
    site.executor.answer_idle().await;
    site.executor.tell("p", unpublish, Answer::Error);
    site.taken("v", "p").await;
    site.stop("v").await;
    let failed = site.failed("v", State::NodeDetached, 1).await;
    assert!(failed.next_try.unwrap().since(clock::now()) > Duration::from_secs(200), "{failed:?}");

    let began = clock::now();
    let mut flaps = 0;
    while clock::now().since(began) < Duration::from_secs(4) {
        site.controller("p", false).await;
        site.controller("p", true).await;
        flaps += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let tries = site.executor.seen("p", unpublish).len() - 1;
    assert!(flaps > 20 && (1..=4).contains(&tries), "{tries} tries in {flaps} flaps");

    // The last change is not forgotten.
    site.executor.tell("p", unpublish, Answer::After(Duration::ZERO));
    site.freed("v").await;
    assert!(site.executor.seen("p", unpublish).len() <= 6);
}

/// A node that is ready again is asked at once to detach.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_there_again_is_asked_at_once() {
    let slow = ("BERTH__POLICY__RETRY_FIRST_MS", "600000");
    let site = Site::start(&[slow, ("BERTH__POLICY__RETRY_MAX_MS", "600000")]).await;
    site.plugin("p", false).await;
    site.executor.tell("p", CallKind::NodeDetach, Answer::Error);
    site.taken("v", "p").await;
    site.stop("v").await;
    site.failed("v", State::Unpublishing, 1).await;
    site.executor.tell("p", CallKind::NodeDetach, Answer::After(Duration::ZERO));
    site.down().await;
    site.node(None).await;
    site.freed("v").await;
    wait::until("nothing more is asked", PATIENCE, async || {
        let calls = site.executor.seen("p", CallKind::NodeDetach).len();
        if calls == 2 { Ok(()) } else { Err(calls) }
    })
    .await;
}

/// An agent that was started again within its lease is asked at once, too: its plugin may have been
/// away although its record says that it was healthy all the time.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_started_again_is_asked_at_once() {
    let slow = ("BERTH__POLICY__RETRY_FIRST_MS", "600000");
    let site = Site::start(&[slow, ("BERTH__POLICY__RETRY_MAX_MS", "600000")]).await;
    site.plugin("p", false).await;
    site.executor.tell("p", CallKind::NodeDetach, Answer::Error);
    site.taken("v", "p").await;
    site.stop("v").await;
    site.failed("v", State::Unpublishing, 1).await;
    site.executor.tell("p", CallKind::NodeDetach, Answer::After(Duration::ZERO));
    site.started_again().await;
    site.freed("v").await;
}

/// A refused call of a claim is tried at once when another claim of the volume changes, because
/// that claim may have been the cause.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_asked_for_at_once_when_one_beside_it_goes_on() {
    let slow = ("BERTH__POLICY__RETRY_FIRST_MS", "600000");
    let site = Site::start(&[slow, ("BERTH__POLICY__RETRY_MAX_MS", "600000")]).await;
    site.plugin("p", false).await;
    let access = json!([{"access": "single-node-multi-writer"}]);
    let volume = json!({"id": "v", "plugin": "p", "capability": access});
    site.about::<verb::VolumeRegister>(&volume).await;
    for alloc in ["a", "b"] {
        let asks = json!({"id": alloc, "node": NODE, "volumes": [{"source": "v"}]});
        site.about::<verb::AllocRegister>(&asks).await;
        let take = json!({"alloc": alloc, "volume": "v", "node": NODE, "mode": "write"});
        site.about::<verb::ClaimTake>(&take).await;
    }
    site.executor.tell("p", CallKind::NodeDetach, Answer::Error);
    site.stop("a").await;
    wait::until("it was refused for a", PATIENCE, async || {
        let claims = site.claims("v").await;
        let refused = claims.iter().any(|claim| claim.alloc.as_str() == "a" && claim.tries > 0);
        if refused { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    site.executor.tell("p", CallKind::NodeDetach, Answer::After(Duration::ZERO));
    site.stop("b").await;
    site.freed("v").await;
}
