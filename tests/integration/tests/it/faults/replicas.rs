//! One of two claim services is paused before a write. Its caller gives up and has the other
//! replica write something else, and then the first resumes. Or the first has an outdated cache,
//! without the other's write.

use std::pin::pin;
use std::time::Duration;

use berth_contract::code::Code;
use berth_contract::header;
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, NodeId};
use berth_harness::nats::raw;
use berth_harness::proxy::{Point, Proxy, Side};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, PLUGIN, Part, RECOVERY, System};
use berth_service::clock;
use serde_json::{Value, json};

use super::options;

/// A caller without a response sends a different request, which the other replica carries out. When
/// the first replica resumes, it does not overwrite that with the first request.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_worked_in_after_its_deadline_overwrites_nothing() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { replicas: 2, ..options() }).await;
    system.provision("data");
    let subject = verb::VolumeRegister::subject(&Namespace::default());
    let named = |name| {
        let capability = json!([{"access": "single-node-writer"}]);
        json!({"id": "data", "name": name, "plugin": PLUGIN, "capability": capability})
    };
    system.persist::<Value>(&subject, &named("first")).await.unwrap();

    let subjects = vec!["$KV.berth-volumes.default.data.spec".to_owned()];
    system.wire.arm(Point { subjects, at: 0, side: Side::Before });
    let deadline = clock::now().after(Duration::from_secs(2));
    let (body, until) = (named("late").to_string(), deadline.unix_ms().to_string());
    let headers = [(header::DEADLINE, until.as_str())];
    let late = raw::ask(&system.servers()[0], &subject, &headers, body.as_bytes());
    let mut late = pin!(late);
    let passed = tokio::select! {
        answer = &mut late => panic!("answered without a write: {answer}"),
        passed = system.wire.tripped() => passed,
    };
    let paused_part = system.part_of(&passed.cable);
    system.daemon(paused_part).pause();
    wait::until("its caller has given up", Duration::from_secs(10), || async {
        if clock::now() > deadline { Ok(()) } else { Err("there is time left") }
    })
    .await;
    system.persist::<Value>(&subject, &named("newer")).await.unwrap();
    for cable in system.cables(paused_part) {
        cable.heal();
    }
    system.daemon(paused_part).resume();

    let answer = late.await;
    // The code is `Late` where the replica could tell its refusal from a write that nats-server did
    // not answer.
    let code = answer["error"]["code"].as_str();
    assert!(
        [Code::Late, Code::NoAnswer].map(|code| Some(code.as_str())).contains(&code),
        "{answer}"
    );
    assert_eq!(system.volume_status("data").await.unwrap().name, "newer");
}

/// A service whose cache still has an ended claim grants nothing by it (decision 0012). That holds
/// even for an agent that has lost its journal, and with it the pending detach.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_behind_does_not_grant_again_what_was_released() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { replicas: 2, nodes: 1, ..options() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let first = system.run("a", 0, "data").await;
    let behind = system.cables(Part::SecondClaim);
    behind.iter().for_each(Proxy::cut);
    // The claim of a running alloc is given up.
    let release = json!({"alloc": "a", "volume": "data"});
    let subject = verb::ClaimRelease::subject(&Namespace::default());
    system.persist::<Value>(&subject, &release).await.unwrap();
    system.settle("data").await;
    system.kill9(Part::Agent(0));
    std::fs::remove_dir_all(system.journal(0)).unwrap();
    system.restart(Part::Agent(0));
    // A starting agent asks the claim service that is up to date.
    let node = verb::NodeAndNamespace::any_of(NodeId::new("n1").unwrap());
    system.persist::<Value>(&verb::AgentStatus::subject(&node), &json!({})).await.unwrap();
    system.kill9(Part::Claim);
    for cable in behind {
        cable.withhold(Some("KV_berth-volumes"));
        cable.heal();
    }

    let before = publish_count(&system);
    let refused = wait::until("the agent has asked for the claim", RECOVERY, || async {
        match system.try_mount("a", 0, "data").await {
            Err(refused) if refused.step.as_deref() == Some("claim.take") => Ok(refused),
            Err(other) => Err(other.to_string()),
            Ok(mounted) => panic!("granted by a claim that is gone: {mounted:?}"),
        }
    })
    .await;
    assert!(refused.retryable, "{refused}");
    assert_eq!(publish_count(&system), before, "granted by a claim that is gone");

    for cable in behind {
        cable.withhold(None);
    }
    let again = system.mount("a", 0, "data").await.unwrap();
    assert_eq!(again.path, first.path);
    assert_eq!(publish_count(&system), before + 1);
    system.stop("a").await;
    system.settle("data").await;
}

/// Found: one service stopped an alloc, and the other granted it a claim, because its cache had not
/// received the stop. A service cannot know that its cache is outdated.
#[tokio::test(flavor = "multi_thread")]
async fn an_alloc_that_has_ended_is_granted_nothing_by_a_service_that_is_behind() {
    const ALLOCS: usize = 20;
    let system = System::start(Options { replicas: 2, nodes: 1, ..options() }).await;
    system.volume("data", &["multi-node-multi-writer"]).await;
    for alloc in 0..ALLOCS {
        system.alloc(&format!("a{alloc}"), 0, "data", false).await;
    }
    let cables = [Part::Claim, Part::SecondClaim].map(|part| system.cables(part));
    let withhold =
        |stream| cables.iter().copied().flatten().for_each(|cable| cable.withhold(stream));
    withhold(Some("KV_berth-allocs"));
    let take = verb::ClaimTake::subject(&Namespace::default());
    for alloc in 0..ALLOCS {
        // One replica handles the stop and one the mount: often different ones.
        let alloc = format!("a{alloc}");
        system.stop(&alloc).await;
        let body = json!({"alloc": alloc, "volume": "data", "node": "n1"});
        let refused = system.ask::<Value>(&take, &body).await.unwrap_err();
        assert_eq!(refused.code, Code::AllocTerminal, "{refused}");
    }
    withhold(None);
    system.settle("data").await;
}

/// Of three servers, a leader may be deposed without knowing it. So an answer that something is
/// absent follows a write, which only a leader with a quorum stores.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_absent_is_confirmed_at_a_quorum() {
    let system = System::start(Options { servers: 3, nodes: 1, ..options() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let namespace = Namespace::default();
    let ask = |subject: String, body: Value| {
        let system = &system;
        async move { system.persist::<Value>(&subject, &body).await }
    };
    let newest = async |stream: &str, subject: &str| {
        let body = json!({"last_by_subj": ">"}).to_string();
        let get = format!("$JS.API.STREAM.MSG.GET.{stream}");
        let stored = raw::ask(&system.servers()[0], &get, &[], body.as_bytes()).await;
        assert_eq!(stored["message"]["subject"], subject, "{stored}");
    };
    let released =
        ask(verb::ClaimRelease::subject(&namespace), json!({"alloc": "a", "volume": "data"})).await;
    assert!(released.as_ref().is_ok_and(|reply| reply["state"].is_null()), "{released:?}");
    newest("KV_berth-volumes", "$KV.berth-volumes.default.data.barrier").await;
    let missing =
        ask(verb::VolumeDeregister::subject(&namespace), json!({"id": "none"})).await.unwrap_err();
    assert_eq!(missing.code, Code::NoSuchVolume, "{missing}");
    newest("KV_berth-volumes", "$KV.berth-volumes.default.none.barrier").await;
    let stopped = ask(verb::AllocStop::subject(&namespace), json!({"id": "a"})).await.unwrap_err();
    assert_eq!(stopped.code, Code::NoSuchAlloc, "{stopped}");
    newest("KV_berth-allocs", "$KV.berth-allocs.default.a").await;
    let take = json!({"alloc": "b", "volume": "data", "node": "n1"});
    let taken = ask(verb::ClaimTake::subject(&namespace), take).await.unwrap_err();
    assert_eq!(taken.code, Code::NoSuchAlloc, "{taken}");
    newest("KV_berth-allocs", "$KV.berth-allocs.default.b").await;
    // The barrier blocks no later claim.
    system.run("a", 0, "data").await;
    let detached =
        ask(verb::VolumeDetach::subject(&namespace), json!({"id": "data", "node": "n2"})).await;
    assert!(detached.as_ref().is_ok_and(|reply| reply["gone"] == true), "{detached:?}");
    newest("KV_berth-volumes", "$KV.berth-volumes.default.data.barrier").await;
    system.stop("a").await;
    system.settle("data").await;
}

/// The number of publishes that began on the nodes.
fn publish_count(system: &System) -> usize {
    let is_publish = |call: &&Value| call["entry"] == "begin" && call["rpc"] == "NodePublishVolume";
    system.calls().iter().filter(is_publish).count()
}
