//! `berth events` and `berth trace`, for a claim with failures in a running system.

use std::time::{Duration, Instant};

use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

/// Runs `berth` and parses its output: each line of JSON, or one document.
async fn berth(system: &System, args: &[&str]) -> Result<Vec<Value>, String> {
    let ran =
        system.berth().args(["--nats", &system.url(), "--json"]).args(args).output().await.unwrap();
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    if !ran.status.success() {
        return Err(format!("exit code {:?}: {ran:?}", ran.status.code()));
    }
    let values = serde_json::Deserializer::from_str(&out).into_iter();
    Ok(values.collect::<Result<_, _>>().unwrap())
}

/// The tree of the only claim.
async fn tree(system: &System, of: &str) -> Value {
    let mut printed = berth(system, &["trace", of]).await.unwrap();
    let mut tree = printed.pop().unwrap();
    assert_eq!(tree["claims"].as_array().map(Vec::len), Some(1), "{tree:#}");
    tree["claims"][0].take()
}

/// Steps with this name, at any depth, in order.
fn steps<'a>(phase: &'a Value, name: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    for step in phase["steps"].as_array().into_iter().flatten() {
        found.extend((step["name"] == name).then_some(step));
        found.extend(steps(step, name));
    }
    found
}

fn hows(steps: &[&Value]) -> Vec<String> {
    steps.iter().map(|step| step["how"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Faults for the next call on every node.
fn plant(system: &System, faults: &Value) {
    for node in 0..system.options.nodes {
        system.plant(node, faults);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claims_trouble_is_told_by_its_events() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    // Either host's controller may be called first: each fails once.
    plant(&system, &json!([{"rpc": "ControllerPublishVolume", "code": "UNAVAILABLE", "times": 1}]));
    system.run("a", 0, "data").await;
    let held = tree(&system, "data/a").await;
    assert_eq!((&held["state"], &held["claim"]["how"]), (&json!("taken"), &json!("done")));
    assert_eq!(held.get("release"), None, "{held:#}");

    // The unmount fails once. The watcher is killed during the controller's detach.
    plant(
        &system,
        &json!([
            {"rpc": "NodeUnpublishVolume", "code": "UNAVAILABLE", "times": 1},
            {"rpc": "ControllerUnpublishVolume", "hang": true, "times": 1},
        ]),
    );
    system.stop("a").await;
    system.under_way("ControllerUnpublishVolume").await;
    let held = Instant::now();
    let under_way = tree(&system, "a").await;
    let detach = steps(&under_way["release"], "controller.unpublish");
    assert_eq!(hows(&detach), ["under-way"], "{under_way:#}");
    assert!(detach[0]["until"].is_string() && detach[0]["took_us"].is_u64(), "{under_way:#}");
    system.kill9_and_restart(Part::Watcher).await;
    let held = held.elapsed();
    system.let_go();
    system.settle("data").await;

    let told = wait::until("all is told", SOON, || async {
        let told = berth(&system, &["events", "--alloc", "a"]).await?;
        let is_freed = |event: &Value| event["event"] == "claim.freed";
        if told.iter().any(is_freed) { Ok(told) } else { Err(format!("{told:#?}")) }
    })
    .await;
    let tree = tree(&system, "data/a").await;
    check_tree(&tree, held);
    check_events(&told, &tree);

    // Each name of the claim leads to the same tree.
    let release = tree["release"]["trace"].as_str().unwrap();
    for of in ["a", "data", release] {
        assert_eq!(self::tree(&system, of).await, tree, "{of}");
    }
    let unknown = berth(&system, &["trace", "data/b"]).await.unwrap_err();
    assert!(unknown.contains("BERTH0112") && unknown.contains("exit code Some(3)"), "{unknown}");
}

/// Both phases have ended, and every attempt is there with its maker and its parts.
fn check_tree(tree: &Value, held: Duration) {
    let (claim, release) = (&tree["claim"], &tree["release"]);
    assert_eq!((&claim["how"], &release["how"]), (&json!("done"), &json!("done")), "{tree:#}");
    assert!(claim["trace"] != release["trace"], "{tree:#}");
    assert_eq!(
        (&claim["begins_before"], &release["begins_before"]),
        (&json!(false), &json!(false))
    );

    let mut publishes = hows(&steps(claim, "controller.publish"));
    assert_eq!(publishes.pop().as_deref(), Some("done"), "{tree:#}");
    assert!(!publishes.is_empty() && publishes.iter().all(|how| how == "failed"), "{tree:#}");

    let unmounts = steps(release, "agent.detach");
    assert_eq!(hows(&unmounts), ["failed", "done"], "{tree:#}");
    assert!(unmounts[0]["again_after_us"].as_u64() > Some(0), "{tree:#}");
    let codes: Vec<&Value> =
        steps(release, "NodeUnpublishVolume").iter().map(|call| &call["code"]).collect();
    assert_eq!(codes, ["UNAVAILABLE", "OK"], "{tree:#}");

    // The killed watcher's call: the plugin did the work, and its result was not recorded.
    let detaches = steps(release, "controller.unpublish");
    assert_eq!(hows(&detaches).first().map(String::as_str), Some("abandoned"), "{tree:#}");
    assert_eq!(hows(&detaches).last().map(String::as_str), Some("done"), "{tree:#}");
    let after = &detaches[1];
    assert!(after["taken_over"] == true && after["worker"] != detaches[0]["worker"], "{tree:#}");
    let called = steps(release, "ControllerUnpublishVolume");
    let held = u64::try_from(held.as_micros()).ok();
    assert!(called.iter().any(|call| call["took_us"].as_u64() >= held), "{tree:#}");

    for (phase, rpcs) in [
        (claim, &["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"][..]),
        (release, &["NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"]),
    ] {
        for rpc in rpcs {
            let calls = steps(phase, rpc);
            assert!(!calls.is_empty(), "{rpc} is not in {phase:#}");
            let timed = |call: &&Value| call["at"].is_string() && call["took_us"].is_u64();
            assert!(calls.iter().all(timed), "{phase:#}");
        }
    }
    for phase in [claim, release] {
        let begun: Vec<&str> = phase["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["at"].as_str().unwrap())
            .collect();
        assert!(begun.is_sorted(), "{phase:#}");
    }
}

/// One claim, one release that names it, and the order of their steps.
fn check_events(told: &[Value], tree: &Value) {
    let (claim, release) = (&tree["claim"]["trace"], &tree["release"]["trace"]);
    let of_record: Vec<&Value> = told
        .iter()
        .filter(|event| event["event"].as_str().is_some_and(|name| name.starts_with("claim.")))
        .collect();
    for event in &of_record {
        let is_claims = &event["trace"] == claim && event["claim_trace"].is_null();
        let is_releases = &event["trace"] == release && &event["claim_trace"] == claim;
        assert!(is_claims || is_releases, "{event:#}");
    }
    let mut names: Vec<&str> =
        of_record.iter().filter_map(|event| event["event"].as_str()).collect();
    names.dedup();
    names.retain(|name| *name != "claim.failed");
    names.dedup();
    let way = ["publishing", "taken", "unpublishing", "node-detached", "freed"];
    assert_eq!(names, way.map(|state| format!("claim.{state}")), "{told:#?}");
    let unmounted = told.iter().filter(|event| event["event"] == "volume.unmounted");
    let traces: Vec<_> = unmounted.map(|event| &event["trace"]).collect();
    assert!(!traces.is_empty() && traces.iter().all(|trace| *trace == release), "{told:#?}");
}
