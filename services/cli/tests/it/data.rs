//! Replies with fixed contents.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::class::{ClassStatus, Classes};
use berth_contract::message::collect::Sweep;
use berth_contract::message::query::RefusedRequest;
use berth_contract::message::registry::{InstanceStatus, JobStatus, NodeStatus, PluginStatus};
use berth_contract::message::snapshot::SnapshotStub;
use berth_contract::message::storage::{
    Capacities, Externals, FailedOperation, OperationStatus, StorageStatus, StorageWait,
};
use berth_contract::message::volume::{
    Health, NodePlacement, Obstacle, Placements, VolumeDemand, VolumeStatus, VolumeStub, Volumes,
};
use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::plugin::{Count, Half, NodeState, UnaccountedMount};
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::volume::storage::{OperationKind, Origin, Reclaim, SnapshotState, Stage};
use berth_domain::volume::{
    Attempt, CallKind, Closing, HoldingProcess, MountDoubt, MountSummary, NodeMount,
    NodeMountState, State,
};
use berth_domain::{
    AllocId, AttemptId, ClassId, JobId, Namespace, NodeId, PluginId, SnapshotId, Timestamp,
    VolumeId, WorkerId,
};

/// The present time in all samples.
pub const NOW: Timestamp = Timestamp::from_unix_ms(1_795_300_000_000);

pub fn ago(s: u64) -> Timestamp {
    Timestamp::from_unix_ms(NOW.unix_ms() - s * 1000)
}

pub fn volume_id(id: &str) -> VolumeId {
    VolumeId::new(id).unwrap()
}

pub fn node_id(id: &str) -> NodeId {
    NodeId::new(id).unwrap()
}

fn plugin_id() -> PluginId {
    PluginId::new("ebs.csi.aws.com").unwrap()
}

const WRITER: Capability =
    Capability { access: AccessMode::SingleNodeWriter, attachment: AttachmentMode::FileSystem };

/// A claim that is taken and mounted.
pub fn taken(alloc: &str) -> ClaimStatus {
    ClaimStatus {
        namespace: Namespace::default(),
        volume: volume_id("data"),
        alloc: AllocId::new(alloc).unwrap(),
        state: State::Taken,
        node: node_id("n1"),
        mode: Mode::Write,
        since: ago(90),
        step: None,
        wait: None,
        waits_for: None,
        position: None,
        ahead: Vec::new(),
        exhausted: false,
        proof: None,
        unstaged_by: None,
        hint: None,
        tries: 0,
        failure: None,
        next_try: None,
        reason: None,
        attempt: None,
        plugin: Some(plugin_id()),
        external_id: Some("vol-0abc".to_owned()),
        stray: false,
        mount: Some(NodeMount {
            state: NodeMountState::Mounted,
            since: ago(89),
            rpc: None,
            tries: 0,
            error: None,
        }),
        epoch: 41,
        trace: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
    }
}

/// A claim whose release fails.
pub fn stuck(alloc: &str) -> ClaimStatus {
    ClaimStatus {
        state: State::Unpublishing,
        since: ago(4000),
        step: Some(CallKind::NodeDetach),
        waits_for: Some("the agent of node n1 to unmount it".to_owned()),
        hint: Some("start the agent of node n1, which is down".to_owned()),
        tries: 3,
        failure: Some("agent.detach: the agent of node n1 is not there: no responders".into()),
        next_try: Some(NOW.after(Duration::from_secs(7))),
        reason: Some("alloc stopped".to_owned()),
        attempt: Some(Attempt {
            id: AttemptId::new("01").unwrap(),
            call: CallKind::NodeDetach,
            worker: WorkerId::new("volumewatcher/host/1").unwrap(),
            deadline: NOW,
            bound: None,
        }),
        mount: None,
        ..taken(alloc)
    }
}

/// A claim in the queue.
pub fn in_line(alloc: &str) -> ClaimStatus {
    ClaimStatus {
        state: State::Waiting,
        waits_for: Some("its turn, after web-1 on n1 (taken), web-0 on n1 (waiting)".to_owned()),
        position: Some(1),
        ahead: vec![AllocId::new("web-1").unwrap(), AllocId::new("web-0").unwrap()],
        hint: Some("to end the first: `berth alloc stop web-1`".to_owned()),
        mount: None,
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
        provider: "csi.ebs".to_owned(),
        external_id: Some("vol-0a1b2c3d".to_owned()),
        capabilities: vec![
            WRITER,
            Capability { access: AccessMode::MultiNodeReaderOnly, ..WRITER },
        ],
        in_use: Some(WRITER),
        fs_type: Some("ext4".to_owned()),
        mount_flags: 2,
        mount_group: None,
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
            abnormal: Some(abnormal()),
        },
        exhausted: Some("RESOURCE_EXHAUSTED: 25 of 25".to_owned()),
        registered_twice: vec!["volume orders-copy".to_owned()],
        unaccounted: vec![format!("on node n3, {}", unaccounted())],
        mounts: vec![MountDoubt::mounted(&node_id("n3"), &unaccounted())],
        hint: Some("see why with `berth plugin status ebs.csi.aws.com`".to_owned()),
        last_refusal: Some(refused()),
        storage: Some(life()),
        snapshot_count: 2,
        claim_count: 4,
        claims: vec![taken("web-1"), stuck("web-0")],
        create_index: 40,
        modify_index: 44,
        unreadable: Vec::new(),
    }
}

/// An expansion that fails, of a volume that was restored from a snapshot.
fn life() -> StorageStatus {
    StorageStatus {
        stage: Stage::Ready,
        class: ClassId::new("fast").ok(),
        reclaim: Some(Reclaim::Retain),
        requested_bytes: Some(10_000_000_000),
        plugin_name: Some("berth-data-0af7".to_owned()),
        origin: Some(Origin {
            volume: volume_id("orders"),
            snapshot: SnapshotId::new("monday").ok(),
            external_id: "snap-1".to_owned(),
        }),
        for_alloc: AllocId::new("run-1").ok(),
        operation: Some(OperationStatus {
            operation: OperationKind::Expand,
            since: ago(30),
            call: "agent.expand".to_owned(),
            calling: false,
            tries: 2,
            next_try: Some(NOW.after(Duration::from_secs(4))),
            failure: Some("agent.expand: NodeExpandVolume: INTERNAL: busy".into()),
            uncertain: true,
            to_bytes: Some(20 << 30),
            nodes_left: vec![node_id("n1"), node_id("n2")],
            then_deleted: false,
            waits_for: Some(StorageWait::StagedAgain),
        }),
        failure: Some(FailedOperation {
            operation: OperationKind::Modify,
            at: ago(300),
            failure: "INVALID_ARGUMENT: iops".into(),
        }),
        faults: vec!["it created a volume of 1 bytes, and 2 were requested".to_owned()],
        mutable_parameters: BTreeMap::from([("iops".to_owned(), "3000".to_owned())]),
    }
}

/// Snapshots: one alone, a group, and one that the plugin refused.
pub fn snapshots() -> Vec<SnapshotStub> {
    let stub = SnapshotStub {
        namespace: Namespace::default(),
        volume: volume_id("data"),
        snapshot: SnapshotId::new("monday").unwrap(),
        state: SnapshotState::Ready,
        since: ago(4000),
        plugin: plugin_id(),
        external_id: Some("snap-1".to_owned()),
        second_id: None,
        foreign: false,
        size_bytes: Some(10 << 30),
        cut_at: Some(ago(4001)),
        usable_from: Vec::new(),
        group: Vec::new(),
        tries: 0,
        next_try: None,
        failure: None,
        uncertain: false,
        waits_for: None,
        create_index: 40,
        modify_index: 44,
    };
    let member = |volume: &str| SnapshotStub {
        volume: volume_id(volume),
        snapshot: SnapshotId::new("all").unwrap(),
        state: SnapshotState::Cut,
        group: vec![volume_id("data"), volume_id("logs")],
        tries: 3,
        next_try: Some(NOW.after(Duration::from_secs(4))),
        ..stub.clone()
    };
    let failed = SnapshotStub {
        snapshot: SnapshotId::new("tuesday").unwrap(),
        state: SnapshotState::Failed,
        size_bytes: None,
        cut_at: None,
        failure: Some("CreateSnapshot: INVALID_ARGUMENT: type".into()),
        ..stub.clone()
    };
    vec![member("data"), stub.clone(), failed, member("logs")]
}

/// A class with every field, and one with the required fields only.
pub fn classes() -> Classes {
    let read = |value| serde_json::from_value::<ClassStatus>(value).unwrap();
    let writer = serde_json::json!([WRITER]);
    let fast = read(serde_json::json!({
        "id": "fast", "plugin": plugin_id(), "parameters": {"type": "gp3"},
        "mutable_parameters": {"iops": "3000"}, "capabilities": writer,
        "mount": {"fs_type": "ext4", "flags": ["***"], "group": "1000"},
        "topology_policy": "first-use", "topologies": [{"zone": "a"}, {"zone": "b"}],
        "size": {"min_bytes": 1_u64 << 30, "max_bytes": 1_u64 << 40, "default_bytes": 10_u64 << 30},
        "reclaim": "retain", "namespaces": ["default", "team"],
        "quota": {"volumes": 10, "bytes": 1_u64 << 40},
        "used": {"volumes": 1, "bytes": 10_u64 << 30}, "index": 44,
    }));
    let plain = read(serde_json::json!({
        "id": "plain", "plugin": "nfs", "capabilities": writer,
        "used": {"volumes": 0, "bytes": 0}, "index": 45,
    }));
    Classes { classes: vec![fast, plain], next: None, unreadable: Vec::new() }
}

/// A plugin's volumes and snapshots, one of each kind of registration.
pub fn externals() -> Externals {
    serde_json::from_value(serde_json::json!({
        "plugin": plugin_id(),
        "volumes": [
            {"registration": "known", "external_id": "vol-1", "capacity_bytes": 10_u64 << 30,
                "topologies": [{"zone": "a"}], "published_on": ["i-1", "i-2"],
                "volume": "data", "namespace": "default"},
            {"registration": "known", "external_id": "vol-2"},
            {"registration": "not-registered", "external_id": "vol 3", "abnormal": "degraded"},
            {"registration": "not-listed", "external_id": "vol-4", "volume": "lost",
                "namespace": "default"},
        ],
        "snapshots": [
            {"registration": "known", "external_id": "snap-1", "source": "vol-1", "ready": true,
                "size_bytes": 10_u64 << 30, "volume": "data", "namespace": "default",
                "snapshot": "monday"},
            {"registration": "not-registered", "external_id": "snap-2", "source": "vol-9",
                "ready": false},
            {"registration": "not-listed", "external_id": "snap-3", "source": "", "ready": false,
                "volume": "lost", "namespace": "default", "snapshot": "x"},
        ],
    }))
    .unwrap()
}

/// The room of a plugin at two places, of which one did not answer.
pub fn capacities() -> Capacities {
    serde_json::from_value(serde_json::json!({
        "plugin": plugin_id(),
        "capacities": [
            {"topology": {"zone": "a"}, "available_bytes": 10_u64 << 40,
                "max_volume_bytes": 1_u64 << 40, "min_volume_bytes": 1_u64 << 30},
            {"topology": {"zone": "b"}, "error": "GetCapacity: UNAVAILABLE"},
            {},
        ],
    }))
    .unwrap()
}

fn abnormal() -> String {
    "plugin ebs.csi.aws.com says that the volume is not well: a disk is dying".to_owned()
}

/// Two volumes in a list; one id contains control characters.
pub fn volumes() -> Volumes {
    let stub = VolumeStub {
        id: volume_id("data"),
        namespace: Namespace::default(),
        name: "Orders".to_owned(),
        plugin: plugin_id(),
        provider: "ebs.csi.aws.com".to_owned(),
        external_id: Some("vol-1".to_owned()),
        capabilities: vec![WRITER],
        in_use: Some(WRITER),
        topologies: Vec::new(),
        readers: 0,
        writers: 1,
        releasing: 1,
        waiting: 0,
        healthy: true,
        controllers: Some(Count { healthy: 1, expected: 1 }),
        nodes: Some(Count { healthy: 2, expected: 2 }),
        abnormal: Some(abnormal()),
        closing: true,
        stage: None,
        operation: None,
        refused: None,
        class: ClassId::new("fast").ok(),
        capacity_bytes: Some(10 << 30),
        registered_twice: false,
        mount: MountSummary::default(),
        create_index: 40,
        modify_index: 44,
    };
    let idle = VolumeStub {
        id: volume_id("models/v2 (big)"),
        name: "a\u{1b}[2Jb".to_owned(),
        in_use: None,
        writers: 0,
        releasing: 0,
        healthy: false,
        abnormal: None,
        closing: false,
        stage: Some(Stage::Creating),
        operation: Some(OperationKind::Create),
        class: None,
        capacity_bytes: None,
        ..stub.clone()
    };
    Volumes { index: 44, volumes: vec![stub, idle], next: None, unreadable: Vec::new() }
}

fn instance(node: &str, half: Half, healthy: bool) -> InstanceStatus {
    InstanceStatus {
        plugin: plugin_id(),
        node: node_id(node),
        half,
        healthy,
        description: if healthy { "ready" } else { "probe: connection refused" }.to_owned(),
        shares_id_with: None,
        version: "1.30.0".to_owned(),
        since: ago(3600),
        process: healthy.then(|| HoldingProcess { pid: 4712, command: "ebs-plugin".to_owned() }),
        controller: None,
        abilities: None,
    }
}

/// A plugin with an unhealthy controller.
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
        jobs: vec![JobStatus {
            namespace: Namespace::default(),
            job: JobId::new("ebs-csi").unwrap(),
            controllers: 3,
            nodes: 2,
            since: ago(90_000),
        }],
    }
}

/// A node whose clock is ahead.
pub fn node() -> NodeStatus {
    NodeStatus {
        id: node_id("n1"),
        state: NodeState::Ready,
        since: ago(200_000),
        revision: 1042,
        clock_skew_ms: 12,
        version: "0.1.0".to_owned(),
        boot_id: "7a3c".to_owned(),
        attributes: BTreeMap::from([("host".to_owned(), "rack-7".to_owned())]),
        gone: None,
        back: None,
        unaccounted: vec![unaccounted()],
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

/// The declaration that nothing on `n3` can write.
pub fn proof() -> Proof {
    Proof {
        kind: ProofKind::PoweredOff,
        by: "ada@console".to_owned(),
        at: ago(90_000),
        note: "ticket 4711: PSU".to_owned(),
    }
}

/// A node that was declared gone, and is back, and is not ready yet.
pub fn node_gone() -> NodeStatus {
    let why = "node.unpublish: the target is busy".to_owned();
    NodeStatus {
        id: node_id("n3"),
        attributes: BTreeMap::from([("returning".to_owned(), why)]),
        gone: Some(proof()),
        ..node_down()
    }
}

/// A claim that the plugin refused.
pub fn refused() -> RefusedRequest {
    RefusedRequest {
        at: ago(200),
        step: "claim.take".to_owned(),
        code: Code::PluginRefused,
        message: "ControllerPublishVolume: NOT_FOUND: no such volume".to_owned(),
        volume: Some(volume_id("data")),
        alloc: AllocId::new("web-0").ok(),
        node: Some(node_id("n1")),
        trace: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
    }
}

/// One node that fits and one that does not.
pub fn placements() -> Placements {
    let obstacle = |volume, code, message: &str| Obstacle {
        volume: volume_id(volume),
        code,
        message: message.to_owned(),
        retryable: code != Code::Held,
        can_wait: true,
    };
    let node = |id, obstacles: Vec<Obstacle>| NodePlacement {
        node: node_id(id),
        fits: obstacles.is_empty(),
        fits_later: obstacles.iter().all(|obstacle| obstacle.can_wait),
        slots: Vec::new(),
        obstacles,
    };
    let held = obstacle("data", Code::Held, "the volume is held by alloc web-0 on node n1");
    let away = obstacle("data", Code::NodeDown, "node n2 is down since 2026-11-21T00:00:00.000Z");
    let missing = obstacle("logs", Code::NoSuchVolume, "the volume is not registered");
    let nodes = vec![node("n1", Vec::new()), node("n2", vec![held, away, missing])];
    let abnormal = Some(abnormal());
    let volumes =
        vec![VolumeDemand { volume: volume_id("data"), holding: 1, waiting: 2, abnormal }];
    Placements { index: 57, volumes, nodes, next: None }
}

pub fn sweep() -> Sweep {
    let line = |line: &str| line.to_owned();
    Sweep {
        collected: vec![
            line(
                "claim of alloc web-1 on volume default/data (epoch 41): the alloc does not exist; \
                 it is unpublishing now",
            ),
            line("alloc a of namespace x: it ended at … (failed) and has no claim; forgotten"),
        ],
        kept: vec![line("node n3: down since …, but there is the alloc a of namespace x, live")],
    }
}

/// A mount whose claim was lost.
pub fn unaccounted() -> UnaccountedMount {
    UnaccountedMount {
        namespace: Namespace::default(),
        volume: VolumeId::new("data").unwrap(),
        alloc: AllocId::new("web-9").unwrap(),
        path: "/var/lib/berth/csi/0a/1b/target".to_owned(),
        plugin: Some(PluginId::new("dev.berth").unwrap()),
        external_id: Some("vol-0abc".to_owned()),
        used: None,
    }
}
