//! Volumes at their storage, snapshots and classes: what clients send.

use std::collections::BTreeMap;

use berth_contract::advice::Advice;
use berth_contract::code::Code;
use berth_contract::document::{Format, read};
use berth_contract::message::secret::{Sealed, Secrets};
use berth_contract::message::storage::{self, SentSecrets};
use berth_contract::message::storage_call::{PluginSnapshotStatus, PluginVolumeStatus};
use berth_contract::message::volume::GivenSecrets;
use berth_contract::message::{class, snapshot};
use berth_contract::problem::Problem;
use berth_domain::class::{Class, TopologyPolicy};
use berth_domain::size::Size;
use berth_domain::volume::storage::{OperationKind, Reclaim, SnapshotState, Stage};
use berth_domain::volume::{CallKind, MountOptions, SecretCall};
use berth_domain::{VolumeId, limits};
use serde_json::json;

use crate::messages::{reply, request};
use crate::sample;

pub const GIB: u64 = 1 << 30;

fn size(gib: u64) -> Size {
    Size::new(gib * GIB).unwrap()
}

/// A volume that says all itself.
fn create() -> storage::Create {
    storage::Create {
        id: sample::volume(),
        namespace: Some(sample::namespace()),
        name: Some("Data".to_owned()),
        class: None,
        plugin: Some(sample::plugin()),
        size: Some(size(10)),
        limit: Some(size(20)),
        capabilities: vec![sample::capability()],
        mount: sample::mount(),
        parameters: sample::map("type", "gp3"),
        mutable_parameters: sample::map("iops", "3000"),
        topologies: vec![sample::map("zone", "a")],
        topology_policy: Some(TopologyPolicy::FirstUse),
        reclaim: Some(Reclaim::Delete),
        origin: None,
        for_alloc: Some(sample::alloc_id()),
        node: Some(sample::node_id()),
        secrets: Some(SentSecrets::Given(GivenSecrets::Plain(Secrets(sample::map(
            "create/password",
            "hunter2",
        ))))),
    }
}

/// The least that a volume of a class says.
fn create_of_class() -> storage::Create {
    storage::Create {
        class: Some(sample::class_id()),
        plugin: None,
        limit: None,
        capabilities: Vec::new(),
        mount: MountOptions::default(),
        parameters: BTreeMap::new(),
        mutable_parameters: BTreeMap::new(),
        topologies: Vec::new(),
        topology_policy: None,
        reclaim: None,
        for_alloc: None,
        secrets: None,
        ..create()
    }
}

pub fn storage_status() -> storage::StorageStatus {
    storage::StorageStatus {
        stage: Stage::Ready,
        class: Some(sample::class_id()),
        reclaim: Some(Reclaim::Retain),
        requested_bytes: Some(10 * GIB),
        plugin_name: Some(sample::provision().name),
        origin: Some(sample::origin()),
        for_alloc: Some(sample::alloc_id()),
        operation: Some(storage::OperationStatus {
            operation: OperationKind::Expand,
            since: sample::at(0),
            call: CallKind::NodeExpand.to_string(),
            calling: true,
            tries: 2,
            next_try: Some(sample::at(4)),
            failure: Some("agent.expand: INTERNAL: resize2fs failed".into()),
            uncertain: true,
            to_bytes: Some(20 * GIB),
            nodes_left: vec![sample::node_id()],
            then_deleted: false,
            waits_for: Some(storage::StorageWait::VolumeFree),
        }),
        failure: Some(storage::FailedOperation {
            operation: OperationKind::Modify,
            at: sample::at(0),
            failure: "ControllerModifyVolume: INVALID_ARGUMENT: no such parameter".into(),
        }),
        faults: vec!["it created a volume of 9 bytes, and 10 were requested".to_owned()],
        mutable_parameters: sample::map("iops", "3000"),
    }
}

fn changed() -> storage::StorageChanged {
    storage::StorageChanged {
        id: sample::volume(),
        namespace: sample::namespace(),
        changed: true,
        gone: false,
        index: 42,
        storage: Some(storage_status()),
        secrets: Some(storage::SecretsOrigin::Source),
    }
}

#[test]
fn changes_of_a_volume_at_its_storage() {
    request("request-volume-create", &create());
    request("request-volume-create-of-class", &create_of_class());
    let from = storage::CopyFrom {
        volume: VolumeId::new("orders").unwrap(),
        snapshot: Some(sample::snapshot_id()),
        with_secrets: true,
    };
    request(
        "request-volume-create-copy",
        &storage::Create { origin: Some(from), ..create_of_class() },
    );
    request(
        "request-volume-delete",
        &storage::DeleteVolume {
            id: sample::volume(),
            reason: "no longer needed".to_owned(),
            create_index: Some(3),
        },
    );
    request(
        "request-volume-expand",
        &storage::Expand {
            id: sample::volume(),
            size: size(20),
            limit: Some(size(25)),
            when_free: true,
        },
    );
    let parameters = sample::map("iops", "6000");
    request("request-volume-modify", &storage::Modify { id: sample::volume(), parameters });
    let operation = |operation: OperationKind, call: CallKind| {
        let status = storage_status();
        let known = status.operation.unwrap();
        let shown = storage::OperationStatus {
            operation,
            call: call.to_string(),
            to_bytes: None,
            nodes_left: Vec::new(),
            then_deleted: operation == OperationKind::Create,
            waits_for: None,
            ..known
        };
        let storage = storage::StorageStatus { operation: Some(shown), ..storage_status() };
        storage::StorageChanged { storage: Some(storage), ..changed() }
    };
    let creating = operation(OperationKind::Create, CallKind::VolumeCreate);
    let storage = creating.storage.map(|storage| storage::StorageStatus {
        stage: Stage::Creating,
        failure: None,
        faults: Vec::new(),
        ..storage
    });
    reply("reply-volume-create", &storage::StorageChanged { storage, ..changed() });
    let gone = storage::StorageChanged { gone: true, storage: None, ..changed() };
    reply("reply-volume-delete", &gone);
    reply("reply-volume-expand", &changed());
    reply("reply-volume-modify", &operation(OperationKind::Modify, CallKind::VolumeModify));
}

/// A document that is sent sealed is the same document, and what is read of it is what was sent.
#[test]
fn documents_carry_their_secrets_in_either_form() {
    let sealed = || {
        let sealed = Sealed { from: "XDV7".to_owned(), sealed: "eGt2MQ==".to_owned() };
        Some(SentSecrets::Given(GivenSecrets::Sealed(sealed)))
    };
    let plain = || Some(SentSecrets::Given(GivenSecrets::Plain(Secrets::default())));
    for secrets in [None, plain(), sealed()] {
        let sent = storage::Create { secrets: secrets.clone(), ..create() };
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(read::<storage::Create>(&text, Format::Json).unwrap(), sent);
        assert_eq!(text.contains("\"sealed_secrets\""), secrets == sealed(), "{text}");
        let sent = class::PutClass { secrets, ..put_class() };
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(read::<class::PutClass>(&text, Format::Json).unwrap(), sent);
    }
}

pub fn listed_volume() -> PluginVolumeStatus {
    PluginVolumeStatus {
        external_id: "vol-0a1b".to_owned(),
        capacity_bytes: Some(10 * GIB),
        context: sample::map("pool", "p1"),
        topologies: vec![sample::map("zone", "a")],
        published_on: Some(vec!["i-0abc".to_owned()]),
        abnormal: Some("the backend lost a disk".to_owned()),
    }
}

pub fn listed_snapshot() -> PluginSnapshotStatus {
    PluginSnapshotStatus {
        topologies: vec![sample::map("zone", "a")],
        external_id: "snap-0c1d".to_owned(),
        source: "vol-0a1b".to_owned(),
        size_bytes: Some(10 * GIB),
        cut_at: Some(sample::at(0)),
        ready: true,
        usable_from: vec![sample::map("zone", "a")],
        group: Some("group-0e2f".to_owned()),
    }
}

#[test]
fn what_a_plugin_has() {
    request(
        "request-volume-external",
        &storage::ListExternals {
            plugin: sample::plugin(),
            snapshots: true,
            id: Some("snap-0c1d".to_owned()),
            page: sample::page("{\"not-listed\":[\"snap-0c1b\",\"default/data@monday\"]}"),
        },
    );
    let externals = |volumes, snapshots| storage::Externals {
        plugin: sample::plugin(),
        volumes,
        snapshots,
        next: Some("[\"known\",\"vol-1\",\"\"]".to_owned()),
        truncated: true,
        not_asked: vec!["node host.other: the agent does not answer".to_owned()],
    };
    let volume = |registration, is_named: bool| storage::ExternalVolume {
        registration,
        listed: listed_volume(),
        volume: is_named.then(sample::volume),
        namespace: is_named.then(sample::namespace),
    };
    let volumes = vec![
        volume(storage::Registration::Known, true),
        volume(storage::Registration::NotRegistered, false),
    ];
    reply("reply-volume-external", &externals(volumes, Vec::new()));
    let snapshot = storage::ExternalSnapshot {
        registration: storage::Registration::NotListed,
        listed: listed_snapshot(),
        volume: Some(sample::volume()),
        namespace: Some(sample::namespace()),
        snapshot: Some(sample::snapshot_id()),
    };
    reply("reply-volume-external-snapshots", &externals(Vec::new(), vec![snapshot]));
    request(
        "request-plugin-capacity",
        &storage::ListCapacities {
            plugin: None,
            class: Some(sample::class_id()),
            topology: Some(sample::map("zone", "a")),
        },
    );
    let room = storage::CapacityAt {
        topology: Some(sample::map("zone", "a")),
        available_bytes: Some(500 * GIB),
        max_volume_bytes: Some(100 * GIB),
        min_volume_bytes: Some(GIB),
        error: None,
    };
    let unknown = storage::CapacityAt {
        topology: Some(sample::map("zone", "b")),
        available_bytes: None,
        max_volume_bytes: None,
        min_volume_bytes: None,
        error: Some("controller.query: plugin ebs.csi.aws.com has no healthy controller".into()),
    };
    let capacities = vec![room, unknown];
    reply("reply-plugin-capacity", &storage::Capacities { plugin: sample::plugin(), capacities });
}

#[test]
fn snapshots() {
    request(
        "request-snapshot-create",
        &snapshot::CreateSnapshot {
            snapshot: sample::snapshot_id(),
            volumes: vec![sample::volume(), VolumeId::new("logs").unwrap()],
            group: true,
            parameters: sample::map("type", "full"),
        },
    );
    request(
        "request-snapshot-delete",
        &snapshot::DeleteSnapshot {
            volume: sample::volume(),
            snapshot: sample::snapshot_id(),
            group: true,
            forget: true,
            create_index: Some(57),
        },
    );
    request(
        "request-snapshot-adopt",
        &snapshot::AdoptSnapshot {
            volume: sample::volume(),
            snapshot: sample::snapshot_id(),
            plugin: sample::plugin(),
            external_id: "snap-0c1d".to_owned(),
        },
    );
    request(
        "request-snapshot-list",
        &snapshot::ListSnapshots {
            volume: Some(sample::volume()),
            prefix: "mon".to_owned(),
            plugin: Some(sample::plugin()),
            page: sample::page("team=20a.data.snapshot.monday"),
            newer: sample::newer(56),
        },
    );
    let stub = |state: SnapshotState| snapshot::SnapshotStub {
        namespace: sample::namespace(),
        volume: sample::volume(),
        snapshot: sample::snapshot_id(),
        state,
        since: sample::at(0),
        plugin: sample::plugin(),
        external_id: Some("snap-0c1d".to_owned()),
        second_id: (state == SnapshotState::Cut).then(|| "snap-0c1e".to_owned()),
        foreign: state == SnapshotState::Cut,
        size_bytes: Some(10 * GIB),
        cut_at: Some(sample::at(1)),
        usable_from: vec![sample::map("zone", "a")],
        group: vec![sample::volume(), VolumeId::new("logs").unwrap()],
        tries: 2,
        next_try: Some(sample::at(4)),
        failure: Some("controller.snapshot: UNAVAILABLE: the backend is away".into()),
        uncertain: state == SnapshotState::Creating,
        waits_for: Some(storage::StorageWait::Controller),
        create_index: 40,
        modify_index: 42,
    };
    let changed = |changed, snapshots| snapshot::SnapshotsChanged { changed, snapshots };
    reply("reply-snapshot-create", &changed(true, vec![stub(SnapshotState::Creating)]));
    reply("reply-snapshot-delete", &changed(true, Vec::new()));
    reply("reply-snapshot-adopt", &changed(false, vec![stub(SnapshotState::Ready)]));
    reply(
        "reply-snapshot-list",
        &snapshot::Snapshots {
            index: 57,
            snapshots: vec![stub(SnapshotState::Cut)],
            next: Some("team=20a.data.snapshot.monday".to_owned()),
            unreadable: vec![sample::unreadable()],
        },
    );
}

fn put_class() -> class::PutClass {
    let Class { plugin, parameters, mutable_parameters, capabilities, mount, .. } = sample::class();
    let Class { topology_policy, topologies, reclaim, namespaces, .. } = sample::class();
    class::PutClass {
        id: sample::class_id(),
        plugin,
        parameters,
        mutable_parameters,
        capabilities,
        mount,
        topology_policy,
        topologies,
        min_size: Some(size(1)),
        max_size: Some(size(100)),
        default_size: Some(size(10)),
        reclaim,
        namespaces,
        quota_volumes: Some(10),
        quota_size: Some(size(500)),
        secrets: Some(SentSecrets::Given(GivenSecrets::Plain(Secrets(sample::map(
            "create/password",
            "hunter2",
        ))))),
    }
}

#[test]
fn classes() {
    request("request-class-put", &put_class());
    // The document says all that the record says.
    assert_eq!(put_class().to_class(Some(sample::secrets_id())), sample::class());
    reply(
        "reply-class-put",
        &class::WrittenClass { id: sample::class_id(), changed: true, index: 42 },
    );
    request("request-class-delete", &class::DeleteClass { id: sample::class_id() });
    reply("reply-class-delete", &class::DeletedClass { id: sample::class_id() });
    request(
        "request-class-list",
        &class::ListClasses {
            id: Some(sample::class_id()),
            prefix: "fa".to_owned(),
            page: sample::page("=class.fast"),
        },
    );
    let mount = sample::mount().struck_out();
    let status = class::ClassStatus {
        id: sample::class_id(),
        class: Class { mount, secrets: None, ..sample::class() },
        has_secrets: true,
        used: sample::class_use(),
        index: 42,
    };
    let unreadable = vec![sample::unreadable()];
    reply(
        "reply-class-list",
        &class::Classes { classes: vec![status], next: Some("=class.fast".to_owned()), unreadable },
    );
}

/// A scheduler waits for a volume that is being created, and gives one up whose creation failed.
#[test]
fn a_volume_that_is_not_ready_is_waited_for_if_it_gets_ready_by_itself() {
    let not_ready = || Problem::new(Code::VolumeNotReady, "the volume is creating");
    assert_eq!(not_ready().retryable().advice(), Advice::Wait);
    assert_eq!(not_ready().advice(), Advice::Never);
}

#[test]
fn secrets_go_to_the_calls_that_they_are_for() {
    let given = [("a", "1"), ("b", "2"), ("create/b", "3"), ("create/c", "4"), ("delete/c", "5")];
    let secrets = Secrets(given.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let of = |call| serde_json::to_value(secrets.clone().for_call(call)).unwrap();
    assert_eq!(of(SecretCall::Create), json!({"a": "1", "b": "3", "c": "4"}));
    assert_eq!(of(SecretCall::Delete), json!({"a": "1", "b": "2", "c": "5"}));
    assert_eq!(of(SecretCall::Publish), json!({"a": "1", "b": "2"}));
    let of = |calls: &[SecretCall]| {
        let kept = secrets.clone().for_calls(&calls.iter().copied().collect());
        serde_json::to_value(kept).unwrap()
    };
    assert_eq!(of(&[]), json!({"a": "1", "b": "2"}));
    let kept = json!({"a": "1", "b": "2", "create/b": "3", "create/c": "4"});
    assert_eq!(of(&[SecretCall::Create, SecretCall::Stage]), kept);
}

/// The longest list of a request fits the longest group.
#[test]
fn a_group_is_as_long_as_a_list() {
    let volumes = |many: usize| -> Vec<String> { (0..many).map(|at| format!("v{at}")).collect() };
    let read = |many: usize| {
        let document = json!({"snapshot": "s", "volumes": volumes(many)}).to_string();
        read::<snapshot::CreateSnapshot>(&document, Format::Json)
    };
    assert_eq!(read(limits::GROUP_MAX).unwrap().volumes.len(), limits::GROUP_MAX);
    assert_eq!(read(limits::GROUP_MAX + 1).unwrap_err()[0].path, "volumes");
}
