//! Calls whose answers were sent to a lost connection.

use berth_contract::verb::{self, Verb as _};
use berth_domain::NodeId;
use berth_harness::proxy::Proxy;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use serde_json::{Value, json};

/// Rule 2: a reconnected worker sends its request again, and the executor repeats the answer that
/// was lost. The plugin is called once.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_cut_off_gets_the_answer_once_it_is_connected_again() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { nodes: 1, cables: true, call_timeout_ms: 30_000, ..Options::default() };
    let system = System::start(options).await;
    let n1 = verb::NodeAndNamespace::any_of(NodeId::new("n1").unwrap());
    let status = verb::AgentStatus::subject(&n1);
    for rpc in ["NodeUnpublishVolume", "ControllerUnpublishVolume"] {
        let volume = rpc.to_lowercase();
        system.volume(&volume, &["single-node-writer"]).await;
        system.run(&volume, 0, &volume).await;
        let before = executed_count(&system);
        system.hold(rpc);
        system.stop(&volume).await;
        system.under_way(rpc).await;
        system.cables(Part::Watcher).iter().for_each(Proxy::cut);
        system.let_go();
        wait::until("the agent has answered", RECOVERY, || async {
            let now = executed_count(&system);
            if now > before { Ok(()) } else { Err(format!("{now} calls were executed")) }
        })
        .await;
        // The agent sends this reply after its answer, so nats-server has that answer by now, and
        // nobody receives it.
        let _: Value = system.persist(&status, &json!({})).await.unwrap();
        system.cables(Part::Watcher).iter().for_each(Proxy::heal);
        system.settle(&volume).await;
        let calls = system.calls();
        let begins = calls.iter().filter(|call| call["entry"] == "begin" && call["rpc"] == rpc);
        let of_volume = begins.filter(|call| call.to_string().contains(&volume));
        assert_eq!(of_volume.count(), 1, "{rpc} was called once");
        system.deregister(&volume, false).await.unwrap();
    }
    system.judge();
}

/// How many calls the agent has answered.
fn executed_count(system: &System) -> usize {
    system.daemon(Part::Agent(0)).log().matches("executed").count()
}
