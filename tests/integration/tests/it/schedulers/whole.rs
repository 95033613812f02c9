//! `agent.mount-all` beside other requests of its alloc, and repeated with short deadlines.

use std::time::Duration;

use berth_client::scheduler::{Deadlines, Refusal};
use berth_contract::code::Code;
use berth_contract::message::agent::MountedAll;
use berth_contract::message::claim::{Grant, Take};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::AllocState;
use berth_domain::volume::State;
use berth_domain::{Namespace, NodeId, VolumeId};
use berth_harness::dirs::mounts_beneath;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{SOON, alloc_id, ask, place, register, scheduler};

/// Rounds in which an alloc is mounted by two requests at once.
const ROUNDS: u64 = 12;

fn at_once() -> Deadlines {
    Deadlines { attempt: Duration::from_secs(10), overall: SOON }
}

/// Requests all volumes of the alloc on the first node, once.
async fn mount_all(system: &System, alloc: &str) -> Result<MountedAll, Problem> {
    let to = verb::NodeAndNamespace::any_of(NodeId::new("n1").unwrap());
    let request = json!({"namespace": "default", "alloc": alloc});
    system.ask(&verb::AgentMountAll::subject(&to), &request).await
}

async fn claim_state(system: &System, volume: &str, alloc: &str) -> Option<State> {
    let claims = system.claims(volume).await.claims;
    claims.into_iter().find(|claim| claim.alloc == alloc_id(alloc)).map(|claim| claim.state)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_was_acknowledged_stays_when_a_mount_of_the_whole_alloc_is_refused() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    for volume in ["m1", "m2"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    let a = scheduler(&system, "anna", "a").await;
    let holder = place(&a, "holder", 1, &["m2"]).await;
    holder.mount(false, at_once()).await.unwrap();
    for round in 0..ROUNDS {
        let id = format!("round-{round}");
        let job = place(&a, &id, 0, &["m1", "m2"]).await;
        let whole = async {
            sleep(Duration::from_millis(round * 9)).await;
            job.mount(false, at_once()).await
        };
        let (mounted, whole) = tokio::join!(system.mount(&id, 0, "m1"), whole);
        let path = mounted.unwrap().path;
        assert!(
            matches!(&whole, Err(Refusal::Wait(problem)) if problem.code == Code::Held),
            "{whole:?}"
        );
        // Longer than a release takes.
        sleep(Duration::from_millis(700)).await;
        assert_eq!(claim_state(&system, "m1", &id).await, Some(State::Taken), "round {round}");
        assert!(mounts_beneath(system.dir().path()).iter().any(|point| point.ends_with(&path)));
        std::fs::write(format!("{path}/written"), "x").unwrap();
        job.stop(AllocState::Complete, "done").await.unwrap();
        system.freed("m1").await;
    }
    holder.stop(AllocState::Complete, "done").await.unwrap();
    system.settle("m2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_taken_before_stays_when_a_mount_of_the_whole_alloc_is_refused() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    for volume in ["x", "y", "z"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    let a = scheduler(&system, "anna", "a").await;
    let holder = place(&a, "holder", 1, &["z"]).await;
    holder.mount(false, at_once()).await.unwrap();
    let job = place(&a, "job", 0, &["x", "y", "z"]).await;
    let take = Take {
        alloc: alloc_id("job"),
        volume: VolumeId::new("x").unwrap(),
        node: NodeId::new("n1").unwrap(),
        mode: None,
        wait: false,
        alias: None,
    };
    let grant: Grant = ask::<verb::ClaimTake>(&system, &take).await.unwrap();
    let refused = job.mount(false, at_once()).await.unwrap_err();
    assert_eq!(refused.problem().code, Code::Held, "{refused}");
    system.freed("y").await;
    let claims = system.claims("x").await.claims;
    assert_eq!(claims.len(), 1, "{claims:?}");
    assert_eq!((claims[0].state, claims[0].epoch), (State::Taken, grant.epoch));
    for alloc in [job, holder] {
        alloc.stop(AllocState::Complete, "done").await.unwrap();
    }
    for volume in ["x", "z"] {
        system.settle(volume).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_of_the_whole_alloc_with_deadlines_shorter_than_the_work_ends_up_mounted() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, patience_ms: 1_200, ..Options::default() };
    let system = System::start(options).await;
    for volume in ["x", "y"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    let slow = |rpc| json!({"rpc": rpc, "when": "before", "delay_ms": 2_000});
    let calls = ["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"];
    system.plant(0, &json!(calls.map(slow)));
    let volumes = json!([{"source": "x"}, {"source": "y"}]);
    let alloc = json!({"id": "job", "node": "n1", "volumes": volumes});
    let subject = verb::AllocRegister::subject(&Namespace::default());
    system.persist::<serde_json::Value>(&subject, &alloc).await.unwrap();
    let mut late_requests = 0;
    let mounted = timeout(SOON, async {
        loop {
            match mount_all(&system, "job").await {
                Ok(mounted) => return mounted,
                Err(problem) => assert!(problem.retryable, "{problem}"),
            }
            late_requests += 1;
        }
    });
    let mounted =
        mounted.await.unwrap_or_else(|_| panic!("not mounted after {late_requests} requests"));
    assert_eq!(mounted.volumes.len(), 2);
    assert!(late_requests >= 3, "no deadline was too short: {late_requests}");
    let calls = system.calls();
    let count_begun = |rpc: &str| {
        calls.iter().filter(|call| call["entry"] == "begin" && call["rpc"] == rpc).count()
    };
    // Each call was begun once, and nothing was taken down.
    assert_eq!((count_begun("NodeStageVolume"), count_begun("NodePublishVolume")), (2, 2));
    assert_eq!(
        (count_begun("NodeUnpublishVolume"), count_begun("ControllerUnpublishVolume")),
        (0, 0)
    );
    system.let_go();
    system.stop("job").await;
    for volume in ["x", "y"] {
        system.settle(volume).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_claimed_for_a_whole_alloc_is_given_up_when_its_request_is_not_repeated() {
    if !or_skip("real mounts") {
        return;
    }
    let options =
        Options { nodes: 1, patience_ms: 3_000, place_kept_ms: 1_000, ..Options::default() };
    let system = System::start(options).await;
    for volume in ["x", "y"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    system.plant(
        0,
        &json!([{"rpc": "ControllerPublishVolume", "volume": "y", "when": "before",
        "hang": true}]),
    );
    let a = scheduler(&system, "anna", "a").await;
    let job = a.register(register("job", 0, &["x", "y"])).await.unwrap();
    let late = mount_all(&system, "job").await.unwrap_err();
    assert!(late.retryable, "{late}");
    assert_eq!(
        claim_state(&system, "x", "job").await,
        Some(State::Taken),
        "the claim is kept at first"
    );
    wait::until("x is given up", SOON, || async {
        match claim_state(&system, "x", "job").await {
            None => Ok(()),
            state => Err(format!("{state:?}")),
        }
    })
    .await;
    system.let_go();
    // The same alloc may repeat its request.
    job.mount(false, at_once()).await.unwrap();
    job.stop(AllocState::Complete, "done").await.unwrap();
    for volume in ["x", "y"] {
        system.settle(volume).await;
    }
}
