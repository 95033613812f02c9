//! Faults in front of a driver that has none of its own.

use std::time::Duration;

use berth_csi::{Code, Rpc, v1};
use berth_csi_proxy::faults::{Fault, FaultMark, FaultSide, WrongAnswer};
use berth_csi_proxy::log::{CallEffect, LogEntry};
use berth_harness::wait;
use berth_judge::judge_files;

use crate::world::{SHORT, TIMEOUT, World, create, delete};

fn on(rpc: Rpc) -> Fault {
    Fault { rpc: Some(rpc), times: Some(1), ..Fault::default() }
}

fn creations(entries: &[LogEntry]) -> usize {
    let is_creation = |entry: &&LogEntry| match entry {
        LogEntry::Begin(begin) => begin.call.rpc == Rpc::CreateVolume,
        _ => false,
    };
    entries.iter().filter(is_creation).count()
}

#[tokio::test]
async fn a_code_comes_before_or_after_the_driver_has_the_call() {
    let world = World::start("codes", &[]).await;
    let code = Some(Code::Unavailable);
    for (when, effect, calls) in
        [(FaultSide::Before, CallEffect::None, 0), (FaultSide::After, CallEffect::Done, 1)]
    {
        world.plant(&[Fault { when, code, ..on(Rpc::CreateVolume) }]);
        world.refused(create("data"), Code::Unavailable).await;
        assert_eq!(world.last_end().effect, effect, "{when:?}");
        assert_eq!(creations(&world.driver_entries()), calls, "{when:?}");
    }
    world.call(create("data")).await.unwrap();
    assert_eq!(judge_files(&[world.log()]).unwrap(), []);
}

/// The driver does not get the deadline: its answer is in the log, and the next call returns it.
#[tokio::test]
async fn a_call_whose_caller_left_is_heard_to_its_end() {
    let world = World::start("late", &[]).await;
    let slow = Fault { delay_ms: 1500, ..on(Rpc::CreateVolume) };
    let late = Fault { when: FaultSide::After, ..slow.clone() };
    let lost = Fault { lose_answer: true, ..on(Rpc::CreateVolume) };
    let cases = [(vec![], vec![slow]), (vec![late], vec![]), (vec![lost], vec![])];
    for (number, (at_proxy, at_driver)) in cases.into_iter().enumerate() {
        let name = format!("v{number}");
        world.plant(&at_proxy);
        world.plant_in_driver(&at_driver);
        world.client.call(create(&name), SHORT).await.unwrap_err();
        let ended = async || match world.last_end() {
            end if end.call.rpc == Rpc::CreateVolume && end.call.args["name"] == *name => Ok(end),
            other => Err(format!("{other:?}")),
        };
        let end = wait::until("the call ends", TIMEOUT, ended).await;
        assert_eq!((end.code, end.effect), (Code::Ok, CallEffect::Done));
        let seq = end.seq;
        let gone = async || {
            let entries = world.entries();
            let is_gone =
                |entry: &&LogEntry| matches!(entry, LogEntry::Gone(gone) if gone.seq == seq);
            entries.iter().find(is_gone).map(drop).ok_or("its caller waits")
        };
        wait::until("its caller left", TIMEOUT, gone).await;
        world.call(create(&name)).await.unwrap();
    }
    let is_gone = |entry: &LogEntry| matches!(entry, LogEntry::Gone(_));
    assert!(!world.driver_entries().iter().any(is_gone), "the driver saw a caller leave");
    assert_eq!(judge_files(&[world.log()]).unwrap(), []);
}

/// A call that a fault delays never comes after the call that undoes it.
#[tokio::test]
async fn while_a_call_is_held_back_another_one_about_the_volume_is_refused() {
    let world = World::start("held", &[]).await;
    let id = world.call(create("data")).await.unwrap().volume.unwrap().volume_id;
    let expand = v1::ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range: Some(v1::CapacityRange { required_bytes: 2 << 30, limit_bytes: 0 }),
        ..Default::default()
    };
    world.plant(&[Fault { hang: true, ..on(Rpc::ControllerExpandVolume) }]);
    world.client.call(expand, SHORT).await.unwrap_err();
    let message = world.refused(delete(&id), Code::Aborted).await;
    assert!(message.contains(&id) && message.contains("not done"), "{message}");
    world.plant(&[]);
    let deleted = async || world.call(delete(&id)).await.map_err(|error| error.to_string());
    wait::until("the volume is deleted", TIMEOUT, deleted).await;
    assert_eq!(judge_files(&[world.log()]).unwrap(), []);
}

#[tokio::test]
async fn answers_are_forged_of_any_driver() {
    let world = World::start("forged", &[]).await;
    let first = world.call(create("first")).await.unwrap().volume.unwrap().volume_id;
    let wrong = |rpc, wrong| Fault { wrong: Some(wrong), ..on(rpc) };
    world.plant(&[wrong(Rpc::CreateVolume, WrongAnswer::IdOfAnother)]);
    let forged = world.call(create("second")).await.unwrap().volume.unwrap();
    assert_eq!((forged.volume_id, world.last_end().fault), (first, Some(FaultMark::Wrong)));
    world.plant(&[wrong(Rpc::Probe, WrongAnswer::NoReady)]);
    assert_eq!(world.call(v1::ProbeRequest {}).await.unwrap().ready, None);
    let endless = Fault { times: None, ..wrong(Rpc::ListVolumes, WrongAnswer::EndlessPages) };
    world.plant(&[endless]);
    let mut starting_token = String::new();
    for _ in 0..3 {
        let list = v1::ListVolumesRequest { starting_token, ..Default::default() };
        let page = world.call(list).await.unwrap();
        assert_eq!(page.entries.len(), 2);
        starting_token = page.next_token;
    }
    world.plant(&[]);
    let list = v1::ListVolumesRequest { starting_token, ..Default::default() };
    assert_eq!(world.call(list).await.unwrap().next_token, "", "its own tokens are known later");
}

#[tokio::test]
async fn a_crash_ends_the_proxy_and_not_the_driver() {
    let world = World::start("crash", &[]).await;
    let crash = Fault { when: FaultSide::After, crash: true, ..on(Rpc::CreateVolume) };
    world.plant(&[crash]);
    world.call(create("data")).await.unwrap_err();
    world.plant(&[]);
    world.proxy.restart();
    world.ready().await;
    let list = world.call(v1::ListVolumesRequest::default()).await.unwrap();
    assert_eq!(list.entries.len(), 1, "it was made before the crash");
    world.call(create("data")).await.unwrap();
    assert_eq!(judge_files(&[world.log()]).unwrap(), []);
    tokio::time::timeout(Duration::from_secs(5), world.ready()).await.unwrap();
}
