//! An agent is killed: two allocs share a staged volume, which is unstaged after the last one; and
//! a release goes on when the agent is back.

use berth_contract::message::alloc::{AllocStatus, RegisterAlloc};
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::VolumeRequest;
use berth_domain::volume::MountOptions;
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::root::or_skip;
use berth_integration::{Options, Part, System};

use super::begun;

/// An alloc on n1 that requests the volume with its own mount options.
async fn alloc(system: &System, id: &str) {
    let source = VolumeId::new("data").unwrap();
    let mount = MountOptions { flags: vec!["noatime".to_owned()], ..MountOptions::default() };
    let volumes = vec![VolumeRequest { mount, ..VolumeRequest::for_volume(source) }];
    let register =
        RegisterAlloc::new(AllocId::new(id).unwrap(), NodeId::new("n1").unwrap(), volumes);
    let subject = verb::AllocRegister::subject(&Namespace::default());
    let _: AllocStatus = system.persist(&subject, &register).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s05_a_killed_agent_unstages_after_the_last_and_not_before() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-multi-writer"]).await;
    for id in ["a", "b"] {
        alloc(&system, id).await;
        system.mount_in_turn(id, 0, "data").await.unwrap();
    }
    assert_eq!(begun(&system, "NodeStageVolume", "data"), 1);
    system.kill9_and_restart(Part::Agent(0)).await;
    system.healthy().await;

    system.stop("a").await;
    berth_harness::wait::until("a is gone", super::SOON, || async {
        let claims = system.claims("data").await.claims;
        if claims.len() == 1 { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    assert_eq!(begun(&system, "NodeUnpublishVolume", "data"), 1);
    assert_eq!(begun(&system, "NodeUnstageVolume", "data"), 0, "b still has it");
    let remaining = system.mount_in_turn("b", 0, "data").await.unwrap();
    std::fs::write(format!("{}/f", remaining.path), "x").unwrap();

    system.stop("b").await;
    system.settle("data").await;
    assert_eq!(begun(&system, "NodeUnpublishVolume", "data"), 2);
    assert_eq!(begun(&system, "NodeUnstageVolume", "data"), 1);
}

/// The agent and its plugin are away for less than a lease, so nothing that the registry has on
/// record of their health changes. The next try is an hour away.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_goes_on_when_its_agent_and_plugin_are_back_within_one_lease() {
    if !or_skip("real mounts") {
        return;
    }
    let hour = 3_600_000;
    let options =
        Options { nodes: 1, retry_ms: (hour, hour), lease_ttl_s: 120, ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;

    system.kill9(Part::Agent(0));
    system.kill9(Part::Driver(0));
    system.stop("a").await;
    berth_harness::wait::until("the release waits for its next try", super::SOON, || async {
        let claims = system.claims("data").await.claims;
        let waits = claims.iter().any(|claim| claim.tries > 0 && claim.next_try.is_some());
        if waits { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    system.restart(Part::Driver(0));
    system.restart(Part::Agent(0));
    berth_harness::wait::until("the claim is free", super::SOON, || async {
        let claims = system.claims("data").await.claims;
        if claims.is_empty() { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    system.settle("data").await;
}
