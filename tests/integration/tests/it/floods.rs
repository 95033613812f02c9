//! Floods: more requests than an endpoint serves, with a deadline of tomorrow, from a sender that
//! has gone. They do not keep other senders waiting.

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

/// More requests than any endpoint serves at once.
const FLOOD: usize = 1_100;
const TOMORROW: Duration = Duration::from_secs(86_400);
/// Long enough for one request on a busy machine, and far shorter than any wait.
const AT_ONCE: Duration = Duration::from_secs(10);

/// The numbers of a verb's requests, over all replicas, that work and that wait.
async fn in_progress<V: Verb>(system: &System) -> (u64, u64) {
    let subject = format!("$SRV.STATS.{}", V::ROW.service.name);
    let replicas = system.bus.survey::<Value>(&subject, Duration::from_secs(1)).await.unwrap();
    let endpoints = replicas.iter().flat_map(|replica| replica["endpoints"].as_array().unwrap());
    let own = endpoints.filter(|endpoint| endpoint["name"] == V::ROW.endpoint);
    let counts =
        own.map(|own| ["in_flight", "waiting"].map(|count| own["data"][count].as_u64().unwrap()));
    counts.fold((0, 0), |sum, [work, wait]| (sum.0 + work, sum.1 + wait))
}

/// Sends the requests, and drops them once the service has them.
async fn flood<V: Verb<To = Namespace>>(
    system: &System,
    bus: Bus,
    request: impl Fn(usize) -> V::Request,
) {
    let mut requests = JoinSet::new();
    for number in 0..FLOOD {
        let (bus, request) = (bus.clone(), request(number));
        requests.spawn(async move {
            let call = Call::within(clock::begin_trace(), TOMORROW);
            let reply = bus.ask_service::<V>(&Namespace::default(), &request, &call).await;
            reply.map(drop).map_err(|error| error.into_problem(V::STEP).code)
        });
    }
    // Requests beyond the sender's share are refused at once.
    let mut refused = 0;
    while let Some(answer) = requests.join_next().await {
        assert_eq!(answer.unwrap(), Err(Code::Overloaded));
        refused += 1;
        if refused == FLOOD - 256 {
            break;
        }
    }
    assert_eq!(requests.len(), 256, "a share is a quarter of the places");
    requests.shutdown().await;
    // A waiting claim works now and then, to check whether its turn has come.
    wait::until("most of them wait", AT_ONCE, async || {
        let (work, wait) = in_progress::<V>(system).await;
        if wait > work { Ok(()) } else { Err(format!("{work} work and {wait} wait")) }
    })
    .await;
}

/// A mount that waits for its claim does not count as working at the agent.
async fn mounts_wait_aside(system: &System) {
    let node = verb::NodeAndNamespace::any_of(NodeId::new("n2").unwrap());
    let request = |alloc| json!({"namespace": "default", "alloc": alloc, "wait": true});
    let mut mount = request("waits-0");
    mount["volume"] = json!("data");
    let mount_all = request("waits-1");
    let (mount_subject, mount_all_subject) =
        (verb::AgentMount::subject(&node), verb::AgentMountAll::subject(&node));
    let mounts = async {
        tokio::join!(
            system.ask::<Value>(&mount_subject, &mount),
            system.ask::<Value>(&mount_all_subject, &mount_all),
        )
    };
    let both_wait = wait::until("both wait", AT_ONCE, async || {
        let mounts = in_progress::<verb::AgentMount>(system).await;
        let all = in_progress::<verb::AgentMountAll>(system).await;
        if (mounts, all) == ((0, 1), (0, 1)) { Ok(()) } else { Err(format!("{mounts:?}, {all:?}")) }
    });
    tokio::select! {
        answers = mounts => panic!("{answers:?}"),
        () = both_wait => {}
    }
}

async fn send_once<V: Verb<To = Namespace>>(
    bus: &Bus,
    request: &V::Request,
) -> Result<V::Reply, Problem> {
    let call = Call::within(clock::begin_trace(), AT_ONCE);
    Client::new(bus.clone()).once::<V>(&Namespace::default(), request, &call).await
}

fn take(alloc: &str, volume: &str, wait: bool) -> Take {
    Take {
        alloc: AllocId::new(alloc).unwrap(),
        volume: VolumeId::new(volume).unwrap(),
        node: NodeId::new("n2").unwrap(),
        mode: None,
        wait,
        alias: None,
    }
}

/// Found: such requests filled `claim.take` until their deadline, and nothing was mounted anywhere.
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
    for number in 0..40 {
        system.alloc(&format!("waits-{number}"), 1, "data", false).await;
    }
    system.alloc("here", 0, "other", false).await;
    system.alloc("there", 1, "third", false).await;

    let controllers = vec![PluginId::new(PLUGIN).unwrap()];
    let role = Role::Node { node: NodeId::new("n2").unwrap(), controllers };
    let connect = async || system.connect_as(&role, Actor::Node(NodeId::new("n2").unwrap())).await;
    let waits = |number: usize| take(&format!("waits-{}", number % 40), "data", true);
    flood::<verb::ClaimTake>(&system, connect().await, waits).await;
    let began = Instant::now();
    system.mount("here", 0, "other").await.expect("another node still mounts");
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());

    // The sender gets its share back once its requests are no longer repeated.
    let bus = connect().await;
    let free = take("there", "third", false);
    assert_eq!(send_once::<verb::ClaimTake>(&bus, &free).await.unwrap_err().code, Code::Overloaded);
    wait::until("the waiting requests have ended", HELD_MAX + AT_ONCE, async || {
        send_once::<verb::ClaimTake>(&bus, &free).await
    })
    .await;
    let took = began.elapsed();
    assert!(took < HELD_MAX + AT_ONCE, "{took:?}");
    mounts_wait_aside(&system).await;
}

/// Found: one reader of one namespace filled the endpoint for all readers, for as long as it chose.
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
    let waited = send_once::<verb::AllocWait>(&ann, &waits(500)).await.expect("a place to wait");
    assert!(!waited.reached);
    let bob = user("bob").await;
    assert_eq!(
        send_once::<verb::AllocWait>(&bob, &waits(1)).await.unwrap_err().code,
        Code::Overloaded
    );
    wait::until("the waits of bob have ended", HELD_MAX + AT_ONCE, async || {
        send_once::<verb::AllocWait>(&bob, &waits(1)).await
    })
    .await;
}

/// Found: each of 64 answers was as large as a page may be, and no message could hold them all.
#[tokio::test(flavor = "multi_thread")]
async fn many_placements_over_many_nodes_fit_one_reply() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let nodes = system.bus.bucket(&bucket::NODES, 1).await.unwrap();
    for number in 0..200 {
        let id = NodeId::new(format!("host-{number:04}.example")).unwrap();
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
    let placement = json!({"volumes": [{"source": "data"}]});
    let request = json!({"placements": vec![placement; 64]});
    let answers: PlacementAnswers =
        system.ask(&verb::VolumePlaceMany::subject(&Namespace::default()), &request).await.unwrap();
    assert_eq!(answers.answers.len(), 64);
    for answer in answers.answers {
        let page = answer.placements.expect("each placement is answered");
        assert!(!page.nodes.is_empty() && page.next.is_some(), "{} nodes", page.nodes.len());
    }
}
