//! What is said to be absent on three servers: a quorum has to agree (decision 0031).

use berth_bus::{Bus, Call, Config};
use berth_contract::message::alloc::{AllocStatus, RegisterAlloc};
use berth_contract::message::owner::YieldOwner;
use berth_contract::verb;
use berth_contract::{bucket, key};
use berth_domain::{AllocId, Namespace, NodeId, OwnerId};
use berth_harness::dirs::Dir;
use berth_harness::nats::NatsServers;
use berth_harness::process::Program;
use berth_harness::wait;
use berth_service::clock;

use crate::site::PATIENCE;

/// A leader of the leases that was deposed lacks the lease that an owner took since. Its allocs
/// would be registered as those of an owner that is gone, and could be adopted by another one.
#[tokio::test]
async fn an_owner_has_no_lease_only_when_a_quorum_has_none() {
    let nats = NatsServers::start(3).await;
    let dir = Dir::new("claim-absence");
    let program = env!("CARGO_BIN_EXE_berth-claim");
    let program = Program::service_at(program, "claim", &dir);
    let _claim = program.on_bus(nats.url(), nats.copies()).start();
    let bus = Bus::connect(Config::new([nats.url()], "test/host/1").insecure()).await.unwrap();
    let (namespace, owner) = (Namespace::default(), OwnerId::new("sched").unwrap());
    let call = || Call::within(clock::begin_trace(), PATIENCE);
    let node = NodeId::new("n1").unwrap();
    let register = RegisterAlloc {
        allow_missing: true,
        owner: Some(owner.clone()),
        ..RegisterAlloc::new(AllocId::new("a").unwrap(), node, Vec::new())
    };
    let registered: AllocStatus =
        wait::until("the alloc is registered", 2 * PATIENCE, async || {
            bus.ask_service::<verb::AllocRegister>(&namespace, &register, &call()).await
        })
        .await;
    assert!(registered.owner.is_some(), "{registered:?}");
    let leases = bus.bucket(&bucket::LEASES, nats.copies()).await.unwrap();
    let key = key::owner_lease(&namespace, &owner);
    let confirmed = leases.head(&key).await.unwrap();
    assert!(confirmed > 0, "registered without a question to a quorum");

    let request = YieldOwner { owner, holder: "p1".to_owned() };
    bus.ask_service::<verb::OwnerYield>(&namespace, &request, &call()).await.unwrap();
    assert!(leases.head(&key).await.unwrap() > confirmed, "yielded without a question to a quorum");
}
