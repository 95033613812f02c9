//! A claim service that is older than the records.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use berth_bus::{EndpointSpec, ServiceSpec};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::volume::{CallKind, State};
use berth_harness::wait;
use serde_json::Value;

use crate::executor::Answer;
use crate::site::{PATIENCE, Site};

#[tokio::test(flavor = "multi_thread")]
async fn an_older_claim_service_is_asked_ever_more_rarely_until_it_is_upgraded() {
    const MOST: usize = 7;
    let site = Site::start(&[]).await;
    site.plugin("p", true).await;
    site.executor.tell("p", CallKind::NodeDetach, Answer::Error);
    site.taken("data", "p").await;
    site.stop("data").await;
    site.failed("data", State::Unpublishing, 1).await;
    site.claim.kill9();

    let request_times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let spec = ServiceSpec {
        name: "older-claim".to_owned(),
        version: "0.0.1".to_owned(),
        ..ServiceSpec::default()
    };
    let older = site.bus.service(spec).await.unwrap();
    let endpoint = EndpointSpec {
        name: "checkpoint".to_owned(),
        subject: verb::ClaimCheckpoint::subject(&Namespace::default()),
        ..EndpointSpec::default()
    };
    let times = Arc::clone(&request_times);
    let refuse = move |_| {
        times.lock().unwrap().push(Instant::now());
        let newer = Problem::new(Code::NewerRecord, "record default.data.spec has schema 9");
        std::future::ready(Err::<Value, _>(newer))
    };
    older.endpoint(endpoint, refuse).await.unwrap();
    // Half of 4 s, the pause after the third refusal. A request that was sent when the claim
    // service was killed is sent twice, so the first pauses do not count.
    wait::until("it is asked more rarely", PATIENCE, async || {
        let times = request_times.lock().unwrap().clone();
        let pauses = times.windows(2).map(|two| two[1] - two[0]);
        let is_long = pauses.max().is_some_and(|pause| pause >= Duration::from_secs(2));
        if is_long { Ok(()) } else { Err(format!("asked {} times", times.len())) }
    })
    .await;
    let count = request_times.lock().unwrap().len();
    assert!(count <= MOST, "asked {count} times before a pause of 2 s");
    let count_in_log = |text: &str| site.watcher.log().matches(text).count();
    assert_eq!(count_in_log("older than a record"), 1, "{}", site.watcher.log());
    assert_eq!(count_in_log("could not be asked"), 0, "{}", site.watcher.log());

    older.stop(PATIENCE).await;
    site.claim.restart();
    site.executor.tell("p", CallKind::NodeDetach, Answer::After(Duration::ZERO));
    site.freed("data").await;
    assert_eq!(count_in_log("reads every record that is due"), 1, "{}", site.watcher.log());
}
