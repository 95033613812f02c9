//! A driver whose version, name or capabilities change at a restart, and one whose process another
//! one replaces.

use berth_contract::message::plugin::AgentPlugins;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::NodeId;
use berth_domain::plugin::Half;
use berth_harness::process::Daemon;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Part, System};
use serde_json::{Value, json};

use super::{await_instance, await_rest, one_node, provision, register};

/// A system with a mounted volume, whose driver was then restarted with these faults.
async fn restarted_with(faults: &Value) -> System {
    let system = System::start(one_node()).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.expect("the volume is registered");
    let mounted = system.run("a", 0, "data").await;
    system.plant(0, faults);
    system.kill9_and_restart(Part::Driver(0)).await;
    std::fs::write(format!("{}/f", mounted.path), "x").expect("the volume stays mounted");
    system
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_seen_and_mounts_stay() {
    if !or_skip("real mounts") {
        return;
    }
    let system = restarted_with(&json!([{"rpc": "GetPluginInfo", "wrong": "other-version"}])).await;
    let is_other =
        |node: &Value| node["version"].as_str().is_some_and(|text| text.ends_with("-other"));
    let node = await_instance(&system, "n1", Half::Node, is_other).await;
    assert_eq!(node["healthy"], true, "{node}");
    system.stop("a").await;
    await_rest(&system, "data").await;
}

/// Another name is another driver. It would answer for every volume that nothing is mounted. So it
/// gets no new volumes, and the kernel's mount table overrides its answers.
#[tokio::test(flavor = "multi_thread")]
async fn another_driver_at_the_same_socket_is_given_nothing_new() {
    if !or_skip("real mounts") {
        return;
    }
    let system = restarted_with(&json!([{"rpc": "GetPluginInfo", "wrong": "other-name"}])).await;
    let is_other = |node: &Value| {
        node["description"].as_str().is_some_and(|text| text.contains("it is other.dev.berth now"))
    };
    let node = await_instance(&system, "n1", Half::Node, is_other).await;
    assert_eq!(node["healthy"], false, "{node}");
    system.plant(0, &json!([]));
    system.stop("a").await;
    await_rest(&system, "data").await;
}

/// The plugin is not called for a capability that it lost. Its earlier work is undone once the
/// capability is back. Until then the volume is not free.
#[tokio::test(flavor = "multi_thread")]
async fn abilities_that_are_gone_are_missed_where_they_are_needed() {
    if !or_skip("real mounts") {
        return;
    }
    let system = restarted_with(&json!([
        {"rpc": "NodeGetCapabilities", "wrong": "no-capabilities"},
        {"rpc": "NodeUnstageVolume", "code": "UNIMPLEMENTED"},
    ]))
    .await;
    let lost_staging = |node: &Value| node["abilities"]["stage_unstage_volume"] == false;
    await_instance(&system, "n1", Half::Node, lost_staging).await;
    system.stop("a").await;
    let claim = wait::until("the release waits", super::SOON, || async {
        let claim = system.claims("data").await.claims.pop().ok_or("it was freed")?;
        if claim.tries > 0 { Ok(claim) } else { Err(format!("{claim:?}")) }
    })
    .await;
    assert!(claim.error().is_some_and(|error| error.contains("NodeUnstageVolume")), "{claim:?}");
    system.plant(0, &json!([]));
    await_rest(&system, "data").await;
}

/// The path counts: an earlier process that still lives gets no further call.
#[tokio::test(flavor = "multi_thread")]
async fn another_process_at_the_path_is_used_while_the_old_one_lives() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(one_node()).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.expect("the volume is registered");
    let mounted = system.run("a", 0, "data").await;
    let second = take_path(&system);
    await_process(&system, &second).await;
    std::fs::write(format!("{}/f", mounted.path), "x").expect("the volume stays mounted");
    system.stop("a").await;
    await_rest(&system, "data").await;
    assert!(system.daemon(Part::Driver(0)).is_running(), "nobody ended it");
}

/// A process that hangs cannot be ended by SIGKILL while it is in a system call that does not end.
/// A stopped one is as silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_hangs_is_left_for_another_one_at_its_path() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(one_node()).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.expect("the volume is registered");
    let hung = system.daemon(Part::Driver(0));
    hung.pause();
    let is_silent = |node: &Value| node["healthy"] == false;
    await_instance(&system, "n1", Half::Node, is_silent).await;
    let second = take_path(&system);
    await_instance(&system, "n1", Half::Node, |node| node["healthy"] == true).await;
    await_process(&system, &second).await;
    let mounted = system.run("a", 0, "data").await;
    std::fs::write(format!("{}/f", mounted.path), "x").expect("the volume is mounted");
    system.stop("a").await;
    await_rest(&system, "data").await;
    // What it got before it hung, it may carry out now: nothing but probes.
    hung.resume();
    await_rest(&system, "data").await;
}

/// Starts another process of the driver at the path of the first one's socket.
fn take_path(system: &System) -> Daemon {
    std::fs::remove_file(system.dir().join("d1.sock")).expect("the socket can be removed");
    system.daemon(Part::Driver(0)).start_another()
}

/// Waits until the agent's calls go to this process, as `berth plugin instances` shows it.
async fn await_process(system: &System, process: &Daemon) {
    wait::until("calls go to the process", super::SOON, || async {
        let plugins: Result<AgentPlugins, Problem> =
            system.ask(&verb::AgentPlugins::subject(&NodeId::new("n1").unwrap()), &json!({})).await;
        let plugins = plugins.map_err(|problem| problem.to_string())?;
        let listener = plugins.instances.first().and_then(|one| one.listener.clone());
        let listener = listener.ok_or_else(|| format!("{plugins:?}"))?;
        assert_eq!(listener.command, "berth-csi-dev");
        if listener.pid == process.pid() { Ok(()) } else { Err(format!("{listener:?}")) }
    })
    .await;
}
