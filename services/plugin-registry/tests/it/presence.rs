//! Ready and down follow the lease.

use std::time::Duration;

use berth_contract::{bucket, key};
use berth_domain::plugin::{Count, Half};
use berth_harness::proxy::{Proxy, Wire};
use berth_harness::wait;
use tokio::time::Instant;

use crate::site::{PATIENCE, Site, instance, node_id, report};

/// From the end of a lease until the node is shown as down.
const NOTICED: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_node_is_down_soon_after_its_lease_ends_and_ready_again_when_it_holds_one() {
    let site = Site::start(2).await;
    site.report(&report("n1", &[("p", Half::Node, instance(true))])).await;
    // Without a lease it is down.
    assert_eq!(site.node("n1").await.state.to_string(), "down");

    let lease_start = Instant::now();
    let _lease = site.lease("n1", TTL).await;
    let ready = site.node_is("n1", "ready", NOTICED).await;
    assert_eq!(site.plugin("p").await.nodes, Count { healthy: 1, expected: 1 });
    let (plugins, _) = site.heads().await;

    let lease_end = lease_start + TTL;
    let within = lease_end.saturating_duration_since(Instant::now()) + NOTICED;
    let down = site.node_is("n1", "down", within).await;
    assert!(down.since >= ready.since, "{down:?}");
    let plugin = site.plugin("p").await;
    assert_eq!(plugin.nodes, Count { healthy: 0, expected: 1 });
    assert!(!plugin.instances[0].healthy);
    assert!(plugin.instances[0].description.contains("down"), "{plugin:?}");
    // The instance's record stays as it was.
    assert_eq!(site.heads().await.0, plugins);

    let _again = site.lease("n1", Duration::from_secs(60)).await;
    site.node_is("n1", "ready", NOTICED).await;
    assert_eq!(site.plugin("p").await.nodes, Count { healthy: 1, expected: 1 });
    // Two replicas saw each change, and one of them published it.
    site.events_are("node.", &["node.ready n1", "node.down n1", "node.ready n1"]).await;
    site.events_are("plugin.", &["plugin.healthy p n1"]).await;
}

/// The replica that writes a node's first record has it in its mirror at once. Here the bucket
/// never reports that write to it.
#[tokio::test]
async fn a_node_is_ready_also_before_the_replica_hears_of_its_own_write() {
    let mut site = Site::start(0).await;
    let wire = Wire::default();
    let cable = Proxy::across(site.nats.first().address(), "registry", &wire).await;
    site.start_replica_at(cable.url()).await;
    let _lease = site.lease("n1", Duration::from_secs(60)).await;
    // The replica handles the change of the lease before there is a record. If this pause were too
    // short, the test could only miss the fault, not fail.
    tokio::time::sleep(Duration::from_millis(500)).await;
    cable.withhold(Some("KV_berth-nodes"));
    site.report(&report("n1", &[])).await;
    let nodes = site.bucket(&bucket::NODES).await;
    wait::until("n1 is recorded as ready", Duration::from_secs(10), async || {
        let entry = nodes.get(&key::node(&node_id("n1"))).await.unwrap().unwrap();
        let record = String::from_utf8(entry.value.unwrap().to_vec()).unwrap();
        if record.contains(r#""state":"ready""#) { Ok(()) } else { Err(record) }
    })
    .await;
}

#[tokio::test]
async fn a_lease_given_up_is_noticed_at_once() {
    let site = Site::start(1).await;
    let lease = site.lease("n1", Duration::from_secs(60)).await;
    site.report(&report("n1", &[])).await;
    site.node_is("n1", "ready", PATIENCE).await;
    lease.release().await.unwrap();
    site.node_is("n1", "down", PATIENCE).await;
}

#[tokio::test]
async fn a_lease_that_ended_while_nobody_looked_is_found() {
    let site = Site::start(1).await;
    let lease = site.lease("n1", Duration::from_secs(60)).await;
    let mut sent_report = report("n1", &[("p", Half::Node, instance(true))]);
    site.report(&sent_report).await;
    site.node_is("n1", "ready", PATIENCE).await;
    site.kill9(0);
    lease.release().await.unwrap();
    site.restart(0).await;
    site.node_is("n1", "down", PATIENCE).await;
    // A report says nothing of the lease.
    sent_report.version = "0.2.0".to_owned();
    site.report(&sent_report).await;
    assert_eq!(site.node("n1").await.state.to_string(), "down");
}

#[tokio::test]
async fn the_state_follows_also_after_the_server_was_away() {
    let site = Site::start(1).await;
    let lease = site.lease("n1", TTL).await;
    site.report(&report("n1", &[])).await;
    site.node_is("n1", "ready", PATIENCE).await;
    drop(lease);
    site.server().restart().await;
    site.bus_is_back().await;
    site.node_is("n1", "down", PATIENCE).await;
    let _lease = site.lease("n1", Duration::from_secs(60)).await;
    site.node_is("n1", "ready", PATIENCE).await;
}
