//! A plugin that is down for long: its operations wait visibly, and continue as soon as it is back.

use std::time::{Duration, Instant};

use berth_domain::volume::storage::Stage;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use serde_json::json;

/// Retries are an hour apart here, so only an early wake makes the volume ready.
#[tokio::test(flavor = "multi_thread")]
async fn an_operation_goes_on_as_soon_as_its_plugin_is_back() {
    if !or_skip("real mounts") {
        return;
    }
    let hour = 3_600_000;
    let system =
        System::start(Options { nodes: 1, retry_ms: (hour, hour), ..Options::default() }).await;
    system.kill9(Part::Driver(0));
    wait::until("the plugin counts as down", RECOVERY, || async {
        let plugins = system.plugins().await.map_err(|problem| problem.to_string())?;
        let healthy = plugins
            .plugins
            .iter()
            .filter_map(|plugin| plugin.controllers)
            .any(|controllers| controllers.healthy > 0);
        if healthy { Err(format!("{plugins:?}")) } else { Ok(()) }
    })
    .await;
    system.create("data", json!({"size": "1MiB"})).await.unwrap();
    let waiting = wait::until("the creation waits", RECOVERY, || async {
        let status = system.volume_status("data").await.map_err(|problem| problem.to_string())?;
        match status.storage.and_then(|storage| storage.operation) {
            Some(operation) if operation.next_try.is_some() => Ok(operation),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert!(waiting.failure.is_some(), "the reason is shown: {waiting:?}");
    let restarted = Instant::now();
    system.restart(Part::Driver(0));
    system.staged_as("data", Stage::Ready).await;
    assert!(
        restarted.elapsed() < Duration::from_secs(600),
        "the operation did not wait for its next try"
    );
    system.deleted("data").await;
    system.assert_known().await;
    system.judge();
}
