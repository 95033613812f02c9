//! Nodes that are gone (rule 12, C7): scenarios S2 and S3, from the outside.
//!
//! Here the agent of a node that is gone is dead, its mounts remain, and the storage fences it.
//! This is the hardest case, since everything is still there when the node comes back.

use std::time::{Duration, Instant};

use berth_contract::code::Code;
use berth_contract::message::agent::Mounted;
use berth_contract::message::alloc::AllocStatus;
use berth_contract::message::claim::ClaimStatus;
use berth_contract::message::registry::{Declared, NodeLeft, NodeStatus};
use berth_contract::problem::Problem;
use berth_contract::verb::{self, Verb as _};
use berth_domain::Namespace;
use berth_domain::alloc::AllocState;
use berth_domain::plugin::NodeState;
use berth_domain::proof::ProofKind;
use berth_domain::volume::State;
use berth_harness::dirs::mounts_beneath;
use berth_harness::process::Program;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use berth_service::clock;
use serde_json::{Value, json};

use crate::unaccounted::delete_claim;
use crate::why::{NOBODY, YOU, tells};

const PATIENCE: Duration = Duration::from_secs(30);

/// The node's own status.
async fn node(system: &System, id: &str) -> Result<NodeStatus, String> {
    let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
    let listed = format!("{nodes:?}");
    nodes.into_iter().find(|node| node.id.as_str() == id).ok_or(listed)
}

/// Waits until the node has the state, and unless it is down no proof that it is gone.
async fn await_state(system: &System, id: &str, state: NodeState) -> NodeStatus {
    wait::until(&format!("{id} is {state}"), PATIENCE, async || {
        let node = node(system, id).await?;
        let settled = node.state == state && (state == NodeState::Down || node.gone.is_none());
        if settled { Ok(node) } else { Err(format!("{node:?}")) }
    })
    .await
}

/// Kills the agent of `n1` once it has reported its mounts, and waits until its lease has ended.
/// Returns the revision of the node's record.
async fn kill_n1(system: &System) -> u64 {
    system.compared().await;
    system.kill9(Part::Agent(0));
    await_state(system, "n1", NodeState::Down).await.revision
}

async fn declare(
    system: &System,
    seen: u64,
    kind: ProofKind,
    note: &str,
) -> Result<Declared, Problem> {
    let gone = json!({"node": "n1", "kind": kind, "by": "ada@console", "note": note, "seen": seen});
    system.persist(&verb::NodeGone::subject(&()), &gone).await
}

async fn leave(system: &System) -> NodeLeft {
    let leave = json!({"node": "n1"});
    system.persist(&verb::NodeLeave::subject(&()), &leave).await.unwrap()
}

/// The only claim on the volume, once it meets the condition.
async fn claim(
    system: &System,
    volume: &str,
    is_expected: impl Fn(&ClaimStatus) -> bool,
) -> ClaimStatus {
    wait::until("the claim meets the condition", PATIENCE, async || {
        let claims = system.claims(volume).await.claims;
        let claim = claims.iter().find(|claim| is_expected(claim)).cloned();
        claim.ok_or_else(|| serde_json::to_string_pretty(&claims).unwrap())
    })
    .await
}

async fn alloc(system: &System, id: &str) -> AllocStatus {
    let subject = verb::AllocStatus::subject(&Namespace::default());
    system.persist(&subject, &json!({"id": id})).await.unwrap()
}

/// `RPC node` of each attach, mount and release call that began, in order. The node of a controller
/// call is the node that is attached or detached.
fn changes(system: &System) -> Vec<String> {
    let is_change = |rpc: &str| rpc.contains("ublishVolume") || rpc.contains("tageVolume");
    let line = |call: &Value| {
        let rpc = call["rpc"].as_str().filter(|rpc| is_change(rpc))?;
        let node =
            if rpc.starts_with("Controller") { &call["args"]["node_id"] } else { &call["node_id"] };
        Some(format!("{rpc} {}", node.as_str()?.trim_start_matches("external-")))
    };
    let calls = system.calls();
    let begun = calls.iter().filter(|call| call["entry"] == "begin");
    begun.filter_map(line).collect()
}

fn count(system: &System, call: &str) -> usize {
    changes(system).iter().filter(|line| *line == call).count()
}

/// S2: a dead node keeps its volume until an operator declares it gone. Then the controller alone
/// detaches the volume. The claim is released only after that success. A node that comes back
/// unmounts its old volumes before it takes new ones.
#[tokio::test(flavor = "multi_thread")]
async fn s2_a_dead_node_fails_over_once_somebody_answers_for_it() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.volume("other", &["single-node-writer"]).await;
    let mounted = system.run("a", 0, "data").await;
    std::fs::write(format!("{}/f", mounted.path), "kept").unwrap();
    let revision = node(&system, "n1").await.unwrap().revision;
    let refused = declare(&system, revision, ProofKind::Confirmed, "").await.unwrap_err();
    assert_eq!(refused.code, Code::NodeReady, "{refused}");
    assert_eq!(node(&system, "n1").await.unwrap().gone, None);

    // An ended lease is no proof.
    let seen = kill_n1(&system).await;
    let before = changes(&system);
    system.alloc("b", 1, "data", false).await;
    let refused = system.mount("b", 1, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::Held, "{refused}");
    let taken = claim(&system, "data", |claim| claim.state == State::Taken).await;
    assert_eq!(taken.node.as_str(), "n1");
    assert_eq!(changes(&system), before);

    // An operator declares the node gone; the controller fails, and nothing is freed.
    system.plant(1, &json!([{"rpc": "ControllerUnpublishVolume", "code": "UNAVAILABLE"}]));
    system.fence(0, true);
    let fenced = ProofKind::StorageFenced;
    let declared = declare(&system, seen, fenced, "ticket 4711").await.unwrap();
    let again = declare(&system, seen, ProofKind::Confirmed, "me too").await.unwrap();
    assert_eq!(again.proof, declared.proof, "the first proof is kept");
    let stuck =
        claim(&system, "data", |claim| claim.state == State::NodeDetached && claim.tries >= 2);
    let stuck = stuck.await;
    assert!(stuck.error().unwrap().contains("UNAVAILABLE"), "{stuck:?}");
    let sentence =
        "plugin dev.berth on node n2 answers ControllerUnpublishVolume with UNAVAILABLE, …";
    tells(&system, "data", "plugin-retries", NOBODY, sentence).await;
    tells(&system, "n1", "node-gone", YOU, "an operator declared it gone. …").await;
    let ended = alloc(&system, "a").await;
    assert_eq!(ended.state, AllocState::Failed, "{ended:?}");
    assert!(ended.note.as_ref().unwrap().contains("storage-fenced, says ada@console"), "{ended:?}");
    assert!(system.try_mount("b", 1, "data").await.is_err());
    assert!(mounted_on_n1(&system), "n1 still has the mount");

    // The controller succeeds, and n2 gets the volume.
    system.plant(1, &json!([]));
    let mounted_on_n2 = mount(&system, "b", 1, "data").await;
    assert_eq!(std::fs::read_to_string(format!("{}/f", mounted_on_n2.path)).unwrap(), "kept");
    let mut after = changes(&system).split_off(before.len());
    after.dedup();
    let wanted = [
        "ControllerUnpublishVolume n1",
        "ControllerPublishVolume n2",
        "NodeStageVolume n2",
        "NodePublishVolume n2",
    ];
    assert_eq!(after, wanted, "no node call replaces the missing unmount on n1");

    // The node comes back, and cannot undo its old mount immediately.
    system.plant(0, &json!([{"rpc": "NodeUnpublishVolume", "code": "UNAVAILABLE"}]));
    system.restart(Part::Agent(0));
    system.alloc("c", 0, "other", false).await;
    wait::until("n1 refuses new mounts", PATIENCE, async || {
        let refused = system.try_mount("c", 0, "other").await.unwrap_err();
        let is_returning = refused.code == Code::NodeReturning;
        if is_returning { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    wait::until("the status shows why n1 is not back", PATIENCE, async || {
        let status = node(&system, "n1").await?;
        let reason = status.attributes.get("returning").cloned().unwrap_or_default();
        assert_eq!(status.state, NodeState::Down);
        let keeps_fence = reason.starts_with("keep the fence until no mount is left here");
        let is_shown = keeps_fence && reason.contains("UNAVAILABLE");
        if is_shown { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    let sentence = "it counts as gone, and undoes its mounts before it is back: …UNAVAILABLE…";
    tells(&system, "n1", "node-gone", NOBODY, sentence).await;
    system.plant(0, &json!([]));
    let back = await_state(&system, "n1", NodeState::Ready).await;
    assert_eq!(back.gone, None);
    assert!(!mounted_on_n1(&system), "a mount without a claim is left");
    assert!(back.back.is_some(), "{back:?}");
    system.fence(0, false);
    // The alloc was ended with its node; another alloc starts.
    assert_eq!(alloc(&system, "c").await.state, AllocState::Failed);
    system.run("d", 0, "other").await;
    for (alloc, volume) in [("b", "data"), ("d", "other")] {
        system.stop(alloc).await;
        system.freed(volume).await;
    }
    system.settle("data").await;
}

fn mounted_on_n1(system: &System) -> bool {
    !mounts_beneath(&system.dir().join("n1")).is_empty()
}

async fn mount(system: &System, alloc: &str, node: usize, volume: &str) -> Mounted {
    wait::until("the volume is mounted", PATIENCE, async || {
        system.try_mount(alloc, node, volume).await.map_err(|problem| problem.to_string())
    })
    .await
}

/// The record of the node's claim was lost before the node was. The storage has the volume attached
/// there, and a lenient driver would attach it to another node all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_gone_nodes_volume_is_detached_although_its_claim_was_lost() {
    if !or_skip("real mounts") {
        return;
    }
    let lenient = |_| vec!["--lenient".to_owned()];
    let system = System::start(Options { driver: lenient, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    delete_claim(&system, "data", "a").await;
    wait::until("the mount is reported", RECOVERY, async || {
        let n1 = node(&system, "n1").await?;
        if n1.unaccounted.is_empty() { Err(format!("{n1:?}")) } else { Ok(()) }
    })
    .await;
    let seen = kill_n1(&system).await;
    system.alloc("b", 1, "data", false).await;
    let refused = system.try_mount("b", 1, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::MountUnaccounted, "{refused}");

    let before = changes(&system);
    system.plant(1, &json!([{"rpc": "ControllerUnpublishVolume", "code": "UNAVAILABLE"}]));
    system.fence(0, true);
    system.kill9(Part::Claim);
    let declared = declare(&system, seen, ProofKind::StorageFenced, "").await.unwrap();
    assert_eq!(declared.claims, None, "no claim service answers");
    assert_eq!(node(&system, "n1").await.unwrap().unaccounted.len(), 1, "the mount is kept");
    system.restart(Part::Claim);
    assert!(system.claims("data").await.claims.is_empty(), "the claim service answers again");
    let declared = declare(&system, seen, ProofKind::StorageFenced, "").await.unwrap();
    let recovered: Vec<&str> =
        declared.claims.iter().flatten().map(|claim| claim.alloc.as_str()).collect();
    assert_eq!(recovered, ["a"], "{declared:?}");
    assert_eq!(node(&system, "n1").await.unwrap().unaccounted, []);
    let stuck = claim(&system, "data", |claim| claim.tries >= 2).await;
    assert_eq!((stuck.state, stuck.node.as_str()), (State::NodeDetached, "n1"), "{stuck:?}");
    assert!(system.try_mount("b", 1, "data").await.is_err(), "n1 may have the volume attached");
    assert_eq!(alloc(&system, "a").await.state, AllocState::Failed);

    system.plant(1, &json!([]));
    mount(&system, "b", 1, "data").await;
    let mut after = changes(&system).split_off(before.len());
    after.dedup();
    let wanted = ["ControllerUnpublishVolume n1", "ControllerPublishVolume n2"];
    assert_eq!(after[..2], wanted, "{after:?}");
    let again = declare(&system, seen, ProofKind::Confirmed, "").await.unwrap();
    assert_eq!(again.claims, Some(Vec::new()), "a released claim is not recorded again");
    system.restart(Part::Agent(0));
    await_state(&system, "n1", NodeState::Ready).await;
    assert!(!mounted_on_n1(&system));
    system.fence(0, false);
    system.stop("b").await;
    system.settle("data").await;
}

/// S3: a node was removed while its volume was attached. The release uses the node's data in the
/// claim, and follows the schedule while the controller fails.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_removed_nodes_volume_is_detached_by_what_the_claim_recorded() {
    if !or_skip("real mounts") {
        return;
    }
    // The production retry schedule.
    let options = Options { retry_ms: (1_000, 60_000), ..Options::default() };
    let system = System::start(options).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    kill_n1(&system).await;
    let removed = leave(&system).await;
    assert_eq!(removed, NodeLeft { known: true, instances: 2, gone: false });
    node(&system, "n1").await.unwrap_err();

    // No agent there can confirm the unmount.
    system.stop("a").await;
    let stuck = claim(&system, "data", |claim| claim.tries >= 1).await;
    assert_eq!(stuck.state, State::Unpublishing, "{stuck:?}");
    assert!(stuck.failure.is_some() && stuck.next_try.is_some(), "{stuck:?}");
    assert_eq!(count(&system, "ControllerUnpublishVolume n1"), 0);

    let fault = json!([{"rpc": "ControllerUnpublishVolume", "code": "INTERNAL", "times": 4}]);
    system.plant(1, &fault);
    system.fence(0, true);
    let since = Instant::now();
    declare(&system, 0, ProofKind::PoweredOff, "").await.unwrap();
    let retried = claim(&system, "data", |claim| claim.tries >= 4).await;
    // The delays double, so the first minute is the busiest: 1 + 2 + 4 + 8 + 16 + 32 s, each
    // shortened by jitter to at least half.
    assert!(since.elapsed() >= Duration::from_millis(3_500), "{:?}", since.elapsed());
    assert_eq!(count(&system, "ControllerUnpublishVolume n1"), 4, "{:?}", changes(&system));
    let pause = retried.next_try.unwrap().since(clock::now());
    assert!(pause >= Duration::from_secs(2), "{pause:?}");
    system.freed("data").await;
    assert_eq!(count(&system, "ControllerUnpublishVolume n1"), 5);
    assert_eq!(count(&system, "NodeUnpublishVolume n1"), 0);
    system.run("b", 1, "data").await;

    // The proof is kept, so the node reads it when it comes back.
    let removed = leave(&system).await;
    assert_eq!((removed.known, removed.gone), (true, true));
    system.fence(0, false);
    system.restart(Part::Agent(0));
    await_state(&system, "n1", NodeState::Ready).await;
    assert!(!mounted_on_n1(&system));
    system.stop("b").await;
    system.settle("data").await;
}

/// A node is down and comes back. It mounts a volume, and its agent dies. A proof for the first
/// absence is refused in the second: the workload still writes to the volume.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_sure_of_in_an_earlier_absence_frees_nothing_in_a_later_one() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    let seen = kill_n1(&system).await;
    system.restart(Part::Agent(0));
    await_state(&system, "n1", NodeState::Ready).await;
    let mounted = system.run("a", 0, "data").await;
    let seen_later = kill_n1(&system).await;
    let refused = declare(&system, seen, ProofKind::PoweredOff, "").await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (Code::Changed, false), "{refused}");
    let taken = claim(&system, "data", |claim| claim.state == State::Taken).await;
    assert_eq!(taken.node.as_str(), "n1");
    std::fs::write(format!("{}/f", mounted.path), "still mine").unwrap();
    assert_ne!(seen_later, seen);

    system.fence(0, true);
    declare(&system, seen_later, ProofKind::StorageFenced, "").await.unwrap();
    system.freed("data").await;
    system.restart(Part::Agent(0));
    await_state(&system, "n1", NodeState::Ready).await;
    system.fence(0, false);
    system.settle("data").await;
}

/// A frozen node: its process resumes with its old state, after its volume was given to another
/// node.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_agent_that_wakes_up_undoes_what_was_taken_from_it() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    system.daemon(Part::Agent(0)).pause();
    let seen = await_state(&system, "n1", NodeState::Down).await.revision;
    system.fence(0, true);
    declare(&system, seen, ProofKind::StorageFenced, "").await.unwrap();
    system.alloc("b", 1, "data", false).await;
    mount(&system, "b", 1, "data").await;
    system.daemon(Part::Agent(0)).resume();
    await_state(&system, "n1", NodeState::Ready).await;
    system.fence(0, false);
    assert!(!mounted_on_n1(&system));
    system.stop("b").await;
    system.freed("data").await;
    system.run("c", 0, "data").await;
    system.stop("c").await;
    system.settle("data").await;
}

/// A command of `berth run` survives its node's agent, and the declaration that the node is gone.
/// The returning agent ends the command, its children and its runner, before it unmounts the volume
/// and before the node takes anything new.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_outlived_its_node_is_ended_when_the_node_comes_back() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    let (target, pids) = (system.dir().join("target"), system.dir().join("pids"));
    std::fs::create_dir(&target).unwrap();
    // The command writes all the time, and so does its child in a session of its own.
    let writes = format!("while :; do date >> {}/f; sleep 0.05; done", target.display());
    let alone = format!("setsid sh -c 'echo $$ >> {}; {writes}' &", pids.display());
    let script = format!("{alone} echo $$ >> {}; {writes}", pids.display());
    let url = system.url();
    let mut run = system
        .berth()
        .args(["--nats", &url, "run", "--node", "n1", "--alloc", "a", "--volume"])
        .arg(format!("data:{}", target.display()))
        .args(["--", "sh", "-c", &script])
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let commands = wait::until("both write", PATIENCE, async || {
        let text = std::fs::read_to_string(&pids).unwrap_or_default();
        let pids: Vec<u32> = text.lines().filter_map(|pid| pid.parse().ok()).collect();
        if pids.len() == 2 { Ok(pids) } else { Err(text) }
    })
    .await;

    let seen = kill_n1(&system).await;
    system.fence(0, true);
    declare(&system, seen, ProofKind::StorageFenced, "ticket 4711").await.unwrap();
    system.alloc("b", 1, "data", false).await;
    let mounted_on_n2 = mount(&system, "b", 1, "data").await;
    assert!(commands.iter().all(|pid| is_running(*pid)), "only the fence stops their writes");

    system.restart(Part::Agent(0));
    await_state(&system, "n1", NodeState::Ready).await;
    system.fence(0, false);
    assert!(!commands.iter().any(|pid| is_running(*pid)), "an old command still runs");
    assert!(!mounted_on_n1(&system));
    let exit = tokio::time::timeout(PATIENCE, run.wait()).await.unwrap().unwrap();
    assert!(!exit.success(), "{exit:?}");
    let ended = alloc(&system, "a").await;
    assert_eq!(ended.state, AllocState::Failed, "{ended:?}");
    wait::until("the agent watches no run", PATIENCE, async || {
        let runs = std::fs::read_dir(system.dir().join("n1/runs")).unwrap();
        let runs: Vec<_> = runs.map(|entry| entry.unwrap().path()).collect();
        if runs.is_empty() { Ok(()) } else { Err(format!("{runs:?}")) }
    })
    .await;
    // The old workload no longer overwrites the file of n2.
    std::fs::write(format!("{}/f", mounted_on_n2.path), "mine").unwrap();
    assert_eq!(std::fs::read_to_string(format!("{}/f", mounted_on_n2.path)).unwrap(), "mine");
    system.stop("b").await;
    system.settle("data").await;
}

/// Whether the process exists and is no zombie.
fn is_running(pid: u32) -> bool {
    let stat = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // Only these errors mean that the process is gone: ENOENT, or ESRCH while it exits.
        Err(error) if matches!(error.raw_os_error(), Some(2 | 3)) => return false,
        Err(error) => panic!("the state of process {pid} cannot be read: {error}"),
    };
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// An operator confirms that a node is gone, and nothing fences it. A storage that does not release
/// its host keeps the claim. The reply, the command and the node's status name what the claim waits
/// for.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_gone_without_a_fence_says_what_its_claims_wait_for() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    // The fence is for the judge only: the storage ignores it.
    let refuses = json!({"rpc": "ControllerUnpublishVolume", "code": "FAILED_PRECONDITION"});
    system.plant(1, &json!([refuses]));
    let seen = kill_n1(&system).await;
    system.fence(0, true);
    let berth = async |args: &[&str]| {
        let mut berth = system.berth();
        berth.args(["--nats", &system.url()]).args(args).kill_on_drop(true);
        let ran = tokio::time::timeout(PATIENCE, berth.output()).await.unwrap().unwrap();
        assert!(ran.status.success(), "{args:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let seen = seen.to_string();
    let declares_gone = ["node", "gone", "n1", "--seen", &seen, "--kind", "confirmed", "--yes"];
    wait::until("the command says what the claim waits for", PATIENCE, async || {
        let printed = berth(&declares_gone).await;
        let expected = ["claims that are left", "last error:", "fence the host at the storage"];
        match expected.iter().find(|words| !printed.contains(**words)) {
            None => Ok(()),
            Some(words) => Err(format!("{words} is not in {printed}")),
        }
    })
    .await;
    let status = berth(&["node", "status", "n1"]).await;
    for words in ["claims that are left", "fence the host at the storage"] {
        assert!(status.contains(words), "{words} is not in {status}");
    }
    let again = declare(&system, 0, ProofKind::Confirmed, "").await.unwrap();
    let claims = again.claims.unwrap();
    assert_eq!((claims.len(), claims[0].state), (1, State::NodeDetached), "{claims:?}");
    assert!(claims[0].hint.as_deref().unwrap_or_default().contains("fence the host"), "{claims:?}");

    system.plant(1, &json!([]));
    system.freed("data").await;
    system.restart(Part::Agent(0));
    await_state(&system, "n1", NodeState::Ready).await;
    system.fence(0, false);
    system.settle("data").await;
}

/// The same host under another name: its mounts are still there, and its workload may write.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_runs_under_another_name_is_not_gone() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { plain: true, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let mounted = system.run("a", 0, "data").await;
    system.daemon(Part::Agent(0)).terminate().await;
    let seen = await_state(&system, "n1", NodeState::Down).await.revision;
    let config = std::fs::read_to_string(system.dir().join("agent-1.toml")).unwrap();
    let start = |name: &str, config: &str| {
        let config = config.replace("node = \"n1\"", &format!("node = \"{name}\""));
        let program = Program::service("berth-node-agent", &format!("agent-{name}"), system.dir());
        program.configured(&config).on_bus(system.url(), 1).start()
    };
    let renamed = start("m1", &config);
    assert!(!renamed.wait_exit(PATIENCE).await.success());
    let log = renamed.log();
    assert!(log.contains("BERTH0238") && log.contains("start the agent as node n1"), "{log}");

    // An agent of an earlier version has stored no node name, so this one starts under another.
    let name_file = system.dir().join("n1/agent-node");
    assert_eq!(std::fs::read_to_string(&name_file).unwrap(), "n1\n");
    std::fs::remove_file(&name_file).unwrap();
    renamed.restart();
    await_state(&system, "m1", NodeState::Ready).await;
    let refused = declare(&system, seen, ProofKind::Confirmed, "").await.unwrap_err();
    assert_eq!(refused.code, Code::NodeElsewhere, "{refused}");
    assert!(refused.message.contains("node m1 is there"), "{refused}");
    renamed.terminate().await;
    await_state(&system, "m1", NodeState::Down).await;

    // With another agent id, older than the absence, the agent still reports the mounts.
    let id_file = system.dir().join("n1/agent-id");
    let own_id = std::fs::read(&id_file).unwrap();
    std::fs::write(&id_file, format!("{:032x}\n", 7)).unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3_600);
    std::fs::File::options().write(true).open(&id_file).unwrap().set_modified(long_ago).unwrap();
    renamed.restart();
    wait::until("m1 reports the mount", PATIENCE, async || {
        let reported = node(&system, "m1").await?.unaccounted;
        if reported.is_empty() { Err("no mount") } else { Ok(()) }.map_err(str::to_owned)
    })
    .await;
    let refused = declare(&system, seen, ProofKind::Confirmed, "").await.unwrap_err();
    assert_eq!(refused.code, Code::NodeElsewhere, "{refused}");
    assert!(refused.message.contains("node m1 has volume default/data mounted at"), "{refused}");
    renamed.terminate().await;
    await_state(&system, "m1", NodeState::Down).await;
    std::fs::write(&id_file, own_id).unwrap();

    // With a new state directory the agent knows of no mount: a new node on a host that has not
    // rebooted.
    let (old_state, new_state) = (system.dir().join("n1"), system.dir().join("new"));
    let moved = config.replace(&old_state.display().to_string(), &new_state.display().to_string());
    let renewed = start("m2", &moved);
    await_state(&system, "m2", NodeState::Ready).await;
    let refused = declare(&system, seen, ProofKind::PoweredOff, "").await.unwrap_err();
    assert_eq!(refused.code, Code::NodeElsewhere, "{refused}");
    assert!(refused.message.contains("node m2 is there"), "{refused}");
    assert_eq!(count(&system, "ControllerUnpublishVolume n1"), 0);
    renewed.terminate().await;
    for name in ["m1", "m2"] {
        await_state(&system, name, NodeState::Down).await;
    }

    // Under its old name the agent has its mounts again.
    std::fs::write(&name_file, "n1\n").unwrap();
    system.restart(Part::Agent(0));
    await_state(&system, "n1", NodeState::Ready).await;
    std::fs::write(format!("{}/f", mounted.path), "kept").unwrap();
    system.stop("a").await;
    system.settle("data").await;
}
