//! Plugins that come, go, and are none.

use std::fs;
use std::time::Duration;

use berth_contract::code::Code;
use berth_domain::plugin::Half;
use berth_domain::volume::CallKind;
use berth_harness::dirs::Disk;
use berth_harness::wait;
use serde_json::json;

use crate::world::{Differences, PATIENCE, World, call, half};

#[tokio::test]
async fn a_monolith_is_reported_as_two_healthy_halves() {
    let world = World::start().await;
    let report = world.healthy(true).await;
    assert_eq!(report.node.as_str(), "n.1");
    assert_eq!(report.boot_id.len(), 36);
    let controller = &half(&report, Half::Controller)[0].instance;
    assert!(controller.controller.unwrap().publish_unpublish_volume);
    let node = half(&report, Half::Node)[0].instance.node.clone().unwrap();
    assert_eq!(node.external_node, "node-1");
    assert!(node.stage_unstage_volume && node.controller_service);
    assert_eq!(report.instances.len(), 2);
}

/// E9: an unhealthy controller stops receiving at once, and "no responders" says so to its callers.
#[tokio::test]
async fn a_controller_is_served_only_while_it_is_healthy() {
    let world = World::start().await;
    world.attach(10).await;
    world.driver.kill9();
    let report = world.healthy(false).await;
    assert_eq!(report.instances.len(), 2, "what it can do stays known: {report:?}");
    assert!(report.instances[0].instance.controller.is_some());
    let gone = wait::until("nobody answers for the controller", PATIENCE, async || {
        let answer = world.call(call(CallKind::ControllerPublish, "a", 1, 11)).await;
        let problem = answer.err().ok_or("it answered")?;
        if problem.code == Code::NoResponder { Ok(problem) } else { Err("another error") }
    })
    .await;
    assert!(gone.retryable);
    assert!(world.status().await.unwrap().controllers.is_empty());

    world.driver.restart();
    world.healthy(true).await;
    wait::until("the controller answers again", PATIENCE, async || {
        let answer = world.call(call(CallKind::ControllerPublish, "a", 1, 12)).await;
        answer.map_err(|problem| problem.to_string())
    })
    .await;
}

#[tokio::test]
async fn a_plugin_that_does_not_answer_its_probe_is_unhealthy_and_comes_back() {
    let world = World::start().await;
    world.plant(&json!([{"rpc": "Probe", "code": "FAILED_PRECONDITION"}]));
    let report = world.healthy(false).await;
    let why = &report.instances[0].instance.description;
    assert!(why.contains("FAILED_PRECONDITION"), "{why}");
    world.plant(&json!([]));
    world.healthy(true).await;
    // Standing still is no answer either.
    world.driver.pause();
    let report = world.healthy(false).await;
    let why = &report.instances[0].instance.description;
    assert!(why.contains("no answer within 1s"), "{why}");
    world.driver.resume();
    world.healthy(true).await;
}

#[tokio::test]
async fn what_is_no_plugin_is_an_unhealthy_instance_with_its_reason() {
    let world = World::start_without_waiting(Differences::default()).await;
    world.driver.kill9();
    let socket = world.dir.join("csi.sock");
    let described = async |words: &str| {
        wait::until("the reason is reported", PATIENCE, async || {
            let report = world.last_report().ok_or("nothing was reported".to_owned())?;
            let instance = &report.instances[0].instance;
            let told = !instance.healthy && instance.description.contains(words);
            if told { Ok(report) } else { Err(instance.description.clone()) }
        })
        .await
    };
    // Its last instance may have left the socket behind.
    if socket.exists() {
        fs::remove_file(&socket).unwrap();
    }
    described("there is no such file").await;
    fs::write(&socket, "").unwrap();
    described("it is a file, not a socket").await;
    fs::remove_file(&socket).unwrap();
    let silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    described("no answer within").await;
    drop(silent);
    let report = described("no process listens").await;
    assert_eq!(report.instances.len(), 1);
    assert_eq!(report.instances[0].half, Half::Node);
    assert!(world.agent.is_running());
    fs::remove_file(&socket).unwrap();
    world.driver.restart();
    world.healthy(true).await;
}

#[tokio::test]
async fn the_node_is_reported_though_nothing_changes_and_until_it_is_taken() {
    let every = Differences { agent: "report_interval_ms = 200", ..Default::default() };
    let world = World::start_with(every).await;
    let first = world.last_report().unwrap().clock;
    wait::until("it is reported again", Duration::from_secs(5), async || {
        let last = world.last_report().unwrap().clock;
        if last > first { Ok(()) } else { Err("no newer report") }
    })
    .await;
}

/// Nothing is mounted that cannot be written down first. The agent says so, and goes on by itself
/// when its disk has room again.
#[tokio::test]
async fn a_full_disk_below_the_journal_is_reported_and_heals() {
    let mut world = World::start().await;
    world.agent.kill9();
    let journal = world.dir.join("state/journal");
    fs::remove_dir_all(&journal).unwrap();
    let disk = Disk::mount(&journal, 32 << 20);
    world.replace_agent(&[]);
    world.healthy_now().await;
    let context = world.attach(10).await;
    world.grant("a", 10, &context);

    disk.fill();
    let refused = wait::until("the journal takes nothing", PATIENCE, async || {
        // What is unmounted again leaves the journal as it was, and longer.
        match world.mount("a").await {
            Err(refused) => Ok(refused),
            Ok(_) => Err(format!("{:?}", world.detach("a", 10, 11).await)),
        }
    })
    .await;
    assert!(refused.message.contains("No space left on device"), "{refused}");
    assert!(refused.retryable, "{refused}");
    let report = wait::until("it is reported", PATIENCE, async || {
        let last = world.last_report().ok_or("nothing is reported")?;
        if last.attributes.contains_key("journal") { Ok(last) } else { Err("it is not") }
    })
    .await;
    let said = &report.attributes["journal"];
    assert!(said.contains("free its disk"), "{said}");
    let node = &half(&report, Half::Node)[0].instance;
    assert!(!node.healthy && node.description.contains("No space left"), "{node:?}");
    assert!(half(&report, Half::Controller)[0].instance.healthy, "it needs no journal");

    disk.free();
    let report = world.healthy(true).await;
    assert!(!report.attributes.contains_key("journal"), "{report:?}");
    world.grant("b", 20, &context);
    world.mount("b").await.unwrap();
    world.detach("b", 20, 21).await.unwrap();
}
