//! What the registry writes for agents: leases and events.

use std::time::Duration;

use berth_bus::{Bus, Call, Config, RequestError};
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::lease::Holder;
use berth_contract::message::node::{Hold, LeaseAnswer, TellEvents, ToldEvent, Yield};
use berth_contract::service::NODE_AGENT;
use berth_contract::verb::{self, Verb};
use berth_contract::{header, stream, subject};
use berth_domain::{AllocId, Namespace, Timestamp, VolumeId};
use berth_harness::nats::raw;
use berth_harness::wait;

use crate::site::{PATIENCE, Site, node_id, report, trace};

/// The connection of a node's agent.
async fn agent(site: &Site, node: &str) -> Bus {
    let config = Config {
        actor: Actor::Node(node_id(node)),
        ..Config::new([site.nats.url()], "agent").insecure()
    };
    Bus::connect(config).await.unwrap()
}

async fn send<V: Verb<To = ()>>(bus: &Bus, request: &V::Request) -> Result<V::Reply, Code> {
    let call = Call::within(trace(), PATIENCE);
    bus.ask_service::<V>(&(), request, &call).await.map_err(|error| match error {
        RequestError::Problem(problem) => problem.code,
        other => panic!("{other}"),
    })
}

fn hold(node: &str, agent: &str, over: Option<u64>) -> Hold {
    let holder = Holder {
        node: node_id(node),
        agent: agent.to_owned(),
        hostname: String::new(),
        boot_id: "b".to_owned(),
        pid: 1,
        since: Timestamp::from_unix_ms(1),
    };
    Hold { holder, ttl_s: 60, over, renewal: None }
}

fn held(answer: Result<LeaseAnswer, Code>) -> u64 {
    match answer {
        Ok(LeaseAnswer { revision: Some(revision), found: None, .. }) => revision,
        other => panic!("{other:?}"),
    }
}

fn held_by_another(answer: Result<LeaseAnswer, Code>) -> (u64, String) {
    match answer {
        Ok(LeaseAnswer { revision: None, found: Some(found), .. }) if found.has_ttl => {
            (found.revision, found.value)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn one_agent_holds_a_lease_and_may_ask_again() {
    let site = Site::start(2).await;
    site.report(&report("n1", &[])).await;
    let bus = agent(&site, "n1").await;
    let take =
        async |agent: &str, over| send::<verb::NodeHold>(&bus, &hold("n1", agent, over)).await;
    let first = held(take("a", None).await);
    site.node_is("n1", "ready", PATIENCE).await;
    // The answer was lost: the same process repeats its request as for the first time.
    let again = held(take("a", None).await);
    assert!(again > first);
    // A renewal is answered, too.
    let renewed = held(take("a", Some(first)).await);
    let (held_revision, value) = held_by_another(take("b", None).await);
    assert_eq!(held_revision, renewed);
    assert!(value.contains("\"agent\":\"a\""), "{value}");
    // The other agent knows that the first one has ended, and takes over the revision that it saw.
    let taken_over = held(take("b", Some(held_revision)).await);
    assert_eq!(held_by_another(take("a", Some(renewed)).await).0, taken_over);
    // A late yield of the first agent deletes nothing.
    let farewell = |revision| Yield { node: node_id("n1"), revision };
    send::<verb::NodeYield>(&bus, &farewell(renewed)).await.unwrap();
    assert_eq!(held_by_another(take("a", None).await).0, taken_over);
    send::<verb::NodeYield>(&bus, &farewell(taken_over)).await.unwrap();
    site.node_is("n1", "down", PATIENCE).await;
    assert_eq!(take("b", Some(taken_over)).await, Ok(LeaseAnswer::default()));
    held(take("a", None).await);
}

#[tokio::test]
async fn a_lease_ends_that_is_not_renewed() {
    let site = Site::start(1).await;
    site.report(&report("n1", &[])).await;
    let bus = agent(&site, "n1").await;
    let short = Hold { ttl_s: 1, ..hold("n1", "a", None) };
    let revision = held(send::<verb::NodeHold>(&bus, &short).await);
    site.node_is("n1", "ready", PATIENCE).await;
    site.node_is("n1", "down", Duration::from_secs(10)).await;
    let late = Hold { over: Some(revision), ..short };
    assert_eq!(send::<verb::NodeHold>(&bus, &late).await, Ok(LeaseAnswer::default()));
    let endless = Hold { ttl_s: 0, ..hold("n1", "a", None) };
    assert_eq!(send::<verb::NodeHold>(&bus, &endless).await, Err(Code::BadInput));
}

/// Without the numbers, the late request would be taken for a retry whose answer was lost.
#[tokio::test]
async fn a_late_renewal_does_not_shorten_the_lease_of_its_own_process() {
    let site = Site::start(1).await;
    site.report(&report("n1", &[])).await;
    let bus = agent(&site, "n1").await;
    let renew =
        |number, ttl_s, over| Hold { ttl_s, renewal: Some(number), ..hold("n1", "a", over) };
    let first = held(send::<verb::NodeHold>(&bus, &renew(1, 60, None)).await);
    let third = held(send::<verb::NodeHold>(&bus, &renew(3, 60, Some(first))).await);
    // The second request is late.
    let late = renew(2, 1, Some(first));
    assert_eq!(held_by_another(send::<verb::NodeHold>(&bus, &late).await).0, third);
    // A copy of the third request writes nothing.
    let copy = renew(3, 60, Some(first));
    assert_eq!(held(send::<verb::NodeHold>(&bus, &copy).await), third);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let other = hold("n1", "b", None);
    assert_eq!(held_by_another(send::<verb::NodeHold>(&bus, &other).await).0, third);
    let fourth = held(send::<verb::NodeHold>(&bus, &renew(4, 60, Some(first))).await);
    assert!(fourth > third);
}

/// An agent of the last release does not number its requests.
#[tokio::test]
async fn a_renewal_past_its_deadline_writes_over_nothing_that_it_does_not_name() {
    let site = Site::start(1).await;
    site.report(&report("n1", &[])).await;
    let bus = agent(&site, "n1").await;
    let first = held(send::<verb::NodeHold>(&bus, &hold("n1", "a", None)).await);
    let second = held(send::<verb::NodeHold>(&bus, &hold("n1", "a", Some(first))).await);
    let ask_late = async |over| -> LeaseAnswer {
        let late = Hold { ttl_s: 1, ..hold("n1", "a", over) };
        let subject = verb::NodeHold::subject(&());
        let body = serde_json::to_vec(&late).unwrap();
        let headers = [(header::DEADLINE, "1000")];
        let answer = raw::ask(site.server(), &subject, &headers, &body).await;
        serde_json::from_value(answer).unwrap()
    };
    for over in [None, Some(first)] {
        let kept = ask_late(over).await.found.expect("it is kept");
        assert_eq!(kept.revision, second);
    }
    // The clock of a node may be behind: what names the lease renews it.
    assert!(ask_late(Some(second)).await.revision > Some(second));
}

fn mounted(node: &str) -> Event {
    Event {
        node: Some(node_id(node)),
        namespace: Some(Namespace::default()),
        volume: Some(VolumeId::new("data").unwrap()),
        alloc: Some(AllocId::new("a").unwrap()),
        ..Event::new(EventName::VolumeMounted, Timestamp::from_unix_ms(1), NODE_AGENT)
    }
}

fn tell(event: Event) -> TellEvents {
    TellEvents { events: vec![ToldEvent { event, traceparent: trace() }] }
}

#[tokio::test]
async fn an_agent_writes_for_its_own_node_only() {
    let site = Site::start(1).await;
    site.report(&report("n1", &[])).await;
    let (bus, thief) = (agent(&site, "n1").await, agent(&site, "n2").await);
    let revision = held(send::<verb::NodeHold>(&bus, &hold("n1", "a", None)).await);

    let refused = Err(Code::NotAllowed);
    let stolen = hold("n1", "thief", Some(revision));
    assert_eq!(send::<verb::NodeHold>(&thief, &stolen).await, refused.clone());
    let ended = Yield { node: node_id("n1"), revision };
    assert_eq!(send::<verb::NodeYield>(&thief, &ended).await.map(drop), Err(Code::NotAllowed));
    let forged = report("n1", &[]);
    assert_eq!(send::<verb::NodeReport>(&thief, &forged).await.map(drop), Err(Code::NotAllowed));
    for (bus, event) in [(&thief, mounted("n1")), (&site.bus, mounted("n1"))] {
        let result = send::<verb::NodeTell>(bus, &tell(event)).await.map(drop);
        assert_eq!(result, Err(Code::NotAllowed));
    }
    let freed = Event { event: EventName::ClaimFreed, ..mounted("n2") };
    let result = send::<verb::NodeTell>(&thief, &tell(freed)).await.map(drop);
    assert_eq!(result, Err(Code::BadInput));

    assert_eq!(
        held(send::<verb::NodeHold>(&bus, &hold("n1", "a", Some(revision))).await),
        revision + 1
    );
    assert_eq!(send::<verb::NodeTell>(&bus, &tell(mounted("n1"))).await.unwrap().stored, 1);
    wait::until("the event is stored", PATIENCE, async || {
        let events = site.bus.events(&stream::EVENTS, 1).await.unwrap();
        let last = events.last(subject::ALL_EVENTS, 1000, PATIENCE).await.unwrap();
        let subjects: Vec<_> = last.into_iter().map(|event| event.subject).collect();
        let of_volume = subjects.iter().filter(|subject| subject.contains(".volume."));
        let of_volume: Vec<_> = of_volume.collect();
        if of_volume == ["berth.v1.event._.volume._._._._.node.n1"] {
            Ok(())
        } else {
            Err(subjects.join(" "))
        }
    })
    .await;
}
