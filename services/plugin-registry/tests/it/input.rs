//! What is not a request, answered with every fault, and nothing written.

use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::Half;
use berth_harness::nats::raw;
use serde_json::{Value, json};

use crate::site::{Site, instance, report};

#[tokio::test]
async fn bad_reports_are_answered_with_every_fault_and_change_nothing() {
    let site = Site::start(1).await;
    let before = site.heads().await;
    let instance = json!({
        "plugin": "p", "half": "node",
        "instance": {"healthy": true, "description": "d", "provider": "p", "version": "1",
            "since": "2026-01-01T00:00:00Z"},
    });
    let with = |change: Value| {
        let mut changed = instance.clone();
        for (name, value) in change.as_object().unwrap() {
            changed["instance"][name] = value.clone();
        }
        changed
    };
    let rows: [(&str, Vec<u8>, &[&str]); 6] = [
        ("no JSON", b"{\"node\": \xff".to_vec(), &[""]),
        ("no object", b"[]".to_vec(), &[""]),
        ("nothing", b"".to_vec(), &["node", "version", "boot_id", "clock"]),
        (
            "all wrong",
            to_vec(json!({"node": "", "version": 7, "boot_id": null, "clock": "noon",
                "attributes": [], "instances": {}})),
            &["node", "version", "boot_id", "clock", "attributes", "instances"],
        ),
        (
            "instances",
            to_vec(report_body(vec![
                json!({"plugin": "a\nb", "half": "middle", "instance": {"healthy": 1}}),
                with(json!({"description": "x".repeat(2000), "node": {"external_node": 1}})),
            ])),
            &[
                "instances[0].plugin",
                "instances[0].half",
                "instances[0].instance.healthy",
                "instances[0].instance.description",
                "instances[0].instance.provider",
                "instances[0].instance.version",
                "instances[0].instance.since",
                "instances[1].instance.description",
                "instances[1].instance.node.external_node",
                "instances[1].instance.node.controller_service",
                "instances[1].instance.node.stage_unstage_volume",
            ],
        ),
        (
            "told twice",
            to_vec(report_body(vec![instance.clone(), instance.clone()])),
            &["instances[1]"],
        ),
    ];
    for (what, body, paths) in rows {
        let subject = verb::NodeReport::subject(&());
        let answer = raw::ask(site.server(), &subject, &[], &body).await;
        let problem = &answer["error"];
        assert_eq!(problem["code"], "BERTH0001", "{what}: {answer}");
        assert_eq!(problem["step"], "node.report", "{what}: {answer}");
        let faults = problem["faults"].as_array().unwrap();
        let found_paths: Vec<&str> =
            faults.iter().map(|fault| fault["path"].as_str().unwrap()).collect();
        assert_eq!(found_paths, paths, "{what}: {answer}");
    }
    for (subject, body) in [
        (verb::NodeStatus::subject(&()), json!({"id": 7})),
        (verb::PluginStatus::subject(&()), json!({"id": 7})),
        (verb::NodeLeave::subject(&()), json!({"node": ""})),
        (verb::NodeLeave::subject(&()), json!({"id": 7, "node": "n1"})),
        (verb::NodeLeave::subject(&()), json!({"node": "n1", "revision": -1})),
        (verb::PluginDelete::subject(&()), json!({"id": ""})),
        (verb::PluginExpect::subject(&()), json!({"plugin": "p", "job": "j", "nodes": -1})),
        (verb::PluginExpect::subject(&()), json!({"plugin": "p", "nodes": 1})),
    ] {
        let answer = raw::ask(site.server(), &subject, &[], &to_vec(body)).await;
        assert_eq!(answer["error"]["code"], "BERTH0001", "{answer}");
        assert_eq!(answer["error"]["faults"].as_array().unwrap().len(), 1, "{answer}");
    }
    assert_eq!(site.heads().await, before);
    assert_eq!(site.nodes().await, []);
}

#[tokio::test]
async fn what_a_newer_agent_says_beside_is_ignored() {
    let site = Site::start(1).await;
    let report = report("n1", &[("p", Half::Node, instance(true))]);
    let mut newer = serde_json::to_value(&report).unwrap();
    newer["mood"] = json!({"good": true});
    newer["instances"][0]["colour"] = json!("red");
    newer["instances"][0]["instance"]["temperature"] = json!(21);
    let subject = verb::NodeReport::subject(&());
    let answer = raw::ask(site.server(), &subject, &[], &to_vec(newer)).await;
    assert!(answer["clock_skew_ms"].is_i64(), "{answer}");
    assert_eq!(site.plugin("p").await.nodes.expected, 1);
    // An empty body asks for all.
    let reply = raw::ask(site.server(), &verb::NodeStatus::subject(&()), &[], b"").await;
    assert_eq!(reply["nodes"][0]["id"], "n1", "{reply}");
}

#[tokio::test]
async fn strange_ids_stay_what_they_are() {
    let site = Site::start(1).await;
    let (node, plugin) = ("host 1.rack/7 > *", "データ.csi");
    site.report(&report(node, &[(plugin, Half::Node, instance(true))])).await;
    assert_eq!(site.node(node).await.instances[0].plugin.as_str(), plugin);
    assert_eq!(site.plugin(plugin).await.instances[0].node.as_str(), node);
}

fn report_body(instances: Vec<Value>) -> Value {
    json!({"node": "n1", "version": "1", "boot_id": "b", "clock": "2026-01-01T00:00:00Z",
        "instances": instances})
}

fn to_vec(value: Value) -> Vec<u8> {
    serde_json::to_vec(&value).unwrap()
}
