//! Plugins by type (D7): by their instances, or by what their jobs announce.

use berth_contract::code::Code;
use berth_contract::message::registry::{ExpectInstances, Plugins};
use berth_contract::verb::{self};
use berth_domain::plugin::Half;
use berth_domain::{JobId, Namespace};
use serde_json::{Value, json};

use crate::site::{Site, instance, plugin_id, report};

impl Site {
    async fn listed(&self, query: &Value) -> Plugins {
        self.ask::<verb::PluginStatus>(query).await.unwrap()
    }

    /// The ids of what is listed.
    async fn ids(&self, query: &Value) -> Vec<String> {
        let listed = self.listed(query).await;
        assert_eq!(listed.next, None, "{query}");
        listed.plugins.into_iter().map(|plugin| plugin.id.into()).collect()
    }

    /// The instances that the plugin's status lists.
    async fn places(&self, query: &Value) -> Vec<String> {
        let plugin = self.listed(query).await.plugins.remove(0);
        let node_and_half = |instance: &berth_contract::message::registry::InstanceStatus| {
            format!("{} {}", instance.node, instance.half)
        };
        plugin.instances.iter().map(node_and_half).collect()
    }
}

#[tokio::test]
async fn plugins_are_listed_by_type() {
    let site = Site::start(1).await;
    let (controller, node) = (Half::Controller, Half::Node);
    let sound = || instance(true);
    let on_n1 = [("mono", controller, sound()), ("mono", node, sound())];
    site.report(&report("n1", &on_n1)).await;
    // An unhealthy instance is listed like any other.
    let on_n2 = [("lone", node, sound()), ("split", node, instance(false))];
    site.report(&report("n2", &on_n2)).await;
    site.report(&report("n3", &[("split", controller, sound())])).await;
    let job = ExpectInstances {
        plugin: plugin_id("announced"),
        namespace: Namespace::default(),
        job: JobId::new("controllers").unwrap(),
        controllers: 1,
        nodes: 0,
    };
    site.ask::<verb::PluginExpect>(&job).await.unwrap();

    for (query, expected) in [
        (json!({}), vec!["announced", "lone", "mono", "split"]),
        (json!({"type": "controller"}), vec!["announced", "mono", "split"]),
        (json!({"type": "node"}), vec!["lone", "mono", "split"]),
        (json!({"type": "monolith"}), vec!["mono"]),
        (json!({"type": "node", "prefix": "s"}), vec!["split"]),
        (json!({"type": "monolith", "prefix": "s"}), vec![]),
        // With a node, only the types of the instances on it count; a job names no node.
        (json!({"type": "controller", "node": "n1"}), vec!["mono"]),
        (json!({"type": "controller", "node": "n2"}), vec![]),
        (json!({"type": "controller", "node": "n3"}), vec!["split"]),
        (json!({"type": "node", "node": "n2"}), vec!["lone", "split"]),
        (json!({"type": "monolith", "node": "n1"}), vec!["mono"]),
        (json!({"type": "monolith", "node": "n2"}), vec![]),
        (json!({"node": "n2"}), vec!["lone", "split"]),
    ] {
        assert_eq!(site.ids(&query).await, expected, "{query}");
    }

    // Of one plugin, only the instances of that type are listed.
    for (query, expected) in [
        (json!({"id": "split"}), vec!["n2 node", "n3 controller"]),
        (json!({"id": "split", "type": "controller"}), vec!["n3 controller"]),
        (json!({"id": "split", "type": "node"}), vec!["n2 node"]),
        (json!({"id": "split", "type": "monolith"}), vec![]),
        (json!({"id": "split", "type": "node", "node": "n3"}), vec![]),
        (json!({"id": "mono", "type": "monolith"}), vec!["n1 controller", "n1 node"]),
        (json!({"id": "mono", "type": "node"}), vec!["n1 node"]),
    ] {
        assert_eq!(site.places(&query).await, expected, "{query}");
    }

    // Pages contain only plugins that match.
    let mut query = json!({"type": "controller", "limit": 1});
    let mut pages = Vec::new();
    loop {
        let page = site.listed(&query).await;
        let ids = page.plugins.iter().map(|plugin| plugin.id.to_string());
        pages.push(ids.collect::<Vec<_>>());
        match page.next {
            Some(next) => query["after"] = json!(next),
            None => break,
        }
    }
    assert_eq!(pages, [["announced"], ["mono"], ["split"]]);

    let problem = site.refused::<verb::PluginStatus>(&json!({"type": "controllers"})).await;
    let path = problem.faults[0].path.as_str();
    assert_eq!((problem.code, path), (Code::BadInput, "type"), "{problem}");
}
