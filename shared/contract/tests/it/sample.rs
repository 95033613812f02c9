//! One of each thing.

use std::collections::BTreeMap;

use berth_contract::code::Code;
use berth_contract::event::{Event, EventName, PluginCall};
use berth_contract::lease::{Holder, Leader, OwnerHolder};
use berth_contract::message::access::AccessReport;
use berth_contract::message::claim::Recover;
use berth_contract::message::digest::AllocsDigest;
use berth_contract::message::query::{LongPoll, Page, RefusedRequest};
use berth_contract::record::UnreadableRecord;
use berth_contract::service;
use berth_contract::trace::{SpanId, TraceContext};
use berth_contract::trail::Trail;
use berth_domain::access::{AccessMode, AttachmentMode, Capability, Mode};
use berth_domain::alloc::{Alloc, AllocState, VolumeRequest, VolumeType};
use berth_domain::class::{Class, ClassUse, Quota, SizeLimits, TopologyPolicy};
use berth_domain::owner::AllocOwner;
use berth_domain::plugin::{
    ControllerAbilities, Instance, Job, Node, NodeAbilities, NodeState, StorageTrouble,
};
use berth_domain::proof::{Proof, ProofKind};
use berth_domain::volume::storage::Reclaim;
use berth_domain::volume::{
    Attempt, CallFailure, CallKind, Claim, FailureFacts, HoldingProcess, MountDoubt, MountOptions,
    MountSummary, NodeMount, NodeMountState, Progress, State, VolumeSpec,
};
use berth_domain::{
    AllocId, AttemptId, ClassId, GrpcCode, JobId, Namespace, NodeId, OwnerId, PluginId, SecretsId,
    SnapshotId, Timestamp, VolumeId, VolumeKey, WorkerId,
};

mod at_storage;

pub use at_storage::*;

/// A public key of the form that services read: they refuse any other.
pub const SEALING_KEY: &str = "XATPNO76ZFDSSKD6T3VF3FWK374CWCX5BE2XDA57HQJ2F63F4NXJYPSP";

pub fn namespace() -> Namespace {
    Namespace::new("team a").unwrap()
}

pub fn volume() -> VolumeId {
    VolumeId::new("data").unwrap()
}

pub fn key() -> VolumeKey {
    VolumeKey::new(namespace(), volume())
}

pub fn page(after: &str) -> Page {
    Page { limit: Some(100), after: Some(after.to_owned()) }
}

pub fn newer(than: u64) -> LongPoll {
    LongPoll { than: Some(than), wait_ms: Some(500) }
}

pub fn alloc_id() -> AllocId {
    AllocId::new("web-1").unwrap()
}

pub fn allocs_digest() -> AllocsDigest {
    AllocsDigest::from_allocs([&alloc_id()])
}

pub fn job_id() -> JobId {
    JobId::new("ebs-csi").unwrap()
}

pub fn node_id() -> NodeId {
    NodeId::new("host.example").unwrap()
}

pub fn plugin() -> PluginId {
    PluginId::new("ebs.csi.aws.com").unwrap()
}

pub fn secrets_id() -> SecretsId {
    SecretsId::new("5f0c").unwrap()
}

pub fn worker() -> WorkerId {
    WorkerId::new("volumewatcher/host/42").unwrap()
}

pub fn attempt_id() -> AttemptId {
    AttemptId::new("019bcb6ac57b-0123456789abcdef").unwrap()
}

/// The first of January 2026, and so many seconds.
pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(1_767_225_600_000 + seconds * 1_000)
}

pub fn proof() -> Proof {
    Proof {
        kind: ProofKind::PoweredOff,
        by: "ada@console".to_owned(),
        at: at(0),
        note: "rack 4 burnt down".to_owned(),
    }
}

pub fn map(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

pub fn mount() -> MountOptions {
    MountOptions {
        fs_type: Some("ext4".to_owned()),
        flags: vec!["noatime".to_owned()],
        group: Some("1000".to_owned()),
    }
}

pub fn mount_summary() -> MountSummary {
    mount().summary()
}

pub fn capability() -> Capability {
    Capability { access: AccessMode::SingleNodeWriter, attachment: AttachmentMode::FileSystem }
}

pub fn snapshot_id() -> SnapshotId {
    SnapshotId::new("monday").unwrap()
}

pub fn class_id() -> ClassId {
    ClassId::new("fast").unwrap()
}

pub fn class() -> Class {
    Class {
        plugin: plugin(),
        parameters: map("type", "gp3"),
        mutable_parameters: map("iops", "3000"),
        capabilities: vec![capability()],
        mount: mount(),
        topology_policy: TopologyPolicy::FirstUse,
        topologies: vec![map("zone", "a")],
        size: SizeLimits {
            min_bytes: Some(1 << 30),
            max_bytes: Some(100 << 30),
            default_bytes: Some(10 << 30),
        },
        reclaim: Reclaim::Retain,
        namespaces: vec![namespace()],
        quota: Quota { volumes: Some(10), bytes: Some(500 << 30) },
        secrets: Some(secrets_id()),
    }
}

pub fn class_use() -> ClassUse {
    ClassUse { volumes: 2, bytes: 20 << 30 }
}

pub fn spec() -> VolumeSpec {
    VolumeSpec {
        closing: None,
        plugin: plugin(),
        name: "Data".to_owned().into(),
        external_id: Some("vol-0a1b".to_owned()),
        capabilities: vec![capability()].into(),
        mount: mount().into(),
        topologies: vec![map("zone", "a")].into(),
        capacity_bytes: Some(1 << 30),
        parameters: map("tier", "gold").into(),
        context: map("pool", "p1").into(),
        storage: None,
        secrets: Some(secrets_id()),
        create_index: 3,
    }
}

pub fn holder() -> Holder {
    Holder {
        node: node_id(),
        agent: "5d6c6b1f0c9e4a52".to_owned(),
        hostname: "host".to_owned(),
        boot_id: "3f0c5a0e-6d53-4b0e-9a58-0c6c0c2f7d11".to_owned(),
        pid: 812,
        since: at(0),
    }
}

pub fn owner_holder() -> OwnerHolder {
    let (by, holder) = (Some("user.anna".to_owned()), "host-4711".to_owned());
    OwnerHolder { owner: owner_id(), by, holder, since: at(0) }
}

pub fn leader() -> Leader {
    Leader { holder: WorkerId::new("gc/host/43").unwrap(), since: at(0) }
}

pub fn attempt() -> Attempt {
    Attempt {
        id: attempt_id(),
        call: CallKind::NodeDetach,
        worker: worker(),
        deadline: at(60),
        bound: None,
    }
}

/// A lost claim, by its node's journal.
pub fn recover() -> Recover {
    Recover {
        alloc: alloc_id(),
        volume: volume(),
        node: node_id(),
        plugin: plugin(),
        external_id: "vol-1".to_owned(),
        mode: Mode::Write,
        access: AccessMode::SingleNodeWriter,
        attachment: AttachmentMode::FileSystem,
    }
}

pub fn claim(state: State) -> Claim {
    let released = matches!(state, State::Unpublishing | State::NodeDetached);
    Claim {
        state,
        node: node_id(),
        mode: Mode::Write,
        progress: Progress {
            tries: if released { 3 } else { 0 },
            failure: released.then(|| Box::new(call_failure())),
            next_try: released.then(|| at(4)),
            attempt: (state == State::Unpublishing).then(attempt),
        },
        since: at(0),
        reason: released.then(|| "the alloc has ended".to_owned()),
        place_until: None,
        exhausted: false,
        denied: false,
        unstaged_by: None,
        proof: None,
        epoch: 41,
        access: AccessMode::SingleNodeWriter,
        attachment: AttachmentMode::FileSystem,
        controller: true,
        external_node: Some("i-0abc".to_owned()),
        publish_context: map("device", "/dev/xvdba"),
        mount: (state == State::Taken).then(node_mount),
        plugin: Some(plugin()),
        external_id: Some("vol-0abc".to_owned()),
    }
}

pub fn node_mount() -> NodeMount {
    NodeMount {
        state: NodeMountState::Hung,
        since: at(5),
        rpc: Some("NodeStageVolume".to_owned()),
        tries: 2,
        error: Some("agent.mount: no answer of plugin ebs.csi.aws.com yet".to_owned()),
    }
}

pub fn request() -> VolumeRequest {
    VolumeRequest {
        alias: Some("models".to_owned()),
        kind: VolumeType::Csi,
        source: volume(),
        per_alloc: true,
        read_only: true,
        access: Some(AccessMode::SingleNodeWriter),
        attachment: Some(AttachmentMode::FileSystem),
        mount: mount(),
    }
}

pub fn owner_id() -> OwnerId {
    OwnerId::new("scheduler-1").unwrap()
}

pub fn owner() -> AllocOwner {
    AllocOwner { unowned_since: Some(at(9)), ..AllocOwner::new(owner_id(), true) }
}

pub fn meta() -> BTreeMap<String, String> {
    BTreeMap::from([("job".to_owned(), "web".to_owned())])
}

pub fn alloc() -> Alloc {
    Alloc {
        state: AllocState::Live,
        node: node_id(),
        index: Some(0),
        volumes: vec![request()],
        since: at(0),
        note: Some("berth run: sleep".to_owned()),
        by: Some("user.anna".to_owned()),
        owner: Some(owner()),
        meta: meta(),
    }
}

pub fn job() -> Job {
    Job { controllers: 2, nodes: 5, since: at(0) }
}

pub fn instance() -> Instance {
    Instance {
        healthy: true,
        description: "it is ready".to_owned(),
        provider: "ebs.csi.aws.com".to_owned(),
        version: "1.2.3".to_owned(),
        since: at(0),
        controller: Some(ControllerAbilities {
            publish_unpublish_volume: true,
            ..ControllerAbilities::default()
        }),
        node: Some(NodeAbilities {
            external_node: "i-0abc".to_owned(),
            controller_service: true,
            stage_unstage_volume: true,
            max_volumes: Some(25),
            full: Some("RESOURCE_EXHAUSTED: no slot is free".to_owned()),
            storage: vec![StorageTrouble {
                unreachable: true,
                said: "it cannot be reached (PathDown): no route to 10.0.0.7".to_owned(),
                access: Some(AccessMode::SingleNodeWriter),
                attachment: Some(AttachmentMode::FileSystem),
                fs_type: Some("ext4".to_owned()),
            }],
            topology: map("zone", "a"),
            ..NodeAbilities::default()
        }),
        id_since: Some(at(0)),
        process: Some(HoldingProcess { pid: 4712, command: "ebs-plugin".to_owned() }),
    }
}

pub fn node() -> Node {
    Node {
        state: NodeState::Ready,
        since: at(0),
        clock_skew_ms: -3,
        version: "0.1.0".to_owned(),
        boot_id: "aaae2d42".to_owned(),
        reported: at(1),
        attributes: map("hostname", "host"),
        unaccounted: vec![unaccounted()],
        uncompared: false,
        sealing_key: Some(SEALING_KEY.to_owned()),
        hosts: [PluginId::new("ebs.csi.aws.com").unwrap()].into(),
        newcomer: Some(7),
        gone: None,
        back: None,
    }
}

pub fn trail() -> Trail {
    let step = |trace: u128, span: u64| {
        TraceContext::from_parts(trace, SpanId::new(span).unwrap(), true).unwrap()
    };
    Trail {
        claim: step(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, 0xb7ad_6b71_6920_3331),
        parent: SpanId::new(0x00f0_67aa_0ba9_02b7),
        since: at(0),
        release: step(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x53ce_929d_0e0e_4736),
        released: Some(at(9)),
        attempt: Some(step(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x3f31_a9c4_11d2_7b05)),
    }
}

pub fn unreadable() -> UnreadableRecord {
    UnreadableRecord {
        key: "default.data.claim.web-2".to_owned(),
        code: Code::NewerRecord,
        error: "the record has schema 9".to_owned(),
    }
}

/// A mount that no claim covers.
pub fn unaccounted() -> berth_domain::plugin::UnaccountedMount {
    berth_domain::plugin::UnaccountedMount {
        namespace: namespace(),
        volume: volume(),
        alloc: alloc_id(),
        path: "/var/lib/berth/csi/0a/1b/target".to_owned(),
        plugin: Some(plugin()),
        external_id: Some("vol-0abc".to_owned()),
        used: Some(berth_domain::volume::MountUse {
            mode: Mode::Write,
            access: AccessMode::SingleNodeWriter,
            attachment: AttachmentMode::FileSystem,
        }),
    }
}

/// The same mount, as decisions are told of it.
pub fn mount_doubt() -> MountDoubt {
    MountDoubt::mounted(&node_id(), &unaccounted())
}

pub fn refusal() -> RefusedRequest {
    RefusedRequest {
        at: at(0),
        step: "claim.take".to_owned(),
        code: Code::PluginRefused,
        message: "ControllerPublishVolume: NOT_FOUND: no such volume".to_owned(),
        volume: Some(volume()),
        alloc: Some(alloc_id()),
        node: Some(node_id()),
        trace: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
    }
}

pub fn event() -> Event {
    Event {
        namespace: Some(namespace()),
        volume: Some(volume()),
        alloc: Some(alloc_id()),
        node: Some(node_id()),
        plugin: Some(plugin()),
        detail: Some("by hand".to_owned()),
        trace: Some("0af7651916cd43dd8448eb211c80319c".to_owned()),
        claim_trace: Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned()),
        attempt: Some(attempt_id()),
        took_us: Some(21_500),
        calls: vec![PluginCall {
            rpc: "NodeUnpublishVolume".to_owned(),
            at: at(0),
            took_us: 7_200,
            code: "OK".to_owned(),
        }],
        ..Event::new(EventName::ClaimTaken, at(0), service::CLAIM)
    }
}

pub fn trace() -> TraceContext {
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned().try_into().unwrap()
}

pub fn access() -> AccessReport {
    let report = serde_json::json!({
        "identity": "node/n1",
        "missing": [{"publish": "berth.v1.claim.observe.*.*.*.node.n1"}],
        "remedy": "berth access node n1 --replace",
    });
    serde_json::from_value(report).unwrap()
}

/// All that may be known of a failed call.
pub fn call_failure() -> CallFailure {
    CallFailure {
        message: "agent.detach: no responders".to_owned(),
        facts: FailureFacts {
            code: Some(Code::VolumeHeldByProcess.into()),
            rpc: Some("NodeUnpublishVolume".to_owned()),
            grpc: Some(GrpcCode::Internal),
            node: Some(node_id()),
            processes: vec![HoldingProcess { pid: 4711, command: "postgres".to_owned() }],
            next: Some("end these processes".to_owned()),
            crashes: 1,
        },
    }
}
