//! The executor's rules, without a plugin.

use std::sync::atomic::{AtomicUsize, Ordering};

use berth_contract::message::call::{Call, StorageCall};
use berth_contract::message::storage_call::{GroupVolume, StorageDetails, StorageWork};
use berth_domain::volume::CallKind;
use berth_domain::{Namespace, VolumeId};
use tokio::sync::oneshot;

use super::*;

fn volume() -> VolumeKey {
    VolumeKey::new(Namespace::default(), VolumeId::new("data").unwrap())
}

fn plugin_volume(external_id: &str) -> PluginVolume {
    PluginVolume::new(&PluginId::new("p").unwrap(), external_id)
}

fn turn(revision: u64, within_ms: u64) -> WorkTurn {
    let deadline = clock::now().after(Duration::from_millis(within_ms));
    WorkTurn::new(plugin_volume("vol-1"), deadline).in_order(volume(), revision)
}

/// Work that must not begin.
async fn never() -> Result<(), Problem> {
    tokio::task::yield_now().await;
    panic!("it began")
}

fn code<T>(answer: Result<T, Problem>) -> Code {
    answer.err().expect("a refusal").code
}

/// Safety 8: a command of an old attempt does nothing.
#[tokio::test]
async fn what_is_late_or_old_does_not_begin() {
    let executor = VolumeExecutor::new(StartRevision(0));
    let past = WorkTurn { deadline: Timestamp::from_unix_ms(1), ..turn(9, 0) };
    assert_eq!(code(executor.run(past, never()).await), Code::Late);
    // A request whose caller has gone has no time left.
    assert_eq!(code(executor.run(turn(9, 0), never()).await), Code::Late);
    executor.run(turn(5, 5_000), async { Ok(()) }).await.unwrap();
    assert_eq!(code(executor.run(turn(4, 5_000), never()).await), Code::OldCall);
    // The same attempt again is not older.
    executor.run(turn(5, 5_000), async { Ok(()) }).await.unwrap();
}

/// Safety 8: a restarted executor does not know which calls followed one from before its start.
#[tokio::test]
async fn what_was_named_before_it_began_does_not_begin() {
    let executor = VolumeExecutor::new(StartRevision(7));
    for revision in [1, 7] {
        assert_eq!(code(executor.run(turn(revision, 5_000), never()).await), Code::OldCall);
    }
    executor.run(turn(8, 5_000), async { Ok(()) }).await.unwrap();
    // What no attempt names has no order.
    executor.run(WorkTurn { order: None, ..turn(0, 5_000) }, async { Ok(()) }).await.unwrap();
}

/// Safety 4: one call in flight per volume, also when its caller has given up.
#[tokio::test]
async fn the_next_waits_for_the_answer_and_not_for_the_caller() {
    let executor = VolumeExecutor::new(StartRevision(0));
    let (answer, answered) = oneshot::channel::<()>();
    let first = async move {
        answered.await.unwrap();
        Ok(())
    };
    assert_eq!(code(executor.run(turn(1, 30), first).await), Code::NoAnswer);
    assert_eq!(code(executor.run(turn(2, 30), never()).await), Code::StillBusy);
    let elsewhere = WorkTurn::new(plugin_volume("vol-2"), turn(1, 5_000).deadline);
    executor.run(elsewhere, async { Ok(()) }).await.unwrap();
    assert!(!executor.wait_idle(Duration::from_millis(10)).await);
    answer.send(()).unwrap();
    executor.run(turn(3, 5_000), async { Ok(()) }).await.unwrap();
    assert!(executor.wait_idle(Duration::from_secs(5)).await);
}

/// The call of a group of the volumes `data` and `logs`.
fn group_call(revision: u64) -> StorageCall {
    Call {
        call: CallKind::GroupCreate,
        attempt: "t".parse().unwrap(),
        revision,
        deadline: clock::now(),
        namespace: Namespace::default(),
        volume: VolumeId::new("data").unwrap(),
        external_id: "vol-1".to_owned(),
        plugin: PluginId::new("p").unwrap(),
        ask_first: Vec::new(),
        secrets: None,
        details: StorageDetails {
            snapshot: None,
            others: vec![GroupVolume {
                volume: VolumeId::new("logs").unwrap(),
                external_id: "vol-0".to_owned(),
            }],
            node: None,
            work: StorageWork::Delete,
        },
    }
}

/// Safety 4: the call of a group is one of each of its volumes.
#[tokio::test]
async fn each_volume_of_a_group_waits_for_its_call_and_lists_it() {
    let executor = VolumeExecutor::new(StartRevision(0));
    let logs = VolumeKey::new(Namespace::default(), VolumeId::new("logs").unwrap());
    let of_logs = |revision, within_ms| {
        WorkTurn::new(plugin_volume("vol-0"), turn(revision, within_ms).deadline)
            .in_order(logs.clone(), revision)
    };
    let call = group_call(5);
    let (answer, answered) = oneshot::channel::<()>();
    let work = async move {
        answered.await.unwrap();
        Ok(())
    };
    let group = WorkTurn::of_storage(&call, turn(5, 30).deadline);
    assert_eq!(code(executor.run_shown(group, &call, work).await), Code::NoAnswer);
    let listed = executor.storage_under_way();
    let volumes: Vec<_> = listed.iter().map(|call| call.volume.as_str()).collect();
    assert_eq!(volumes, ["data", "logs"], "{listed:?}");
    assert_eq!(code(executor.run(turn(6, 30), never()).await), Code::StillBusy);
    assert_eq!(code(executor.run(of_logs(6, 30), never()).await), Code::StillBusy);
    assert_eq!(code(executor.run(of_logs(4, 30), never()).await), Code::OldCall);
    // A group waits for each of its volumes as well.
    let next = WorkTurn::of_storage(&group_call(7), turn(7, 30).deadline);
    assert_eq!(code(executor.run(next, never()).await), Code::StillBusy);
    answer.send(()).unwrap();
    executor.run(of_logs(8, 5_000), async { Ok(()) }).await.unwrap();
    executor.run(turn(8, 5_000), async { Ok(()) }).await.unwrap();
    assert!(executor.storage_under_way().is_empty());
}

/// The answer about a hung call must arrive before its caller gives up. A pause of the machine
/// excuses one late answer, but not three.
#[tokio::test]
async fn a_caller_hears_by_its_deadline_that_there_is_no_answer() {
    for _ in 0..3 {
        let executor = VolumeExecutor::new(StartRevision(0));
        let hangs = || std::future::pending::<Result<(), Problem>>();
        let mut heard = 0;
        for expected in [Code::NoAnswer, Code::StillBusy] {
            let turn = turn(1, 1_000);
            let deadline = turn.deadline;
            assert_eq!(code(executor.run(turn, hangs()).await), expected);
            heard += u32::from(clock::now() < deadline);
        }
        if heard == 2 {
            return;
        }
    }
    panic!("told too late to be heard");
}

/// Safety 8: its turn comes within its deadline, and it hears of that when its process goes on.
#[tokio::test]
async fn a_call_whose_process_was_paused_past_its_deadline_does_not_begin() {
    let executor = VolumeExecutor::new(StartRevision(0));
    let (answer, answered) = oneshot::channel::<()>();
    let (begin, inside) = oneshot::channel::<()>();
    let holder = tokio::spawn({
        let executor = executor.clone();
        let work = async move {
            begin.send(()).unwrap();
            answered.await.unwrap();
            Ok(())
        };
        async move { executor.run(turn(1, 5_000), work).await }
    });
    inside.await.unwrap();
    let paused = turn(2, 1_000);
    let deadline = paused.deadline;
    let late = tokio::spawn({
        let executor = executor.clone();
        async move { executor.run(paused, never()).await }
    });
    while executor.newest.lock().unwrap().newest[&volume()].0 < 2 {
        tokio::task::yield_now().await;
    }
    answer.send(()).unwrap();
    // The thread is blocked, so no task is polled.
    while clock::now() <= deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    holder.await.unwrap().unwrap();
    assert_eq!(code(late.await.unwrap()), Code::Late);
}

#[tokio::test]
async fn one_that_was_overtaken_while_it_waited_does_not_begin() {
    let executor = VolumeExecutor::new(StartRevision(0));
    let (answer, answered) = oneshot::channel::<()>();
    let (begin, inside) = oneshot::channel::<()>();
    let holder = tokio::spawn({
        let executor = executor.clone();
        let work = async move {
            begin.send(()).unwrap();
            answered.await.unwrap();
            Ok(())
        };
        async move { executor.run(turn(1, 5_000), work).await }
    });
    inside.await.unwrap();
    let newest = || executor.newest.lock().unwrap().newest[&volume()].0;
    let old = tokio::spawn({
        let executor = executor.clone();
        async move { executor.run(turn(2, 5_000), never()).await }
    });
    while newest() < 2 {
        tokio::task::yield_now().await;
    }
    let new = tokio::spawn({
        let executor = executor.clone();
        async move { executor.run(turn(3, 5_000), async { Ok(()) }).await }
    });
    while newest() < 3 {
        tokio::task::yield_now().await;
    }
    answer.send(()).unwrap();
    holder.await.unwrap().unwrap();
    assert_eq!(code(old.await.unwrap()), Code::OldCall);
    new.await.unwrap().unwrap();
}

#[tokio::test]
async fn works_of_one_volume_never_overlap() {
    let executor = VolumeExecutor::new(StartRevision(0));
    let inside = Arc::new(AtomicUsize::new(0));
    let mut works = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (executor, inside) = (executor.clone(), Arc::clone(&inside));
        works.spawn(async move {
            let work = async move {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            };
            executor.run(turn(1, 5_000), work).await.unwrap();
        });
    }
    while let Some(work) = works.join_next().await {
        work.unwrap();
    }
}

#[tokio::test]
async fn work_that_panics_is_answered_for_and_frees_its_volume() {
    let executor = VolumeExecutor::new(StartRevision(0));
    let broken = async { panic!("on purpose") };
    assert_eq!(code(executor.run::<()>(turn(1, 5_000), broken).await), Code::Internal);
    executor.run(turn(2, 5_000), async { Ok(()) }).await.unwrap();
}

#[test]
fn what_is_remembered_is_bounded_and_forgotten_in_time() {
    let mut seen = NewestRevisions::default();
    let at = Timestamp::from_unix_ms;
    let volume =
        |n: usize| VolumeKey::new(Namespace::default(), VolumeId::new(n.to_string()).unwrap());
    for n in 0..REVISIONS_MAX {
        seen.check_newest(&volume(n), 7, at(100_000), at(50_000)).unwrap();
    }
    let full = seen.check_newest(&volume(REVISIONS_MAX), 1, at(100_000), at(50_000));
    assert_eq!(code(full), Code::Overloaded);
    assert_eq!(code(seen.check_newest(&volume(0), 6, at(100_000), at(50_000))), Code::OldCall);
    // Seen: after a restore, an agent refused every call of a volume for hours.
    seen.check_newest(&volume(0), 2, at(300_000), at(200_000)).unwrap();
    assert_eq!(code(seen.check_newest(&volume(0), 1, at(300_000), at(200_000))), Code::OldCall);
    seen.check_newest(&volume(REVISIONS_MAX), 1, at(300_000), at(200_000)).unwrap();
    assert_eq!(seen.newest.len(), 2);
}
