//! One of two claim services hangs: it keeps its connection, and its place in the queue group,
//! until nats-server drops it. No request fails. When it resumes, it carries out no old request.

use std::time::{Duration, Instant};

use berth_bus::Call;
use berth_contract::code::Code;
use berth_contract::message::claim::Take;
use berth_contract::verb;
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use berth_service::clock;
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;

/// Workloads that are run while the replica hangs.
const RUNS: usize = 20;
/// Workloads at once: with more, the machine's speed would decide.
const AT_ONCE: usize = 4;
/// The longest that one command may take. Without a hung replica it takes one second.
const COMMAND_MAX: Duration = Duration::from_secs(20);
/// nats-server drops a client that does not answer after 9 s (`ping_interval`), and a busy machine
/// a little later.
const DROPPED_AFTER: Duration = Duration::from_secs(15);
/// After this many answers in a row, the queue group surely has no hung member.
const ANSWERS_IN_A_ROW: usize = 20;

/// Runs `berth` as an operator, and returns how long it took.
async fn berth(system: &System, args: &[&str]) -> Duration {
    let began = Instant::now();
    let ran = system.berth().args(args).output().await.expect("berth runs");
    let took = began.elapsed();
    let printed = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{args:?} after {took:.1?}: {printed}");
    took
}

/// Runs a workload, and releases and deregisters its volume. Returns how long the slower command
/// took.
async fn run_workload(system: &System, number: usize) -> Duration {
    let (volume, node) = (format!("v{number}"), format!("n{}", number % 2 + 1));
    let run = ["run", "--node", &node, "--volume", &volume, "--", "true"];
    let ran = berth(system, &run).await;
    system.freed(&volume).await;
    let deregistered = berth(system, &["volume", "deregister", &volume]).await;
    ran.max(deregistered)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_a_claim_service_hangs() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { replicas: 2, ..Options::default() }).await;
    for number in 0..RUNS {
        system.volume(&format!("v{number}"), &["single-node-writer"]).await;
    }
    // The first run of the program is slower, and not measured.
    berth(&system, &["volume", "status"]).await;
    system.daemon(Part::Claim).pause();
    let workloads = stream::iter(0..RUNS).map(|number| run_workload(&system, number));
    let workloads = workloads.buffer_unordered(AT_ONCE).collect::<Vec<_>>();
    let (took, ()) = tokio::join!(workloads, await_dropped(&system));
    system.daemon(Part::Claim).resume();
    let slowest = took.into_iter().max().unwrap();
    assert!(slowest < COMMAND_MAX, "{slowest:?}");
    system.healthy().await;
    system.judge();
}

/// Sends a claim for the alloc as its node does, with the timeout `within`.
async fn take(system: &System, alloc: &str, within: Duration) -> Result<(), Code> {
    let request = Take {
        alloc: AllocId::new(alloc).unwrap(),
        volume: VolumeId::new("data").unwrap(),
        node: NodeId::new("n1").unwrap(),
        mode: None,
        wait: false,
        alias: None,
    };
    let call = Call::within(clock::begin_trace(), within);
    let namespace = Namespace::default();
    let reply = system.bus.ask_service::<verb::ClaimTake>(&namespace, &request, &call);
    reply.await.map(drop).map_err(|error| error.into_problem("test").code)
}

/// Waits until nats-server sends no more requests to the hung replica.
async fn await_dropped(system: &System) {
    wait::until("the hung replica is dropped", DROPPED_AFTER, async || {
        for number in 0..ANSWERS_IN_A_ROW {
            let answer = take(system, "nobody", Duration::from_secs(1)).await;
            if answer == Err(Code::NoAnswer) {
                return Err(format!("after {number} answers: {answer:?}"));
            }
        }
        Ok(())
    })
    .await;
}

/// How many claims the replicas have refused as late.
async fn refused_as_late(system: &System) -> u64 {
    let subject = "$SRV.STATS.berth-claim";
    let surveyed = system.bus.survey::<Value>(subject, Duration::from_secs(2)).await;
    let replicas = surveyed.unwrap_or_default();
    let endpoints = replicas.iter().flat_map(|replica| replica["endpoints"].as_array().unwrap());
    let takes = endpoints.filter(|endpoint| endpoint["name"] == "claim-take");
    takes.filter_map(|take| take["data"]["errors"][Code::Late.as_str()].as_u64()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_service_that_wakes_up_carries_out_no_old_request() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { replicas: 2, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.alloc("old", 0, "data", false).await;
    system.daemon(Part::Claim).pause();
    // Each request goes to the paused replica, or to the other, which takes the claim.
    let mut unanswered = 0;
    for _ in 0..20 {
        let answer = take(&system, "old", Duration::from_millis(300)).await;
        unanswered += u64::from(answer == Err(Code::NoAnswer));
    }
    assert!(unanswered >= 4, "the queue group chose the paused service {unanswered} times of 20");
    // The claim of `old` ends, and another workload on another node writes.
    system.stop("old").await;
    system.freed("data").await;
    let mounted = system.run("new", 1, "data").await;
    std::fs::write(format!("{}/f", mounted.path), "written").unwrap();

    system.daemon(Part::Claim).resume();
    wait::until("the old requests are refused", Duration::from_secs(30), async || {
        let refused = refused_as_late(&system).await;
        if refused >= unanswered { Ok(()) } else { Err(format!("{refused} of {unanswered}")) }
    })
    .await;
    let claims = system.claims("data").await.claims;
    let holders: Vec<&str> = claims.iter().map(|claim| claim.alloc.as_str()).collect();
    assert_eq!(holders, ["new"], "an old request was carried out");
    system.stop("new").await;
    system.settle("data").await;
}
