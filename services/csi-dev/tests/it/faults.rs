//! Faults of every kind, planted while the instance runs.

use std::time::Duration;

use berth_csi::{Code, Failure, Rpc, v1};
use berth_csi_dev::capability::AccessMode::SingleNodeWriter;
use berth_csi_proxy::faults::{Fault, FaultMark, FaultSide, WrongAnswer};
use berth_csi_proxy::log::LogEntry;
use berth_harness::wait;

use crate::request::{attach, detach};
use crate::world::{Node, TIMEOUT, World};

/// Long enough for an instance to begin a call, and to do it.
const SHORT: Duration = Duration::from_millis(700);

fn on(rpc: Rpc) -> Fault {
    Fault { rpc: Some(rpc), ..Fault::default() }
}

/// Makes a call that is not answered in time.
async fn unanswered(node: &Node, request: v1::ControllerPublishVolumeRequest) {
    let error = node.client.call(request, SHORT).await.unwrap_err();
    let late = matches!(error.failure, Failure::Late { .. });
    assert!(late || error.code() == Some(Code::DeadlineExceeded), "{error}");
}

fn is_attached(world: &World) -> bool {
    let state = world.backend().volume("v").unwrap().unwrap().read_state().unwrap();
    state.attachments.contains_key("n1")
}

#[tokio::test]
async fn a_call_hangs_until_its_fault_is_taken_away() {
    let Some(world) = World::start("hang", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    node.plant(Fault { hang: true, ..on(Rpc::ControllerPublishVolume) });
    let request = attach("v", "n1", SingleNodeWriter);
    unanswered(node, request.clone()).await;
    assert!(!is_attached(&world), "it hangs before its work");
    node.plant_nothing();
    let ended = async || match node.last_end() {
        end if end.call.rpc == Rpc::ControllerPublishVolume => Ok(()),
        other => Err(format!("{other:?}")),
    };
    wait::until("the call ends", TIMEOUT, ended).await;
    assert!(is_attached(&world), "it went on");
    node.call(request).await.unwrap();
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn a_crash_before_or_after_the_work_leaves_a_beginning_without_an_end() {
    for when in [FaultSide::Before, FaultSide::After] {
        let Some(world) = World::start("crash", &[]).await else { return };
        world.provision("v");
        let node = &world.n1;
        node.plant(Fault { when, crash: true, ..on(Rpc::ControllerPublishVolume) });
        let request = attach("v", "n1", SingleNodeWriter);
        node.call(request.clone()).await.unwrap_err();
        let last = node.entries().pop().unwrap();
        let is_begin = |begin: &berth_csi_proxy::log::CallBegin| {
            begin.call.rpc == Rpc::ControllerPublishVolume
        };
        assert!(matches!(&last, LogEntry::Begin(begin) if is_begin(begin)), "{last:?}");
        assert_eq!(is_attached(&world), when == FaultSide::After);
        node.plant_nothing();
        node.crash().await;
        node.call(request).await.unwrap();
        node.call(detach("v", "n1")).await.unwrap();
        assert_eq!(world.findings(), []);
    }
}

#[tokio::test]
async fn an_answer_is_lost_after_the_work() {
    let Some(world) = World::start("lost", &[]).await else { return };
    world.provision("v");
    let node = &world.n1;
    let lost = Fault { lose_answer: true, times: Some(1), ..on(Rpc::ControllerPublishVolume) };
    node.plant(lost);
    let request = attach("v", "n1", SingleNodeWriter);
    unanswered(node, request.clone()).await;
    assert!(is_attached(&world));
    let end = node.last_end();
    assert_eq!((end.code, end.fault), (Code::Ok, Some(FaultMark::Lost)));
    // Its lane is free, and the same call brings the answer.
    node.call(request).await.unwrap();
    assert_eq!(world.findings(), []);
}

#[tokio::test]
async fn answers_are_wrong_in_small_ways() {
    let Some(world) = World::start("wrong", &[]).await else { return };
    let node = &world.n1;
    let wrong = |wrong| Fault { wrong: Some(wrong), ..Fault::default() };
    node.plant(wrong(WrongAnswer::NoReady));
    assert_eq!(node.call(v1::ProbeRequest {}).await.unwrap().ready, None);
    assert_eq!(node.last_end().fault, Some(FaultMark::Wrong));

    node.plant(wrong(WrongAnswer::UnknownEnum));
    let answer = node.call(v1::NodeGetCapabilitiesRequest {}).await.unwrap();
    let kinds = answer.capabilities.iter().filter_map(|capability| capability.r#type.as_ref());
    let unknown = |kind: &&v1::node_service_capability::Type| {
        let v1::node_service_capability::Type::Rpc(rpc) = kind;
        v1::node_service_capability::rpc::Type::try_from(rpc.r#type).is_err()
    };
    assert_eq!(kinds.filter(unknown).count(), 1, "{answer:?}");

    node.plant(wrong(WrongAnswer::EmptyTopology));
    let info = node.call(v1::NodeGetInfoRequest {}).await.unwrap();
    assert_eq!(info.accessible_topology, Some(v1::Topology::default()));

    node.plant(wrong(WrongAnswer::NoTopology));
    let info = node.call(v1::NodeGetInfoRequest {}).await.unwrap();
    assert_eq!(info.accessible_topology, None);
    node.plant(wrong(WrongAnswer::NegativeLimit));
    let info = node.call(v1::NodeGetInfoRequest {}).await.unwrap();
    assert_eq!(info.max_volumes_per_node, -1);
    node.plant(wrong(WrongAnswer::OtherName));
    let info = node.call(v1::GetPluginInfoRequest {}).await.unwrap();
    assert_eq!(info.name, "other.dev.berth");
    node.plant(wrong(WrongAnswer::NoCapabilities));
    let answer = node.call(v1::NodeGetCapabilitiesRequest {}).await.unwrap();
    assert_eq!(answer.capabilities, []);
}

/// An error of 64 KiB arrives with its code, on one line, and shortened.
#[tokio::test]
async fn an_error_with_much_text_keeps_its_code() {
    let Some(world) = World::start("chatter", &[]).await else { return };
    let node = &world.n1;
    node.plant(Fault { wrong: Some(WrongAnswer::Chatty), ..Fault::default() });
    let message = node.refused(attach("no", "n1", SingleNodeWriter), Code::NotFound).await;
    assert!(message.contains("does not exist") && message.len() < 4096, "{}", message.len());
    assert!(!message.contains(char::is_control), "{message:?}");
}
