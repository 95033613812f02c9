//! The thief of a node's identity, who has read this code, on a running system.
//!
//! Each request is sent in two ways: in the identity's own name, which the services refuse, and in
//! another name, which nats-server refuses.

use std::time::Duration;

use berth_access::Role;
use berth_bus::{Bus, Call, Listen, RequestError, ServiceSpec};
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::lease::Holder;
use berth_contract::message::node::{Hold, TellEvents, ToldEvent, Yield};
use berth_contract::message::{alloc, claim, registry, secret};
use berth_contract::problem::Problem;
use berth_contract::service::NODE_AGENT;
use berth_contract::verb::{self, Verb};
use berth_contract::{bucket, key, record, stream, subject};
use berth_domain::alloc::AllocState;
use berth_domain::volume::VolumeSpec;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId, VolumeKey};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, System};
use berth_service::clock;
use serde_json::{Value, json};

const SECRET: &str = "kept from the thief";
/// How soon each refusal must come: a timeout is no refusal.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A stolen identity: `n2` of a system whose other node is `n1`.
struct Thief {
    /// Sends in its own name.
    own: Bus,
    /// Sends with the same credentials in the name of `n1`.
    as_n1: Bus,
    /// Sends with the same credentials in the name of an operator.
    as_operator: Bus,
}

pub fn node(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

fn volume() -> VolumeId {
    VolumeId::new("data").unwrap()
}

pub async fn send<V: Verb>(bus: &Bus, to: &V::To, request: &V::Request) -> Result<V::Reply, Code> {
    let call = Call::within(clock::begin_trace(), AT_ONCE);
    bus.ask_service::<V>(to, request, &call).await.map_err(code)
}

fn code(error: RequestError) -> Code {
    match error {
        RequestError::Problem(problem) => problem.code,
        RequestError::NotAllowed { .. } => Code::NotAllowed,
        other => panic!("{other}"),
    }
}

impl Thief {
    async fn break_in(system: &System) -> Self {
        let controllers = vec![PluginId::new(PLUGIN).unwrap()];
        let role = Role::Node { node: node("n2"), controllers };
        let in_name = async |actor| system.connect_as(&role, actor).await;
        Self {
            own: in_name(Actor::Node(node("n2"))).await,
            as_n1: in_name(Actor::Node(node("n1"))).await,
            as_operator: in_name(Actor::user("operator")).await,
        }
    }

    /// Checks that a request is refused in its own name, and in that of the node that it is about.
    async fn is_refused<V: Verb>(&self, to: &V::To, request: &V::Request) {
        for (name, bus) in [("its own", &self.own), ("n1's", &self.as_n1)] {
            let answer = send::<V>(bus, to, request).await.map(drop);
            assert_eq!(answer, Err(Code::NotAllowed), "{} in {name} name", V::STEP);
        }
    }

    /// Sends a request to this very subject; returns the refusal's code.
    async fn publish(&self, subject: &str, body: &Value) -> Code {
        let call = Call::within(clock::begin_trace(), AT_ONCE);
        code(self.own.request::<Value>(subject, body, &call).await.unwrap_err())
    }
}

/// The id of the volume's secrets.
async fn secrets_id(system: &System) -> berth_domain::SecretsId {
    let volumes = system.bus.bucket(&bucket::VOLUMES, 1).await.unwrap();
    let key = key::spec(&VolumeKey::new(Namespace::default(), volume()));
    let value = volumes.get(&key).await.unwrap().unwrap().value.unwrap();
    record::read::<VolumeSpec>(&value).unwrap().body.secrets.unwrap()
}

pub fn holder_of(id: &str) -> Holder {
    Holder {
        node: node(id),
        agent: "thief".to_owned(),
        hostname: String::new(),
        boot_id: String::new(),
        pid: 1,
        since: clock::now(),
    }
}

fn tell_request(name: EventName, id: &str) -> TellEvents {
    let event = Event {
        node: Some(node(id)),
        namespace: Some(Namespace::default()),
        volume: Some(volume()),
        detail: Some("x".repeat(1_000)),
        ..Event::new(name, clock::now(), NODE_AGENT)
    };
    TellEvents { events: vec![ToldEvent { event, traceparent: clock::begin_trace() }] }
}

/// A report without anything in it.
pub fn report_of(id: &str) -> registry::NodeReport {
    registry::NodeReport {
        node: node(id),
        version: "1".to_owned(),
        boot_id: "thief".to_owned(),
        clock: clock::now(),
        attributes: [].into(),
        instances: Vec::new(),
        undone: None,
        unaccounted: Vec::new(),
        compared: None,
        clock_offset: None,
        sealing_key: None,
    }
}

/// Speaks for `n1`: takes its claims, its lease, its reports, its secrets, its allocs.
async fn acts_for_another_node(thief: &Thief, system: &System) {
    let namespace = Namespace::default();
    let alloc = AllocId::new("a").unwrap();
    let take = claim::Take {
        alloc: alloc.clone(),
        volume: volume(),
        node: node("n1"),
        mode: None,
        wait: false,
        alias: None,
    };
    thief.is_refused::<verb::ClaimTake>(&namespace, &take).await;
    let stop = alloc::StopAlloc::new(alloc, AllocState::Complete, None);
    // In its own name, the other node's alloc is reported as unknown.
    for (bus, code) in [(&thief.own, Code::NoSuchAlloc), (&thief.as_n1, Code::NotAllowed)] {
        let stopped = send::<verb::AllocStop>(bus, &namespace, &stop).await.map(drop);
        assert_eq!(stopped, Err(code));
    }
    let status = claim::ListClaims { node: Some(node("n1")), ..claim::ListClaims::default() };
    thief.is_refused::<verb::ClaimStatus>(&namespace, &status).await;

    let lease = system.bus.bucket(&bucket::LEASES, 1).await.unwrap();
    let stored = lease.get(&key::node_lease(&node("n1"))).await.unwrap().unwrap();
    for over in [None, Some(stored.revision)] {
        let hold = Hold { holder: holder_of("n1"), ttl_s: 60, over, renewal: None };
        thief.is_refused::<verb::NodeHold>(&(), &hold).await;
    }
    let yielded = Yield { node: node("n1"), revision: stored.revision };
    thief.is_refused::<verb::NodeYield>(&(), &yielded).await;
    thief.is_refused::<verb::NodeReport>(&(), &report_of("n1")).await;
    let secrets = secrets_id(system).await;
    let open = secret::Open { namespace, volume: volume(), secrets, to: "X".to_owned() };
    thief.is_refused::<verb::SecretOpen>(&node("n1"), &open).await;
    // Its own node does not mount the volume, so it gets no secrets there either.
    let opened = send::<verb::SecretOpen>(&thief.own, &node("n2"), &open).await.map(drop);
    assert_eq!(opened, Err(Code::SecretsUnavailable));
    thief.is_refused::<verb::NodeTell>(&(), &tell_request(EventName::VolumeUnmounted, "n1")).await;
}

/// Checks that its refused requests about another node's alloc are recorded under its own name.
async fn is_told_of_by_its_name(system: &System) {
    let events = system.bus.events(&stream::EVENTS, 1).await.unwrap();
    let of_namespace = subject::EventsOf::Namespace(&Namespace::default());
    let alloc = AllocId::new("a").unwrap();
    let refused = subject::refusal_filter(of_namespace, None, Some(&alloc));
    wait::until("its attempts are recorded", AT_ONCE, async || {
        let last = events.last(&refused, 100, AT_ONCE).await.unwrap();
        // On a slow machine, mounts of this test itself may be refused at first.
        let is_own = |subject: &String| subject.contains(".a.user.test.");
        let subjects: Vec<_> = last
            .into_iter()
            .map(|event| event.subject)
            .filter(|subject| !is_own(subject))
            .collect();
        assert!(
            subjects.iter().all(|subject| subject.ends_with(".a.node.n2.service.claim")),
            "{subjects:?}"
        );
        if subjects.len() >= 2 { Ok(()) } else { Err(subjects.join(" ")) }
    })
    .await;
}

/// Declares `n1` gone in the name of an operator, writes records, forges events, reads replies.
async fn speaks_past_the_services(thief: &Thief) {
    let gone = registry::Gone {
        node: node("n1"),
        kind: berth_domain::proof::ProofKind::Confirmed,
        by: "operator".to_owned(),
        note: String::new(),
        seen: 0,
    };
    let answer = send::<verb::NodeGone>(&thief.as_operator, &(), &gone).await.map(drop);
    assert_eq!(answer, Err(Code::NotAllowed));
    let forged = tell_request(EventName::ClaimFreed, "n2");
    let answer = send::<verb::NodeTell>(&thief.own, &(), &forged).await.map(drop);
    assert_eq!(answer, Err(Code::BadInput));

    let event_subject = "berth.v1.event.default.claim.data";
    for target in [
        "$KV.berth-volumes.default.data.spec",
        "$KV.berth-leases.node.n1",
        "$KV.berth-leases.node.n2",
        "$JS.API.STREAM.DELETE.KV_berth-volumes",
        "$JS.API.DIRECT.GET.KV_berth-leases.$KV.berth-leases.node.n2",
        "$JS.API.STREAM.INFO.BERTH_EVENTS",
        "$JS.API.CONSUMER.CREATE.KV_berth-secrets.thief",
        event_subject,
    ] {
        assert_eq!(thief.publish(target, &json!({})).await, Code::NotAllowed, "{target}");
    }
    assert!(thief.own.events(&stream::EVENTS, 1).await.is_err());
    assert!(thief.own.bucket(&bucket::VOLUMES, 1).await.is_err());
}

/// Listens where it should not: as the controller of another plugin, and as `n1`.
async fn answers_for_others(thief: &Thief) {
    let violations = || thief.own.counts().permission_violations;
    let spec = ServiceSpec {
        name: "berth-controller".to_owned(),
        version: "0.0.1".to_owned(),
        ..ServiceSpec::default()
    };
    let service = thief.own.service(spec).await.unwrap();
    let before = violations();
    let (foreign, other) = (PluginId::new("ebs.csi.aws.com").unwrap(), node("n1"));
    let listening =
        service.on::<verb::ControllerUnpublish, _>(Listen::At(&foreign), 8, |_| async {
            Err(Problem::new(Code::Internal, "the thief answers"))
        });
    let _controller = listening.await;
    let agent = service.on::<verb::AgentDetach, _>(Listen::At(&other), 8, |_| async {
        Err(Problem::new(Code::Internal, "the thief answers"))
    });
    let _agent = agent.await;
    wait::until("both are refused", AT_ONCE, async || {
        let count = violations() - before;
        if count >= 2 { Ok(()) } else { Err(format!("{count} refusals")) }
    })
    .await;
}

/// Fills the event stream: its share is limited, and other events are still there.
async fn exhausts_the_stream(thief: &Thief, system: &System) {
    let mut flood = tell_request(EventName::VolumeMounted, "n2");
    flood.events = vec![flood.events.remove(0); 50];
    let size = serde_json::to_vec(&flood.events[0].event).unwrap().len();
    let began = std::time::Instant::now();
    let (mut sent, mut stored) = (0, 0);
    while sent < 20_000 {
        let answer = send::<verb::NodeTell>(&thief.own, &(), &flood).await.unwrap();
        (sent, stored) = (sent + 50, stored + answer.stored);
    }
    // 8 MiB at once, then 64 KiB a second; two seconds more, since the time is measured late.
    let share = (8 << 20) + (64 << 10) * (began.elapsed().as_secs() + 2);
    let taken = u64::try_from(size * stored).unwrap();
    assert!(taken <= share && taken > 4 << 20, "{stored} of {sent}, {size} bytes each");
    let events = system.bus.events(&stream::EVENTS, 1).await.unwrap();
    let of_namespace = subject::EventsOf::Namespace(&Namespace::default());
    let of_volume = subject::event_filter(of_namespace, Some("volume"), Some("data"));
    let last = events.last(&of_volume, 1, AT_ONCE).await.unwrap();
    assert_eq!(last.len(), 1, "the event of the volume's registration is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_thief_of_a_nodes_identity_gains_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { secret: Some(SECRET), ..Options::default() }).await;
    system.volume_with_secrets("data", SECRET).await;
    system.run("a", 0, "data").await;
    let before = wait::until("the agent has reported its mount", AT_ONCE, async || {
        let claims = system.claims("data").await.claims;
        let is_reported = claims.iter().all(|claim| claim.mount.is_some());
        if is_reported { Ok(claims) } else { Err(format!("{claims:?}")) }
    })
    .await;
    let thief = Thief::break_in(&system).await;

    acts_for_another_node(&thief, &system).await;
    is_told_of_by_its_name(&system).await;
    speaks_past_the_services(&thief).await;
    answers_for_others(&thief).await;
    exhausts_the_stream(&thief, &system).await;

    let after = system.claims("data").await.claims;
    assert_eq!(serde_json::to_value(&after).unwrap(), serde_json::to_value(&before).unwrap());
    let nodes = system.nodes().await.unwrap().nodes;
    assert!(nodes.iter().all(|node| node.state.to_string() == "ready" && node.gone.is_none()));
    // Each attempt is in a log, with its sender.
    let refusals = |part: Part| {
        let log = system.daemon(part).log();
        log.lines().filter(|line| line.contains("refused: not allowed")).count()
    };
    assert!(refusals(Part::Claim) >= 3 && refusals(Part::Registry) >= 5);
    assert!(system.daemon(Part::Registry).log().contains("node.hold.node.n2"));
    assert!(system.nats.first().daemon().log().contains("Publish Violation"));
    for part in [Part::Claim, Part::Registry, Part::Agent(0), Part::Agent(1)] {
        assert!(!system.daemon(part).log().contains(SECRET));
    }
    system.stop("a").await;
    system.settle("data").await;
    system.judge();
}

/// The node of a mounted volume gets the secrets that mount it, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn the_thief_of_a_mounting_nodes_identity_gets_no_secrets_of_the_controller() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let secrets = json!({
        "user": "all", "stage/key": "staged", "create/admin": "root", "delete/admin": "root",
    });
    system.class("safe", json!({"secrets": secrets})).await.unwrap();
    system.created("data", json!({"class": "safe", "size": "1MiB"})).await;
    system.run("a", 0, "data").await;
    // Otherwise the agent would report its own key again.
    system.kill9(Part::Agent(0));
    let controllers = vec![PluginId::new(PLUGIN).unwrap()];
    let role = Role::Node { node: node("n1"), controllers };
    let thief = system.connect_as(&role, Actor::Node(node("n1"))).await;
    let keys = berth_service::seal::Keys::once();
    let report = registry::NodeReport { sealing_key: Some(keys.public()), ..report_of("n1") };
    send::<verb::NodeReport>(&thief, &(), &report).await.unwrap();
    let open = secret::Open {
        namespace: Namespace::default(),
        volume: volume(),
        secrets: secrets_id(&system).await,
        to: keys.public(),
    };
    let sealed = send::<verb::SecretOpen>(&thief, &node("n1"), &open).await.unwrap();
    let key = VolumeKey::new(Namespace::default(), volume());
    let opened = serde_json::to_value(keys.open(&key, &sealed).unwrap()).unwrap();
    assert_eq!(opened, json!({"user": "all", "stage/key": "staged"}));
    system.restart(Part::Agent(0));
    system.stop("a").await;
    system.settle("data").await;
    system.judge();
}
