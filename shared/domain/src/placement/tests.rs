//! Everything that may be wrong with a node or a volume, alone and together.

use std::sync::Arc;

use crate::access::{AccessMode, AttachmentMode, Capability, Mode};
use crate::plugin::{Instance, NodeAbilities};
use crate::proof::{Proof, ProofKind};
use crate::room::{Capacity, Places};
use crate::volume::{Claim, Claims, Closing, HandleUse, Policy, State};
use crate::{AttemptId, Timestamp};

use super::*;

const NOW: Timestamp = Timestamp::from_unix_ms(1_000_000_000);
const PLUGIN: &str = "csi.example";

fn node_id(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

fn alloc_id(id: &str) -> AllocId {
    AllocId::new(id).unwrap()
}

fn volume_id(id: &str) -> VolumeId {
    VolumeId::new(id).unwrap()
}

fn zone(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("zone".to_owned(), name.to_owned())])
}

fn spec(access: AccessMode) -> VolumeSpec {
    VolumeSpec {
        capabilities: vec![Capability { access, attachment: AttachmentMode::FileSystem }].into(),
        create_index: 3,
        ..VolumeSpec::empty(&PluginId::new(PLUGIN).unwrap())
    }
}

fn volume(access: AccessMode) -> Volume {
    Volume { spec: Some(spec(access)), ..Volume::default() }
}

fn held(access: AccessMode, state: State, node: &str) -> Volume {
    let capability = Capability { access, attachment: AttachmentMode::FileSystem };
    let claim = Claim {
        epoch: 7,
        controller: true,
        ..Claim::new(state, node_id(node), Mode::Write, capability, NOW)
    };
    let claims = Claims::from([(alloc_id("holder"), claim)]);
    Volume { claims, ..volume(access) }
}

fn record() -> Node {
    Node { state: NodeState::Ready, reported: NOW, ..Node::unknown(NOW) }
}

/// A plugin without a controller on node n1.
fn plugin(healthy: bool, abilities: NodeAbilities) -> Plugin {
    let instance = Instance {
        healthy,
        description: "as told".to_owned(),
        provider: PLUGIN.to_owned(),
        version: "1".to_owned(),
        since: NOW,
        controller: None,
        node: Some(abilities),
        id_since: None,
        process: None,
    };
    let mut plugin = Plugin::default();
    plugin.instances.insert((node_id("n1"), Half::Node), instance);
    plugin
}

fn context() -> Context {
    let attempt = AttemptId::new("new").unwrap();
    Context {
        now: NOW,
        attempt,
        jitter: 7,
        policy: Policy::default(),
        handle: HandleUse::default(),
        copies: Vec::new(),
        mounts: Vec::new(),
    }
}

/// A node as the tables below describe it, and how many volumes of the plugin it has.
struct Host {
    record: Option<Node>,
    plugin: Option<Plugin>,
    volumes: Option<u64>,
    rooms: Option<Rooms>,
}

impl Host {
    fn well() -> Self {
        Self {
            record: Some(record()),
            plugin: Some(plugin(true, NodeAbilities::default())),
            volumes: Some(0),
            rooms: None,
        }
    }

    fn with(abilities: NodeAbilities) -> Self {
        Self { plugin: Some(plugin(true, abilities)), ..Self::well() }
    }

    fn obstacles(&self, wanted: &[RequestedVolume<'_>]) -> Vec<Obstacle> {
        let (node, id) = (node_id("n1"), PluginId::new(PLUGIN).unwrap());
        let newcomer =
            NewClaimant { alloc: alloc_id("new"), worker: WorkerId::new("claim/1").unwrap() };
        let ready = |_: &NodeId| {
            self.record.as_ref().is_some_and(|record| record.state == NodeState::Ready)
        };
        obstacles(
            &newcomer,
            wanted,
            &node,
            |_, _| Site {
                mounted: None,
                unreported: &[],
                node: &node,
                record: self.record.as_ref(),
                id: &id,
                plugin: self.plugin.as_ref(),
                volumes: self.volumes,
                rooms: self.rooms.as_ref(),
            },
            ready,
            &context(),
        )
    }

    /// What is in the way of one volume, in words.
    fn says(&self, volume: Option<&Volume>, request: &VolumeRequest) -> Vec<String> {
        let wanted =
            RequestedVolume { id: &request.source, request, volume, handle: HandleUse::default() };
        self.obstacles(&[wanted]).into_iter().map(|found| found.refusal.to_string()).collect()
    }
}

fn writes() -> VolumeRequest {
    VolumeRequest::for_volume(volume_id("data"))
}

const ONE: AccessMode = AccessMode::SingleNodeWriter;

#[test]
fn a_node_that_lacks_nothing_can_host() {
    assert_eq!(Host::well().says(Some(&volume(ONE)), &writes()), Vec::<String>::new());
    // What is under way is not in the way: nor is a claim whose volume may be shared.
    let shared = held(AccessMode::MultiNodeMultiWriter, State::Taken, "n2");
    assert_eq!(Host::well().says(Some(&shared), &writes()), Vec::<String>::new());
}

/// Each thing that may be wrong with a node, alone.
#[test]
fn every_reason_of_a_node_is_told() {
    let down = Node { state: NodeState::Down, ..record() };
    let proof =
        Proof { kind: ProofKind::PoweredOff, by: "ann".to_owned(), at: NOW, note: String::new() };
    let gone = Node { gone: Some(proof), ..record() };
    let late = Node { clock_skew_ms: -4_000, ..record() };
    let rows: [(&str, Host, &str); 10] = [
        ("down", Host { record: Some(down), ..Host::well() }, "node n1 is down since"),
        ("gone", Host { record: Some(gone), ..Host::well() }, "node n1 is gone: powered-off"),
        ("late", Host { record: Some(late), ..Host::well() }, "-4000 ms off"),
        ("never reported", Host { record: None, ..Host::well() }, "n1 is down"),
        (
            "no such plugin",
            Host { plugin: None, ..Host::well() },
            "no agent has reported plugin csi.example",
        ),
        (
            "not here",
            Host { plugin: Some(Plugin::default()), ..Host::well() },
            "no instance on node n1",
        ),
        (
            "unhealthy",
            Host { plugin: Some(plugin(false, NodeAbilities::default())), ..Host::well() },
            "unhealthy on node n1: as told",
        ),
        (
            "without its controller",
            Host::with(NodeAbilities { controller_service: true, ..NodeAbilities::default() }),
            "no controller instance has been seen",
        ),
        (
            "full",
            Host {
                volumes: Some(2),
                ..Host::with(NodeAbilities { max_volumes: Some(2), ..NodeAbilities::default() })
            },
            "node n1 has 2 volumes of plugin csi.example, and the plugin takes 2 there",
        ),
        (
            "full by the plugin's last answer",
            Host::with(NodeAbilities { full: Some("25 of 25".to_owned()), ..Default::default() }),
            "node n1 has no room for another volume of plugin csi.example now: 25 of 25",
        ),
    ];
    for (what, host, expected) in rows {
        let said = host.says(Some(&volume(ONE)), &writes());
        assert!(said.len() == 1 && said[0].contains(expected), "{what}: {said:?}");
    }
}

/// Each thing that may be wrong with a volume, alone.
#[test]
fn every_reason_of_a_volume_is_told() {
    let closing = {
        let mut volume = volume(ONE);
        let closing = Closing { since: NOW, reason: "old".to_owned() };
        volume.spec.as_mut().unwrap().closing = Some(Box::new(closing));
        volume
    };
    let exhausted = {
        let mut volume = held(AccessMode::MultiNodeMultiWriter, State::Publishing, "n2");
        let holder = alloc_id("holder");
        let claim = volume.claims.get(&holder).unwrap().clone();
        volume.claims.insert(holder, Claim { exhausted: true, ..claim });
        volume
    };
    let block = VolumeRequest {
        access: Some(ONE),
        attachment: Some(AttachmentMode::BlockDevice),
        ..writes()
    };
    let rows: [(&str, Option<Volume>, VolumeRequest, &str); 8] = [
        ("unknown", None, writes(), "not registered"),
        ("closing", Some(closing), writes(), "being deregistered"),
        ("not offered", Some(volume(ONE)), block, "single-node-writer/block-device is not offered"),
        ("no writer", Some(volume(AccessMode::MultiNodeReaderOnly)), writes(), "allows no writer"),
        ("held", Some(held(ONE, State::Taken, "n2")), writes(), "held by alloc holder on node n2"),
        // Also while it is being released, whatever the alloc does.
        ("on its way out", Some(held(ONE, State::NodeDetached, "n2")), writes(), "node-detached"),
        ("no room", Some(exhausted), writes(), "no room for the volume"),
        (
            "of another kind",
            {
                let mut volume = held(AccessMode::MultiNodeMultiWriter, State::Taken, "n1");
                let mut one = spec(ONE);
                let more = spec(AccessMode::MultiNodeMultiWriter).capabilities;
                one.capabilities.change(|all| all.extend(&*more));
                volume.spec = Some(one);
                Some(volume)
            },
            writes(),
            "in use as multi-node-multi-writer/file-system, not single-node-writer",
        ),
    ];
    for (what, volume, request, expected) in rows {
        let said = Host::well().says(volume.as_ref(), &request);
        assert!(said.len() == 1 && said[0].contains(expected), "{what}: {said:?}");
    }
}

#[test]
fn everything_in_the_way_comes_at_once_by_volume() {
    let host = Host { plugin: None, ..Host::well() };
    let (held, missing) = (held(ONE, State::Taken, "n2"), volume_id("missing"));
    let (data, none) = (writes(), VolumeRequest::for_volume(missing.clone()));
    let found = host.obstacles(&[
        RequestedVolume {
            id: &data.source,
            request: &data,
            volume: Some(&held),
            handle: HandleUse::default(),
        },
        RequestedVolume {
            id: &missing,
            request: &none,
            volume: None,
            handle: HandleUse::default(),
        },
    ]);
    let told: Vec<(&str, bool)> = found
        .iter()
        .map(|one| (one.volume.as_str(), matches!(one.refusal, Refusal::PluginUnready(_))))
        .collect();
    assert_eq!(told, [("data", false), ("data", true), ("missing", false)]);
}

#[test]
fn a_volume_is_reached_where_all_segments_of_one_topology_are() {
    let rack = |zone: &str, rack: &str| {
        let segments = [("zone", zone), ("rack", rack)];
        BTreeMap::from(segments.map(|(key, value)| (key.to_owned(), value.to_owned())))
    };
    let nowhere = BTreeMap::new();
    let rows = [
        (vec![], nowhere.clone(), true),
        (vec![], zone("a"), true),
        (vec![zone("a")], zone("a"), true),
        (vec![zone("a")], zone("b"), false),
        (vec![zone("a"), zone("b")], zone("b"), true),
        // A node may say more than the volume asks, and not less.
        (vec![zone("a")], rack("a", "7"), true),
        (vec![rack("a", "7")], zone("a"), false),
        (vec![rack("a", "7"), zone("b")], rack("a", "8"), false),
        // A node whose plugin tells of no topology is nowhere that a volume asks for.
        (vec![zone("a")], nowhere, false),
    ];
    for (volume, node, expected) in rows {
        assert_eq!(reaches(&volume, &node), expected, "{volume:?} from {node:?}");
    }
    let mut far = volume(ONE);
    far.spec.as_mut().unwrap().topologies = vec![zone("a"), zone("b")].into();
    let there = |topology| NodeAbilities { topology, ..NodeAbilities::default() };
    let said = Host::with(there(zone("c"))).says(Some(&far), &writes());
    assert_eq!(
        said,
        ["the volume cannot be reached from the node: it can be reached in zone=a or zone=b, and \
          node n1 is in zone=c"]
    );
    assert!(Host::with(there(zone("b"))).says(Some(&far), &writes()).is_empty());
}

/// A volume that is not created yet, whose creation the plugin refused in zone b a moment ago.
fn unused() -> Volume {
    let storage = serde_json::json!({"provision": {"name": "v", "requested": NOW,
        "first_use": true, "first_claim": {"at": zone("b"), "tries": 1,
            "next_try": NOW.after(Duration::from_secs(1))}}});
    let storage = serde_json::from_value(storage).unwrap();
    Volume { spec: Some(VolumeSpec { storage, ..spec(ONE) }), ..Volume::default() }
}

#[test]
fn a_volume_of_first_use_is_placed_where_it_can_be_created() {
    let at = |name: &str| NodeAbilities { topology: zone(name), ..NodeAbilities::default() };
    let capacity = |bytes| Capacity { available_bytes: Some(bytes), max_volume_bytes: None };
    let places = Places::from([(zone("a"), capacity(9)), (zone("c"), capacity(10))]);
    let rooms = || Some(Rooms::new(10, Arc::new(places.clone()), |_| Some(zone("c"))));
    let host = |name: &str| Host { rooms: rooms(), ..Host::with(at(name)) };
    assert_eq!(
        host("a").says(Some(&unused()), &writes()),
        ["plugin csi.example last said that it has room for 9 of 10 bytes in zone=a, and for all \
          of them in zone=c"]
    );
    let refused = host("b").says(Some(&unused()), &writes());
    assert!(refused[0].contains("did not create the volume where this node is"), "{refused:?}");
    assert_eq!(host("c").says(Some(&unused()), &writes()), Vec::<String>::new());
    // Once it is there, its room is its own.
    assert_eq!(host("a").says(Some(&volume(ONE)), &writes()), Vec::<String>::new());
}

/// E10: what is there counts, and what the workload itself would bring.
#[test]
fn volumes_of_one_plugin_take_room_from_each_other() {
    let few = |volumes| Host {
        volumes,
        ..Host::with(NodeAbilities { max_volumes: Some(3), ..NodeAbilities::default() })
    };
    let (volume, requests) =
        (volume(ONE), ["a", "b"].map(|id| VolumeRequest::for_volume(volume_id(id))));
    let wanted = [0, 1].map(|at: usize| {
        let request = &requests[at];
        RequestedVolume {
            id: &request.source,
            request,
            volume: Some(&volume),
            handle: HandleUse::default(),
        }
    });
    assert_eq!(few(Some(1)).obstacles(&wanted), []);
    let told = few(Some(2)).obstacles(&wanted);
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].volume.as_str(), told[0].refusal.to_string().contains("3 there")),
        ("b", true)
    );
    assert_eq!(few(Some(3)).obstacles(&wanted).len(), 2);
    // Those that are there already need no more room, and zero is no bound.
    assert_eq!(few(None).obstacles(&wanted), []);
    let any = Host::with(NodeAbilities { max_volumes: Some(0), ..NodeAbilities::default() });
    assert_eq!(Host { volumes: Some(99), ..any }.obstacles(&wanted), []);
}

#[test]
fn a_volume_for_one_node_waits_until_every_other_node_has_said_what_is_mounted_there() {
    let silent: Vec<NodeId> = (0..9).map(|at| node_id(&format!("silent{at}"))).collect();
    let check =
        |access, unreported: &[NodeId]| check_mounts_elsewhere(&spec(access), None, unreported);
    assert_eq!(check(AccessMode::SingleNodeWriter, &[]), Ok(()));
    assert_eq!(check(AccessMode::MultiNodeMultiWriter, &silent), Ok(()));
    let Err(NoRoute::Unreported(said)) = check(AccessMode::SingleNodeWriter, &silent) else {
        panic!("it is granted");
    };
    assert!(said.contains("silent7") && !said.contains("silent8"), "{said}");
    assert!(Refusal::from(NoRoute::Unreported(said)).may_pass(), "who waits in line goes on");
}
