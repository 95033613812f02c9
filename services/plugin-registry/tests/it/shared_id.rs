//! A plugin gives two nodes the same id: the unit file was copied, or the machine cloned.

use std::time::Duration;

use berth_contract::message::registry::{InstanceStatus, Leave, NodeLeft};
use berth_contract::verb::{self};
use berth_domain::plugin::{ControllerAbilities, Half, Instance, NodeAbilities};

use crate::site::{PATIENCE, Site, instance, node_id, report};

const TTL: Duration = Duration::from_secs(600);

fn called(external: &str, healthy: bool) -> Instance {
    let abilities =
        NodeAbilities { external_node: external.to_owned(), ..NodeAbilities::default() };
    Instance { node: Some(abilities), ..instance(healthy) }
}

async fn says(site: &Site, node: &str, instance: Instance) {
    site.report(&report(node, &[("p", Half::Node, instance)])).await;
}

/// The node's instance, which the plugin's status and the node's show alike.
async fn shown(site: &Site, node: &str) -> InstanceStatus {
    let of_plugin = site.plugin("p").await.instances;
    let of_plugin = of_plugin.into_iter().find(|instance| instance.node == node_id(node)).unwrap();
    assert_eq!(site.node(node).await.instances, std::slice::from_ref(&of_plugin));
    of_plugin
}

#[tokio::test]
async fn the_second_node_of_an_id_is_unhealthy_until_the_first_leaves_or_is_called_otherwise() {
    let site = Site::start(2).await;
    let (_first, _second) = (site.lease("h4", TTL).await, site.lease("h1", TTL).await);
    says(&site, "h4", called("i-1", true)).await;
    says(&site, "h1", called("i-1", true)).await;
    for node in ["h1", "h4"] {
        site.node_is(node, "ready", PATIENCE).await;
    }
    let second = shown(&site, "h1").await;
    assert!(!second.healthy, "{second:?}");
    for part in ["\"i-1\"", "node h4", "berth node leave h4"] {
        assert!(second.description.contains(part), "{second:?}");
    }
    assert!(shown(&site, "h4").await.healthy);
    assert_eq!(site.plugin("p").await.nodes.to_string(), "1/2");

    // The first node keeps the id while its plugin is down, and while its agent does not know the
    // id.
    says(&site, "h4", called("i-1", false)).await;
    says(&site, "h4", instance(false)).await;
    assert!(!shown(&site, "h1").await.healthy);
    says(&site, "h4", called("i-1", true)).await;
    assert!(shown(&site, "h4").await.healthy && !shown(&site, "h1").await.healthy);

    // The first node gets another id and then the same again: now it is the second.
    says(&site, "h4", called("i-4", true)).await;
    assert!(shown(&site, "h4").await.healthy && shown(&site, "h1").await.healthy);
    says(&site, "h4", called("i-1", true)).await;
    assert!(!shown(&site, "h4").await.healthy && shown(&site, "h1").await.healthy);
    let leave = Leave { node: node_id("h1"), revision: None };
    let _: NodeLeft = site.ask::<verb::NodeLeave>(&leave).await.unwrap();
    assert!(shown(&site, "h4").await.healthy);

    let (well, ill) = ("plugin.healthy p", "plugin.unhealthy p");
    let events = [
        format!("{well} h4"),
        format!("{ill} h1"),
        format!("{ill} h4"),
        format!("{well} h4"),
        format!("{ill} h4"),
        "plugin.instance-left p h1".to_owned(),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    site.events_are("plugin.", &events).await;
}

/// The controller is another process, and may be known later than the node half.
#[tokio::test]
async fn a_node_without_an_id_is_told_of_when_the_first_controller_attaches() {
    let site = Site::start(1).await;
    let _lease = site.lease("h1", TTL).await;
    let abilities = NodeAbilities { controller_service: true, ..NodeAbilities::default() };
    says(&site, "h1", Instance { node: Some(abilities), ..instance(true) }).await;
    site.node_is("h1", "ready", PATIENCE).await;
    assert!(shown(&site, "h1").await.healthy, "no controller has said that it attaches");
    let attaches =
        ControllerAbilities { publish_unpublish_volume: true, ..ControllerAbilities::default() };
    let controller = Instance { controller: Some(attaches), ..instance(true) };
    for host in ["h8", "h9"] {
        site.report(&report(host, &[("p", Half::Controller, controller.clone())])).await;
    }
    let unnamed = shown(&site, "h1").await;
    assert!(!unnamed.healthy && unnamed.description.contains("NodeGetInfo.node_id"), "{unnamed:?}");
    let events = [
        "plugin.healthy p h1",
        "plugin.healthy p h8",
        "plugin.unhealthy p h1",
        "plugin.healthy p h9",
    ];
    site.events_are("plugin.", &events).await;
}
