//! The thief of a node's identity without controllers sends reports. They give no plugin a
//! controller, and push no other events out of the stream.

use std::time::Instant;

use berth_access::Role;
use berth_bus::Bus;
use berth_bus::event::Event as Stored;
use berth_contract::actor::Actor;
use berth_contract::event::{Event, EventName};
use berth_contract::message::node::{Hold, TellEvents, ToldEvent};
use berth_contract::message::registry::{NodeReport, ReportedInstance};
use berth_contract::service::NODE_AGENT;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{stream, subject};
use berth_domain::plugin::{Half, Instance, NodeAbilities};
use berth_domain::{PluginId, Timestamp};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, RECOVERY, System};
use berth_service::clock;
use serde_json::{Value, json};

use super::rogue::{holder_of, node, report_of, send};

const THIEF: &str = "n9";

async fn connect(system: &System) -> Bus {
    let role = Role::Node { node: node(THIEF), controllers: Vec::new() };
    let bus = system.connect_as(&role, Actor::Node(node(THIEF))).await;
    let hold = Hold { holder: holder_of(THIEF), ttl_s: 60, over: None, renewal: None };
    send::<verb::NodeHold>(&bus, &(), &hold).await.unwrap();
    bus
}

/// A node service, as an agent reports it.
fn node_half(plugin: &str, healthy: bool, node: NodeAbilities) -> ReportedInstance {
    let instance = Instance {
        healthy,
        description: "x".repeat(1_000),
        provider: plugin.to_owned(),
        version: "1".to_owned(),
        since: Timestamp::default(),
        controller: None,
        node: Some(node),
        id_since: None,
        process: None,
    };
    ReportedInstance { plugin: PluginId::new(plugin).unwrap(), half: Half::Node, instance }
}

/// A controller that does not exist would not answer: no volume could be registered.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_gives_a_plugin_without_controllers_none() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, controller: false, attach: false, ..Options::default() };
    let system = System::start(options).await;
    let thief = connect(&system).await;
    let abilities = NodeAbilities { controller_service: true, ..NodeAbilities::default() };
    let instances = vec![node_half(PLUGIN, true, abilities)];
    let report = NodeReport { instances, ..report_of(THIEF) };
    send::<verb::NodeReport>(&thief, &(), &report).await.unwrap();
    system.volume("data", &["single-node-writer"]).await;
    assert!(system.volume_status("data").await.unwrap().health.healthy);
    system.run("a", 0, "data").await;
    system.stop("a").await;
    system.settle("data").await;
}

/// Each report may change 64 instances, and each change is an event.
#[tokio::test(flavor = "multi_thread")]
async fn reports_fill_no_more_of_the_event_stream_than_the_nodes_share() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let thief = connect(&system).await;
    // First use up the share that it may use at once: events are quicker sent than reports.
    let flood = ToldEvent {
        event: Event {
            node: Some(node(THIEF)),
            detail: Some("x".repeat(1_000)),
            ..Event::new(EventName::VolumeMounted, clock::now(), NODE_AGENT)
        },
        traceparent: clock::begin_trace(),
    };
    let flood = TellEvents { events: vec![flood; 64] };
    while send::<verb::NodeTell>(&thief, &(), &flood).await.unwrap().stored == 64 {}
    let began = Instant::now();
    for healthy in [true, false, true] {
        let half_of = |plugin| node_half(&format!("p{plugin}"), healthy, NodeAbilities::default());
        let report = NodeReport { instances: (0..64).map(half_of).collect(), ..report_of(THIEF) };
        send::<verb::NodeReport>(&thief, &(), &report).await.unwrap();
    }
    let share = (64 << 10) * (began.elapsed().as_secs() + 2);
    // An event that no node caused, behind all of those.
    let expect = json!({"plugin": PLUGIN, "job": "csi", "controllers": 1});
    system.ask::<Value>(&verb::PluginExpect::subject(&()), &expect).await.unwrap();
    let events = system.bus.events(&stream::EVENTS, 1).await.unwrap();
    let plugin_events = subject::event_filter(subject::EventsOf::None, Some("plugin"), None);
    let thief_events = wait::until("all events are stored", RECOVERY, || async {
        let last = events.last(&plugin_events, 10_000, RECOVERY).await.unwrap();
        let decode = |event: &Stored| serde_json::from_slice::<Event>(&event.body).unwrap();
        if last.iter().all(|event| decode(event).event != EventName::PluginExpected) {
            return Err(format!("{} events", last.len()));
        }
        Ok(last
            .into_iter()
            .filter(|event| decode(event).node == Some(node(THIEF)))
            .collect::<Vec<_>>())
    })
    .await;
    let bytes: usize = thief_events.iter().map(|event| event.body.len()).sum();
    assert!(u64::try_from(bytes).unwrap() <= share, "{bytes} of {share} bytes");
}
