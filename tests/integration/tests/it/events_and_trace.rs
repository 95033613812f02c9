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

/// The tree of the only claim that the name finds.
async fn tree(system: &System, name: &str) -> Value {
    let mut printed = berth(system, &["trace", name]).await.unwrap();
    let mut tree = printed.pop().unwrap();
    assert_eq!(tree["claims"].as_array().map(Vec::len), Some(1), "{tree:#}");
    tree["claims"][0].take()
}

/// Steps with this name, at any depth, in order.
fn steps<'a>(phase: &'a Value, name: &str) -> Vec<&'a Value> {
    let mut steps_found = Vec::new();
    for step in phase["steps"].as_array().into_iter().flatten() {
        steps_found.extend((step["name"] == name).then_some(step));
        steps_found.extend(steps(step, name));
    }
    steps_found
}

/// How each step ended.
fn outcomes(steps: &[&Value]) -> Vec<String> {
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
    let taken = tree(&system, "data/a").await;
    assert_eq!((&taken["state"], &taken["claim"]["how"]), (&json!("taken"), &json!("done")));
    assert_eq!(taken.get("release"), None, "{taken:#}");

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
    let hang_began = Instant::now();
    let under_way = tree(&system, "a").await;
    let detach = steps(&under_way["release"], "controller.unpublish");
    assert_eq!(outcomes(&detach), ["under-way"], "{under_way:#}");
    assert!(detach[0]["until"].is_string() && detach[0]["took_us"].is_u64(), "{under_way:#}");
    system.kill9_and_restart(Part::Watcher).await;
    let hung_for = hang_began.elapsed();
    system.let_go();
    system.settle("data").await;

    let events = wait::until("the events end with the release", SOON, || async {
        let events = berth(&system, &["events", "--alloc", "a"]).await?;
        let is_freed = |event: &Value| event["event"] == "claim.freed";
        if events.iter().any(is_freed) { Ok(events) } else { Err(format!("{events:#?}")) }
    })
    .await;
    let tree = tree(&system, "data/a").await;
    check_tree(&tree, hung_for);
    check_events(&events, &tree);

    // Each name of the claim finds the same tree.
    let release = tree["release"]["trace"].as_str().unwrap();
    for name in ["a", "data", release] {
        assert_eq!(self::tree(&system, name).await, tree, "{name}");
    }
    let unknown = berth(&system, &["trace", "data/b"]).await.unwrap_err();
    assert!(unknown.contains("BERTH0112") && unknown.contains("exit code Some(3)"), "{unknown}");
}

/// Checks that both phases have ended, and that every attempt has its worker and its steps.
fn check_tree(tree: &Value, hung_for: Duration) {
    let (claim, release) = (&tree["claim"], &tree["release"]);
    assert_eq!((&claim["how"], &release["how"]), (&json!("done"), &json!("done")), "{tree:#}");
    assert!(claim["trace"] != release["trace"], "{tree:#}");
    assert_eq!(
        (&claim["begins_before"], &release["begins_before"]),
        (&json!(false), &json!(false))
    );

    let mut publishes = outcomes(&steps(claim, "controller.publish"));
    assert_eq!(publishes.pop().as_deref(), Some("done"), "{tree:#}");
    assert!(!publishes.is_empty() && publishes.iter().all(|how| how == "failed"), "{tree:#}");

    let unmounts = steps(release, "agent.detach");
    assert_eq!(outcomes(&unmounts), ["failed", "done"], "{tree:#}");
    assert!(unmounts[0]["again_after_us"].as_u64() > Some(0), "{tree:#}");
    let codes: Vec<&Value> =
        steps(release, "NodeUnpublishVolume").iter().map(|call| &call["code"]).collect();
    assert_eq!(codes, ["UNAVAILABLE", "OK"], "{tree:#}");

    // The killed watcher's call: the plugin did the work, and its result was not recorded.
    let detaches = steps(release, "controller.unpublish");
    assert_eq!(outcomes(&detaches).first().map(String::as_str), Some("abandoned"), "{tree:#}");
    assert_eq!(outcomes(&detaches).last().map(String::as_str), Some("done"), "{tree:#}");
    let retry = &detaches[1];
    assert!(retry["taken_over"] == true && retry["worker"] != detaches[0]["worker"], "{tree:#}");
    let calls = steps(release, "ControllerUnpublishVolume");
    let hung_us = u64::try_from(hung_for.as_micros()).ok();
    assert!(calls.iter().any(|call| call["took_us"].as_u64() >= hung_us), "{tree:#}");

    for (phase, rpcs) in [
        (claim, &["ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"][..]),
        (release, &["NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"]),
    ] {
        for rpc in rpcs {
            let calls = steps(phase, rpc);
            assert!(!calls.is_empty(), "{rpc} is not in {phase:#}");
            let has_times = |call: &&Value| call["at"].is_string() && call["took_us"].is_u64();
            assert!(calls.iter().all(has_times), "{phase:#}");
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

/// Checks the traces of one claim and of one release that names it, and the order of their events.
fn check_events(events: &[Value], tree: &Value) {
    let (claim, release) = (&tree["claim"]["trace"], &tree["release"]["trace"]);
    let claim_events: Vec<&Value> = events
        .iter()
        .filter(|event| event["event"].as_str().is_some_and(|name| name.starts_with("claim.")))
        .collect();
    for event in &claim_events {
        let is_of_claim = &event["trace"] == claim && event["claim_trace"].is_null();
        let is_of_release = &event["trace"] == release && &event["claim_trace"] == claim;
        assert!(is_of_claim || is_of_release, "{event:#}");
    }
    let mut names: Vec<&str> =
        claim_events.iter().filter_map(|event| event["event"].as_str()).collect();
    names.dedup();
    names.retain(|name| *name != "claim.failed");
    names.dedup();
    let states = ["publishing", "taken", "unpublishing", "node-detached", "freed"];
    assert_eq!(names, states.map(|state| format!("claim.{state}")), "{events:#?}");
    let unmounted = events.iter().filter(|event| event["event"] == "volume.unmounted");
    let traces: Vec<_> = unmounted.map(|event| &event["trace"]).collect();
    assert!(!traces.is_empty() && traces.iter().all(|trace| *trace == release), "{events:#?}");
}
