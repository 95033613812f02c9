//! Faults around each call that changes the storage: the driver is killed, its answer is lost, the
//! agent or the watcher is killed while the call hangs, or the driver answers with a code.
//!
//! Each ends with a comparison of the storage's own list with the records.

use std::cell::Cell;
use std::time::Duration;

use berth_contract::code::Code;
use berth_domain::volume::storage::SnapshotState;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Part, RECOVERY, System};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::options;
use super::storage_flow::StorageFlow;

const PATIENCE: Duration = Duration::from_secs(60);

const CALLS: [(StorageFlow, &str); 9] = [
    (StorageFlow::Create, "CreateVolume"),
    (StorageFlow::Copy, "CreateVolume"),
    (StorageFlow::Delete, "DeleteVolume"),
    (StorageFlow::Expand, "ControllerExpandVolume"),
    (StorageFlow::Expand, "NodeExpandVolume"),
    (StorageFlow::Snapshot, "CreateSnapshot"),
    (StorageFlow::Snapshot, "DeleteSnapshot"),
    (StorageFlow::Group, "CreateVolumeGroupSnapshot"),
    (StorageFlow::Group, "DeleteVolumeGroupSnapshot"),
];

/// The fault that hits a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    DriverKilled,
    /// The work is done, the answer is never sent, and the driver is killed in the end.
    AnswerLost,
    /// The call hangs, the agent that made it is killed, and then the call continues.
    AgentKilled,
    /// The call hangs, the watcher is killed, and then the call continues.
    WatcherKilled,
}

async fn around_each_call(fate: Fate) {
    if !or_skip("real mounts") {
        return;
    }
    let half = CALLS.len() / 2;
    let (first, second) = CALLS.split_at(half);
    tokio::join!(Box::pin(hit_calls(fate, first)), Box::pin(hit_calls(fate, second)));
}

async fn hit_calls(fate: Fate, calls: &[(StorageFlow, &str)]) {
    let system = System::start(options()).await;
    let sides = if fate == Fate::AnswerLost { &["after"][..] } else { &["before", "after"] };
    for (flow, rpc) in calls {
        for side in sides {
            let volume = format!("{flow:?}-{rpc}-{side}").to_lowercase();
            flow.prepare(&system, &volume).await;
            hit_call(&system, *flow, rpc, side, fate, &volume).await;
            system.healthy().await;
            flow.check_end(&system, &volume).await;
            println!("{fate:?} {side} {rpc}");
        }
    }
}

async fn hit_call(
    system: &System,
    flow: StorageFlow,
    rpc: &str,
    side: &str,
    fate: Fate,
    volume: &str,
) {
    let mut fault = json!({"rpc": rpc, "when": side, "times": 1});
    let action = match fate {
        Fate::DriverKilled => "crash",
        Fate::AnswerLost => "lose_answer",
        Fate::AgentKilled | Fate::WatcherKilled => "hang",
    };
    fault[action] = true.into();
    let before = called_nodes(system, rpc).len();
    plant(system, &json!([fault]));
    let strike = async {
        let node = wait::until(&format!("{rpc} is under way"), PATIENCE, || async {
            called_nodes(system, rpc).get(before).copied().ok_or("no driver was called")
        })
        .await;
        match fate {
            Fate::DriverKilled => {
                let down = || async {
                    let runs = system.daemon(Part::Driver(node)).is_running();
                    if runs { Err("the driver runs") } else { Ok(()) }
                };
                wait::until("the driver has ended", PATIENCE, down).await;
                plant(system, &json!([]));
                system.restart(Part::Driver(node));
            }
            Fate::AnswerLost => {
                // The driver holds the volume until it is restarted.
                plant(system, &json!([]));
                system.kill9_and_restart(Part::Driver(node)).await;
            }
            Fate::AgentKilled => {
                system.kill9_and_restart(Part::Agent(node)).await;
                plant(system, &json!([]));
            }
            Fate::WatcherKilled => {
                system.kill9_and_restart(Part::Watcher).await;
                plant(system, &json!([]));
            }
        }
    };
    let is_done = Cell::new(false);
    let run = async {
        flow.run(system, volume).await;
        is_done.set(true);
    };
    // The retry may have reached the other driver before its fault was removed.
    let mend = async {
        strike.await;
        while !is_done.get() {
            restart_dead_drivers(system);
            sleep(Duration::from_millis(100)).await;
        }
        restart_dead_drivers(system);
    };
    tokio::join!(run, mend);
}

fn restart_dead_drivers(system: &System) {
    for driver in (0..system.options.nodes).map(Part::Driver) {
        if !system.daemon(driver).is_running() {
            system.restart(driver);
        }
    }
}

fn plant(system: &System, faults: &Value) {
    (0..system.options.nodes).for_each(|node| system.plant(node, faults));
}

/// The nodes, from 0, of the calls of this kind that have begun, in order.
fn called_nodes(system: &System, rpc: &str) -> Vec<usize> {
    let calls = system.calls();
    let begun = calls.iter().filter(|call| call["entry"] == "begin" && call["rpc"] == rpc);
    let node = |call: &Value| -> Option<usize> {
        let node: usize = call["node_id"].as_str()?.strip_prefix("external-n")?.parse().ok()?;
        Some(node - 1)
    };
    begun.filter_map(node).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_is_killed_around_each_storage_call() {
    around_each_call(Fate::DriverKilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_each_storage_call_is_lost() {
    around_each_call(Fate::AnswerLost).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_is_killed_around_each_storage_call() {
    around_each_call(Fate::AgentKilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watcher_is_killed_around_each_storage_call() {
    around_each_call(Fate::WatcherKilled).await;
}

/// Codes after which the call may have done its work. It is retried.
const UNCERTAIN: [&str; 7] = [
    "CANCELLED",
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "ABORTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
];
/// Codes of a refusal that may pass. The call is retried.
const RETRYABLE: [&str; 3] = ["NOT_FOUND", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"];
/// Codes after which the same call is refused again.
const FINAL: [&str; 6] = [
    "INVALID_ARGUMENT",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "UNAUTHENTICATED",
];

/// Each driver answers the call once with each code. The flow ends all the same.
async fn answered_with(codes: &[&str], side: &str) {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(options()).await;
    for (flow, rpc) in CALLS {
        // CSI forbids a second expansion on the node until the volume is staged again.
        let waits_for_stage = rpc == "NodeExpandVolume";
        for code in codes {
            // Volumes that cannot be in one group never can: the refusal is final.
            let is_final = rpc == "CreateVolumeGroupSnapshot" && *code == "FAILED_PRECONDITION";
            if is_final || (waits_for_stage && *code != "UNAVAILABLE") {
                continue;
            }
            let volume = format!("{flow:?}-{rpc}-{code}").to_lowercase().replace('_', "-");
            flow.prepare(&system, &volume).await;
            plant(&system, &json!([{"rpc": rpc, "when": side, "code": code, "times": 1}]));
            flow.run(&system, &volume).await;
            plant(&system, &json!([]));
            flow.check_end(&system, &volume).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_uncertain_code_is_answered_before_the_work() {
    answered_with(&UNCERTAIN, "before").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_uncertain_code_is_answered_after_the_work() {
    answered_with(&UNCERTAIN, "after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_code_that_passes_is_answered() {
    answered_with(&RETRYABLE, "before").await;
}

/// A final refusal leaves the volume as it was and says why. The same request may be made again.
#[tokio::test(flavor = "multi_thread")]
async fn each_code_of_a_refusal_is_answered() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(options()).await;
    for code in FINAL {
        let id = code.to_lowercase().replace('_', "-");
        let refuse = |rpc: &str| {
            // Any driver may be called, so each refuses until its faults are removed.
            plant(&system, &json!([{"rpc": rpc, "code": code}]));
        };
        refuse("CreateVolume");
        system.create(&id, json!({"size": "1MiB"})).await.unwrap();
        await_refused(&system, &id, code).await;
        plant(&system, &json!([]));
        system.assert_known().await;
        system.deleted(&id).await;
        system.created(&id, json!({"size": "1MiB"})).await;

        refuse("ControllerExpandVolume");
        system.expand(&id, json!({"size": "2MiB"})).await.unwrap();
        await_refused(&system, &id, code).await;
        refuse("CreateSnapshot");
        system.snapshot(&[&id], "s", json!({})).await.unwrap();
        let failed = system.snapshot_is(&id, "s", SnapshotState::Failed).await;
        assert!(failed.error().is_some_and(|error| error.contains(code)), "{failed:?}");
        plant(&system, &json!([]));
        system.snapshot_deleted(&id, "s", false).await;
        system.snapshot(&[&id], "s", json!({})).await.unwrap();
        system.snapshot_is(&id, "s", SnapshotState::Ready).await;
        refuse("DeleteSnapshot");
        let subject = "berth.v1.snapshot.delete.default";
        let snapshot = json!({"volume": id, "snapshot": "s"});
        system.persist::<Value>(subject, &snapshot).await.unwrap();
        let refused = wait::until("the deletion is refused", RECOVERY, || async {
            let snapshots = system.snapshots(&id).await;
            let refused = snapshots.iter().find(|snapshot| snapshot.failure.is_some());
            refused.cloned().ok_or_else(|| format!("{snapshots:?}"))
        })
        .await;
        assert_eq!(refused.state, SnapshotState::Ready, "{refused:?}");
        plant(&system, &json!([]));
        system.snapshot_deleted(&id, "s", false).await;

        refuse("DeleteVolume");
        system.delete(&id).await.unwrap();
        await_refused(&system, &id, code).await;
        let mounted = system.run(&id, 0, &id).await;
        assert!(!mounted.path.is_empty(), "a volume whose deletion was refused can be used");
        system.stop(&id).await;
        system.freed(&id).await;
        plant(&system, &json!([]));
        system.assert_known().await;
        system.deleted(&id).await;
    }
    system.assert_known().await;
    system.judge();
}

/// Waits until the last change was refused with this code.
async fn await_refused(system: &System, id: &str, code: &str) {
    wait::until(&format!("{id} is refused"), RECOVERY, || async {
        let status = match system.volume_status(id).await {
            Err(problem) if problem.code == Code::NoSuchVolume => panic!("{id} is gone"),
            status => status.map_err(|problem| problem.to_string())?,
        };
        match status.storage {
            Some(storage)
                if storage.operation.is_none()
                    && storage
                        .failure
                        .as_ref()
                        .is_some_and(|failed| failed.failure.message.contains(code)) =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}
