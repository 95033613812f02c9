//! The node's status agrees with the kernel and the driver's log, whichever process was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

use berth_domain::plugin::NodeState;
use berth_domain::volume::State;
use berth_harness::dirs::mounts_beneath;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `berth` to its end.
async fn berth(system: &System, args: &[&str]) -> Output {
    let mut command = system.berth();
    command.args(["--nats", &system.url()]).args(args).kill_on_drop(true);
    tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap()
}

/// `berth node status n1`, for programs.
async fn status(system: &System) -> Result<Value, String> {
    let shown = berth(system, &["--json", "node", "status", "n1"]).await;
    let text = String::from_utf8_lossy(&shown.stdout);
    let status: Value = serde_json::from_str(&text).map_err(|_| format!("{shown:?}"))?;
    if status["agent"].is_null() { Err(text.into_owned()) } else { Ok(status) }
}

fn mounts(status: &Value) -> &[Value] {
    status["agent"]["mounts"].as_array().map_or(&[], Vec::as_slice)
}

/// Paths that the status reports as mounted.
fn reported_paths(status: &Value) -> BTreeSet<PathBuf> {
    let path = |mount: &Value, field: &str, flag: &str| {
        (mount[flag] == true).then(|| PathBuf::from(mount[field].as_str().unwrap()))
    };
    let targets = mounts(status).iter().filter_map(|mount| path(mount, "path", "mounted"));
    let stagings = mounts(status).iter().filter_map(|mount| path(mount, "staging", "staged"));
    let strays = status["agent"]["strays"].as_array().into_iter().flatten();
    let strays = strays.map(|path| PathBuf::from(path.as_str().unwrap()));
    targets.chain(stagings).chain(strays).collect()
}

/// Paths that are mounted by the driver's log: published or staged successfully, and not undone
/// since.
fn logged(system: &System) -> BTreeSet<PathBuf> {
    let mut mounted = BTreeMap::new();
    for call in system.calls() {
        if call["entry"] != "end" || call["code"] != "OK" || call["node_id"] != "external-n1" {
            continue;
        }
        let (rpc, args) = (call["rpc"].as_str().unwrap_or_default().to_owned(), &call["args"]);
        let field = match rpc.as_str() {
            "NodeStageVolume" | "NodeUnstageVolume" => "staging_target_path",
            "NodePublishVolume" | "NodeUnpublishVolume" => "target_path",
            _ => continue,
        };
        let path = PathBuf::from(args[field].as_str().unwrap());
        mounted.insert(path, rpc == "NodeStageVolume" || rpc == "NodePublishVolume");
    }
    mounted.into_iter().filter_map(|(path, is_mounted)| is_mounted.then_some(path)).collect()
}

fn kernel(system: &System) -> BTreeSet<PathBuf> {
    mounts_beneath(&system.dir().path().join("n1/csi")).into_iter().collect()
}

fn mount<'a>(status: &'a Value, alloc: &str) -> &'a Value {
    let entry = mounts(status).iter().find(|mount| mount["alloc"] == alloc);
    entry.expect(alloc)
}

/// The plugin is killed while the alloc stops. The claim stays as long as the mount, and is gone
/// soon after the plugin's restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_killed_as_its_consumer_stops_frees_nothing_before_it_is_back() {
    if !or_skip("real mounts") {
        return;
    }
    // The default schedule: delays after failures grow far longer than this test waits.
    let system = System::start(Options { retry_ms: (1_000, 60_000), ..Options::default() }).await;
    let mut times = Vec::new();
    for round in 0..3 {
        let (volume, alloc) = (format!("data-{round}"), format!("a-{round}"));
        system.volume(&volume, &["single-node-writer"]).await;
        system.run(&alloc, 0, &volume).await;
        let before = kernel(&system);
        system.kill9(Part::Driver(0));
        system.stop(&alloc).await;
        let claim = wait::until("the release has failed", PATIENCE, async || {
            let claim = system.claims(&volume).await.claims.pop().ok_or("the volume was freed")?;
            if claim.tries >= 3 { Ok(claim) } else { Err(format!("{claim:?}")) }
        })
        .await;
        assert_eq!(claim.state, State::Unpublishing);
        assert_eq!(kernel(&system), before, "the mount stays");
        let status = status(&system).await.unwrap();
        assert_eq!(reported_paths(&status), before);
        assert_eq!(mount(&status, &alloc)["state"], "leaving");
        assert!(status["agent"]["failures"][0]["tries"].as_u64() >= Some(1), "{status:#}");

        let restarted = Instant::now();
        system.restart(Part::Driver(0));
        system.freed(&volume).await;
        times.push(restarted.elapsed());
        system.settle(&volume).await;
        system.healthy().await;
    }
    println!("from the start of the plugin's process to the volume being free: {times:?}");
    // The release does not wait for the delay that failures had reached.
    assert!(times.iter().all(|time| *time < Duration::from_secs(15)), "{times:?}");
}

/// Agent and plugin are killed, and a mount is removed; the node's status is true at each moment.
#[tokio::test(flavor = "multi_thread")]
async fn node_status_is_the_truth_after_agent_plugin_and_mounts_were_killed() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    let mut paths = BTreeMap::new();
    for volume in ["one", "two"] {
        system.volume(volume, &["single-node-multi-writer"]).await;
    }
    for (alloc, volume) in [("a", "one"), ("b", "one"), ("c", "two")] {
        paths.insert(alloc, system.run(alloc, 0, volume).await.path);
    }
    let status_now = status(&system).await.unwrap();
    assert_eq!(reported_paths(&status_now), kernel(&system));
    assert_eq!(reported_paths(&status_now), logged(&system));
    assert_eq!(status_now["claims"].as_array().map(Vec::len), Some(3), "{status_now:#}");

    // An operator unmounts what `a` has, while agent and plugin are stopped.
    system.kill9(Part::Agent(0));
    system.kill9(Part::Driver(0));
    let output = berth(&system, &["node", "status", "n1"]).await;
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("what is mounted is not known"), "{shown}");
    let unmounted = std::process::Command::new("umount").arg(&paths["a"]).status().unwrap();
    assert!(unmounted.success());
    system.restart(Part::Driver(0));
    system.restart(Part::Agent(0));
    system.healthy().await;
    let status_now = wait::until("the missing mount is reported", PATIENCE, async || {
        let status = status(&system).await?;
        let missing = mount(&status, "a")["trouble"].is_string();
        if missing { Ok(status) } else { Err(format!("{status:#}")) }
    })
    .await;
    assert_eq!(reported_paths(&status_now), kernel(&system));
    // The driver does not know of the unmount: only in this mount does the status differ from its
    // log.
    let missing: Vec<PathBuf> =
        logged(&system).difference(&reported_paths(&status_now)).cloned().collect();
    assert_eq!(missing, [PathBuf::from(&paths["a"])]);
    assert_eq!(mount(&status_now, "a")["health"], "missing");
    let shown = berth(&system, &["node", "status", "n1"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout);
    println!("{shown}");
    assert!(shown.contains("berth volume republish one --node n1 --alloc a"), "{shown}");

    // Run the command that the status shows.
    let republished =
        berth(&system, &["volume", "republish", "one", "--node", "n1", "--alloc", "a"]).await;
    assert!(republished.status.success(), "{republished:?}");
    let status_now = status(&system).await.unwrap();
    assert_eq!(reported_paths(&status_now), kernel(&system));
    assert_eq!(reported_paths(&status_now), logged(&system));

    // A blocked release shows in its claim and at its node.
    system.plant(0, &json!([{"rpc": "NodeUnpublishVolume", "hang": true}]));
    system.stop("c").await;
    let status_now = wait::until("the unmount hangs", PATIENCE, async || {
        let status = status(&system).await?;
        let hung = status["agent"]["work"][0]["hung"] == true;
        let claims = status["claims"].as_array().into_iter().flatten();
        let tried =
            claims.filter(|claim| claim["alloc"] == "c" && claim["tries"].as_u64() >= Some(2));
        if hung && tried.count() == 1 { Ok(status) } else { Err(format!("{status:#}")) }
    })
    .await;
    assert_eq!(reported_paths(&status_now), kernel(&system));
    assert_eq!(mount(&status_now, "c")["state"], "leaving");
    assert_eq!(status_now["agent"]["work"][0]["rpc"], "NodeUnpublishVolume");
    let shown = berth(&system, &["node", "status", "n1"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout);
    println!("{shown}");
    for part in ["hung: agent.detach", "NodeUnpublishVolume not answered for", "its claim"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    system.plant(0, &json!([]));
    for alloc in ["a", "b"] {
        system.stop(alloc).await;
    }
    system.freed("two").await;
    system.settle("one").await;
    let status_now = status(&system).await.unwrap();
    assert_eq!(mounts(&status_now).len(), 0);
    assert_eq!((reported_paths(&status_now), logged(&system)), (BTreeSet::new(), BTreeSet::new()));
}

/// S10: only a proof replaces the node's answer. The operator must add `--yes`, and the agent must
/// be down. The proof is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_unmount_is_overridden_by_a_proof_only_and_that_is_recorded() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { call_timeout_ms: 1_000, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    system.plant(0, &json!([{"rpc": "NodeUnpublishVolume", "hang": true}]));
    system.stop("a").await;
    wait::until("the unmount hangs, and was tried twice", PATIENCE, async || {
        let claim = system.claims("data").await.claims.pop().ok_or("the volume was freed")?;
        if claim.tries >= 2 { Ok(()) } else { Err(format!("{claim:?}")) }
    })
    .await;
    let proof = ["--kind", "storage-fenced", "--by", "ada", "--note", "4711"];
    let seen = system.nodes().await.unwrap().nodes[0].revision.to_string();
    let gone = [&["node", "gone", "n1", "--seen", &seen][..], &proof].concat();
    let unconfirmed = berth(&system, &gone).await;
    assert!(String::from_utf8_lossy(&unconfirmed.stderr).contains("--yes"), "{unconfirmed:?}");
    let confirmed = [&gone[..], &["--yes"]].concat();
    let agent_runs = berth(&system, &confirmed).await;
    assert!(String::from_utf8_lossy(&agent_runs.stderr).contains("BERTH0213"), "{agent_runs:?}");
    let claim = system.claims("data").await.claims.pop().expect("the volume is not freed");
    assert_eq!(claim.state, State::Unpublishing);

    // The agent has exited; then the host is cut off from its storage.
    system.kill9(Part::Agent(0));
    let down = wait::until("the node is down", PATIENCE, async || {
        let node = system.nodes().await.unwrap().nodes.remove(0);
        if node.state == NodeState::Down { Ok(node) } else { Err(format!("{node:?}")) }
    })
    .await;
    system.fence(0, true);
    // The revision seen while the agent ran is outdated.
    let outdated = berth(&system, &confirmed).await;
    assert!(String::from_utf8_lossy(&outdated.stderr).contains("BERTH0009"), "{outdated:?}");
    let seen = down.revision.to_string();
    let confirmed: Vec<&str> = confirmed
        .into_iter()
        .enumerate()
        .map(|(index, arg)| if index == 4 { seen.as_str() } else { arg })
        .collect();
    let declared = berth(&system, &confirmed).await;
    assert!(declared.status.success(), "{declared:?}");
    let output = String::from_utf8_lossy(&declared.stdout).into_owned();
    assert!(output.contains("keep the fence until no mount is left"), "{output}");
    system.freed("data").await;
    let events = berth(&system, &["--json", "events", "--kind", "node", "--last", "100"]).await;
    let events = String::from_utf8_lossy(&events.stdout).into_owned();
    let event = events.lines().find(|line| line.contains("node.gone")).expect(&events);
    assert!(event.contains("ada") && event.contains("4711"), "{event}");

    // The node returns, and undoes the rest.
    system.plant(0, &json!([]));
    system.restart(Part::Agent(0));
    system.healthy().await;
    let status_text = berth(&system, &["node", "status", "n1"]).await;
    let status_text = String::from_utf8_lossy(&status_text.stdout).into_owned();
    assert!(status_text.contains("a fence may be lifted"), "{status_text}");
    system.fence(0, false);
    system.settle("data").await;
    assert_eq!(mounts(&status(&system).await.unwrap()).len(), 0);
}
