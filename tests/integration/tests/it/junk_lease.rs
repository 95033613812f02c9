//! A lease key that was written by hand, with the NATS CLI.

use berth_bus::{Change, Guard, Write};
use berth_contract::lease::Holder;
use berth_contract::{bucket, key};
use berth_domain::NodeId;
use berth_domain::plugin::NodeState;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use berth_service::clock;

use crate::why::{NOBODY, tells};

/// Writes what `nats kv put berth-leases node.n1 junk` writes.
async fn write_junk(system: &System) {
    let leases = system.bus.bucket(&bucket::LEASES, 1).await.unwrap();
    let key = key::node_lease(&NodeId::new("n1").unwrap());
    wait::until("the junk is stored", RECOVERY, || async {
        let revision = leases.head(&key).await.map_err(|error| error.to_string())?;
        let write = Write {
            key: &key,
            change: Change::Put("junk".into()),
            guard: Guard { filter: &key, revision },
            operation: "by hand",
            trace: clock::begin_trace(),
        };
        leases.commit(write).await.map_err(|error| error.to_string())
    })
    .await;
}

async fn await_state(system: &System, expected: NodeState) {
    wait::until(&format!("n1 is {expected}"), RECOVERY, || async {
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let node = nodes.into_iter().find(|node| node.id.as_str() == "n1").ok_or("no n1")?;
        if node.state == expected { Ok(()) } else { Err(node.state.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_takes_its_lease_back_from_junk() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    let agent = system.daemon(Part::Agent(0));
    let pid = agent.pid();
    write_junk(&system).await;
    system.run("a", 0, "data").await;
    assert_eq!(agent.pid(), pid, "the agent has not ended");
    // Junk that the agent finds at its start.
    agent.kill9();
    write_junk(&system).await;
    agent.restart();
    wait::until("the agent holds its lease", RECOVERY, || async {
        let leases = system.bus.bucket(&bucket::LEASES, 1).await.unwrap();
        let key = key::node_lease(&NodeId::new("n1").unwrap());
        let entry = leases.get(&key).await.map_err(|error| error.to_string())?;
        let value = entry.and_then(|entry| entry.value).unwrap_or_default();
        let holder = serde_json::from_slice::<Holder>(&value);
        holder.map(drop).map_err(|_| format!("{value:?}"))
    })
    .await;
    await_state(&system, NodeState::Ready).await;
    tells(&system, "n1", "nothing", NOBODY, "its agent answers, …").await;
    system.stop("a").await;
    system.settle("data").await;
}

/// The agent has ended, and the junk does not count as its lease for ever.
#[tokio::test(flavor = "multi_thread")]
async fn junk_in_the_lease_of_a_dead_agent_ends() {
    let system = System::start(Options::default()).await;
    system.daemon(Part::Agent(0)).kill9();
    write_junk(&system).await;
    let leases = system.bus.bucket(&bucket::LEASES, 1).await.unwrap();
    let key = key::node_lease(&NodeId::new("n1").unwrap());
    wait::until("the registry gives the junk a TTL", RECOVERY, || async {
        let entry = leases.get(&key).await.map_err(|error| error.to_string())?;
        let has_ttl = entry.as_ref().is_some_and(|entry| entry.has_ttl);
        if has_ttl { Ok(()) } else { Err(format!("{entry:?}")) }
    })
    .await;
}
