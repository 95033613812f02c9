//! Operators under pressure: whatever they request, no running workload loses its volume, nothing
//! is left behind, and the answers show the true state.

use std::time::Duration;

use berth_bus::{Change, Guard, Write};
use berth_contract::code::Code;
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_contract::{bucket, key};
use berth_domain::{AllocId, Namespace};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use berth_service::clock;
use serde_json::{Value, json};

use super::{SOON, begun, berth, changes, detach};

/// Deletes an alloc's record, as an operator might.
async fn delete_alloc_record(system: &System, alloc: &str) {
    let allocs = system.bus.bucket(&bucket::ALLOCS, 1).await.unwrap();
    let key = key::alloc(&Namespace::default(), &AllocId::new(alloc).unwrap());
    let revision = allocs.head(&key).await.unwrap();
    let operation = clock::new_attempt();
    allocs
        .commit(Write {
            key: &key,
            change: Change::Delete,
            guard: Guard { filter: &key, revision },
            operation: operation.as_str(),
            trace: clock::begin_trace(),
        })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_orders_are_refused_while_somebody_runs_and_carried_out_after() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    let before = changes(&system, "data");
    let refused = system.deregister("data", false).await.unwrap_err();
    assert_eq!(refused.code, Code::ClaimsLive, "{refused}");
    for _again in 0..2 {
        let refused = detach(&system, "data", "n1").await.unwrap_err();
        assert_eq!(refused.code, Code::ClaimsLive, "{refused}");
        assert_eq!(refused.message, "still running with it: a");
        assert_eq!(refused.node.as_deref(), Some("n1"));
    }
    assert_eq!(changes(&system, "data"), before, "refused before anything is called");
    let claim = system.claims("data").await.claims.pop().unwrap();
    assert!(claim.reason.is_none(), "nothing is written: {claim:?}");

    // The alloc ends without a stop, and its record is deleted: no request names its claim any
    // more.
    delete_alloc_record(&system, "a").await;
    let done = berth(&system, &["--json", "volume", "detach", "data", "n1"]).await;
    assert!(done.status.success(), "{done:?}");
    let detached: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&detached["gone"], &detached["hint"]), (&json!(true), &Value::Null));
    system.settle("data").await;
    let again = detach(&system, "data", "n1").await.unwrap();
    assert_eq!(again["gone"], true, "a repetition is harmless");
    assert_eq!(begun(&system, "ControllerUnpublishVolume", "data"), 1);

    let nowhere = detach(&system, "data", "n-typo").await.unwrap();
    assert_eq!(nowhere["gone"], true);
    assert!(nowhere["hint"].as_str().unwrap().contains("no node n-typo is on record"));
    let nothing = detach(&system, "no-such", "n1").await.unwrap_err();
    assert_eq!(nothing.code, Code::NoSuchVolume, "{nothing}");
    let exit = berth(&system, &["volume", "detach", "no-such", "n1"]).await;
    assert_eq!(exit.status.code(), Some(3), "{exit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_by_force_the_volume_goes_with_its_last_claim_and_the_history_says_so() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    system.hold("NodeUnpublishVolume");
    system.stop("a").await;
    let forced =
        berth(&system, &["volume", "deregister", "data", "--force", "--reason", "scrapped"]).await;
    assert!(forced.status.success(), "{forced:?}");
    system.let_go();
    system.settle("data").await;
    let gone = wait::until("the volume is gone", SOON, || async {
        system.volume_status("data").await.err().ok_or("the volume is still there")
    })
    .await;
    assert_eq!(gone.code, Code::NoSuchVolume, "{gone}");
    let history = wait::until("the history shows the deregistration", SOON, || async {
        let history = berth(&system, &["--json", "events", "--volume", "data"]).await;
        let history = String::from_utf8_lossy(&history.stdout).into_owned();
        if history.contains("volume.deregistered") { Ok(history) } else { Err(history) }
    })
    .await;
    for name in ["volume.closing", "volume.deregistered"] {
        let line =
            history.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{history}"));
        assert!(line.contains("scrapped"), "{line}");
    }
}

/// A volume was deleted at the storage, so its plugin never confirms the detach. An operator
/// confirms it instead, after the plugin was called, and the confirmation is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn s11_a_person_answers_for_a_controller_that_cannot() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    // The plugin detaches the volume, and answers that it does not know it.
    let lost = json!({"rpc": "ControllerUnpublishVolume", "code": "NOT_FOUND", "when": "after"});
    system.plant(0, &json!([lost]));
    system.run("a", 0, "data").await;
    let command = ["volume", "detach", "data", "n1", "--detached-at-storage", "--by", "ann"];
    let unconfirmed = berth(&system, &command).await;
    assert_eq!(unconfirmed.status.code(), Some(2), "{unconfirmed:?}");
    let command = [&command[..], &["--yes", "--reason", "it was deleted there"]].concat();
    let running = berth(&system, &command).await;
    assert_eq!(running.status.code(), Some(5), "{running:?}");
    let claims = system.claims("data").await.claims;
    assert!(claims.len() == 1 && claims[0].reason.is_none(), "{claims:?}");

    system.stop("a").await;
    let claim = wait::until("the controller has failed", SOON, || async {
        let claim = system.claims("data").await.claims.pop().ok_or("the volume was freed")?;
        if claim.tries > 0 { Ok(claim) } else { Err(format!("{claim:?}")) }
    })
    .await;
    let hint = claim.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("detach data n1 --detached-at-storage --yes"), "{claim:?}");
    let done = berth(&system, &command).await;
    assert!(done.status.success(), "{done:?}");
    let history = wait::until("the history shows who confirmed", SOON, || async {
        let history = berth(&system, &["--json", "events", "--volume", "data"]).await;
        let history = String::from_utf8_lossy(&history.stdout).into_owned();
        if history.contains("claim.freed") { Ok(history) } else { Err(history) }
    })
    .await;
    assert!(history.contains("confirmed, says ann at "), "{history}");
    assert!(history.contains("it was deleted there"), "{history}");
    system.plant(0, &json!([]));
    system.run("b", 0, "data").await;
    system.stop("b").await;
    system.settle("data").await;
}

/// Rule 18: a plugin never confirms an unstage, although nothing is mounted. An operator confirms
/// it instead, only while nothing is mounted and the agent runs.
#[tokio::test(flavor = "multi_thread")]
async fn s11_a_person_answers_for_a_plugin_that_never_unstages() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    // The volume is unmounted, and the plugin keeps answering with an error.
    let refuses = json!({"rpc": "NodeUnstageVolume", "code": "INTERNAL", "when": "after"});
    system.plant(0, &json!([refuses]));
    system.stop("a").await;
    let claim = wait::until("the plugin has refused", SOON, || async {
        let claim = system.claims("data").await.claims.pop().ok_or("the volume was freed")?;
        if claim.tries > 0 { Ok(claim) } else { Err(format!("{claim:?}")) }
    })
    .await;
    let (error, hint) =
        (claim.error().unwrap_or_default().to_owned(), claim.hint.unwrap_or_default());
    assert!(error.contains("INTERNAL") && error.contains("nothing is mounted at"), "{error}");
    assert!(hint.contains("`berth volume detach data n1 --unstaged-on-node --yes`"), "{hint}");

    let command = ["volume", "detach", "data", "n1", "--unstaged-on-node", "--by", "ann"];
    let unconfirmed = berth(&system, &command).await;
    assert_eq!(unconfirmed.status.code(), Some(2), "{unconfirmed:?}");
    let command = [&command[..], &["--yes", "--reason", "no session is left"]].concat();
    // An agent that is down cannot check that nothing is mounted.
    system.kill9(Part::Agent(0));
    let agent_down = berth(&system, &[&command[..], &["--timeout", "3s"]].concat()).await;
    assert_eq!(agent_down.status.code(), Some(4), "{agent_down:?}");
    assert_eq!(begun(&system, "ControllerUnpublishVolume", "data"), 0);
    system.restart(Part::Agent(0));

    let done = berth(&system, &command).await;
    assert!(done.status.success(), "{done:?}");
    let history = wait::until("the history shows who confirmed", SOON, || async {
        let history = berth(&system, &["--json", "events", "--volume", "data"]).await;
        let history = String::from_utf8_lossy(&history.stdout).into_owned();
        if history.contains("claim.freed") { Ok(history) } else { Err(history) }
    })
    .await;
    assert!(history.contains("confirmed, says ann at "), "{history}");
    assert!(history.contains("no session is left"), "{history}");
    system.plant(0, &json!([]));
    system.run("b", 0, "data").await;
    system.stop("b").await;
    // Not settled by the judge, which would miss the unstage that only the operator confirmed.
    system.freed("data").await;
    assert_eq!(system.in_use("data"), None);
}

/// The plugin answers OK and the mount remains, or it lost the volume while it is mounted. The
/// claim names the commands to run on the node. No confirmation replaces them.
#[tokio::test(flavor = "multi_thread")]
async fn s11_a_mount_that_the_plugin_leaves_is_told_with_what_to_do() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let cases = [
        ("ok", json!({"rpc": "NodeUnpublishVolume", "wrong": "nothing-done"})),
        ("lost", json!({"rpc": "NodeUnpublishVolume", "code": "NOT_FOUND"})),
    ];
    for (volume, fault) in cases {
        system.volume(volume, &["single-node-writer"]).await;
        system.run(volume, 0, volume).await;
        system.plant(0, &json!([fault]));
        system.stop(volume).await;
        let hint = wait::until("the claim says what to do", SOON, || async {
            let claim = system.claims(volume).await.claims.pop().ok_or("the volume was freed")?;
            claim.hint.clone().filter(|_| claim.tries > 0).ok_or(format!("{claim:?}"))
        })
        .await;
        for command in ["`findmnt --mountpoint /", "`fuser -vm /", "`umount /"] {
            assert!(hint.contains(command), "{volume}: {hint}");
        }
        let command_line = ["volume", "detach", volume, "n1", "--unstaged-on-node", "--yes"];
        let refused = berth(&system, &[&command_line[..], &["--timeout", "2s"]].concat()).await;
        assert_eq!(refused.status.code(), Some(4), "{refused:?}");
        let (_, command) = hint.split_once("`umount ").unwrap();
        let path = command.split('`').next().unwrap();
        assert!(std::process::Command::new("umount").arg(path).status().unwrap().success());
        system.plant(0, &json!([]));
        // The judge would report the driver's false answer, which the test planted.
        system.freed(volume).await;
    }
}

/// The agent was just killed: its node is still ready, and the hint names the agent.
#[tokio::test(flavor = "multi_thread")]
async fn s11_an_agent_that_just_went_away_is_named_before_its_lease_ends() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    system.kill9(Part::Agent(0));
    system.stop("a").await;
    let hint = wait::until("the claim says that the agent is not there", SOON, || async {
        let claim = system.claims("data").await.claims.pop().ok_or("the volume was freed")?;
        claim.hint.clone().filter(|_| claim.tries > 0).ok_or(format!("{claim:?}"))
    })
    .await;
    assert!(hint.contains("the agent of node n1 has ended or just restarts"), "{hint}");
    assert!(hint.contains("`berth node status n1`"), "{hint}");
    system.restart(Part::Agent(0));
    system.settle("data").await;
}

/// Rule 16: while an attach hangs in the plugin, an observed detach at the storage may be outdated
/// once the plugin continues. A confirmation during the call is refused, and nothing is freed.
#[tokio::test(flavor = "multi_thread")]
async fn s11_a_word_counts_for_nothing_while_the_plugin_may_be_at_a_call() {
    if !or_skip("real mounts") {
        return;
    }
    let options =
        Options { nodes: 1, call_timeout_ms: 1_500, patience_ms: 3_000, ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["single-node-writer"]).await;
    let attach = json!({"rpc": "ControllerPublishVolume", "delay_ms": 12_000, "times": 1});
    system.plant(0, &json!([attach]));
    system.alloc("a", 0, "data", false).await;
    let take = json!({"alloc": "a", "volume": "data", "node": "n1"});
    let subject = verb::ClaimTake::subject(&Namespace::default());
    let unanswered = system.ask::<Value>(&subject, &take).await.unwrap_err();
    assert!(unanswered.retryable, "{unanswered}");
    system.stop("a").await;
    let detach = verb::VolumeDetach::subject(&Namespace::default());
    let confirmation = json!({"id": "data", "node": "n1", "confirmed_by": "ann"});
    wait::until("the attach blocks the detach", SOON, || async {
        let reply = system
            .ask::<Value>(&detach, &confirmation)
            .await
            .map_err(|problem| problem.to_string())?;
        let claim = &reply["claims"][0];
        let is_detaching = claim["state"] == "node-detached" && claim["tries"].as_u64() > Some(0);
        match reply["hint"].as_str() {
            Some(hint) if is_detaching && hint.contains("restart it first") => Ok(()),
            _ => Err(reply.to_string()),
        }
    })
    .await;
    assert!(system.in_use("data").is_none(), "the confirmation is true, for now");
    system.settle("data").await;
    assert_eq!(begun(&system, "ControllerPublishVolume", "data"), 1);
}

/// A node is down, and then removed: the release stays visible, and its hint says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn s11_a_detach_from_a_node_that_is_gone_stands_and_says_what_it_waits_for() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    system.compared().await;
    system.kill9(Part::Agent(0));
    system.stop("a").await;
    wait::until("the node is down", SOON, || async {
        let reply = detach(&system, "data", "n1").await.map_err(|problem| problem.to_string())?;
        match reply["hint"].as_str() {
            Some(hint) if hint.contains("`berth node gone n1 --seen ") => Ok(()),
            _ => Err(reply.to_string()),
        }
    })
    .await;
    let removed: Result<Value, Problem> =
        system.persist(&verb::NodeLeave::subject(&()), &json!({"node": "n1"})).await;
    removed.unwrap();
    wait::until("the node is not on record", SOON, || async {
        let reply = detach(&system, "data", "n1").await.map_err(|problem| problem.to_string())?;
        match reply["hint"].as_str() {
            Some(hint) if hint.contains("no node n1 is on record") => Ok(()),
            _ => Err(reply.to_string()),
        }
    })
    .await;
    let by_hand = berth(&system, &["volume", "detach", "data", "n1", "--timeout", "2s"]).await;
    let stderr = String::from_utf8_lossy(&by_hand.stderr);
    assert_eq!(by_hand.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("berth node gone n1") && stderr.contains("unpublishing"), "{stderr}");
    let claim = system.claims("data").await.claims.pop().unwrap();
    assert!(claim.tries > 0 && claim.failure.is_some(), "{claim:?}");
    assert_eq!(
        begun(&system, "ControllerUnpublishVolume", "data"),
        0,
        "nothing is detached without an answer of the node"
    );

    system.restart(Part::Agent(0));
    let done = berth(&system, &["volume", "detach", "data", "n1", "--timeout", "40s"]).await;
    assert!(done.status.success(), "{done:?}");
    tokio::time::timeout(Duration::from_secs(20), system.settle("data")).await.unwrap();
}
