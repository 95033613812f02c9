//! Which mounts without a claim count, and how other missing records change that.

use berth_contract::message::registry::NodeReport;
use berth_contract::{bucket, key};
use berth_domain::plugin::UnaccountedMount;
use berth_domain::{AllocId, Namespace, VolumeId, VolumeKey};
use berth_harness::nats::raw;
use serde_json::json;

use crate::site::{PATIENCE, Site, report};

const DELETE: &[(&str, &str)] = &[("KV-Operation", "DEL")];

fn mount(alloc: &str) -> UnaccountedMount {
    let mount = json!({"namespace": "team-b", "volume": "data", "alloc": alloc, "path": "/mnt"});
    serde_json::from_value(mount).unwrap()
}

fn namespace() -> Namespace {
    Namespace::new("team-b").unwrap()
}

fn alloc_key(alloc: &str) -> String {
    format!("{}.{}", bucket::ALLOCS.name, key::alloc(&namespace(), &AllocId::new(alloc).unwrap()))
}

fn claim_key(alloc: &str) -> String {
    let volume = VolumeKey::new(namespace(), VolumeId::new("data").unwrap());
    format!("{}.{}", bucket::VOLUMES.name, key::claim(&volume, &AllocId::new(alloc).unwrap()))
}

/// Writes a key by hand, as `nats kv put` and `nats kv del` do.
async fn write(site: &Site, key: &str, headers: &[(&str, &str)], value: &[u8]) {
    let stored = raw::ask(site.server(), &format!("$KV.{key}"), headers, value).await;
    assert!(stored["seq"].is_u64(), "{stored}");
}

async fn register(site: &Site, volume: &str) {
    let volume = VolumeKey::new(namespace(), VolumeId::new(volume).unwrap());
    let key = format!("{}.{}", bucket::VOLUMES.name, key::spec(&volume));
    let spec = json!({
        "plugin": "p", "schema": 1,
        "capabilities": [{"access": "single-node-writer", "attachment": "file-system"}],
    });
    write(site, &key, &[], &serde_json::to_vec(&spec).unwrap()).await;
}

async fn write_alloc(site: &Site, alloc: &str, node: &str, schema: u32) {
    let record = json!({
        "state": "complete", "node": node, "since": "2026-01-01T00:00:00.000Z",
        "volumes": [{"source": "data"}], "schema": schema,
    });
    write(site, &alloc_key(alloc), &[], &serde_json::to_vec(&record).unwrap()).await;
}

/// The allocs whose mounts count, and what the node's record says of the others.
async fn counted(site: &Site, mounts: &[&str]) -> (Vec<String>, Option<String>) {
    let unaccounted = mounts.iter().map(|alloc| mount(alloc)).collect();
    site.report(&NodeReport { unaccounted, ..report("n1", &[]) }).await;
    let node = site.node("n1").await;
    let allocs = node.unaccounted.iter().map(|mount| mount.alloc.to_string()).collect();
    (allocs, node.attributes.get("disbelieved-mounts").cloned())
}

/// A node gets its record after all records were lost, also those of its mounts.
#[tokio::test]
async fn a_newcomer_is_believed_of_volumes_that_were_registered_after_it_came() {
    let site = Site::start(1).await;
    let reports = async |compared: bool, volumes: &[&str]| {
        let mounts = volumes.iter().map(|volume| {
            let volume = VolumeId::new(*volume).unwrap();
            UnaccountedMount { volume, ..mount("lost") }
        });
        let compared = Some(compared);
        let report = NodeReport { unaccounted: mounts.collect(), compared, ..report("n1", &[]) };
        site.report(&report).await;
        let unaccounted = site.node("n1").await.unaccounted;
        unaccounted.iter().map(|mount| mount.volume.to_string()).collect::<Vec<_>>()
    };
    register(&site, "before").await;
    assert!(reports(false, &[]).await.is_empty());
    register(&site, "after").await;
    let all = ["after", "before", "never"];
    assert_eq!(reports(true, &all).await, ["after", "never"]);
    // It has compared all its mounts: none from before can appear any more.
    register(&site, "later").await;
    assert_eq!(reports(true, &["after", "later"]).await, ["after"]);
}

#[tokio::test]
async fn a_mount_counts_unless_the_records_say_that_the_node_cannot_have_it() {
    let site = Site::start(1).await;
    register(&site, "data").await;
    write_alloc(&site, "ended", "n1", 1).await;
    write_alloc(&site, "newer", "n2", 9999).await;
    write_alloc(&site, "elsewhere", "n2", 1).await;
    let _lease = site.lease("n2", PATIENCE).await;
    site.report(&report("n2", &[])).await;
    site.node_is("n2", "ready", PATIENCE).await;
    // Its host may run under another name.
    write_alloc(&site, "renamed", "n3", 1).await;
    // The records of an alloc and of its claim were deleted by hand.
    write(&site, &claim_key("deleted"), DELETE, b"").await;
    let all = ["deleted", "elsewhere", "ended", "newer", "nobody", "renamed"];
    let (allocs, others) = counted(&site, &all).await;
    assert_eq!(allocs, ["deleted", "ended", "newer", "renamed"]);
    let others = others.unwrap();
    assert!(others.starts_with("2, ") && others.contains("elsewhere"), "{others}");

    // A mount that counted once counts until the node stops reporting it.
    write(&site, &alloc_key("ended"), DELETE, b"").await;
    assert_eq!(counted(&site, &["ended"]).await, (vec!["ended".to_owned()], None));
    assert_eq!(counted(&site, &[]).await, (Vec::new(), None));
    let (allocs, others) = counted(&site, &["ended"]).await;
    assert!(allocs.is_empty() && others.is_some(), "{allocs:?} {others:?}");
}
