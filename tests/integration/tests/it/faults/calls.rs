//! Faults around each plugin call, before its work and after: the driver is killed, its answer is
//! lost, or the agent or the caller is killed while the call hangs.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::Range;
use std::time::{Duration, Instant};

use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Part, System};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::flow::Flow;
use super::options;

const PATIENCE: Duration = Duration::from_secs(60);
/// How long a flow is awaited while its driver withholds an answer.
const WITHHELD: Duration = Duration::from_secs(5);
/// Interval at which the supervisor checks for drivers that have ended.
const SUPERVISED: Duration = Duration::from_millis(50);
/// Delay before a slow supervisor restarts a driver: longer than the caller's first retries.
const LATE: Duration = Duration::from_secs(3);

const CALLS: [(Flow, &str); 7] = [
    (Flow::Register, "ValidateVolumeCapabilities"),
    (Flow::Claim, "ControllerPublishVolume"),
    (Flow::Claim, "NodeStageVolume"),
    (Flow::Claim, "NodePublishVolume"),
    (Flow::Release, "NodeUnpublishVolume"),
    (Flow::Release, "NodeUnstageVolume"),
    (Flow::Release, "ControllerUnpublishVolume"),
];

/// The process that sends an agent the request for a plugin call, and waits for the response.
enum Caller {
    Service(Part),
    /// The client of the mount request: the test itself.
    Client,
}

/// The caller of the agent, which makes the plugin call itself.
fn caller(flow: Flow, rpc: &str) -> Caller {
    match (flow, rpc) {
        (Flow::Release, _) => Caller::Service(Part::Watcher),
        (_, "ValidateVolumeCapabilities" | "ControllerPublishVolume") => {
            Caller::Service(Part::Claim)
        }
        (Flow::Claim, "NodeStageVolume" | "NodePublishVolume") => Caller::Client,
        _ => panic!("no caller is known for {rpc} in {flow:?}"),
    }
}

/// The fault that hits a call.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// The driver kills itself, and restarts immediately.
    DriverKilled,
    /// The driver kills itself, and restarts late. Until then the retry goes to the other node's
    /// driver, which the fault kills too.
    DriversKilled,
    /// The driver does the work and never answers.
    AnswerLost,
    /// The call hangs, the agent that made it is killed, and then the call continues.
    AgentKilled,
    /// The call hangs, its caller is killed, and then the call continues.
    CallerKilled,
}

async fn around_each_call(fate: Fate) {
    if !or_skip("real mounts") {
        return;
    }
    let (of_claim, of_release) = CALLS.split_at(4);
    tokio::join!(Box::pin(hit_calls(fate, of_claim)), Box::pin(hit_calls(fate, of_release)));
}

async fn hit_calls(fate: Fate, calls: &[(Flow, &str)]) {
    let system = System::start(options()).await;
    let restart_after = match fate {
        Fate::DriverKilled => Some(Duration::ZERO),
        Fate::DriversKilled => Some(LATE),
        Fate::AnswerLost | Fate::AgentKilled | Fate::CallerKilled => None,
    };
    let supervised = supervise(&system, restart_after.unwrap_or_default());
    tokio::select! {
        never = supervised, if restart_after.is_some() => match never {},
        () = hit_each_call(&system, fate, calls) => {}
    }
}

/// Restarts ended drivers without their faults, as a supervisor does on each host.
///
/// Every driver has the fault, since any controller may be called. A retry may therefore end a
/// second driver before the test has seen the end of the first.
async fn supervise(system: &System, restart_after: Duration) -> Infallible {
    loop {
        if nodes(system).any(|node| !runs(system, node)) {
            sleep(restart_after).await;
            for node in nodes(system).filter(|node| !runs(system, *node)) {
                system.plant(node, &json!([]));
                system.restart(Part::Driver(node));
            }
        }
        sleep(SUPERVISED).await;
    }
}

fn nodes(system: &System) -> Range<usize> {
    0..system.options.nodes
}

fn runs(system: &System, node: usize) -> bool {
    system.daemon(Part::Driver(node)).is_running()
}

async fn hit_each_call(system: &System, fate: Fate, calls: &[(Flow, &str)]) {
    let sides =
        if matches!(fate, Fate::AnswerLost) { &["after"][..] } else { &["before", "after"] };
    let is_of_controller = |rpc: &str| !rpc.starts_with("Node");
    for (flow, rpc) in calls {
        // A retry of a node's call goes to the same driver.
        if matches!(fate, Fate::DriversKilled) && !is_of_controller(rpc) {
            continue;
        }
        for side in sides {
            let volume = format!("{rpc}-{side}").to_lowercase();
            let began = Instant::now();
            flow.prepare(system, &volume).await;
            hit_call(system, *flow, rpc, side, fate, &volume).await;
            flow.check_end(system, &volume).await;
            println!("{fate:?} {side} {rpc}: {:?}", began.elapsed());
        }
    }
}

async fn hit_call(system: &System, flow: Flow, rpc: &str, side: &str, fate: Fate, volume: &str) {
    let mut fault = json!({"rpc": rpc, "volume": volume, "when": side, "times": 1});
    let action = match fate {
        Fate::DriverKilled | Fate::DriversKilled => "crash",
        Fate::AnswerLost => "lose_answer",
        Fate::AgentKilled | Fate::CallerKilled => "hang",
    };
    fault[action] = true.into();
    let driver_pids = || nodes(system).map(|node| system.daemon(Part::Driver(node)).pid());
    let before: Vec<u32> = driver_pids().collect();
    for node in nodes(system) {
        system.plant(node, &json!([fault]));
    }
    let mut running = Box::pin(flow.run(system, volume));
    let mut ended = false;
    let node = tokio::select! {
        // A flow may end by itself before the next read of the log.
        () = &mut running => {
            ended = true;
            let called = called_nodes(system, rpc, volume).first().copied();
            called.unwrap_or_else(|| panic!("{rpc} of {volume} was not hit"))
        }
        node = await_call(system, rpc, volume) => node,
    };
    match fate {
        // A plugin that never answers holds the volume until it restarts, because it may still act
        // on it. Where another instance can be called, the release continues there.
        Fate::AnswerLost => {
            let done = ended || timeout(WITHHELD, &mut running).await.is_ok();
            unplant(system);
            // Each of these drivers withholds an answer: the fault also hit the retry, at the other
            // controller.
            for node in called_nodes(system, rpc, volume) {
                system.kill9_and_restart(Part::Driver(node)).await;
            }
            if done {
                return;
            }
        }
        Fate::DriverKilled | Fate::DriversKilled => {
            let restarted = wait::until("a driver ended and runs again", PATIENCE, || async {
                let restarted = driver_pids().zip(&before).any(|(now, before)| now != *before);
                if restarted { Ok(()) } else { Err("no driver was restarted") }
            });
            // The flow continues meanwhile: its retry reaches the other driver.
            let flow_ends = async {
                if !ended {
                    running.await;
                }
            };
            let ((), ()) = tokio::join!(flow_ends, async {
                restarted.await;
                unplant(system);
            });
            return;
        }
        Fate::AgentKilled => system.kill9_and_restart(Part::Agent(node)).await,
        Fate::CallerKilled => {
            match caller(flow, rpc) {
                Caller::Service(part) => system.kill9_and_restart(part).await,
                // The client ends with its request, and another client sends the same request.
                Caller::Client => {
                    drop(running);
                    running = Box::pin(flow.run(system, volume));
                }
            }
        }
    }
    unplant(system);
    if !ended {
        running.await;
    }
}

fn unplant(system: &System) {
    for node in nodes(system) {
        system.plant(node, &json!([]));
    }
}

/// Waits until the call has begun, and returns its node, from 0.
async fn await_call(system: &System, rpc: &str, volume: &str) -> usize {
    wait::until(&format!("{rpc} is under way"), PATIENCE, || async {
        called_nodes(system, rpc, volume).first().copied().ok_or("no driver was called")
    })
    .await
}

/// The nodes, from 0, whose drivers received this call.
fn called_nodes(system: &System, rpc: &str, volume: &str) -> BTreeSet<usize> {
    let calls = system.calls().into_iter().filter(|call| {
        call["entry"] == "begin" && call["rpc"] == rpc && call["args"]["volume_id"] == volume
    });
    let node = |call: Value| {
        let node: usize = call["node_id"].as_str()?.strip_prefix("external-n")?.parse().ok()?;
        Some(node - 1)
    };
    calls.filter_map(node).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_are_killed_around_each_call_and_come_back_late() {
    around_each_call(Fate::DriversKilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_is_killed_around_each_call() {
    around_each_call(Fate::DriverKilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_each_call_is_lost() {
    around_each_call(Fate::AnswerLost).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_is_killed_around_each_call() {
    around_each_call(Fate::AgentKilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_caller_is_killed_around_each_call() {
    around_each_call(Fate::CallerKilled).await;
}
