//! A claim that is older than a restore is requested again. A node that has not reported since may
//! have the volume mounted by a claim that the backup lacks, so the claim waits for that node.

use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::volume::State;
use berth_harness::dirs::Dir;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use serde_json::{Value, json};

use crate::restored::admin_done;

/// Two nodes, one volume for a single node, and an alloc on the first node that has requested it.
async fn system_with_alloc() -> System {
    let driver = |_| vec!["--lenient".to_owned()];
    let system = System::start(Options { driver, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.alloc("a", 0, "data", false).await;
    system
}

/// Restores all buckets while the second node's agent is down, so that it has not compared its
/// mounts.
async fn restore_without_second_node(system: &System) {
    let backup = Dir::new("backup");
    let dir = backup.path().to_str().expect("a path in UTF-8");
    admin_done(system, &["bus", "backup", dir]).await;
    system.kill9(Part::Agent(1));
    admin_done(system, &["bus", "restore", dir, "--yes"]).await;
}

async fn take(system: &System) -> Result<Value, Problem> {
    let body = json!({"alloc": "a", "volume": "data", "node": "n1"});
    system.ask(&verb::ClaimTake::subject(&Namespace::default()), &body).await
}

/// The state of the only claim.
async fn state(system: &System) -> State {
    let claims = system.claims("data").await.claims;
    let [claim] = &claims[..] else { panic!("one claim is on record: {claims:?}") };
    claim.state
}

/// Checks that the claim is refused until the second node has reported, and granted then.
async fn waits_for_second_node(system: &System) {
    wait::until("the claim waits for n2", RECOVERY, || async {
        match take(system).await {
            Ok(grant) => panic!("granted while n2 may have it mounted: {grant}"),
            Err(problem) if problem.code == Code::MountsUnreported => Ok(()),
            Err(problem) => Err(problem.to_string()),
        }
    })
    .await;
    system.restart(Part::Agent(1));
    wait::until("the claim is granted", RECOVERY, || async {
        take(system).await.map(drop).map_err(|problem| problem.to_string())
    })
    .await;
    assert_eq!(state(system).await, State::Taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_taken_before_a_restore_is_granted_again_only_after_every_node_has_reported() {
    if !or_skip("real mounts") {
        return;
    }
    let system = system_with_alloc().await;
    system.mount("a", 0, "data").await.unwrap();
    restore_without_second_node(&system).await;
    waits_for_second_node(&system).await;
    system.stop("a").await;
    system.freed("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_begun_before_a_restore_goes_on_only_after_every_node_has_reported() {
    if !or_skip("real mounts") {
        return;
    }
    let system = system_with_alloc().await;
    // The watcher would undo the publish.
    system.kill9(Part::Watcher);
    system.plant(0, &json!([{"rpc": "ControllerPublishVolume", "code": "UNAVAILABLE"}]));
    system.try_mount("a", 0, "data").await.unwrap_err();
    assert_eq!(state(&system).await, State::Publishing);
    restore_without_second_node(&system).await;
    system.plant(0, &json!([]));
    waits_for_second_node(&system).await;
    system.restart(Part::Watcher);
    system.stop("a").await;
    system.freed("data").await;
}
