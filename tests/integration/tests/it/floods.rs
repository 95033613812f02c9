//! Who can keep whom waiting: requests with a deadline of tomorrow whose sender is gone.

use std::time::Duration;

use berth_access::{Grants, Role};
use berth_bus::{Bus, Call, Change, Guard, Write};
use berth_client::Client;
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::message::alloc::{Wait, WaitUntil};
use berth_contract::message::claim::Take;
use berth_contract::message::many::PlacementAnswers;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb};
use berth_contract::{bucket, key, record};
use berth_domain::limits::HELD_MAX;
use berth_domain::plugin::Node;
use berth_domain::{AllocId, Namespace, NodeId, PluginId, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, System};
use berth_service::clock;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// More than any endpoint has places for.
const FLOOD: usize = 1_100;
const TOMORROW: Duration = Duration::from_secs(86_400);
/// Long enough for one request on a busy machine, and far shorter than any wait.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The requests of a verb that are in progress at all its services: how many work, and wait.
async fn in_progress<V: Verb>(system: &System) -> (u64, u64) {
    let subject = format!("$SRV.STATS.{}", V::ROW.service.name);
    let all = system.bus.survey::<Value>(&subject, Duration::from_secs(1)).await.unwrap();
    let endpoints = all.iter().flat_map(|one| one["endpoints"].as_array().unwrap());
    let own = endpoints.filter(|endpoint| endpoint["name"] == V::ROW.endpoint);
    let counts =
        own.map(|own| ["in_flight", "waiting"].map(|it| own["data"][it].as_u64().unwrap()));
    counts.fold((0, 0), |sum, [work, wait]| (sum.0 + work, sum.1 + wait))
}

/// Sends the requests, and goes away once the service has them.
async fn flood<V: Verb<To = Namespace>>(
    system: &System,
    bus: Bus,
    request: impl Fn(usize) -> V::Request,
) {
    let mut asking = JoinSet::new();
    for at in 0..FLOOD {
        let (bus, request) = (bus.clone(), request(at));
        asking.spawn(async move {
            let call = Call::within(clock::begin_trace(), TOMORROW);
            let asked = bus.ask_service::<V>(&Namespace::default(), &request, &call).await;
            asked.map(drop).map_err(|error| error.into_problem(V::STEP).code)
        });
    }
    // Those beyond its share are answered at once.
    let mut refused = 0;
    while let Some(answer) = asking.join_next().await {
        assert_eq!(answer.unwrap(), Err(Code::Overloaded));
        refused += 1;
        if refused == FLOOD - 256 {
            break;
        }
    }
    assert_eq!(asking.len(), 256, "a quarter of the places");
    asking.shutdown().await;
    // A claim that waits works now and then: it looks whether its turn has come.
    wait::until("most of them wait", AT_ONCE, async || {
        let (work, wait) = in_progress::<V>(system).await;
        if wait > work { Ok(()) } else { Err(format!("{work} work and {wait} wait")) }
    })
    .await;
}

/// A mount that waits for its claim takes no place from those that work at the agent.
async fn mounts_wait_aside(system: &System) {
    let to = verb::NodeAndNamespace::any_of(NodeId::new("n2").unwrap());
    let request = |alloc| json!({"namespace": "default", "alloc": alloc, "wait": true});
    let mut one = request("waits-0");
    one["volume"] = json!("data");
    let (of_one, of_all) = (verb::AgentMount::subject(&to), verb::AgentMountAll::subject(&to));
    let all = request("waits-1");
    let mounts = async {
        tokio::join!(system.ask::<Value>(&of_one, &one), system.ask::<Value>(&of_all, &all))
    };
    let looks = wait::until("both wait", AT_ONCE, async || {
        let one = in_progress::<verb::AgentMount>(system).await;
        let all = in_progress::<verb::AgentMountAll>(system).await;
        if (one, all) == ((0, 1), (0, 1)) { Ok(()) } else { Err(format!("{one:?}, {all:?}")) }
    });
    tokio::select! {
        answers = mounts => panic!("{answers:?}"),
        () = looks => {}
    }
}

async fn once<V: Verb<To = Namespace>>(bus: &Bus, of: &V::Request) -> Result<V::Reply, Problem> {
    let call = Call::within(clock::begin_trace(), AT_ONCE);
    Client::new(bus.clone()).once::<V>(&Namespace::default(), of, &call).await
}

fn take(alloc: &str, volume: &str, waits: bool) -> Take {
    Take {
        alloc: AllocId::new(alloc).unwrap(),
        volume: VolumeId::new(volume).unwrap(),
        node: NodeId::new("n2").unwrap(),
        mode: None,
        wait: waits,
        alias: None,
    }
}

/// They held every place of `claim.take` until their deadline: nothing was mounted anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_wait_for_nobody_stop_no_mount() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 2, ..Options::default() }).await;
    for volume in ["data", "other", "third"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    system.alloc("holder", 0, "data", false).await;
    system.mount("holder", 0, "data").await.unwrap();
    for at in 0..40 {
        system.alloc(&format!("waits-{at}"), 1, "data", false).await;
    }
    system.alloc("here", 0, "other", false).await;
    system.alloc("there", 1, "third", false).await;

    let controllers = vec![PluginId::new(PLUGIN).unwrap()];
    let role = Role::Node { node: NodeId::new("n2").unwrap(), controllers };
    let connect = async || system.connect_as(&role, Actor::Node(NodeId::new("n2").unwrap())).await;
    let waits = |at: usize| take(&format!("waits-{}", at % 40), "data", true);
    flood::<verb::ClaimTake>(&system, connect().await, waits).await;
    let began = Instant::now();
    system.mount("here", 0, "other").await.expect("another node's mounts go on");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());

    // The sender itself gets its share back when nobody asks again.
    let bus = connect().await;
    let free = take("there", "third", false);
    assert_eq!(once::<verb::ClaimTake>(&bus, &free).await.unwrap_err().code, Code::Overloaded);
    wait::until("the waiters have left", HELD_MAX + AT_ONCE, async || {
        once::<verb::ClaimTake>(&bus, &free).await
    })
    .await;
    let left = began.elapsed();
    assert!(left < HELD_MAX + AT_ONCE, "{left:?}");
    mounts_wait_aside(&system).await;
}

/// One reader of one namespace had all places of all readers for as long as it said.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_waits_keeps_no_other_reader_from_waiting() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.alloc("a", 0, "data", false).await;
    let user = async |name: &str| {
        let grants = Grants::parse_namespaces(&["default=read"]).unwrap();
        let role = Role::User { name: name.to_owned(), grants };
        system.connect_as(&role, Actor::user(name)).await
    };
    let waits = |wait_ms| Wait {
        id: AllocId::new("a").unwrap(),
        until: WaitUntil::Ended,
        wait_ms: Some(wait_ms),
    };
    flood::<verb::AllocWait>(&system, user("bob").await, |_| waits(60_000)).await;
    let ann = user("ann").await;
    let waited = once::<verb::AllocWait>(&ann, &waits(500)).await.expect("a place to wait");
    assert!(!waited.reached);
    let bob = user("bob").await;
    assert_eq!(once::<verb::AllocWait>(&bob, &waits(1)).await.unwrap_err().code, Code::Overloaded);
    wait::until("its own waits have left", HELD_MAX + AT_ONCE, async || {
        once::<verb::AllocWait>(&bob, &waits(1)).await
    })
    .await;
}

/// Each of 64 answers was as large as a page may be: all of them together were never sent.
#[tokio::test(flavor = "multi_thread")]
async fn many_placements_over_many_nodes_fit_one_reply() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let nodes = system.bus.bucket(&bucket::NODES, 1).await.unwrap();
    for at in 0..200 {
        let id = NodeId::new(format!("host-{at:04}.example")).unwrap();
        let record = record::write(Node::unknown(clock::now()), None).unwrap();
        let (key, operation) = (key::node(&id), clock::new_attempt());
        let write = Write {
            key: &key,
            change: Change::Put(record.into()),
            guard: Guard { filter: &key, revision: 0 },
            operation: operation.as_str(),
            trace: clock::begin_trace(),
        };
        nodes.commit(write).await.unwrap();
    }
    let wanted = json!({"volumes": [{"source": "data"}]});
    let asked = json!({"placements": vec![wanted; 64]});
    let answers: PlacementAnswers =
        system.ask(&verb::VolumePlaceMany::subject(&Namespace::default()), &asked).await.unwrap();
    assert_eq!(answers.answers.len(), 64);
    for answer in answers.answers {
        let first = answer.placements.expect("an answer for each");
        assert!(!first.nodes.is_empty() && first.next.is_some(), "{} nodes", first.nodes.len());
    }
}
