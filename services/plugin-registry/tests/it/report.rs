//! What a report creates, changes and leaves unchanged.

use berth_contract::bucket;
use berth_contract::code::Code;
use berth_contract::header;
use berth_contract::key;
use berth_contract::message::registry::{Leave, ListNodes, ListPlugins, NodeLeft, NodeReport};
use berth_contract::verb::{self, Verb as _};
use berth_domain::plugin::{ControllerAbilities, Count, Half, Instance, NodeAbilities, NodeState};
use berth_domain::{ClockOffset, Timestamp};

use crate::site::{Site, instance, node_id, plugin_id, report};
use berth_harness::nats::raw;

const PLUGIN: &str = "ebs.csi.example/v1";

#[tokio::test]
async fn what_a_node_reports_is_shown() {
    let site = Site::start(1).await;
    let _lease = site.lease("host.one", std::time::Duration::from_secs(60)).await;
    let controller = Instance {
        controller: Some(ControllerAbilities {
            publish_unpublish_volume: true,
            ..ControllerAbilities::default()
        }),
        ..instance(true)
    };
    let node = Instance {
        node: Some(NodeAbilities {
            external_node: "i-0123".to_owned(),
            controller_service: true,
            max_volumes: Some(25),
            ..NodeAbilities::default()
        }),
        ..instance(true)
    };
    let sent_report = report(
        "host.one",
        &[(PLUGIN, Half::Controller, controller.clone()), (PLUGIN, Half::Node, node.clone())],
    );
    let reported = site.report(&sent_report).await;
    assert!(reported.clock_skew_ms.abs() < 2_000, "{reported:?}");

    let node_status = site.node_is("host.one", "ready", crate::site::PATIENCE).await;
    assert_eq!(node_status.attributes["address"], "192.0.2.1");
    assert_eq!((node_status.version.as_str(), node_status.boot_id.as_str()), ("0.1.0", "boot-1"));
    assert_eq!(node_status.instances.len(), 2);
    let plugin = site.plugin(PLUGIN).await;
    assert_eq!((plugin.provider.as_str(), plugin.attaches), ("csi.example", true));
    assert_eq!(plugin.controllers, Some(Count { healthy: 1, expected: 1 }));
    assert_eq!(plugin.nodes, Count { healthy: 1, expected: 1 });
    assert_eq!(plugin.versions, ["1.2.3"]);
    assert_eq!(plugin.instances[0].controller, controller.controller);
    assert_eq!(plugin.instances[1].abilities, node.node);
    assert_eq!(plugin.instances[1].node, node_id("host.one"));
    let well = format!("plugin.healthy {PLUGIN} host.one");
    site.events_are("plugin.", &[&well, &well]).await;
    site.events_are("node.", &["node.ready host.one"]).await;
}

#[tokio::test]
async fn the_same_report_again_writes_nothing() {
    let site = Site::start(2).await;
    let instances =
        [(PLUGIN, Half::Node, instance(true)), (PLUGIN, Half::Controller, instance(false))];
    // Its clock was measured, so a report that takes long says nothing of it.
    let clock_offset = Some(ClockOffset { min_ms: -60_000, max_ms: 60_000 });
    let measured = || NodeReport { clock_offset, ..report("n1", &instances) };
    site.report(&measured()).await;
    let before = site.heads().await;
    for _ in 0..20 {
        site.report(&measured()).await;
    }
    assert_eq!(site.heads().await, before);
}

#[tokio::test]
async fn health_flips_and_since_goes_with_it() {
    let site = Site::start(1).await;
    site.report(&report("n1", &[(PLUGIN, Half::Node, instance(true))])).await;
    let described = |text: &str, healthy, since| Instance {
        description: text.to_owned(),
        since: Timestamp::from_unix_ms(since),
        ..instance(healthy)
    };
    // A restarted agent reports a later `since`: the health has been the same all the time.
    let healthy = described("well again", true, 1_800_000_000_000);
    site.report(&report("n1", &[(PLUGIN, Half::Node, healthy)])).await;
    let record = site.node("n1").await.instances.remove(0);
    assert!(record.description.ends_with("well again"), "{record:?}");
    let raw = site.bucket(&bucket::PLUGINS).await;
    let key = key::instance(&plugin_id(PLUGIN), &node_id("n1"), Half::Node);
    let stored = raw.get(&key).await.unwrap().unwrap().value.unwrap();
    let stored: Instance = serde_json::from_slice(&stored).unwrap();
    assert_eq!(stored.since, instance(true).since);

    let ill = described("no answer", false, 1_750_000_000_000);
    site.report(&report("n1", &[(PLUGIN, Half::Node, ill)])).await;
    let instance = site.plugin(PLUGIN).await.instances.remove(0);
    assert_eq!(instance.since, Timestamp::from_unix_ms(1_750_000_000_000));
    site.events_are(
        "",
        &[&format!("plugin.healthy {PLUGIN} n1"), &format!("plugin.unhealthy {PLUGIN} n1")],
    )
    .await;
}

#[tokio::test]
async fn an_instance_that_is_not_named_has_left_and_a_plugin_goes_with_its_last() {
    let site = Site::start(1).await;
    let both_plugins =
        [(PLUGIN, Half::Node, instance(true)), ("other", Half::Node, instance(true))];
    site.report(&report("n1", &both_plugins)).await;
    site.report(&report("n2", &both_plugins[1..])).await;
    let counts = async || {
        let plugins = site.plugins().await;
        plugins.into_iter().map(|p| (p.id.to_string(), p.nodes.expected)).collect::<Vec<_>>()
    };
    assert_eq!(counts().await, [(PLUGIN.to_owned(), 1), ("other".to_owned(), 2)]);
    site.report(&report("n1", &both_plugins[1..])).await;
    assert_eq!(counts().await, [("other".to_owned(), 2)]);
    let problem = site.refused::<verb::PluginStatus>(&ListPlugins::by_id(plugin_id(PLUGIN))).await;
    assert_eq!(problem.code, Code::NoSuchPlugin);
    assert_eq!(problem.plugin.as_deref(), Some(PLUGIN));
    // The instance is written over the marker of the deleted one.
    site.report(&report("n1", &both_plugins)).await;
    assert_eq!(counts().await, [(PLUGIN.to_owned(), 1), ("other".to_owned(), 2)]);
    site.events_are("plugin.instance-left", &[&format!("plugin.instance-left {PLUGIN} n1")]).await;
}

#[tokio::test]
async fn a_node_that_leaves_takes_its_instances_with_it() {
    let site = Site::start(1).await;
    let both_halves =
        [(PLUGIN, Half::Node, instance(true)), (PLUGIN, Half::Controller, instance(true))];
    for node in ["n1", "n2"] {
        site.report(&report(node, &both_halves)).await;
    }
    let leave = Leave { node: node_id("n1"), revision: None };
    let node_left: NodeLeft = site.ask::<verb::NodeLeave>(&leave).await.unwrap();
    assert_eq!(node_left, NodeLeft { known: true, instances: 2, gone: false });
    let left_again: NodeLeft = site.ask::<verb::NodeLeave>(&leave).await.unwrap();
    assert_eq!(left_again, NodeLeft { known: false, instances: 0, gone: false });
    let problem = site.refused::<verb::NodeStatus>(&ListNodes::by_id(node_id("n1"))).await;
    assert_eq!((problem.code, problem.node.as_deref()), (Code::NoSuchNode, Some("n1")));
    let nodes: Vec<String> = site.nodes().await.iter().map(|node| node.id.to_string()).collect();
    assert_eq!(nodes, ["n2"]);
    assert_eq!(site.plugin(PLUGIN).await.nodes, Count { healthy: 0, expected: 1 });
    let left_event = format!("plugin.instance-left {PLUGIN} n1");
    site.events_are("plugin.instance-left", &[&left_event, &left_event]).await;
    site.events_are("node.", &["node.left n1"]).await;
    // An agent that still runs reports the node again.
    site.report(&report("n1", &both_halves)).await;
    assert_eq!(site.node("n1").await.instances.len(), 2);
}

#[tokio::test]
async fn a_node_whose_clock_is_wrong_is_heard_and_shown_so() {
    let site = Site::start(1).await;
    for (node, off_ms) in [("ahead", 60_000_i64), ("behind", -60_000)] {
        let mut sent_report = report(node, &[]);
        let now = sent_report.clock.unix_ms().checked_add_signed(off_ms).unwrap();
        sent_report.clock = Timestamp::from_unix_ms(now);
        // The deadline that the client sends is as wrong as its clock.
        let deadline = (now + 5_000).to_string();
        let body = serde_json::to_vec(&sent_report).unwrap();
        let headers = [(header::DEADLINE, deadline.as_str())];
        let subject = verb::NodeReport::subject(&());
        let answer = raw::ask(site.server(), &subject, &headers, &body).await;
        let measured = answer["clock_skew_ms"].as_i64().unwrap_or_else(|| panic!("{answer}"));
        assert!((measured - off_ms).abs() < 2_000, "{node}: {measured}");
        assert!(measured <= off_ms, "a delay never makes a node look ahead: {measured}");
        assert_eq!(site.node(node).await.clock_skew_ms, measured);
        assert_eq!(site.node(node).await.state, NodeState::Down);
    }
}

#[tokio::test]
async fn a_record_of_a_newer_version_is_refused_and_left_alone() {
    let site = Site::start(1).await;
    let plugins = site.bucket(&bucket::PLUGINS).await;
    let key = key::instance(&plugin_id(PLUGIN), &node_id("n1"), Half::Node);
    let newer = br#"{"mood":"well","schema":99}"#;
    let write = berth_bus::Write {
        key: &key,
        change: berth_bus::Change::Put(newer.as_slice().into()),
        guard: berth_bus::Guard { filter: &key, revision: 0 },
        operation: "test",
        trace: crate::site::trace(),
    };
    plugins.commit(write).await.unwrap();
    let sent_report = report("n1", &[(PLUGIN, Half::Node, instance(true))]);
    let problem = site.refused::<verb::NodeReport>(&sent_report).await;
    assert_eq!(problem.code, Code::NewerRecord);
    assert!(problem.message.contains("schema 99"), "{problem}");
    assert_eq!(plugins.get(&key).await.unwrap().unwrap().value.unwrap(), newer.as_slice());
}
