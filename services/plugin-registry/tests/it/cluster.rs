//! One of three servers is lost.

use std::time::Duration;

use berth_contract::message::registry::{Gone, Leave, Reported};
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::plugin::{Count, Half};
use berth_domain::proof::ProofKind;
use berth_harness::wait;

use crate::site::{PATIENCE, Site, instance, node_id, report, trace};

#[tokio::test]
async fn one_of_three_servers_lost_costs_time_and_nothing_else() {
    let site = Site::start_on_three(2).await;
    let _lease = site.lease("n1", Duration::from_secs(60)).await;
    for node in ["n1", "n2"] {
        site.report(&report(node, &[("p", Half::Node, instance(true))])).await;
    }
    site.node_is("n1", "ready", PATIENCE).await;

    let stream = format!("KV_{}", bucket::PLUGINS.name);
    let leader = site.nats.leader_of(&stream).await;
    site.nats.servers()[leader].kill9();
    // Agents repeat their reports until one is answered: an election takes 4 to 9 s.
    wait::until("a change is written", 2 * PATIENCE, async || {
        let new_report = report("n1", &[("p", Half::Node, instance(false))]);
        let call = berth_bus::Call::within(trace(), Duration::from_secs(5));
        let subject = verb::NodeReport::subject(&());
        site.bus.request::<Reported>(&subject, &new_report, &call).await
    })
    .await;
    let reply = wait::until("it is shown", 2 * PATIENCE, async || {
        let call = berth_bus::Call::within(trace(), Duration::from_secs(5));
        let subject = verb::PluginStatus::subject(&());
        let query = serde_json::json!({"id": "p"});
        site.bus
            .request::<berth_contract::message::registry::Plugins>(&subject, &query, &call)
            .await
    })
    .await;
    let [plugin] = reply.plugins.as_slice() else { panic!("{reply:?}") };
    assert_eq!(plugin.nodes, Count { healthy: 0, expected: 2 });
    let answers: Vec<(&str, bool)> = plugin
        .instances
        .iter()
        .map(|instance| (instance.node.as_str(), instance.description.contains("it answers")))
        .collect();
    assert_eq!(answers, [("n1", false), ("n2", true)]);

    site.nats.servers()[leader].restart().await;
    let _lease = wait::until("the lease is had", 2 * PATIENCE, async || {
        let leases =
            site.bus.bucket(&bucket::LEASES, 3).await.map_err(|error| error.to_string())?;
        let key = key::node_lease(&node_id("n2"));
        let ttl = Duration::from_secs(60);
        let holder = crate::site::holder("n2").into();
        leases.acquire(&key, holder, ttl, trace()).await.map_err(|error| error.to_string())
    })
    .await;
    site.node_is("n2", "ready", 2 * PATIENCE).await;
}

/// A leader of the leases that was cut off and deposed does not have the leases that its successor
/// stored, and answers that there are none (`a_deposed_leader_confirms_nothing` of the bus counts
/// that). So the registry writes a marker for an absent lease, which only a leader with a quorum
/// can store (decision 0031).
#[tokio::test]
async fn a_node_is_down_or_gone_or_leaves_only_when_a_quorum_has_no_lease_of_it() {
    let site = Site::start_on_three(1).await;
    let leases = site.bucket(&bucket::LEASES).await;
    let confirmed = async |node: &str| leases.head(&key::node_lease(&node_id(node))).await.unwrap();
    for node in ["n1", "n2"] {
        let lease = site.lease(node, Duration::from_secs(60)).await;
        site.report(&report(node, &[])).await;
        site.node_is(node, "ready", PATIENCE).await;
        let head_while_held = confirmed(node).await;
        lease.release().await.unwrap();
        site.node_is(node, "down", 2 * PATIENCE).await;
        // One write deleted the lease, and another one confirms that.
        let head_when_down = confirmed(node).await;
        assert!(
            head_when_down > head_while_held + 1,
            "{node} is down, and {head_while_held} became {head_when_down}"
        );
    }

    let head_when_down = confirmed("n1").await;
    let seen = site.node("n1").await.revision;
    let (kind, by) = (ProofKind::PoweredOff, "ada".to_owned());
    let gone = Gone { node: node_id("n1"), kind, by, note: String::new(), seen };
    site.ask::<verb::NodeGone>(&gone).await.unwrap();
    assert!(confirmed("n1").await > head_when_down, "declared gone without a question to a quorum");

    let head_when_down = confirmed("n2").await;
    let leave = Leave { node: node_id("n2"), revision: Some(site.node("n2").await.revision) };
    site.ask::<verb::NodeLeave>(&leave).await.unwrap();
    assert!(confirmed("n2").await > head_when_down, "left without a question to a quorum");
}
