//! Drivers that tell of health as CSI 1.13 has it: without the conditions of CSI 1.12.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::snapshot::SnapshotsChanged;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::volume::State;
use berth_domain::volume::storage::SnapshotState;
use berth_harness::process::binary;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, System};
use serde_json::{Value, json};

use super::{Half, SOON, await_instance, provision, register};

fn without_conditions(node: usize) -> Vec<String> {
    let zone = format!("--topology=zone=z{}", node + 1);
    vec!["--without=condition".to_owned(), zone, "--snapshots-from=zone=z2".to_owned()]
}

fn options(nodes: usize) -> Options {
    let driver = without_conditions;
    Options { nodes, driver, call_timeout_ms: 5_000, ..Options::default() }
}

async fn start(nodes: usize) -> System {
    System::start(options(nodes)).await
}

/// Lets the driver of a node say that; an empty text ends it.
fn say_of_storage(system: &System, node: usize, text: &str) {
    let said = std::process::Command::new(binary("berth-csi-dev"))
        .args(["trouble", "--node-id", &(system.options.external_node)(node), "--backend"])
        .arg(system.backend())
        .arg(text)
        .output()
        .expect("the driver runs");
    assert!(said.status.success(), "{said:?}");
}

/// Waits until the registry knows that the driver of the first node says that of its storage.
async fn await_trouble(system: &System, text: &str) -> Value {
    let said = |node: &Value| node["abilities"]["storage"][0]["said"].to_string().contains(text);
    await_instance(system, "n1", Half::Node, said).await
}

async fn await_well(system: &System) -> Value {
    let is_well = |node: &Value| node["abilities"]["storage"].is_null();
    await_instance(system, "n1", Half::Node, is_well).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unwell_volume_shows_in_each_view_until_it_is_well() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(1).await;
    for id in ["data", "free"] {
        provision(&system, id, &[]);
        register(&system, id, json!({})).await.expect("the volume is registered");
    }
    system.run("a", 0, "data").await;
    let mark = |id: &str, text: &str| {
        let args = ["--abnormal", text];
        provision(&system, id, &args);
    };
    mark("data", "a disk is failing");
    mark("free", "a disk is failing");
    let views = [&["volume", "status", "data"][..], &["volume", "list"], &["why", "data"]];
    for (is_unwell, change) in [(true, "is shown"), (false, "is taken back")] {
        for command in views {
            let awaited = format!("it {change} by `berth {}`", command.join(" "));
            wait::until(&awaited, SOON, || async {
                let shown = system.berth_prints(command).await;
                let words = "degraded (Abnormal): a disk is failing";
                if shown.contains(words) == is_unwell { Ok(()) } else { Err(shown) }
            })
            .await;
        }
        // The controller lists what is mounted nowhere, too.
        let listed = system.berth_prints(&["volume", "list", "--external", PLUGIN]).await;
        let count = listed.matches("degraded (Abnormal)").count();
        assert_eq!(count, if is_unwell { 2 } else { 0 }, "{listed}");
        mark("data", "");
        mark("free", "");
    }
    system.stop("a").await;
    system.settle("data").await;
    system.judge();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_reach_the_storage_gets_no_volume_and_says_why() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(1).await;
    for id in ["data", "other"] {
        provision(&system, id, &[]);
        register(&system, id, json!({})).await.expect("the volume is registered");
    }
    system.run("a", 0, "data").await;
    say_of_storage(&system, 0, "degraded one path of two");
    await_trouble(&system, "one path of two").await;
    system.run("slow", 0, "other").await;
    system.stop("slow").await;
    system.freed("other").await;

    say_of_storage(&system, 0, "no route");
    await_trouble(&system, "no route").await;
    system.alloc("b", 0, "other", false).await;
    let refused = system.try_mount("b", 0, "other").await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::StorageAway, true), "{refused}");
    assert!(refused.message.contains("no route"), "{refused}");
    let placement = system.berth_prints(&["volume", "placement", "--volume", "other"]).await;
    assert!(placement.contains("no route"), "{placement}");
    for command in [&["doctor"][..], &["plugin", "status", PLUGIN], &["why", "n1"]] {
        let shown = system.berth_prints(command).await;
        assert!(shown.contains("no route"), "`berth {}`: {shown}", command.join(" "));
    }
    // A claim that is there keeps its mount, and can be released.
    let again = system.try_mount("a", 0, "data").await.expect("it is mounted already");
    assert!(!again.path.is_empty());
    system.stop("a").await;
    system.settle("data").await;

    say_of_storage(&system, 0, "");
    await_well(&system).await;
    system.mount("b", 0, "other").await.expect("the node reaches the storage again");
    let events = system.berth_prints(&["events", "--since", "10m"]).await;
    for name in ["plugin.storage-trouble", "plugin.storage-well"] {
        assert!(events.contains(name), "{name}: {events}");
    }
    system.stop("b").await;
    system.settle("other").await;
    system.judge();
}

/// For each question about the storage that its caller gave up: the probes that began meanwhile.
fn probes_beside_questions(system: &System) -> Vec<usize> {
    let calls = system.calls();
    let began = |call: &Value, rpc: &str| call["entry"] == "begin" && call["rpc"] == rpc;
    let given_up_at = |question: &Value| {
        calls.iter().position(|call| call["entry"] == "gone" && call["seq"] == question["seq"])
    };
    let questions =
        calls.iter().enumerate().filter(|(_, call)| began(call, "NodeGetStorageHealth"));
    questions
        .filter_map(|(at, question)| Some(&calls[at..given_up_at(question)?]))
        .map(|meanwhile| meanwhile.iter().filter(|call| began(call, "Probe")).count())
        .collect()
}

/// No answer says nothing of the storage, and holds up no probe.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_hangs_keeps_the_trouble_that_was_reported_and_the_plugin_healthy() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(1).await;
    provision(&system, "data", &[]);
    register(&system, "data", json!({})).await.expect("the volume is registered");
    say_of_storage(&system, 0, "no route");
    let reported = await_trouble(&system, "no route").await;

    system.plant(0, &json!([{"rpc": "NodeGetStorageHealth", "hang": true}]));
    let await_given_up = async |count: usize| {
        wait::until("questions hang", SOON, || async {
            let probes = probes_beside_questions(&system);
            if probes.len() >= count { Ok(()) } else { Err(format!("{probes:?}")) }
        })
        .await;
    };
    await_given_up(1).await;
    // From here on each answer would be that the storage is well.
    say_of_storage(&system, 0, "");
    await_given_up(2).await;
    let probes = probes_beside_questions(&system);
    assert!(probes.iter().all(|count| *count > 1), "{probes:?}");
    let still = await_trouble(&system, "no route").await;
    assert_eq!(still["healthy"], true, "{still}");
    assert_eq!(still["since"], reported["since"], "it was never unhealthy: {still}");
    system.alloc("a", 0, "data", false).await;
    let refused = system.try_mount("a", 0, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::StorageAway, "{refused}");

    system.plant(0, &json!([]));
    await_well(&system).await;
    system.mount("a", 0, "data").await.expect("the node reaches the storage again");
    system.stop("a").await;
    system.settle("data").await;
    system.judge();
}

/// Rule 13: a place in line is kept meanwhile. An alloc that waits for no other has none.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_is_granted_once_the_node_reaches_the_storage_again() {
    const PLACE_KEPT: Duration = Duration::from_secs(4);
    if !or_skip("real mounts") {
        return;
    }
    let place_kept_ms = PLACE_KEPT.as_millis().try_into().unwrap();
    let system = System::start(Options { place_kept_ms, ..options(1) }).await;
    for id in ["held", "free"] {
        provision(&system, id, &[]);
        register(&system, id, json!({})).await.expect("the volume is registered");
    }
    system.run("holder", 0, "held").await;
    system.alloc("next", 0, "held", false).await;
    system.alloc("first", 0, "free", false).await;
    let await_ticket = async |holders: usize| {
        wait::until("the claim is in line", SOON, || async {
            let claims = system.claims("held").await.claims;
            let waits = claims.iter().find(|claim| claim.state == State::Waiting);
            let ticket = waits.map(|claim| claim.epoch).filter(|_| claims.len() == holders + 1);
            ticket.ok_or_else(|| format!("{claims:?}"))
        })
        .await
    };
    let storage_recovers = async {
        tokio::time::sleep(PLACE_KEPT * 2).await;
        let ticket = await_ticket(0).await;
        assert_eq!(system.claims("free").await.claims, [], "it waits for no other");
        let why = system.berth_prints(&["why", "held"]).await;
        assert!(why.contains("no route"), "{why}");
        say_of_storage(&system, 0, "");
        ticket
    };
    let storage_fails = async {
        let ticket = await_ticket(1).await;
        say_of_storage(&system, 0, "no route");
        await_trouble(&system, "no route").await;
        system.stop("holder").await;
        assert_eq!(await_ticket(0).await, ticket);
        let (first, kept) =
            tokio::join!(system.mount_in_turn("first", 0, "free"), storage_recovers);
        assert_eq!(kept, ticket, "it kept its place in line");
        first.expect("the node reaches the storage again");
        ticket
    };
    let (next, ticket) = tokio::join!(system.mount_in_turn("next", 0, "held"), storage_fails);
    assert_eq!(next.expect("the node reaches the storage again").epoch, ticket);
    for alloc in ["next", "first"] {
        system.stop(alloc).await;
    }
    for volume in ["held", "free"] {
        system.settle(volume).await;
    }
    system.judge();
}

/// A snapshot may be usable elsewhere than its volume is.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_restored_where_the_plugin_says_that_it_can_be_used() {
    if !or_skip("real mounts") {
        return;
    }
    let system = start(2).await;
    system.created("data", json!({"size": "1MiB", "topology": [{"zone": "z1"}]})).await;
    system.snapshot(&["data"], "cut", json!({})).await.unwrap();
    system.snapshot_is("data", "cut", SnapshotState::Ready).await;
    let from = json!({"volume": "data", "snapshot": "cut"});
    let elsewhere = json!({"from": from, "topology": [{"zone": "z1"}]});
    let refused = system.create("wrong", elsewhere).await.unwrap_err();
    assert_eq!(refused.code, Code::BadInput, "{refused}");
    assert!(refused.to_string().contains("zone=z2 only"), "{refused}");
    system.created("copy", json!({"from": from})).await;

    // The plugin lists that of a snapshot which Berth does not know, too.
    let known = system.snapshot_is("data", "cut", SnapshotState::Ready).await;
    let forget = json!({"volume": "data", "snapshot": "cut", "forget": true});
    let subject = verb::SnapshotDelete::subject(&Namespace::default());
    system.persist::<SnapshotsChanged>(&subject, &forget).await.unwrap();
    let adopt = json!({"volume": "data", "snapshot": "adopted", "plugin": PLUGIN,
        "external_id": known.external_id});
    let subject = verb::SnapshotAdopt::subject(&Namespace::default());
    system.persist::<SnapshotsChanged>(&subject, &adopt).await.unwrap();
    let from = json!({"volume": "data", "snapshot": "adopted"});
    let elsewhere = json!({"from": from, "topology": [{"zone": "z1"}]});
    let refused = system.create("wrong", elsewhere).await.unwrap_err();
    assert!(refused.to_string().contains("zone=z2 only"), "{refused}");

    let refused = system.run_refused("a", 0, "copy").await;
    assert_eq!(refused.code, Code::OutOfReach, "{refused}");
    system.run("b", 1, "copy").await;
    system.stop("b").await;
    system.stop("a").await;
    system.settle("copy").await;
    system.judge();
}
