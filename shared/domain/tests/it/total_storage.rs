//! The table of what each request does to a volume at its storage, in each of its states, as a
//! golden file. `INSTA_UPDATE=always` writes it again. The commit that changes a line says why the
//! change is safe.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use berth_domain::access::AccessMode;
use berth_domain::volume::storage::{
    Expansion, Operation, OperationKind, Provision, Snapshot, SnapshotState, SnapshotWish,
    StorageFailure, StorageLife, StorageProgress, Work,
};
use berth_domain::volume::{
    Attempt, Begin, CallKind, CallOwner, Command, Outcome, Progress, Refusal, State, Step,
    StorageAnswer, Volume, VolumeSpec, Write,
};
use berth_domain::{AttemptId, PluginId, SnapshotId, Timestamp};

use crate::fixture::{claim, dead, decide, live};
use crate::storage_event::{cut, provision, success, wish, with_provision};
use crate::world::{alloc, spec, take, worker};

const SHARED: AccessMode = AccessMode::MultiNodeMultiWriter;

fn base() -> VolumeSpec {
    spec(&[SHARED])
}

/// A volume with this life at the storage; created, if it has an id.
fn volume(external_id: Option<&str>, storage: StorageLife) -> Volume {
    let storage = StorageLife { provision: Some(provision("fleet-1")), ..storage };
    let spec = VolumeSpec {
        external_id: external_id.map(str::to_owned),
        capacity_bytes: external_id.map(|_| 10),
        storage: Some(Box::new(storage)),
        ..base()
    };
    Volume { spec: Some(spec), ..Volume::default() }
}

fn under_way(work: Work, progress: StorageProgress) -> Volume {
    let creates = matches!(work, Work::Create { .. });
    let operation = Some(Operation { work, since: Timestamp::default(), progress, mounted: None });
    let storage = StorageLife { operation, ..StorageLife::default() };
    volume((!creates).then_some("vol-1"), storage)
}

fn with_snapshot(volume: Volume, state: SnapshotState, progress: StorageProgress) -> Volume {
    let is_cut = !matches!(state, SnapshotState::Creating | SnapshotState::Failed);
    let snapshot = Snapshot {
        state,
        since: Timestamp::default(),
        progress,
        doomed: false,
        was_ready: state == SnapshotState::Deleting,
        second_id: None,
        home: None,
        foreign: false,
        external_id: is_cut.then(|| "snap-1".to_owned()),
        size_bytes: None,
        growing: false,
        cut_at: None,
        name: "cut-1".to_owned(),
        plugin: PluginId::new("p").unwrap(),
        source: "vol-1".to_owned(),
        topologies: Vec::new(),
        usable_from: Vec::new(),
        parameters: BTreeMap::new(),
        secrets: None,
        group: None,
        create_index: 1,
    };
    let snapshots = BTreeMap::from([(snapshot_id(), Box::new(snapshot))]).into();
    Volume { snapshots, ..volume }
}

fn snapshot_id() -> SnapshotId {
    SnapshotId::new("s1").unwrap()
}

/// An expansion to 20 bytes.
fn expansion(at_nodes: bool) -> Work {
    Work::Expand(Expansion { required_bytes: 20, at_nodes, ..Expansion::default() })
}

fn calling(attempt: Attempt) -> StorageProgress {
    let calls = Progress { attempt: Some(attempt), ..Progress::default() };
    StorageProgress { calls, ..StorageProgress::default() }
}

/// One call did not succeed.
fn failed(mut progress: StorageProgress) -> StorageProgress {
    progress.calls.tries = 1;
    progress
}

/// Nothing was called; a call may act; it was not answered; it failed, and is uncertain or not.
fn progresses(call: CallKind) -> [(&'static str, StorageProgress); 5] {
    let did_nothing = failed(StorageProgress::default());
    [
        ("not called", StorageProgress::default()),
        ("may act", calling(live(call))),
        ("unanswered", StorageProgress { uncertain: true, ..failed(calling(dead(call))) }),
        ("did nothing", did_nothing.clone()),
        ("uncertain", StorageProgress { uncertain: true, ..did_nothing }),
    ]
}

fn volumes() -> Vec<(String, Volume)> {
    let ready = || volume(Some("vol-1"), StorageLife::default());
    let failure = |operation| {
        let (at, failure) = (Timestamp::default(), "never".into());
        StorageLife {
            failure: Some(StorageFailure { operation, at, failure }),
            ..Default::default()
        }
    };
    let mut volumes = vec![
        ("unused".to_owned(), volume(None, StorageLife::default())),
        ("failed".to_owned(), volume(None, failure(OperationKind::Create))),
        ("ready".to_owned(), ready()),
        (
            "ready, deletion refused".to_owned(),
            volume(Some("vol-1"), failure(OperationKind::Delete)),
        ),
    ];
    for (name, work, call) in [
        ("creating", Work::Create { doomed: false }, CallKind::VolumeCreate),
        ("doomed", Work::Create { doomed: true }, CallKind::VolumeCreate),
        (
            "deleting",
            Work::Delete { reason: String::new(), replaced: None },
            CallKind::VolumeDelete,
        ),
        ("expanding", expansion(false), CallKind::VolumeExpand),
        (
            "modifying",
            Work::Modify { parameters: parameters("9"), replaced: None },
            CallKind::VolumeModify,
        ),
    ] {
        for (how, progress) in progresses(call) {
            volumes.push((format!("{name}, {how}"), under_way(work.clone(), progress)));
        }
    }
    let inherited = failed(calling(live(CallKind::VolumeModify)));
    let inherited = StorageProgress { inherited: true, ..inherited };
    let deleting = Work::Delete { reason: String::new(), replaced: None };
    volumes.push(("deleting, after a change".to_owned(), under_way(deleting, inherited)));
    let nodes = expansion(true);
    volumes.push(("expanding at nodes".to_owned(), under_way(nodes, StorageProgress::default())));
    for (state, call) in [
        (SnapshotState::Creating, CallKind::SnapshotCreate),
        (SnapshotState::Cut, CallKind::SnapshotCreate),
        (SnapshotState::Deleting, CallKind::SnapshotDelete),
    ] {
        for (how, progress) in progresses(call) {
            let volume = with_snapshot(ready(), state, progress);
            volumes.push((format!("snapshot {state}, {how}"), volume));
        }
    }
    let mut unfinished =
        with_snapshot(ready(), SnapshotState::Deleting, StorageProgress::default());
    let never_ready = |snapshot: &mut Box<Snapshot>| snapshot.was_ready = false;
    unfinished.snapshots.change(|all| all.values_mut().for_each(never_ready));
    volumes.push(("snapshot deleting, never ready".to_owned(), unfinished));
    for state in [SnapshotState::Ready, SnapshotState::Failed] {
        let volume = with_snapshot(ready(), state, StorageProgress::default());
        volumes.push((format!("snapshot {state}"), volume));
    }
    let mut held = ready();
    held.claims.insert(alloc("a1"), claim(SHARED, State::Taken, "n1"));
    volumes.push(("held".to_owned(), held));
    let mut expanded = under_way(expansion(true), StorageProgress::default());
    expanded.claims.insert(alloc("a1"), claim(SHARED, State::Taken, "n1"));
    volumes.push(("held, expanding at nodes".to_owned(), expanded));
    volumes
}

fn parameters(iops: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("iops".to_owned(), iops.to_owned())])
}

/// What the call that is under way may be answered with, of its owner.
fn answers(volume: &Volume) -> Vec<(String, Command)> {
    let of_snapshot = volume.snapshots.values().next().map(|snapshot| &snapshot.progress);
    let of_operation = volume.spec.as_ref().and_then(|it| it.operation()).map(|it| &it.progress);
    let owner = of_snapshot.map(|_| snapshot_id());
    let Some(progress) = of_snapshot.or(of_operation) else { return Vec::new() };
    let Some(attempt) = &progress.calls.attempt else { return Vec::new() };
    let no = || "no".into();
    let mut outcomes = vec![
        ("done", success(volume, owner.as_ref(), attempt.call, true)),
        ("refused", Outcome::Refused(no())),
        ("failed", Outcome::Failed(no())),
        ("did nothing", Outcome::NotDone(no())),
        ("no room", Outcome::Exhausted(no())),
        ("not asked", Outcome::Unasked(no())),
        ("no answer", Outcome::Unanswered(no())),
        ("of another call", Outcome::Stored(StorageAnswer::Snapshot(cut(false)))),
    ];
    if attempt.call == CallKind::SnapshotCreate {
        outcomes.pop();
        outcomes.push(("done, not ready", success(volume, owner.as_ref(), attempt.call, false)));
    }
    let settle = |(name, outcome): (&str, Outcome)| {
        let (snapshot, attempt) = (owner.clone(), attempt.id.clone());
        (
            format!("answer: {name}"),
            Command::Answer {
                owner: CallOwner::of_storage(snapshot),
                attempt,
                outcome,
                worker: None,
            },
        )
    };
    outcomes.into_iter().map(settle).collect()
}

fn commands(volume: &Volume) -> Vec<(String, Command)> {
    let create = |provision: Provision| Command::Create(with_provision(base(), provision));
    let other = Provision { required_bytes: 7, ..provision("fleet-2") };
    let expand = |required_bytes, offline, when_free| Command::Expand {
        required_bytes,
        limit_bytes: None,
        offline,
        node_only: false,
        when_free,
    };
    let drive = |snapshot: Option<SnapshotId>, wanted| {
        Command::Begin(Begin {
            owner: CallOwner::of_storage(snapshot),
            worker: worker(),
            wanted,
            early: false,
            proven: None,
            executor: None,
        })
    };
    let deregister = |force| Command::Deregister { force, reason: "gone".to_owned() };
    let wish = SnapshotWish { name: "cut-2".to_owned(), ..wish() };
    let named = volume
        .spec
        .as_ref()
        .map(|spec| Command::Register(VolumeSpec { name: "b".to_owned().into(), ..spec.clone() }));
    let stale = AttemptId::new("another").unwrap();
    let (attempt, outcome) = (stale, Outcome::Refused("no".into()));
    let commands = [
        ("create the same", create(provision("fleet-2"))),
        ("create another", create(other)),
        ("delete", Command::Delete { reason: "asked".to_owned() }),
        ("expand to 5", expand(5, false, false)),
        ("expand to 20", expand(20, false, false)),
        ("expand to 30", expand(30, false, false)),
        ("expand to 30, offline", expand(30, true, false)),
        ("expand to 30, when free", expand(30, true, true)),
        ("modify", Command::Modify { parameters: parameters("9") }),
        ("modify otherwise", Command::Modify { parameters: parameters("8") }),
        ("cut a snapshot", Command::CutSnapshot { snapshot: snapshot_id(), wish }),
        (
            "delete the snapshot",
            Command::DeleteSnapshot { snapshot: snapshot_id(), as_group: false, forget: false },
        ),
        ("drive", drive(None, true)),
        ("drive, run over", drive(None, false)),
        ("drive the snapshot", drive(Some(snapshot_id()), true)),
        ("take", Command::Take(take("a2", "n1"))),
        ("register another name", named.unwrap_or(Command::Reserve)),
        ("deregister", deregister(false)),
        ("deregister by force", deregister(true)),
        (
            "answer of another attempt",
            Command::Answer { owner: CallOwner::Volume, attempt, outcome, worker: None },
        ),
    ];
    let commands = commands.map(|(name, command)| (name.to_owned(), command));
    commands.into_iter().chain(answers(volume)).collect()
}

/// The write, `+` the call that is made or `~` one that is kept; or the name of the refusal.
fn words(decided: &Result<Step, Refusal>) -> String {
    let step = match decided {
        Ok(step) => step,
        Err(refusal) => {
            let all = format!("{refusal:?}");
            return format!("- {}", all.split(['(', ' ']).next().unwrap_or_default());
        }
    };
    let (what, progress) = match &step.write {
        None => ("nothing".to_owned(), None),
        Some(Write::DeleteSpec) => ("spec deleted".to_owned(), None),
        Some(Write::DeleteSnapshot(_)) => ("snapshot deleted".to_owned(), None),
        Some(Write::PutSpec(spec)) => {
            let operation = spec.operation();
            let work = operation.map(|it| match it.work {
                Work::Create { doomed: true } => ", doomed".to_owned(),
                _ => format!(", {}", it.kind()),
            });
            let failure = spec.failure().map(|failure| format!(", {} refused", failure.operation));
            let texts = [work, failure].map(Option::unwrap_or_default).concat();
            (format!("{}{texts}", spec.stage()), operation.map(|it| &it.progress))
        }
        Some(Write::PutSnapshot(_, snapshot)) => {
            let doomed = if snapshot.doomed { ", doomed" } else { "" };
            (format!("snapshot {}{doomed}", snapshot.state), Some(&snapshot.progress))
        }
        Some(Write::PutClaim(_, claim)) => (format!("claim {}", claim.state), None),
        Some(Write::DeleteClaim(_)) => ("claim freed".to_owned(), None),
    };
    let made = step.call.as_ref().map(|call| format!(" + {}", call.call));
    let kept =
        progress.and_then(|it| it.calls.attempt.as_ref()).map(|it| format!(" ~ {}", it.call));
    let call = made.or(kept).unwrap_or_default();
    let uncertain = progress.is_some_and(|it| it.uncertain);
    format!("{what}{call}{}", if uncertain { " uncertain" } else { "" })
}

/// Every state of the storage, every request, every answer.
#[test]
fn every_command_at_the_storage() {
    let mut table = String::new();
    let absent = ("not there".to_owned(), Volume::default());
    for (name, volume) in std::iter::once(absent).chain(volumes()) {
        writeln!(table, "{name}").unwrap();
        for (command, asked) in commands(&volume) {
            writeln!(table, "    {command:<28}{}", words(&decide(&volume, &asked))).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
