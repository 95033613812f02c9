//! The safety rules in a running system: each test names its rule.

use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::message::agent::AgentStatus;
use berth_contract::message::claim::{CallReport, Checkpoint, Checkpointed, ReportedOutcome};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::volume::State;
use berth_domain::{AllocId, AttemptId, Namespace, NodeId, VolumeId, WorkerId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use serde_json::{Value, json};

const PUBLISH: &str = "ControllerPublishVolume";

/// How many calls of an RPC began for a node, by the plugin's id of the node.
fn count(system: &System, rpc: &str, node: &str) -> usize {
    let calls = system.calls();
    let is_begun = |call: &&Value| call["entry"] == "begin" && call["rpc"] == rpc;
    calls.iter().filter(is_begun).filter(|call| call["args"]["node_id"] == node).count()
}

/// Safety 1: a single-writer volume never has two live write claims, through any replica.
#[tokio::test(flavor = "multi_thread")]
async fn safety_1_of_many_who_race_one_wins() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { replicas: 2, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    for round in 0..3 {
        let names: Vec<String> = (0..8).map(|number| format!("a{round}-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            system.alloc(name, number % 2, "data", false).await;
        }
        let mount = |number: usize| system.mount(&names[number], number % 2, "data");
        let answers = <[_; 8]>::from(tokio::join!(
            mount(0),
            mount(1),
            mount(2),
            mount(3),
            mount(4),
            mount(5),
            mount(6),
            mount(7)
        ));
        let grants = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(grants, 1, "{answers:#?}");
        let refusals: Vec<&Problem> =
            answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert!(refusals.iter().all(|problem| problem.code == Code::Held), "{refusals:#?}");
        for name in &names {
            system.stop(name).await;
        }
        system.settle("data").await;
    }
}

/// Safety 2 and Safety 3: while a node's agent is dead, its volume stays there, visibly and without
/// a time limit. No other alloc gets it, and the controller is not called to detach it.
#[tokio::test(flavor = "multi_thread")]
async fn safety_2_and_3_a_silent_node_keeps_its_volume() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    system.kill9(Part::Agent(0));
    system.stop("a").await;
    let stuck = wait::until("the release has failed twice", Duration::from_secs(30), || async {
        let claim = system.claims("data").await.claims.pop().ok_or("the volume was freed")?;
        if claim.tries >= 2 { Ok(claim) } else { Err(format!("{claim:?}")) }
    })
    .await;
    assert_eq!(stuck.state, State::Unpublishing);
    assert!(stuck.failure.is_some() && stuck.waits_for.is_some(), "the claim says why: {stuck:?}");

    system.alloc("b", 1, "data", false).await;
    let refused = system.mount("b", 1, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::Held, "{refused}");
    assert!(refused.message.contains("alloc a on node n1 (write, unpublishing"), "{refused}");
    assert_eq!(count(&system, PUBLISH, "external-n2"), 0);
    assert_eq!(count(&system, "ControllerUnpublishVolume", "external-n1"), 0);

    system.restart(Part::Agent(0));
    system.freed("data").await;
    system.mount("b", 1, "data").await.unwrap();
    system.stop("b").await;
    system.settle("data").await;
}

/// Safety 4: a call that runs past its deadline blocks calls for other nodes, even at other
/// controllers. A waiting caller gets the reason, and waits only as long as the call runs.
#[tokio::test(flavor = "multi_thread")]
async fn safety_4_a_call_past_its_deadline_holds_up_other_controllers() {
    if !or_skip("real mounts") {
        return;
    }
    let options = Options { call_timeout_ms: 1_500, patience_ms: 3_000, ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["multi-node-multi-writer"]).await;
    let attach = json!({"rpc": PUBLISH, "hang": true, "times": 1});
    system.plant(0, &json!([attach]));
    system.alloc("a", 0, "data", false).await;
    system.alloc("b", 1, "data", false).await;
    let take = verb::ClaimTake::subject(&Namespace::default());
    let first = json!({"alloc": "a", "volume": "data", "node": "n1"});
    let second = json!({"alloc": "b", "volume": "data", "node": "n2"});
    let (unanswered, ()) = tokio::join!(system.ask::<Value>(&take, &first), async {
        wait::until("the first call is under way", Duration::from_secs(10), || async {
            let begun = count(&system, PUBLISH, "external-n1");
            if begun == 1 { Ok(()) } else { Err(begun) }
        })
        .await;
    });
    assert!(unanswered.is_err_and(|problem| problem.retryable));
    wait::until("the second claim says what it waits for", Duration::from_secs(30), || async {
        let _ = system.ask::<Value>(&take, &second).await;
        let claims = system.claims("data").await.claims;
        let error = claims.iter().find(|claim| claim.alloc.as_str() == "b");
        let error = error.and_then(|claim| claim.error()).unwrap_or_default();
        let sentence = "on node n1 is still at controller.publish for alloc a";
        if error.contains(sentence) { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    let subject =
        verb::AgentStatus::subject(&verb::NodeAndNamespace::any_of(NodeId::new("n1").unwrap()));
    let status: AgentStatus = system.persist(&subject, &json!({})).await.unwrap();
    let [work] = &status.work[..] else { panic!("{status:?}") };
    assert_eq!((work.step.as_str(), work.rpc.as_deref()), ("controller.publish", Some(PUBLISH)));
    assert!(work.hung, "its deadline has passed: {work:?}");

    assert_eq!(
        count(&system, PUBLISH, "external-n2"),
        0,
        "no other controller is called meanwhile"
    );
    system.let_go();
    system.mount("b", 1, "data").await.unwrap();
    system.mount("a", 0, "data").await.unwrap();
    for alloc in ["a", "b"] {
        system.stop(alloc).await;
    }
    system.settle("data").await;
}

/// Safety 4: the controller on the claim's node was unhealthy, and another one was called. The
/// release waits for that one, even after the first has recovered.
#[tokio::test(flavor = "multi_thread")]
async fn safety_4_a_controller_that_was_asked_in_anothers_place_is_waited_for() {
    const UNPUBLISH: &str = "ControllerUnpublishVolume";
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { call_timeout_ms: 1_500, ..Options::default() }).await;
    let calls_at = |node: &str| {
        let calls = system.calls();
        let is_begun = |call: &&Value| call["entry"] == "begin" && call["rpc"] == UNPUBLISH;
        calls.iter().filter(is_begun).filter(|call| call["node_id"] == node).count()
    };
    let until_called = async |node: &str| {
        wait::until(&format!("the controller of {node} is called"), RECOVERY, || async {
            if calls_at(node) > 0 { Ok(()) } else { Err("it was not called") }
        })
        .await;
    };
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 1, "data").await;
    system.plant(1, &json!([{"rpc": UNPUBLISH, "code": "UNAVAILABLE"}]));
    system.plant(0, &json!([{"rpc": UNPUBLISH, "hang": true, "times": 1}]));
    system.stop("a").await;
    until_called("external-n2").await;
    system.kill9(Part::Driver(1));
    until_called("external-n1").await;
    let before = calls_at("external-n2");
    system.plant(1, &json!([]));
    system.restart(Part::Driver(1));
    system.healthy().await;
    wait::until("the release says what it waits for", RECOVERY, || async {
        let claims = system.claims("data").await.claims;
        let error = claims.first().and_then(|claim| claim.error()).unwrap_or_default();
        let sentence = "on node n1 is still at controller.unpublish for alloc a";
        if error.contains(sentence) { Ok(()) } else { Err(format!("{claims:?}")) }
    })
    .await;
    assert_eq!(calls_at("external-n2"), before, "no other controller is called meanwhile");
    system.let_go();
    system.settle("data").await;
}

/// Safety 5: no acknowledged claim is lost when any one of three servers is killed.
#[tokio::test(flavor = "multi_thread")]
async fn safety_5_one_of_three_servers_is_killed() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { servers: 3, ..Options::default() }).await;
    system.volume("data", &["multi-node-multi-writer"]).await;
    for round in 0..2 {
        let names = [format!("a{round}"), format!("b{round}")];
        let mounted = system.run(&names[0], 0, "data").await;
        system.kill9(Part::Nats);
        let claims = system.claims("data").await.claims;
        let allocs: Vec<&str> = claims.iter().map(|claim| claim.alloc.as_str()).collect();
        assert_eq!(allocs, [names[0].as_str()], "the granted claim is still there");
        system.run(&names[1], 1, "data").await;
        std::fs::write(format!("{}/f", mounted.path), "x").unwrap();
        system.kill9_and_restart(Part::Nats).await;
        for name in &names {
            system.stop(name).await;
        }
        system.settle("data").await;
    }
}

/// Safety 6: possible secrets appear in no log, error, event or listing. Mount flags may appear.
#[tokio::test(flavor = "multi_thread")]
async fn safety_6_a_mount_flag_is_printed_nowhere() {
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.provision("data");
    let document = json!({
        "id": "data", "plugin": "dev.berth", "capability": [{"access": "single-node-writer"}],
        "mount": {"flags": ["password=hunter2"]},
    });
    let register = verb::VolumeRegister::subject(&Namespace::default());
    let refused = system.persist::<Value>(&register, &document).await.unwrap_err();
    assert_eq!(refused.code, Code::PluginRefused, "{refused}");
    let text = serde_json::to_string(&refused).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    let mut files = vec![system.dir().path().to_path_buf()];
    let mut files_read = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            files_read += 1;
            assert!(!bytes.windows(7).any(|part| part == b"hunter2"), "{}", path.display());
        }
    }
    assert!(files_read > 8, "too few files to have read the logs");
}

/// Safety 7: a result of an attempt that is not on the record changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn safety_7_an_answer_of_another_attempt_changes_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    let before = system.claims("data").await;
    let forged = Checkpoint {
        alloc: AllocId::new("a").unwrap(),
        volume: VolumeId::new("data").unwrap(),
        worker: WorkerId::new("somebody").unwrap(),
        report: Some(CallReport {
            attempt: AttemptId::new("old").unwrap(),
            asked: true,
            outcome: ReportedOutcome::Done,
            error: None,
        }),
        early: false,
        report_only: false,
    };
    let subject = verb::ClaimCheckpoint::subject(&Namespace::default());
    let answer: Checkpointed = system.persist(&subject, &forged).await.unwrap();
    assert_eq!((answer.state, answer.call), (Some(State::Taken), None));
    assert_eq!(system.claims("data").await, before);

    // The same holds while the claim's own attempt is running.
    system.hold("NodeUnpublishVolume");
    system.stop("a").await;
    let under_way = wait::until("a call is under way", Duration::from_secs(10), || async {
        let claim = system.claims("data").await.claims.pop().ok_or("freed")?;
        claim.attempt.clone().ok_or("no attempt yet").map(|_| claim)
    })
    .await;
    let answer: Checkpointed = system.persist(&subject, &forged).await.unwrap();
    assert_eq!((answer.state, answer.call), (Some(State::Unpublishing), None));
    let after = system.claims("data").await.claims.pop().unwrap();
    assert_eq!(after.attempt, under_way.attempt);
    system.let_go();
    system.settle("data").await;
}
