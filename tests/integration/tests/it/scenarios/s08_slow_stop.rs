//! A workload that was told to end and takes its time: until it has really ended nobody takes its
//! volume away, whoever asks.

use std::process::Stdio;

use berth_contract::code::Code;
use berth_contract::subject::Global;
use berth_harness::process::binary;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, System};
use serde_json::{Value, json};

use super::{SOON, begun, berth, detach};

#[tokio::test(flavor = "multi_thread")]
async fn s08_a_slow_stopping_task_keeps_its_volume_to_the_end() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    // Told to end it says so, and goes on writing until it is let go.
    let (told, go) = (system.dir().join("told"), system.dir().join("go"));
    let script = format!(
        "trap 'echo told > {}' TERM; echo up > $BERTH_VOLUME_DATA/f; \
         while [ ! -e {} ]; do echo more >> $BERTH_VOLUME_DATA/f; sleep 0.05; done",
        told.display(),
        go.display()
    );
    let mut task = tokio::process::Command::new(binary("berth"))
        .args(["--nats", &system.url(), "run", "--node", "n1", "--alloc", "a", "-v", "data"])
        .args(["--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait::until("it runs", SOON, || async {
        let claims = system.claims("data").await.claims;
        let taken = claims.iter().any(|claim| claim.state == berth_domain::volume::State::Taken);
        if taken && begun(&system, "NodePublishVolume", "data") == 1 {
            return Ok(());
        }
        Err(format!("{claims:?}"))
    })
    .await;
    let pid = task.id().unwrap().to_string();
    wait::until("it was told to end", SOON, || async {
        // Again, should it have come before the trap was set.
        let sent = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(sent.success());
        if told.exists() { Ok(()) } else { Err("it did not hear it") }
    })
    .await;

    let refused = detach(&system, "data", "n1").await.unwrap_err();
    assert_eq!(refused.code, Code::ClaimsLive, "{refused}");
    assert_eq!(refused.message, "still running with it: a");
    assert!(refused.next.contains("berth alloc stop a"), "{refused:?}");
    let refused = system.deregister("data", true).await.unwrap_err();
    assert_eq!(refused.code, Code::ClaimsLive, "{refused}");
    for _ in 0..3 {
        let _: Value = system.persist(&Global::GcForce.subject(), &json!({})).await.unwrap();
    }
    let by_hand = berth(&system, &["volume", "detach", "data", "n1", "--timeout", "1s"]).await;
    assert_eq!(by_hand.status.code(), Some(5), "{by_hand:?}");
    assert_eq!(begun(&system, "NodeUnpublishVolume", "data"), 0);
    assert!(task.try_wait().unwrap().is_none(), "it still runs");

    std::fs::write(&go, "").unwrap();
    assert!(task.wait().await.unwrap().code().is_some());
    system.settle("data").await;
    assert_eq!(begun(&system, "NodeUnpublishVolume", "data"), 1, "and exactly once");
}
