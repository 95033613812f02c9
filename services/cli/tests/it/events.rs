//! Events as lines, and over a real bus.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use berth_bus::{Bus, Config, Events};
use berth_cli::show::{StoredEvent, Zone, event};
use berth_contract::event::{Event, EventName as E};
use berth_contract::service::PLUGIN_REGISTRY;
use berth_contract::stream::EVENTS;
use berth_domain::{NodeId, PluginId};
use berth_harness::nats::Server;
use berth_harness::wait;
use serde_json::{Value, json};

use nix::sys::signal::Signal;

use crate::berth::{self, Ran, berth};
use crate::story::{Story, at, trace};
use crate::system::{SOON, signal};

fn line(body: &Value) -> String {
    let told = StoredEvent::read(body.to_string().as_bytes()).unwrap();
    event(&told, &Zone::utc()) + "\n"
}

fn node_ready() -> Event {
    Event {
        node: Some(NodeId::new("n1").unwrap()),
        plugin: Some(PluginId::new("ebs.csi.aws.com").unwrap()),
        ..Event::new(E::PluginHealthy, at(0), PLUGIN_REGISTRY)
    }
}

#[test]
fn one_line_each() {
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4).fail(
        100,
        "1-p0000009",
        2_049,
        "no\n\u{1b}[31mred",
    );
    let story = story.refused(200, 'c');
    let mut all: Vec<Value> =
        story.events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    all.push(serde_json::to_value(node_ready()).unwrap());
    let newer = json!({"event": "snapshot.made", "at": at(0), "service": "x", "new": 1});
    all.push(newer.clone());
    insta::assert_snapshot!(all.iter().map(line).collect::<String>());
    let pretty = serde_json::to_string_pretty(&newer).unwrap();
    let told = StoredEvent::read(pretty.as_bytes()).unwrap();
    assert_eq!(told.json, newer.to_string(), "one line, with what is not known here");
    assert_eq!(StoredEvent::read(b"{}"), None);
}

/// Publishes the events, and waits until so many are stored.
async fn tell(events: &Events, all: &[Event], count: usize) {
    for event in all {
        let trace = berth_service::clock::begin_trace();
        events.publish(&event.subject(), event, trace);
    }
    wait::until("all are stored", SOON, async || {
        let stored = events.last("berth.v1.event.>", 100, SOON).await;
        let stored = stored.map_err(|error| error.to_string())?.len();
        if stored == count { Ok(()) } else { Err(stored.to_string()) }
    })
    .await;
}

/// The events, and the result of each query.
#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_each_of_their_fields() {
    let server = Server::start().await;
    let bus = Bus::connect(Config::new([server.url()], "test").insecure()).await.unwrap();
    let events = bus.events(&EVENTS, 1).await.unwrap();
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4).released(100);
    let count = story.events.len() + 1;
    let all: Vec<Event> = story.events.iter().cloned().chain([node_ready()]).collect();
    tell(&events, &all, count).await;

    let url = server.url();
    let ask = |args: &str| -> Ran {
        let global = ["--nats", &url, "--timeout", "5s", "--json"];
        let ran = berth(&[&global[..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    let found = |args: &str| {
        let lines = ask(args).out;
        let name = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].clone();
        lines.lines().map(|line| name(line).as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let told: Vec<&str> = story.events.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(found("events"), [&told[..], &["plugin.healthy"]].concat());
    assert_eq!(found("events --last 2"), ["claim.freed", "plugin.healthy"]);
    assert_eq!(found("events --last 0").len(), 0);
    assert_eq!(found("events --kind alloc"), ["alloc.registered", "alloc.complete"]);
    assert_eq!(found("events --volume data --kind call --node n2"), ["call.done"; 2]);
    assert_eq!(found("events --alloc web-1").len(), told.len());
    assert_eq!(found("events --namespace other"), ["plugin.healthy"]);
    assert_eq!(found("events --namespace * --plugin ebs.csi.aws.com"), ["plugin.healthy"]);
    assert_eq!(found("events --since 1h").len(), count);
    // A trace, an alloc and a claim give the same tree, without a running service.
    for claim in ["data/web-1", "web-1", &trace('a'), &trace('b')] {
        let ran = ask(&format!("trace {claim}"));
        let tree: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(tree["claims"][0]["release"]["how"], "done", "{claim}: {ran:?}");
        assert!(ran.err.contains("how the claim stands now is not known"), "{ran:?}");
    }
}

/// Ended with the test, however that ends.
struct Following(Child);

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each event once and in order, even when the server restarts meanwhile. (A killed server loses
/// the last moment of this stream, which is not synced with each write.)
#[tokio::test(flavor = "multi_thread")]
async fn who_follows_hears_each_once_until_he_has_heard_enough() {
    let server = Server::start().await;
    let bus = Bus::connect(Config::new([server.url()], "test").insecure()).await.unwrap();
    let events = bus.events(&EVENTS, 1).await.unwrap();
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4).released(100).events;
    tell(&events, &story[..3], 3).await;
    let args = ["--nats", &server.url(), "--json", "events", "--follow", "--last", "2"];
    let mut child = Following(berth::command(&args).stdout(Stdio::piped()).spawn().unwrap());
    let (sender, heard) = std::sync::mpsc::channel();
    let out = BufReader::new(child.0.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let event: Event = serde_json::from_str(&line).unwrap();
            let _ = sender.send(event);
        }
    });
    let hear = |count: usize| -> Vec<Event> {
        (0..count).map(|_| heard.recv_timeout(SOON).unwrap()).collect()
    };
    assert_eq!(hear(2), story[1..3]);
    tell(&events, &story[3..5], 5).await;
    assert_eq!(hear(2), story[3..5]);
    server.terminate().await;
    server.restart().await;
    wait::until(
        "the bus is back",
        SOON,
        async || {
            if bus.connected() { Ok(()) } else { Err("not yet") }
        },
    )
    .await;
    tell(&events, &story[5..], story.len()).await;
    assert_eq!(hear(story.len() - 5), story[5..]);
    signal(child.0.id(), Signal::SIGINT);
    assert!(child.0.wait().unwrap().success());
    assert!(heard.recv_timeout(Duration::ZERO).is_err(), "nothing twice");
}
