//! A node's reports about volumes that none of its allocs requested: they keep no other node from
//! the volumes, and users do not see them.

use std::time::Duration;

use berth_access::Role;
use berth_bus::Bus;
use berth_contract::actor::Actor;
use berth_contract::code::Code;
use berth_contract::event::{Event, EventName};
use berth_contract::message::claim::Recover;
use berth_contract::message::node::{Hold, TellEvents, ToldEvent};
use berth_contract::message::registry::{NodeReport, NodeStatus};
use berth_contract::service::NODE_AGENT;
use berth_contract::{stream, subject, verb};
use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::plugin::UnaccountedMount;
use berth_domain::volume::MountUse;
use berth_domain::{AllocId, Namespace, PluginId, Timestamp, VolumeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, RECOVERY, System};
use berth_service::clock;

use super::rogue::{holder_of, node, report_of, send};

const THIEF: &str = "n9";

fn alloc_id(id: &str) -> AllocId {
    AllocId::new(id).unwrap()
}

fn volume_id(id: &str) -> VolumeId {
    VolumeId::new(id).unwrap()
}

/// A mount as an agent reports it.
fn mount(alloc: &str, volume: &str) -> UnaccountedMount {
    let (mode, access) = (Mode::Write, AccessMode::SingleNodeWriter);
    UnaccountedMount {
        namespace: Namespace::default(),
        volume: volume_id(volume),
        alloc: alloc_id(alloc),
        path: format!("/mnt/{volume}"),
        plugin: Some(PluginId::new(PLUGIN).unwrap()),
        external_id: Some(volume.to_owned()),
        used: Some(MountUse { mode, access, attachment: AttachmentMode::FileSystem }),
    }
}

async fn reports(bus: &Bus, unaccounted: Vec<UnaccountedMount>) {
    let report = NodeReport { unaccounted, ..report_of(THIEF) };
    send::<verb::NodeReport>(bus, &(), &report).await.unwrap();
}

async fn thief_on_record(system: &System) -> NodeStatus {
    let nodes = system.nodes().await.unwrap().nodes;
    nodes.into_iter().find(|node| node.id.as_str() == THIEF).unwrap()
}

/// The subjects of the stored events about volumes.
async fn stored(system: &System) -> Vec<String> {
    let events = system.bus.events(&stream::EVENTS, 1).await.unwrap();
    let last = events.last(subject::ALL_EVENTS, 1000, RECOVERY).await.unwrap();
    let subjects = last.into_iter().map(|event| event.subject);
    subjects.filter(|subject| subject.ends_with(".node.n9")).collect()
}

async fn connect(system: &System) -> Bus {
    let role = Role::Node { node: node(THIEF), controllers: Vec::new() };
    let bus = system.connect_as(&role, Actor::Node(node(THIEF))).await;
    let hold = Hold { holder: holder_of(THIEF), ttl_s: 60, over: None, renewal: None };
    send::<verb::NodeHold>(&bus, &(), &hold).await.unwrap();
    bus
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_keeps_no_other_from_a_volume_that_none_of_its_allocs_requested() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    for volume in ["vic", "used"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    system.run("a", 0, "used").await;
    let thief = connect(&system).await;

    // An alloc that does not exist, and an alloc of another node.
    reports(&thief, vec![mount("ghost", "vic"), mount("a", "vic"), mount("a", "used")]).await;
    let record = thief_on_record(&system).await;
    assert!(record.unaccounted.is_empty(), "{record:?}");
    assert!(record.attributes["disbelieved-mounts"].starts_with("3, "), "{record:?}");
    // The answer is the same, whether alloc and volume exist or not.
    for (alloc, volume) in [("ghost", "vic"), ("a", "vic"), ("a", "used"), ("ghost", "none")] {
        let lost = Recover {
            alloc: alloc_id(alloc),
            volume: volume_id(volume),
            node: node(THIEF),
            plugin: PluginId::new(PLUGIN).unwrap(),
            external_id: "vic".to_owned(),
            mode: Mode::Write,
            access: AccessMode::SingleNodeWriter,
            attachment: AttachmentMode::FileSystem,
        };
        let recovered = send::<verb::ClaimRecover>(&thief, &Namespace::default(), &lost).await;
        assert_eq!(recovered.map(drop), Err(Code::NotAllowed));
    }
    system.run("b", 0, "vic").await;
    assert!(system.volume_status("vic").await.unwrap().unaccounted.is_empty());

    // A mount of a volume that the node's own alloc requested counts, even without a claim.
    system.alloc("own", 8, "vic", false).await;
    reports(&thief, vec![mount("own", "vic"), mount("own", "used")]).await;
    let record = thief_on_record(&system).await;
    assert_eq!(record.unaccounted.len(), 1, "{record:?}");
    assert!(record.attributes["disbelieved-mounts"].starts_with("1, "), "{record:?}");
    system.stop("a").await;
    system.stop("b").await;
    system.settle("vic").await;
    system.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_users_nothing_of_what_it_has_not() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("vic", &["single-node-writer"]).await;
    system.alloc("own", 8, "vic", false).await;
    let thief = connect(&system).await;
    reports(&thief, Vec::new()).await;
    let forged = |alloc: &str, at| ToldEvent {
        event: Event {
            node: Some(node(THIEF)),
            namespace: Some(Namespace::default()),
            volume: Some(volume_id("vic")),
            alloc: Some(alloc_id(alloc)),
            by: Some("user.bob".to_owned()),
            ..Event::new(EventName::VolumeMounted, at, NODE_AGENT)
        },
        traceparent: clock::begin_trace(),
    };
    let began = clock::now();
    let (past, future) = (Timestamp::from_unix_ms(0), began.after(Duration::from_secs(86_400)));
    let events = vec![forged("ghost", past), forged("own", future)];
    send::<verb::NodeTell>(&thief, &(), &TellEvents { events }).await.unwrap();
    wait::until("both are stored, and one names the volume", RECOVERY, || async {
        let subjects = stored(&system).await;
        let (with_volume, without_volume) =
            ("berth.v1.event.default.volume.vic.own", "berth.v1.event._.volume._._");
        match &subjects[..] {
            [a, b] if a.starts_with(without_volume) && b.starts_with(with_volume) => Ok(()),
            _ => Err(subjects.join(" ")),
        }
    })
    .await;
    let events = system.bus.events(&stream::EVENTS, 1).await.unwrap();
    let last = events.last("berth.v1.event.default.volume.vic.own.>", 1, RECOVERY).await.unwrap();
    let event: Event = serde_json::from_slice(&last[0].body).unwrap();
    assert!(event.at >= began && event.at <= clock::now(), "{event:?}");
    assert_ne!(event.by.as_deref(), Some("user.bob"));
}
