//! Two nodes to which the plugin gives the same id, because a unit file was copied or a machine
//! cloned. The storage cannot tell the nodes apart, so a detach for one node detaches both.

use std::time::Duration;

use berth_bus::{Change, Guard, Write};
use berth_contract::code::Code;
use berth_contract::message::registry::NodeStatus;
use berth_contract::{bucket, key};
use berth_domain::plugin::Half;
use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
use berth_service::clock;
use serde_json::{Value, json};

use crate::why::{OPERATOR, tells};

const PATIENCE: Duration = Duration::from_secs(30);
const SHARED: &str = "multi-node-multi-writer";

/// How many calls to detach the volume from this id have begun.
fn detach_calls(system: &System, external: &str) -> usize {
    let calls = system.calls();
    let detaches = calls.iter().filter(|call| {
        call["entry"] == "begin"
            && call["rpc"] == "ControllerUnpublishVolume"
            && call["args"]["node_id"] == external
    });
    detaches.count()
}

/// The node that had the id first, and the clone, counted from 0. Waits until the registry has seen
/// both.
async fn first_and_second(system: &System) -> (usize, usize) {
    wait::until("one of two clones is refused", PATIENCE, async || {
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let [one, other] = &nodes[..] else { return Err(format!("{nodes:?}")) };
        let half = |node: &NodeStatus| {
            node.instances.iter().find(|instance| instance.half == Half::Node).cloned()
        };
        let (Some(one), Some(other)) = (half(one), half(other)) else {
            return Err(format!("{nodes:?}"));
        };
        let (first, second) = if one.healthy { (0, &other) } else { (1, &one) };
        let is_refused = second.description.contains("\"external-clone\"");
        let healthy = [one.healthy, other.healthy].into_iter().filter(|healthy| *healthy).count();
        if healthy == 1 && is_refused { Ok((first, 1 - first)) } else { Err(format!("{nodes:?}")) }
    })
    .await
}

/// Without the check: one node had the volume, an alloc ended on the clone, and the controller was
/// called to detach the id of both.
#[tokio::test(flavor = "multi_thread")]
async fn a_cloned_node_gets_no_volume_and_takes_none_from_its_original() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options {
        external_node: |_| "external-clone".to_owned(),
        healthy: Some((1, 2)),
        ..Options::default()
    };
    let system = System::start(options).await;
    system.volume("data", &[SHARED]).await;
    let (first, second) = first_and_second(&system).await;
    let mounted = system.run("a", first, "data").await;
    system.alloc("b", second, "data", false).await;
    // The clone's agent may not know yet that its node is registered.
    let refused =
        wait::until("the clone's agent knows that its node is registered", PATIENCE, async || {
            let refused = system.try_mount("b", second, "data").await.unwrap_err();
            if refused.code == Code::NodeReturning { Err(refused.to_string()) } else { Ok(refused) }
        })
        .await;
    assert_eq!((refused.code, refused.retryable), (Code::SharedNodeId, true), "{refused}");
    let original = format!("n{}", first + 1);
    assert!(refused.message.contains(&format!("berth node leave {original}")), "{refused}");
    let sentence = "plugin dev.berth calls node n… by the id of node n…, …";
    for name in [format!("n{}", second + 1), "alloc/b".to_owned(), "dev.berth".to_owned()] {
        tells(&system, &name, "shared-node-id", OPERATOR, sentence).await;
    }
    system.stop("b").await;
    std::fs::write(format!("{}/f", mounted.path), "still mine").unwrap();
    assert_eq!(detach_calls(&system, "external-clone"), 0);
    system.stop("a").await;
    system.freed("data").await;
    assert_eq!(detach_calls(&system, "external-clone"), 1);
    system.settle("data").await;
}

/// An older version granted a claim to the clone, because it did not compare ids. The claim is
/// released, and the volume stays attached for the node that has it mounted under the same id.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_a_clone_leaves_and_the_originals_attachment_stays() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &[SHARED]).await;
    let mounted = system.run("a", 0, "data").await;
    system.alloc("b", 1, "data", false).await;
    let granted = copy_claim(&system, "a", "b", "n2").await;
    assert_eq!(granted["external_node"], "external-n1");
    system.stop("b").await;
    wait::until("the claim of b is gone", PATIENCE, async || {
        let claims = system.claims("data").await.claims;
        let remaining = claims.iter().find(|claim| claim.alloc.as_str() == "b");
        remaining.map_or(Ok(()), |remaining| Err(format!("{remaining:?}")))
    })
    .await;
    assert_eq!(detach_calls(&system, "external-n1"), 0);
    std::fs::write(format!("{}/f", mounted.path), "still mine").unwrap();
    system.stop("a").await;
    system.settle("data").await;
    assert_eq!(detach_calls(&system, "external-n1"), 1);
}

/// Writes a copy of a claim with another alloc and node.
async fn copy_claim(system: &System, source: &str, alloc: &str, node: &str) -> Value {
    let volumes = system.bus.bucket(&bucket::VOLUMES, 1).await.unwrap();
    let volume = VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap());
    let key = |alloc: &str| key::claim(&volume, &AllocId::new(alloc).unwrap());
    let original = volumes.get(&key(source)).await.unwrap().unwrap();
    let mut claim: Value = serde_json::from_slice(&original.value.unwrap()).unwrap();
    claim["node"] = json!(node);
    claim.as_object_mut().unwrap().remove("epoch");
    let new = key(alloc);
    let value = serde_json::to_vec(&claim).unwrap();
    let write = Write {
        key: &new,
        change: Change::Put(value.into()),
        guard: Guard { filter: &new, revision: 0 },
        operation: "older-version",
        trace: clock::begin_trace(),
    };
    volumes.commit(write).await.unwrap();
    claim
}
