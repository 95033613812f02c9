//! Events as lines, and over a real bus.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use berth_bus::{Bus, Config, Credentials, Events};
use berth_cli::show::{Zone, event};
use berth_contract::event::{Event, EventName as E};
use berth_contract::message::history::EventBody;
use berth_contract::service::PLUGIN_REGISTRY;
use berth_contract::stream::EVENTS;
use berth_domain::{Namespace, NodeId, PluginId};
use berth_harness::dirs::Dir;
use berth_harness::nats::{NatsOptions, NatsServers, Server};
use berth_harness::process::{Daemon, Program};
use berth_harness::wait;
use serde_json::{Value, json};

use nix::sys::signal::Signal;

use crate::berth::{self, Ran, berth};
use crate::story::{Story, at, trace};
use crate::system::{SOON, signal};

fn line(body: &Value) -> String {
    let body = EventBody::read(body.to_string().as_bytes()).unwrap();
    event(&body, &Zone::utc()) + "\n"
}

fn node_ready() -> Event {
    Event {
        node: Some(NodeId::new("n1").unwrap()),
        plugin: Some(PluginId::new("ebs.csi.aws.com").unwrap()),
        ..Event::new(E::PluginHealthy, at(0), PLUGIN_REGISTRY)
    }
}

#[test]
fn each_event_is_printed_on_one_line() {
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4).fail(
        100,
        "1-p0000009",
        2_049,
        "no\n\u{1b}[31mred",
    );
    let story = story.refused(200, 'c');
    let mut printed_events: Vec<Value> =
        story.events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    printed_events.push(serde_json::to_value(node_ready()).unwrap());
    let newer = json!({"event": "snapshot.made", "at": at(0), "service": "x", "new": 1});
    printed_events.push(newer.clone());
    insta::assert_snapshot!(printed_events.iter().map(line).collect::<String>());
    let pretty = serde_json::to_string_pretty(&newer).unwrap();
    let body = EventBody::read(pretty.as_bytes()).unwrap();
    assert_eq!(body.to_json(), newer.to_string(), "one line, with what is not known here");
}

/// Publishes the events, and waits until `count` events are stored.
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

/// Starts the claim service, which answers requests for events, and waits until it is ready.
async fn claim_service(url: &str, dir: &Dir) -> Daemon {
    let claim = Program::service("berth-claim", "claim", dir).on_bus(url, 1).start();
    wait::until("the claim service answers", SOON, async || {
        let ran = berth(&["--nats", url, "--timeout", "5s", "events"]);
        if ran.code == 0 { Ok(()) } else { Err(format!("{ran:?} {}", claim.log())) }
    })
    .await;
    claim
}

/// The events, and the result of each query.
#[tokio::test(flavor = "multi_thread")]
async fn events_are_found_by_each_of_their_fields() {
    let server = Server::start().await;
    let bus = Bus::connect(Config::new([server.url()], "test").insecure()).await.unwrap();
    let events = bus.events(&EVENTS, 1).await.unwrap();
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4).released(100);
    let count = story.events.len() + 1;
    let story_events: Vec<Event> = story.events.iter().cloned().chain([node_ready()]).collect();
    tell(&events, &story_events, count).await;

    let url = server.url();
    let ran = berth(&["--nats", &url, "--timeout", "1s", "events"]);
    assert!(ran.code != 0 && ran.err.contains("history.list"), "no service answers: {ran:?}");
    let dir = Dir::new("events");
    let _claim = claim_service(&url, &dir).await;
    let ask = |args: &str| -> Ran {
        let global = ["--nats", &url, "--timeout", "5s", "--json"];
        let ran = berth(&[&global[..], &args.split(' ').collect::<Vec<_>>()].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    };
    let names = |args: &str| {
        let lines = ask(args).out;
        let name = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].clone();
        lines.lines().map(|line| name(line).as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all_names: Vec<&str> = story.events.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(names("events"), [&all_names[..], &["plugin.healthy"]].concat());
    assert_eq!(names("events --last 2"), ["claim.freed", "plugin.healthy"]);
    assert_eq!(names("events --last 0").len(), 0);
    assert_eq!(names("events --kind alloc"), ["alloc.registered", "alloc.complete"]);
    assert_eq!(names("events --volume data --kind call --node n2"), ["call.done"; 2]);
    assert_eq!(names("events --alloc web-1").len(), all_names.len());
    assert_eq!(names("events --namespace other"), ["plugin.healthy"]);
    assert_eq!(names("events --namespace * --plugin ebs.csi.aws.com"), ["plugin.healthy"]);
    assert_eq!(names("events --since 1h").len(), count);
    // A trace, an alloc and a claim give the same tree.
    for claim in ["data/web-1", "web-1", &trace('a'), &trace('b')] {
        let ran = ask(&format!("trace {claim}"));
        let tree: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(tree["claims"][0]["release"]["how"], "done", "{claim}: {ran:?}");
        assert_eq!(ran.err, "", "{claim}");
    }
}

/// A user of one namespace sees its events, and is told which events are left out. Only the verb
/// and a subscription are needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_one_namespace_sees_its_events_alone() {
    let extra = "authorization { users: [
        { user: all, password: p },
        { user: a, password: p, permissions: {
            publish: [\"berth.v1.history.list.default.>\", \"berth.v1.claim.status.default.>\"],
            subscribe: [\"_INBOX.>\", \"berth.v1.event.default.>\"] } },
    ] }";
    let server = NatsServers::start_with(1, NatsOptions { extra, ..NatsOptions::default() }).await;
    let url_of = |user: &str| server.url().replace("nats://", &format!("nats://{user}:p@"));
    let dir = Dir::new("events");
    let _claim = claim_service(&url_of("all"), &dir).await;
    let bus = Bus::connect(Config {
        credentials: Credentials::Password { user: "all".into(), password: "p".into() },
        ..Config::new([server.url()], "test").insecure()
    });
    let events = bus.await.unwrap().events(&EVENTS, 1).await.unwrap();
    let own = Story::new().granted(4).events;
    let foreign = Event { namespace: Namespace::new("team-b").ok(), ..own[0].clone() };
    tell(&events, &[&own[..2], &[foreign, node_ready()], &own[2..]].concat(), own.len() + 2).await;

    let url = url_of("a");
    let began = Instant::now();
    let ran = berth(&["--nats", &url, "--timeout", "20s", "--json", "events"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let shown: Vec<Event> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown, own);
    assert!(ran.err.contains("events of nodes and plugins are not shown"), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "a refusal is no timeout");
    let ran = berth(&["--nats", &url, "events", "--kind", "claim", "--volume", "data"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    let ran = berth(&["--nats", &url, "trace", "data/web-1"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    for namespace in ["team-b", "*"] {
        let ran = berth(&["--nats", &url, "--namespace", namespace, "events"]);
        assert!(ran.code != 0 && ran.out.is_empty(), "{ran:?}");
        assert!(ran.err.contains("BERTH0010"), "{ran:?}");
    }
    let mut following = Following::start(&["--nats", &url, "--json", "events", "--follow"]);
    assert_eq!(following.hear(own.len()), own);
    let later = Story::new().released(100).events;
    let foreign = Event { namespace: Namespace::new("team-b").ok(), ..later[0].clone() };
    tell(&events, &[&[foreign], &later[..]].concat(), own.len() + 3 + later.len()).await;
    assert_eq!(following.hear(later.len()), later);
    following.stop();
}

/// A running `berth events --follow`, which is killed with the test.
struct Following {
    child: Child,
    heard: Receiver<Event>,
}

impl Following {
    fn start(args: &[&str]) -> Self {
        let mut child = berth::command(args).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, heard) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let event: Event = serde_json::from_str(&line).unwrap();
                let _ = sender.send(event);
            }
        });
        Self { child, heard }
    }

    fn hear(&self, count: usize) -> Vec<Event> {
        (0..count).map(|_| self.heard.recv_timeout(SOON).unwrap()).collect()
    }

    /// Stops the command with the signal of Ctrl-C.
    fn stop(&mut self) {
        signal(self.child.id(), Signal::SIGINT);
        assert!(self.child.wait().unwrap().success());
        assert!(self.heard.recv_timeout(Duration::ZERO).is_err(), "nothing twice");
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each event is printed once and in order, even when the server restarts meanwhile, and while the
/// service is away. (A killed server loses the last moment of this stream, which is not synced with
/// each write.)
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_prints_each_event_once_and_in_order() {
    let server = Server::start().await;
    let bus = Bus::connect(Config::new([server.url()], "test").insecure()).await.unwrap();
    let events = bus.events(&EVENTS, 1).await.unwrap();
    let dir = Dir::new("events");
    let claim = claim_service(&server.url(), &dir).await;
    let story = Story::new().alloc(0, E::AllocRegistered).granted(4).released(100).events;
    tell(&events, &story[..3], 3).await;
    let args = ["--nats", &server.url(), "--json", "events", "--follow", "--last", "2"];
    let mut following = Following::start(&args);
    assert_eq!(following.hear(2), story[1..3]);
    tell(&events, &story[3..5], 5).await;
    assert_eq!(following.hear(2), story[3..5]);
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
    tell(&events, &story[5..8], 8).await;
    assert_eq!(following.hear(3), story[5..8]);
    claim.kill9();
    tell(&events, &story[8..], story.len()).await;
    claim.restart();
    assert_eq!(following.hear(story.len() - 8), story[8..]);
    following.stop();
}
