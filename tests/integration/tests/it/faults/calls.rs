//! Around each call of a plugin, before its work and after: the driver is killed, or its answer is
//! lost, or the agent or the caller is killed while it hangs.

use std::pin::pin;
use std::time::{Duration, Instant};

use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Part, System};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::flow::Flow;
use super::options;

const PATIENCE: Duration = Duration::from_secs(60);
/// How long a flow may go on while its driver owes an answer.
const OWED: Duration = Duration::from_secs(5);

const CALLS: [(Flow, &str); 7] = [
    (Flow::Register, "ValidateVolumeCapabilities"),
    (Flow::Claim, "ControllerPublishVolume"),
    (Flow::Claim, "NodeStageVolume"),
    (Flow::Claim, "NodePublishVolume"),
    (Flow::Release, "NodeUnpublishVolume"),
    (Flow::Release, "NodeUnstageVolume"),
    (Flow::Release, "ControllerUnpublishVolume"),
];

/// What happens to a call.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// The driver kills itself.
    DriverKilled,
    /// The driver has done it and says nothing.
    AnswerLost,
    /// It hangs, the agent that made it is killed, and then it goes on.
    AgentKilled,
    /// It hangs, whoever asked the agent for it is killed, and then it goes on.
    CallerKilled,
}

async fn around_each_call(fate: Fate) {
    if !or_skip("real mounts") {
        return;
    }
    let (up, down) = CALLS.split_at(4);
    tokio::join!(Box::pin(around(fate, up)), Box::pin(around(fate, down)));
}

async fn around(fate: Fate, calls: &[(Flow, &str)]) {
    let system = System::start(options()).await;
    let sides =
        if matches!(fate, Fate::AnswerLost) { &["after"][..] } else { &["before", "after"] };
    for (flow, rpc) in calls {
        for side in sides {
            let volume = format!("{rpc}-{side}").to_lowercase();
            let began = Instant::now();
            flow.prepare(&system, &volume).await;
            befall(&system, *flow, rpc, side, fate, &volume).await;
            flow.rest(&system, &volume).await;
            println!("{fate:?} {side} {rpc}: {:?}", began.elapsed());
        }
    }
}

async fn befall(system: &System, flow: Flow, rpc: &str, side: &str, fate: Fate, volume: &str) {
    let mut fault = json!({"rpc": rpc, "volume": volume, "when": side, "times": 1});
    let deed = match fate {
        Fate::DriverKilled => "crash",
        Fate::AnswerLost => "lose_answer",
        Fate::AgentKilled | Fate::CallerKilled => "hang",
    };
    fault[deed] = true.into();
    for node in 0..system.options.nodes {
        system.plant(node, &json!([fault]));
    }
    let mut running = pin!(flow.run(system, volume));
    let at = tokio::select! {
        () = &mut running => panic!("{rpc} of {volume} was not hit"),
        at = begun(system, rpc, volume) => at,
    };
    match fate {
        // A plugin that never answers holds the volume until it starts again: nobody may act on
        // the volume while it may. Where another instance can be asked, it is done without that.
        Fate::AnswerLost => {
            let done = timeout(OWED, &mut running).await.is_ok();
            unplant(system);
            system.kill9_and_restart(Part::Driver(at)).await;
            if done {
                return;
            }
        }
        Fate::DriverKilled => {
            let driver = system.daemon(Part::Driver(at));
            driver.wait_exit(PATIENCE).await;
            system.plant(at, &json!([]));
            system.restart(Part::Driver(at));
        }
        Fate::AgentKilled => system.kill9_and_restart(Part::Agent(at)).await,
        Fate::CallerKilled => {
            let caller = match (flow, rpc) {
                (Flow::Release, _) => Part::Watcher,
                (_, "ValidateVolumeCapabilities" | "ControllerPublishVolume") => Part::Claim,
                // The test itself: it gives up before the call is done, and asks again.
                _ => Part::Gc,
            };
            system.kill9_and_restart(caller).await;
        }
    }
    unplant(system);
    running.await;
}

fn unplant(system: &System) {
    for node in 0..system.options.nodes {
        system.plant(node, &json!([]));
    }
}

/// Waits until the call has begun; at which node, from 0.
async fn begun(system: &System, rpc: &str, volume: &str) -> usize {
    wait::until(&format!("{rpc} is under way"), PATIENCE, || async {
        let calls = system.calls();
        let is_it = |call: &&Value| {
            call["entry"] == "begin" && call["rpc"] == rpc && call["args"]["volume_id"] == volume
        };
        let call = calls.iter().find(is_it).ok_or_else(|| format!("{} lines", calls.len()))?;
        let node = call["node_id"].as_str().and_then(|node| node.strip_prefix("external-n"));
        node.and_then(|node| node.parse::<usize>().ok())
            .map(|node| node - 1)
            .ok_or_else(|| format!("{call}"))
    })
    .await
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
