//! What an operator is told by the records alone, as they stand in the buckets.

use berth_bus::Bus;
use berth_contract::message::claim::{ClaimStatus, Claims, ListClaims};
use berth_contract::{bucket, key, record, verb};
use berth_domain::plugin::Node;
use berth_domain::volume::{Claim, VolumeSpec};
use berth_domain::{AllocId, Namespace, NodeId, VolumeId, VolumeKey};
use serde_json::{Value, json};

use crate::site::{Site, call, plant};

const AT: &str = "2026-11-21T20:00:00.000Z";

fn data() -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap())
}

async fn plant_volume(bus: &Bus) {
    let spec = json!({"plugin": "p", "external_id": "x", "capabilities": []});
    let spec: VolumeSpec = serde_json::from_value(spec).unwrap();
    let value = record::write(spec, None).unwrap();
    plant(bus, &bucket::VOLUMES, &key::spec(&data()), value).await;
}

/// A claim that was granted on the node, unless `more` says otherwise.
async fn plant_claim(bus: &Bus, alloc: &str, node: &str, more: Value) {
    let mut claim = json!({"state": "taken", "node": node, "mode": "read", "since": AT,
        "access": "multi-node-reader-only", "attachment": "file-system", "controller": true,
        "epoch": 1});
    claim.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let claim: Claim = serde_json::from_value(claim).unwrap();
    let key = key::claim(&data(), &AllocId::new(alloc).unwrap());
    plant(bus, &bucket::VOLUMES, &key, record::write(claim, None).unwrap()).await;
    let alloc = key::alloc(&Namespace::default(), &AllocId::new(alloc).unwrap());
    let live = json!({"state": "live", "node": node, "since": AT, "volumes": [], "schema": 1});
    plant(bus, &bucket::ALLOCS, &alloc, serde_json::to_vec(&live).unwrap()).await;
}

async fn plant_node(bus: &Bus, node: &str, state: &str) {
    let body: Node = serde_json::from_value(json!({"state": state, "since": AT})).unwrap();
    let key = key::node(&NodeId::new(node).unwrap());
    plant(bus, &bucket::NODES, &key, record::write(body, None).unwrap()).await;
}

async fn claim(site: &Site, alloc: &str) -> ClaimStatus {
    let query = ListClaims { alloc: Some(AllocId::new(alloc).unwrap()), ..ListClaims::default() };
    let namespace = Namespace::default();
    let reply: Claims =
        site.bus.ask_service::<verb::ClaimStatus>(&namespace, &query, &call()).await.unwrap();
    reply.claims.into_iter().next().unwrap()
}

/// A granted claim waits for nothing, and yet nobody knows how its node is.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_at_rest_names_the_record_of_its_node_that_cannot_be_read() {
    let (site, ()) = Site::start_beside(async |bus| {
        plant_volume(&bus).await;
        plant_claim(&bus, "a", "n1", json!({})).await;
        plant_node(&bus, "n2", "ready").await;
        plant_claim(&bus, "b", "n2", json!({})).await;
        let key = key::node(&NodeId::new("n1").unwrap());
        plant(&bus, &bucket::NODES, &key, b"{".to_vec()).await;
    })
    .await;
    let status = claim(&site, "a").await;
    let hint = status.hint.clone().unwrap_or_default();
    assert!(
        status.wait.is_none() && hint.contains("`nats kv get berth-nodes n1 --raw`"),
        "{status:?}"
    );
    assert_eq!(claim(&site, "b").await.hint, None);
}

/// The alloc that waits is told of the node that keeps the volume, although other holders are well.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_told_that_the_node_of_a_holder_is_down() {
    let (site, ()) = Site::start_beside(async |bus| {
        plant_volume(&bus).await;
        plant_node(&bus, "n1", "ready").await;
        plant_node(&bus, "n2", "down").await;
        plant_claim(&bus, "a", "n1", json!({})).await;
        plant_claim(&bus, "b", "n2", json!({"since": "2026-11-21T21:00:00.000Z"})).await;
        plant_claim(&bus, "c", "n3", json!({"state": "waiting", "mode": "write", "epoch": 2}))
            .await;
    })
    .await;
    let hint = claim(&site, "c").await.hint.unwrap_or_default();
    assert!(hint.contains("c waits for b: node n2 is down"), "{hint}");
}
