//! What a job and an idle agent cost the bus. The counts do not depend on the machine.
//!
//! They grew while features came, and no measurement told: each run was compared with itself. Who
//! needs more changes the budget here, and says why.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_harness::nats::{HeardMessage, Spy};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use serde_json::Value;
use tokio::time::sleep;

/// How many messages of each kind.
type Counts = BTreeMap<String, usize>;

/// A quiet machine needs one round. On a busy one, calls are tried again in some of them.
const ROUNDS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_costs_the_bus_no_more_than_its_budget() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let spy = Spy::listen(&system.servers()[0]).await;
    let (mut mounts, mut releases) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (volume, alloc) = (format!("v{round}"), format!("a{round}"));
        system.volume(&volume, &["single-node-writer"]).await;
        count_until_quiet(&spy).await;
        system.run(&alloc, 0, &volume).await;
        mounts.push(count_until_quiet(&spy).await);
        system.stop(&alloc).await;
        releases.push(count_until_quiet(&spy).await);
        assert!(system.claims(&volume).await.claims.is_empty(), "{alloc} is released");
    }
    let of_mount = [
        ("request alloc.register", 1),
        ("request agent.mount", 1),
        ("request claim.take", 1),
        ("request controller.publish", 1),
        ("request node.tell", 2),
        ("request claim.observe", 1),
        ("write berth-allocs", 1),
        // Publishing, taken, and what the agent says of the mount.
        ("write berth-volumes", 3),
        ("event", 5),
        ("read berth-allocs at its leader", 4),
        ("read berth-volumes at its leader", 1),
    ];
    check("to register an alloc and mount its volume", &fewest(&mounts), &of_mount);
    let of_release = [
        ("request alloc.stop", 1),
        ("request agent.detach", 1),
        ("request controller.unpublish", 1),
        ("request work.checkpoint", 3),
        ("request node.tell", 3),
        ("write berth-allocs", 1),
        // Unpublishing, node-detached, and the deletion.
        ("write berth-volumes", 3),
        ("event", 7),
        ("read berth-allocs at its leader", 5),
    ];
    check("to stop the alloc and free the volume", &fewest(&releases), &of_release);
}

/// What an agent sends in a minute in which nothing happens, and what is written for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_agent_costs_the_bus_no_more_than_its_budget() {
    if !or_skip("a driver") {
        return;
    }
    let system = System::start(Options { nodes: 1, lease_ttl_s: 30, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let spy = Spy::listen(&system.servers()[0]).await;
    count_until_quiet(&spy).await;
    let mut counts = Counts::new();
    sleep(Duration::from_secs(60)).await;
    for heard in spy.take() {
        let tokens: Vec<&str> = heard.subject.split('.').collect();
        let kind = match *tokens.as_slice() {
            ["$KV", bucket @ ("berth-nodes" | "berth-plugins"), ..]
            | ["$KV", bucket @ "berth-leases", "node", ..] => format!("write {bucket}"),
            ["berth", "v1", "event", ..] => "event".to_owned(),
            ["berth", "v1", service, verb, .., "node", _] => format!("request {service}.{verb}"),
            _ => continue,
        };
        *counts.entry(kind).or_default() += 1;
    }
    let of_agent = [
        // Each half of the time that the lease lives.
        ("request node.hold", 5),
        ("write berth-leases", 5),
        // Each `report_interval_ms` in a small fleet.
        ("request node.report", 7),
        ("request claim.status", 2),
    ];
    check("an idle agent, in a minute", &counts, &of_agent);
}

fn check(what: &str, counts: &Counts, budget: &[(&str, usize)]) {
    let budget: BTreeMap<&str, usize> = budget.iter().copied().collect();
    let allowed = |kind: &str| budget.get(kind).copied().unwrap_or(0);
    let over: Vec<_> = counts.iter().filter(|(kind, count)| **count > allowed(kind)).collect();
    assert!(over.is_empty(), "{what}, more than the budget {budget:?}: {over:?}");
    assert!(counts.len() * 2 > budget.len(), "something was heard: {counts:?}");
}

/// Counts what is sent until nothing that counts is sent for a second.
async fn count_until_quiet(spy: &Spy) -> Counts {
    let mut counts = Counts::new();
    loop {
        sleep(Duration::from_secs(1)).await;
        let heard: Vec<String> = spy.take().iter().filter_map(kind).collect();
        if heard.is_empty() {
            return counts;
        }
        for kind in heard {
            *counts.entry(kind).or_default() += 1;
        }
    }
}

/// The kind of a message that a job causes; none of what is sent now and then anyway.
fn kind(heard: &HeardMessage) -> Option<String> {
    let tokens: Vec<&str> = heard.subject.split('.').collect();
    match *tokens.as_slice() {
        ["$KV", bucket @ ("berth-volumes" | "berth-allocs"), ..] => Some(format!("write {bucket}")),
        ["$JS", "API", "STREAM", "MSG", "GET", _] => {
            let asked: Value = serde_json::from_slice(&heard.payload).ok()?;
            let key = asked["last_by_subj"].as_str()?.strip_prefix("$KV.")?;
            let (bucket, key) = key.split_once('.')?;
            // Mirrors ask for the newest message of all now and then.
            let is_of_job = ["berth-volumes", "berth-allocs"].contains(&bucket) && key != ">";
            is_of_job.then(|| format!("read {bucket} at its leader"))
        }
        ["berth", "v1", "event", ..] => Some("event".to_owned()),
        ["berth", "v1", "agent", _, "controller", _, verb, ..] => {
            Some(format!("request controller.{verb}"))
        }
        ["berth", "v1", "agent", _, verb, ..] => Some(format!("request agent.{verb}")),
        // A lease, a report, a comparison of mounts with claims, and a sweep of the collector.
        ["berth", "v1", "node", "hold" | "report", ..]
        | ["berth", "v1", "claim", "status", ..]
        | ["berth", "v1", .., "service", "gc"] => None,
        ["berth", "v1", service, verb, ..] => Some(format!("request {service}.{verb}")),
        _ => None,
    }
}

/// The least number of each kind in any round.
fn fewest(rounds: &[Counts]) -> Counts {
    let mut fewest = rounds[0].clone();
    for round in rounds {
        for (kind, count) in &mut fewest {
            *count = (*count).min(round.get(kind).copied().unwrap_or(0));
        }
    }
    fewest.retain(|_, count| *count > 0);
    fewest
}
