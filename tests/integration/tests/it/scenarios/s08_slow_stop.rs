//! A workload that ends slowly: until its process has ended, no request takes its volume away.

use std::path::Path;
use std::process::Stdio;

use berth_contract::code::Code;
use berth_contract::verb::{self, Verb as _};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
use serde_json::{Value, json};

use super::{SOON, begun, berth, detach};

fn exists(file: &Path) -> Result<(), &'static str> {
    if file.exists() { Ok(()) } else { Err("the file does not exist") }
}

#[tokio::test(flavor = "multi_thread")]
async fn s08_a_slow_stopping_task_keeps_its_volume_to_the_end() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    // On SIGTERM the task creates a file, and it writes until the test ends it.
    let [up, signalled, go] = ["up", "signalled", "go"].map(|name| system.dir().join(name));
    let script = format!(
        "trap 'echo signalled > {}' TERM; echo up > {}; \
         while [ ! -e {} ]; do echo more >> $BERTH_VOLUME_DATA/f; sleep 0.05; done",
        signalled.display(),
        up.display(),
        go.display()
    );
    let mut task = system
        .berth()
        .args(["--nats", &system.url(), "run", "--node", "n1", "--alloc", "a", "-v", "data"])
        .args(["--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait::until("the task runs", SOON, || async { exists(&up) }).await;
    let pid = task.id().unwrap().to_string();
    let sent = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(sent.success());
    wait::until("the task got the signal", SOON, || async { exists(&signalled) }).await;

    let refused = detach(&system, "data", "n1").await.unwrap_err();
    assert_eq!(refused.code, Code::ClaimsLive, "{refused}");
    assert_eq!(refused.message, "still running with it: a");
    assert!(refused.next.contains("berth alloc stop a"), "{refused:?}");
    let refused = system.deregister("data", false).await.unwrap_err();
    assert_eq!(refused.code, Code::ClaimsLive, "{refused}");
    for _ in 0..3 {
        let _: Value = system.persist(&verb::GcForce::subject(&()), &json!({})).await.unwrap();
    }
    let by_hand = berth(&system, &["volume", "detach", "data", "n1", "--timeout", "1s"]).await;
    assert_eq!(by_hand.status.code(), Some(5), "{by_hand:?}");
    assert_eq!(begun(&system, "NodeUnpublishVolume", "data"), 0);
    assert!(task.try_wait().unwrap().is_none(), "the task still runs");

    std::fs::write(&go, "").unwrap();
    assert!(task.wait().await.unwrap().code().is_some());
    system.settle("data").await;
    assert_eq!(begun(&system, "NodeUnpublishVolume", "data"), 1, "exactly once");
}
