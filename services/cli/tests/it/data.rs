//! Replies with fixed contents.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_contract::message::alloc::{AllocStatus, Allocs};
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::registry::{InstanceStatus, NodeStatus, PluginStatus};
use berth_contract::message::volume::{Health, VolumeStatus, VolumeStub, Volumes};
use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::alloc::{AllocState, VolumeRequest};
use berth_domain::plugin::{Count, Half, NodeState};
use berth_domain::volume::{Attempt, CallKind, Closing, State};
use berth_domain::{
    AllocId, AttemptId, Namespace, NodeId, PluginId, Timestamp, VolumeId, WorkerId,
};

/// The time at which everything is looked at.
pub const NOW: Timestamp = Timestamp::from_unix_ms(1_795_300_000_000);

fn ago(s: u64) -> Timestamp {
    Timestamp::from_unix_ms(NOW.unix_ms() - s * 1000)
}

pub fn volume_id(id: &str) -> VolumeId {
    VolumeId::new(id).unwrap()
}

fn node_id(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

fn plugin_id() -> PluginId {
    PluginId::new("ebs.csi.aws.com").unwrap()
}

const WRITER: Capability =
    Capability { access: AccessMode::SingleNodeWriter, attachment: AttachmentMode::FileSystem };

/// A claim at rest.
pub fn taken(alloc: &str) -> ClaimStatus {
    ClaimStatus {
        namespace: Namespace::default(),
        volume: volume_id("data"),
        alloc: AllocId::new(alloc).unwrap(),
        state: State::Taken,
        node: node_id("n1"),
        mode: Mode::Write,
        since: ago(90),
        waits_for: None,
        tries: 0,
        error: None,
        next_try: None,
        reason: None,
        attempt: None,
        epoch: 41,
        trace: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
    }
}

/// A claim whose release is in trouble.
pub fn stuck(alloc: &str) -> ClaimStatus {
    ClaimStatus {
        state: State::Unpublishing,
        since: ago(4000),
        waits_for: Some("the agent of node n1 to unmount it".to_owned()),
        tries: 3,
        error: Some("agent.detach: the agent of node n1 is not there: no responders".to_owned()),
        next_try: Some(NOW.after(Duration::from_secs(7))),
        reason: Some("alloc stopped".to_owned()),
        attempt: Some(Attempt {
            id: AttemptId::new("01").unwrap(),
            call: CallKind::NodeDetach,
            worker: WorkerId::new("volumewatcher/host/1").unwrap(),
            deadline: NOW,
        }),
        ..taken(alloc)
    }
}

/// A volume in use, with everything that can be shown.
pub fn volume() -> VolumeStatus {
    let text = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    VolumeStatus {
        id: volume_id("data"),
        namespace: Namespace::default(),
        name: "Orders".to_owned(),
        closing: Some(Closing { since: ago(30), reason: "host n7 was scrapped".to_owned() }),
        plugin: plugin_id(),
        external_id: "vol-0a1b2c3d".to_owned(),
        capabilities: vec![
            WRITER,
            Capability { access: AccessMode::MultiNodeReaderOnly, ..WRITER },
        ],
        in_use: Some(WRITER),
        fs_type: Some("ext4".to_owned()),
        mount_flags: 2,
        topologies: vec![text("zone", "a"), text("zone", "b")],
        capacity_bytes: Some(10_000_000_000),
        parameters: text("type", "gp3"),
        context: text("share", "/exports/data"),
        has_secrets: true,
        health: Health {
            healthy: false,
            description: "no healthy controller".to_owned(),
            controllers: Some(Count { healthy: 0, expected: 2 }),
            nodes: Count { healthy: 3, expected: 3 },
        },
        claims: vec![taken("web-1"), stuck("web-0")],
        create_index: 40,
        modify_index: 44,
    }
}

/// Two volumes in a list; one has an id that wants to speak to the terminal.
pub fn volumes() -> Volumes {
    let stub = VolumeStub {
        id: volume_id("data"),
        namespace: Namespace::default(),
        name: "Orders".to_owned(),
        plugin: plugin_id(),
        in_use: Some(WRITER),
        readers: 0,
        writers: 1,
        releasing: 1,
        waiting: 0,
        healthy: true,
        fs_type: None,
        modify_index: 44,
    };
    let idle = VolumeStub {
        id: volume_id("models/v2 (big)"),
        name: "a\u{1b}[2Jb".to_owned(),
        in_use: None,
        writers: 0,
        releasing: 0,
        healthy: false,
        ..stub.clone()
    };
    Volumes { index: 44, volumes: vec![stub, idle] }
}

fn instance(node: &str, half: Half, healthy: bool) -> InstanceStatus {
    InstanceStatus {
        plugin: plugin_id(),
        node: node_id(node),
        half,
        healthy,
        description: if healthy { "ready" } else { "probe: connection refused" }.to_owned(),
        version: "1.30.0".to_owned(),
        since: ago(3600),
        controller: None,
        abilities: None,
    }
}

/// A plugin with a sick controller.
pub fn plugin() -> PluginStatus {
    PluginStatus {
        id: plugin_id(),
        provider: "ebs.csi.aws.com".to_owned(),
        versions: vec!["1.29.1".to_owned(), "1.30.0".to_owned()],
        controllers: Some(Count { healthy: 0, expected: 1 }),
        nodes: Count { healthy: 2, expected: 2 },
        attaches: true,
        instances: vec![
            instance("n1", Half::Controller, false),
            instance("n1", Half::Node, true),
            instance("n2", Half::Node, true),
        ],
    }
}

/// A node whose clock is ahead.
pub fn node() -> NodeStatus {
    NodeStatus {
        id: node_id("n1"),
        state: NodeState::Ready,
        since: ago(200_000),
        clock_skew_ms: 12,
        version: "0.1.0".to_owned(),
        boot_id: "7a3c".to_owned(),
        attributes: BTreeMap::from([("host".to_owned(), "rack-7".to_owned())]),
        instances: vec![instance("n1", Half::Controller, false), instance("n1", Half::Node, true)],
    }
}

/// A node that is down, without plugins.
pub fn node_down() -> NodeStatus {
    NodeStatus {
        id: node_id("n2"),
        state: NodeState::Down,
        clock_skew_ms: -3,
        instances: Vec::new(),
        ..node()
    }
}

/// An alloc with two volumes.
pub fn alloc() -> AllocStatus {
    let request = |source: &str, read_only| VolumeRequest {
        read_only,
        ..VolumeRequest::of(volume_id(source))
    };
    let own = VolumeRequest {
        alias: Some("scratch".to_owned()),
        per_alloc: true,
        ..request("disk", false)
    };
    AllocStatus {
        id: AllocId::new("web-0").unwrap(),
        namespace: Namespace::default(),
        state: AllocState::Failed,
        node: node_id("n1"),
        index: Some(2),
        since: ago(4000),
        note: Some("exit code 3".to_owned()),
        volumes: vec![request("data", false), request("models", true), own],
        claims: vec![stuck("web-0"), ClaimStatus { volume: volume_id("models"), ..stuck("web-0") }],
    }
}

/// Two allocs in a list.
pub fn allocs() -> Allocs {
    let idle = AllocStatus {
        id: AllocId::new("web-1").unwrap(),
        state: AllocState::Live,
        note: None,
        claims: Vec::new(),
        volumes: Vec::new(),
        ..alloc()
    };
    Allocs { allocs: vec![alloc(), idle] }
}
