//! The thief of the identity of a host's Docker plugin, on a running system.

use std::time::Duration;

use berth_access::Role;
use berth_bus::{Bus, Call, RequestError};
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::decode::{Unknown, decode};
use berth_contract::message::storage::{Create, DeleteVolume};
use berth_contract::message::{agent, alloc, volume};
use berth_contract::verb::{self, NodeAndNamespace, Verb};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::{AllocId, Namespace, NodeId, VolumeId};
use berth_harness::root::or_skip;
use berth_integration::{Options, System};
use berth_service::clock;
use serde_json::json;

/// How soon each refusal must come: a timeout is no refusal.
const AT_ONCE: Duration = Duration::from_secs(5);

async fn thief(system: &System, node: &str) -> Bus {
    let node = NodeId::new(node).unwrap();
    let namespaces = [Namespace::default()].into();
    let role = Role::Docker { node: node.clone(), namespaces };
    system.connect_as(&role, Actor::Docker(node)).await
}

async fn send<V: Verb>(bus: &Bus, to: &V::To, request: &V::Request) -> Result<V::Reply, Code> {
    let call = Call::within(clock::begin_trace(), AT_ONCE);
    bus.ask_service::<V>(to, request, &call).await.map_err(|error| match error {
        RequestError::Problem(problem) => problem.code,
        RequestError::NotAllowed { .. } => Code::NotAllowed,
        other => panic!("{other}"),
    })
}

fn alloc_id(id: &str) -> AllocId {
    AllocId::new(id).unwrap()
}

fn volume_id(id: &str) -> VolumeId {
    VolumeId::new(id).unwrap()
}

async fn create(bus: &Bus, id: &str) -> Result<(), Code> {
    let document = json!({"id": id, "class": "fast", "size": "1MiB"});
    let request: Create = decode(document, Unknown::Fault).unwrap();
    send::<verb::VolumeCreate>(bus, &Namespace::default(), &request).await.map(drop)
}

async fn delete(bus: &Bus, id: &str) -> Result<(), Code> {
    let request =
        DeleteVolume { id: volume_id(id), reason: "the thief".to_owned(), create_index: None };
    send::<verb::VolumeDelete>(bus, &Namespace::default(), &request).await.map(drop)
}

async fn register(bus: &Bus, id: &str, node: &str, why: &str) -> Result<(), Code> {
    let volumes = vec![VolumeRequest::for_volume(volume_id("data"))];
    let request = alloc::RegisterAlloc {
        note: Some(why.to_owned()),
        ..alloc::RegisterAlloc::new(alloc_id(id), NodeId::new(node).unwrap(), volumes)
    };
    send::<verb::AllocRegister>(bus, &Namespace::default(), &request).await.map(drop)
}

async fn stop(bus: &Bus, id: &str) -> Result<(), Code> {
    let request = alloc::StopAlloc::new(alloc_id(id), AllocState::Complete, None);
    send::<verb::AllocStop>(bus, &Namespace::default(), &request).await.map(drop)
}

/// Checks that it is refused in a namespace that its host does not serve.
async fn looks_into_other_namespaces(bus: &Bus) {
    let prod = Namespace::new("prod").unwrap();
    let list =
        send::<verb::VolumeList>(bus, &prod, &volume::ListVolumes::default()).await.map(drop);
    let status = volume::VolumeQuery::current(volume_id("data"));
    let status = send::<verb::VolumeStatus>(bus, &prod, &status).await.map(drop);
    let delete = DeleteVolume { id: volume_id("data"), reason: String::new(), create_index: None };
    let delete = send::<verb::VolumeDelete>(bus, &prod, &delete).await.map(drop);
    let mount = agent::Mount {
        namespace: prod.clone(),
        alloc: alloc_id("a"),
        volume: volume_id("data"),
        wait: false,
        alias: None,
        path: None,
    };
    let to = NodeAndNamespace { node: NodeId::new("n1").unwrap(), namespace: prod };
    let mount = send::<verb::AgentMount>(bus, &to, &mount).await.map(drop);
    for outcome in [list, status, delete, mount] {
        assert_eq!(outcome, Err(Code::NotAllowed));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_thief_of_a_docker_hosts_identity_ends_nothing_of_others() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.class("fast", json!({})).await.unwrap();
    system.created("theirs", json!({"class": "fast", "size": "1MiB"})).await;
    system.volume("data", &["single-node-writer"]).await;
    system.volume("free", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    let (first, second) = (thief(&system, "n1").await, thief(&system, "n2").await);

    looks_into_other_namespaces(&first).await;
    // Volumes that others created and registered. Repeating a creation does not make one its own.
    assert_eq!(create(&first, "theirs").await, Ok(()));
    for id in ["theirs", "free"] {
        assert_eq!(delete(&first, id).await, Err(Code::NotAllowed), "{id}");
        assert!(system.volume_status(id).await.is_ok(), "{id}");
    }
    // The alloc of another identity on the same node: it is neither stopped nor changed.
    assert_eq!(stop(&first, "a").await, Err(Code::NotAllowed));
    assert_eq!(register(&first, "a", "n1", "stolen").await, Err(Code::NotAllowed));
    assert_eq!(system.claims("data").await.claims.len(), 1);

    // It ends what it created; another host's plugin cannot.
    assert_eq!(create(&first, "own").await, Ok(()));
    assert_eq!(register(&first, "docker/own/1", "n1", "own").await, Ok(()));
    assert_eq!(delete(&second, "own").await, Err(Code::NotAllowed));
    assert_eq!(stop(&second, "docker/own/1").await, Err(Code::NoSuchAlloc));
    assert_eq!(delete(&first, "own").await, Ok(()));
    assert_eq!(stop(&first, "docker/own/1").await, Ok(()));
    // An identity with `write` in the namespace can delete all of it.
    system.deleted("theirs").await;

    system.stop("a").await;
    system.settle("data").await;
    system.judge();
}
