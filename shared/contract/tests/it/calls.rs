//! Calls of attempts, their outcomes, and questions to a controller: what Berth's services send to
//! each other.

use std::collections::BTreeMap;

use berth_contract::decode::{self, Unknown};
use berth_contract::message::call::{
    Call, Called, ClaimCall, ClaimDetails, StorageCall, Validate, Validated,
};
use berth_contract::message::storage_call::{
    Answered, CopySource, GroupIds, GroupVolume, NewVolume, Question, StorageDetails, StorageQuery,
    StorageWork,
};
use berth_contract::message::work::{
    StorageCheckpoint, StorageCheckpointed, StorageReport, WorkCheckpoint, WorkCheckpointed,
    WorkReport,
};
use berth_domain::access::{AccessMode, AttachmentMode, Mode};
use berth_domain::volume::storage::OriginKind;
use berth_domain::volume::{
    CallKind, CallOwner, CreatedVolume, CutSnapshot, Outcome, State, StorageAnswer,
};

use crate::messages::{reply, request};
use crate::sample;
use crate::storage::{GIB, listed_snapshot, listed_volume};

pub fn claim_call(kind: CallKind) -> ClaimCall {
    let details = ClaimDetails {
        by: Some("user.anna".to_owned()),
        alloc: sample::alloc_id(),
        epoch: 41,
        node: sample::node_id(),
        external_node: Some("i-0abc".to_owned()),
        controller: Some(sample::node_id()),
        claims_beside: Some([sample::alloc_id()].into()),
        claims_beside_digest: Some(sample::allocs_digest()),
        unstaged_by: Some(sample::proof()),
        access: AccessMode::SingleNodeWriter,
        mode: Mode::Write,
        attachment: AttachmentMode::FileSystem,
        mount: sample::mount(),
        context: sample::map("pool", "p1"),
        span: sample::trail().attempt,
    };
    with_head(kind, details)
}

fn with_head<D>(call: CallKind, details: D) -> Call<D> {
    Call {
        call,
        attempt: sample::attempt_id(),
        revision: 42,
        deadline: sample::at(60),
        namespace: sample::namespace(),
        volume: sample::volume(),
        external_id: "vol-0a1b".to_owned(),
        plugin: sample::plugin(),
        ask_first: vec![sample::node_id()],
        secrets: Some(sample::secrets_id()),
        details,
    }
}

#[test]
fn calls_for_claims() {
    for kind in [CallKind::NodeDetach, CallKind::ControllerPublish, CallKind::ControllerUnpublish] {
        request(&format!("request-{}", kind.to_string().replace('.', "-")), &claim_call(kind));
    }
    request(
        "request-controller-validate",
        &Validate {
            namespace: sample::namespace(),
            volume: sample::volume(),
            external_id: "vol-0a1b".to_owned(),
            plugin: sample::plugin(),
            capabilities: vec![sample::capability()],
            mount: sample::mount(),
            context: sample::map("pool", "p1"),
            parameters: sample::map("tier", "gold"),
            secrets: Some(sample::secrets_id()),
        },
    );
    let publish_context = sample::map("device", "/dev/xvdba");
    reply("reply-call", &Called { publish_context, answer: None });
    reply(
        "reply-controller-validate",
        &Validated { confirmed: false, unknown: true, message: Some("no such volume".to_owned()) },
    );
}

fn call(call: CallKind, work: StorageWork) -> StorageCall {
    let details = StorageDetails {
        snapshot: Some(sample::snapshot_id()),
        others: Vec::new(),
        node: Some(sample::node_id()),
        work,
    };
    with_head(call, details)
}

fn of_volume(kind: CallKind, work: StorageWork) -> StorageCall {
    let mut call = call(kind, work);
    call.details.snapshot = None;
    call
}

fn anywhere(mut call: StorageCall) -> StorageCall {
    call.details.node = None;
    call
}

fn of_group(kind: CallKind, work: StorageWork) -> StorageCall {
    let volume = "orders-log".parse().unwrap();
    let others = vec![GroupVolume { volume, external_id: "vol-0a2b".to_owned() }];
    let mut call = call(kind, work);
    call.details.others = others;
    call
}

fn create_work() -> StorageWork {
    let origin = CopySource { kind: OriginKind::Snapshot, external_id: "snap-0c1d".to_owned() };
    StorageWork::Create(Box::new(NewVolume {
        name: sample::provision().name,
        required_bytes: 10 * GIB,
        limit_bytes: Some(20 * GIB),
        capabilities: vec![sample::capability()],
        mount: sample::mount(),
        parameters: sample::map("type", "gp3"),
        mutable_parameters: sample::map("iops", "3000"),
        topologies: vec![sample::map("zone", "a")],
        origin: Some(origin),
    }))
}

fn expand_work() -> StorageWork {
    StorageWork::Expand {
        required_bytes: 20 * GIB,
        limit_bytes: Some(25 * GIB),
        capability: sample::capability(),
        mount: sample::mount(),
    }
}

#[test]
fn calls_of_the_storage() {
    let creation = of_volume(CallKind::VolumeCreate, create_work());
    request("request-controller-provision", &anywhere(creation.clone()));
    request("request-controller-provision-on-node", &creation);
    let group = || GroupIds {
        group: "group-0e2f".to_owned(),
        snapshots: vec!["snap-0c1d".to_owned(), "snap-0c2d".to_owned()],
    };
    let name = "berth-snapshot-019bcb6ac57b-0123456789abcdef".to_owned();
    let parameters = sample::map("type", "full");
    for (what, call) in [
        ("delete", of_volume(CallKind::VolumeDelete, StorageWork::Delete)),
        ("expand", of_volume(CallKind::VolumeExpand, expand_work())),
        (
            "modify",
            of_volume(
                CallKind::VolumeModify,
                StorageWork::Modify { parameters: sample::map("iops", "6000") },
            ),
        ),
        (
            "snapshot",
            call(
                CallKind::SnapshotCreate,
                StorageWork::Snapshot {
                    name: name.clone(),
                    parameters: parameters.clone(),
                    cut: Some("snap-0c1d".to_owned()),
                },
            ),
        ),
        (
            "delete-snapshot",
            call(
                CallKind::SnapshotDelete,
                StorageWork::DeleteSnapshot { id: "snap-0c1d".to_owned() },
            ),
        ),
        (
            "group",
            of_group(
                CallKind::GroupCreate,
                StorageWork::Group {
                    name,
                    sources: vec!["vol-0a1b".to_owned(), "vol-0a2b".to_owned()],
                    parameters,
                    cut: Some(group()),
                },
            ),
        ),
        ("delete-group", of_group(CallKind::GroupDelete, StorageWork::DeleteGroup(group()))),
    ] {
        request(&format!("request-controller-provision-{what}"), &call);
    }
    request("request-agent-expand", &of_volume(CallKind::NodeExpand, expand_work()));
}

fn created() -> CreatedVolume {
    CreatedVolume {
        external_id: "vol-0a1b".to_owned(),
        capacity_bytes: 10 * GIB,
        context: sample::map("pool", "p1"),
        topologies: vec![sample::map("zone", "a")],
        is_copy: true,
        unusable: Some("answered with 65 topologies; at most 64 are taken".to_owned()),
    }
}

fn cut() -> CutSnapshot {
    CutSnapshot {
        external_id: "snap-0c1d".to_owned(),
        source: "vol-0a1b".to_owned(),
        size_bytes: 10 * GIB,
        cut_at: Some(sample::at(1)),
        ready: true,
        usable_from: vec![sample::map("zone", "a")],
    }
}

/// One of each answer.
fn answers() -> [StorageAnswer; 4] {
    [
        StorageAnswer::Volume(created()),
        StorageAnswer::Capacity { bytes: 20 * GIB, node_expansion_required: true },
        StorageAnswer::Snapshot(cut()),
        StorageAnswer::Group {
            external_id: "group-0e2f".to_owned(),
            ready: true,
            snapshots: vec![cut()],
        },
    ]
}

#[test]
fn answers_of_the_storage() {
    let [volume, capacity, snapshot, group] = answers().map(Called::from);
    reply("reply-controller-provision", &volume);
    reply("reply-controller-provision-on-node", &Called::default());
    reply("reply-controller-provision-snapshot", &snapshot);
    reply("reply-controller-provision-group", &group);
    reply("reply-agent-expand", &capacity);
}

#[test]
fn checkpoints_of_the_storage() {
    let report = |outcome| StorageReport::new(sample::attempt_id(), outcome);
    let checkpoint = |report| StorageCheckpoint {
        volume: sample::volume(),
        snapshot: Some(sample::snapshot_id()),
        worker: sample::worker(),
        report: Some(report),
        early: true,
        report_only: true,
    };
    let done = report(Outcome::Stored(StorageAnswer::Snapshot(cut())));
    request("request-volume-checkpoint", &checkpoint(done));
    let failed = report(Outcome::Failed("controller.snapshot: INTERNAL: no".into()));
    request("request-volume-checkpoint-failed", &checkpoint(failed));
    reply(
        "reply-volume-checkpoint",
        &StorageCheckpointed {
            pending: true,
            call: Some(of_volume(CallKind::VolumeCreate, create_work())),
            next_try: Some(sample::at(4)),
            trace: Some(sample::trace()),
        },
    );
}

#[test]
fn checkpoints_of_work() {
    let report = |outcome| WorkReport::new(sample::attempt_id(), outcome);
    let owners = [
        CallOwner::Claim(sample::alloc_id()),
        CallOwner::Volume,
        CallOwner::Snapshot(sample::snapshot_id()),
    ];
    let outcomes = [
        Outcome::Failed(sample::call_failure()),
        Outcome::Stored(StorageAnswer::Volume(created())),
        Outcome::Stored(StorageAnswer::Snapshot(cut())),
    ];
    for ((owner, outcome), name) in
        owners.into_iter().zip(outcomes).zip(["", "-volume", "-snapshot"])
    {
        let asked = WorkCheckpoint::new(sample::volume(), owner, sample::worker());
        let asked = WorkCheckpoint {
            report: Some(report(outcome)),
            early: true,
            report_only: true,
            ..asked
        };
        request(&format!("request-work-checkpoint{name}"), &asked);
    }
    let call = of_volume(CallKind::VolumeCreate, create_work());
    reply(
        "reply-work-checkpoint",
        &WorkCheckpointed {
            pending: true,
            state: Some(State::NodeDetached),
            call: Some(call.into()),
            next_try: Some(sample::at(4)),
        },
    );
}

/// What a volumewatcher reports of a call is what the claim service reads, whatever the plugin said
/// and returned.
#[test]
fn each_outcome_survives_its_report() {
    let plain = [
        Outcome::Done { publish_context: BTreeMap::new() },
        Outcome::Refused(sample::call_failure()),
        Outcome::NotDone(sample::call_failure()),
        Outcome::Failed(sample::call_failure()),
        Outcome::Exhausted(sample::call_failure()),
        Outcome::Unasked(sample::call_failure()),
        Outcome::Unanswered(sample::call_failure()),
    ];
    for outcome in plain.into_iter().chain(answers().map(Outcome::Stored)) {
        let report = WorkReport::new(sample::attempt_id(), outcome.clone());
        let bytes = serde_json::to_vec(&report).unwrap();
        let read = decode::message::<WorkReport>(&bytes, Unknown::Ignore);
        assert_eq!(read.unwrap().into_outcome(), outcome);
    }
}

#[test]
fn questions_to_a_controller() {
    let query = |question| StorageQuery { plugin: sample::plugin(), question };
    let token = || "page-2".to_owned();
    let volumes = query(Question::Volumes { token: token(), limit: 500 });
    request("request-controller-query", &volumes);
    request("request-controller-query-on-node", &volumes);
    let snapshots = Question::Snapshots { token: token(), limit: 500 };
    request("request-controller-query-snapshots", &query(snapshots));
    let volume = Question::Volume { id: "vol-0a1b".to_owned() };
    request("request-controller-query-volume", &query(volume));
    let capacity = Question::Capacity {
        capabilities: vec![sample::capability()],
        parameters: sample::map("type", "gp3"),
        topology: Some(sample::map("zone", "a")),
    };
    request("request-controller-query-capacity", &query(capacity));
    let answered = Answered {
        volumes: vec![listed_volume()],
        snapshots: vec![listed_snapshot()],
        next: Some(token()),
        available_bytes: Some(500 * GIB),
        max_volume_bytes: Some(100 * GIB),
        min_volume_bytes: Some(GIB),
    };
    reply("reply-controller-query", &answered);
    reply("reply-controller-query-on-node", &answered);
}

/// A call goes to the agent of its node, or to any controller of its plugin.
#[test]
fn each_call_has_its_subject() {
    let subject = |call: StorageCall| Call::from(call).subject();
    let any = anywhere(of_volume(CallKind::VolumeCreate, create_work()));
    assert_eq!(subject(any), "berth.v1.controller.ebs=2Ecsi=2Eaws=2Ecom.provision");
    let on_node = of_volume(CallKind::VolumeCreate, create_work());
    let there = "berth.v1.agent.host=2Eexample.controller.ebs=2Ecsi=2Eaws=2Ecom.provision";
    assert_eq!(subject(on_node), there);
    let node = of_volume(CallKind::NodeExpand, expand_work());
    assert_eq!(subject(node), "berth.v1.agent.host=2Eexample.expand");
}
