//! A long queue for one volume, on one node.

use std::time::Duration;

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_harness::wait;
use berth_integration::{Options, RECOVERY, System};
use berth_service::clock;
use serde_json::{Value, json};

/// More claims of one volume on one node than a list in a request may have entries. A call names
/// all of them.
const WAITERS: usize = 80;

/// Waits for the claim of an alloc, and then releases it.
async fn claim_and_release(system: &System, number: usize) {
    let namespace = Namespace::default();
    let take = verb::ClaimTake::subject(&namespace);
    let release = verb::ClaimRelease::subject(&namespace);
    let alloc = format!("a{number}");
    let requests = [
        (take, json!({"alloc": alloc, "volume": "data", "node": "n1", "wait": true})),
        (release, json!({"alloc": alloc, "volume": "data"})),
    ];
    for (subject, body) in requests {
        wait::until(&format!("{subject} of {alloc} is done"), RECOVERY, || async {
            let call = Call::within(clock::begin_trace(), Duration::from_secs(5));
            let answer = system.bus.request::<Value>(&subject, &body, &call).await;
            answer.map(drop).map_err(|error| error.into_problem("test").to_string())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_a_long_line_on_one_node_gets_the_volume() {
    let options = Options { attach: false, nodes: 1, ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["single-node-writer"]).await;
    for number in 0..WAITERS {
        system.alloc(&format!("a{number}"), 0, "data", false).await;
    }
    let system = &system;
    futures_util::future::join_all((0..WAITERS).map(|number| claim_and_release(system, number)))
        .await;
    system.freed("data").await;
}

/// A request whose deadline passes is refused with what it waited for, not as late.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_runs_out_of_time_says_what_it_waited_for() {
    let options = Options { attach: false, nodes: 1, ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["single-node-writer"]).await;
    let take = verb::ClaimTake::subject(&Namespace::default());
    for alloc in ["holder", "next"] {
        system.alloc(alloc, 0, "data", false).await;
    }
    let body = |alloc: &str| json!({"alloc": alloc, "volume": "data", "node": "n1", "wait": true});
    let _: Value = system.persist(&take, &body("holder")).await.unwrap();
    let mut codes = Vec::new();
    // The deadline may pass at any step of the request.
    for within in (300..1_500).step_by(130) {
        let call = Call::within(clock::begin_trace(), Duration::from_millis(within));
        let refused = system.bus.request::<Value>(&take, &body("next"), &call).await.unwrap_err();
        codes.push(refused.into_problem("test").code);
    }
    assert!(!codes.contains(&Code::Late), "{codes:?}");
    assert!(codes.contains(&Code::Waiting), "{codes:?}");
    for alloc in ["holder", "next"] {
        system.stop(alloc).await;
    }
    system.freed("data").await;
}
