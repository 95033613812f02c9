//! An alloc's guard keeps its volumes, and the guard's end is noticed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_client::scheduler::{Alloc, Deadlines, LossReason, Refusal, process_guard};
use berth_contract::code::Code;
use berth_contract::message::agent::Guard;
use berth_contract::message::alloc::WaitUntil;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::AllocState;
use berth_domain::{Namespace, NodeId};
use berth_harness::dirs::mounts_beneath;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use tokio::time::{sleep, timeout};

use super::{SOON, place, scheduler};

/// Directories where a host may have cgroups of version 2.
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

struct Sleeper(Child);

impl Sleeper {
    fn start(input: Stdio) -> Self {
        Self(Command::new("sleep").arg("1000").stdin(input).spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Ends an alloc's guard; with `is_stopped`, stops the alloc before.
async fn end_guard(system: &System, job: &Alloc, guard: Sleeper, is_stopped: bool) {
    if is_stopped {
        hold_until_end(system, job, guard).await;
    } else {
        notice_end(job, guard).await;
    }
}

/// Checks that a stopped alloc keeps its volume while its guard lives, and releases it after.
async fn hold_until_end(system: &System, job: &Alloc, guard: Sleeper) {
    job.stop(AllocState::Complete, "stopped too early").await.unwrap();
    let waits = async || {
        let claims = system.claims("data").await.claims;
        let tries = claims.first().map_or(0, |claim| claim.tries);
        let error =
            claims.first().and_then(|claim| claim.error().map(str::to_owned)).unwrap_or_default();
        if tries >= 2 && error.contains("is guarded by") {
            Ok(())
        } else {
            Err(format!("{claims:?}"))
        }
    };
    wait::until("the release waits for the guard", SOON, waits).await;
    drop(guard);
    job.wait(WaitUntil::Free, SOON).await.unwrap();
}

/// Checks that a live alloc whose guard ends is reported as ended, and released.
async fn notice_end(job: &Alloc, guard: Sleeper) {
    sleep(Duration::from_millis(1_500)).await;
    assert!(timeout(Duration::from_millis(100), job.lost()).await.is_err(), "the alloc lives");
    drop(guard);
    let lost = timeout(SOON, job.lost()).await.unwrap();
    assert!(matches!(lost, LossReason::Ended { state: AllocState::Failed, .. }), "{lost:?}");
    job.wait(WaitUntil::Free, SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_guards_its_alloc() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    for (id, is_stopped) in [("stopped", true), ("ended", false)] {
        let job = place(&a, id, 0, &["data"]).await;
        job.mount(false, Deadlines::default()).await.unwrap();
        let sleeper = Sleeper::start(Stdio::null());
        let guard = process_guard(sleeper.0.id()).unwrap();
        let other = Guard { start: guard.start.map(|start| start + 1), ..guard.clone() };
        let refused = job.guard(other).await.unwrap_err();
        assert_eq!(refused.problem().code, Code::GuardRefused, "{refused}");
        job.guard(guard.clone()).await.unwrap();
        job.guard(guard).await.unwrap();
        assert!(job.is_guarded().await.unwrap());
        let second = process_guard(std::process::id()).unwrap();
        let refused = job.guard(second).await.unwrap_err();
        assert!(matches!(refused, Refusal::Never(_)), "one guard for each alloc: {refused:?}");
        end_guard(&system, &job, sleeper, is_stopped).await;
    }
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_guards_its_alloc_from_before_the_workload_begins() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    for (id, is_stopped) in [("stopped", true), ("ended", false)] {
        let job = place(&a, id, 0, &["data"]).await;
        job.mount(false, Deadlines::default()).await.unwrap();
        let lock = job.lock().await.unwrap();
        let sleeper = Sleeper::start(Stdio::from(lock));
        // The restarted agent still knows the guard.
        system.kill9_and_restart(Part::Agent(0)).await;
        system.healthy().await;
        end_guard(&system, &job, sleeper, is_stopped).await;
    }
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cgroup_guards_its_alloc() {
    if !or_skip("real mounts") {
        return;
    }
    let mounted = HIERARCHIES.iter().find(|dir| Path::new(dir).join("cgroup.procs").exists());
    let Some(hierarchy) = mounted else {
        println!("skipped: this host has no cgroups of version 2");
        return;
    };
    let dir = Path::new(hierarchy).join(format!("berth-test-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&dir) {
        println!("skipped: no cgroup can be made at {}: {error}", dir.display());
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    let guard = Guard { cgroup: Some(dir.to_string_lossy().into_owned()), ..Guard::default() };
    for (id, is_stopped) in [("stopped", true), ("ended", false)] {
        let job = place(&a, id, 0, &["data"]).await;
        job.mount(false, Deadlines::default()).await.unwrap();
        let refused = job.guard(guard.clone()).await.unwrap_err();
        assert_eq!(refused.problem().code, Code::GuardRefused, "the cgroup is empty: {refused}");
        let sleeper = Sleeper::start(Stdio::null());
        fs::write(dir.join("cgroup.procs"), sleeper.0.id().to_string()).unwrap();
        job.guard(guard.clone()).await.unwrap();
        end_guard(&system, &job, sleeper, is_stopped).await;
    }
    fs::remove_dir(&dir).unwrap();
    system.settle("data").await;
}

/// An alloc's guard is named by the alloc's owner, on the alloc's node.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_guards_an_alloc() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 2, ..Options::default() }).await;
    let a = scheduler(&system, "anna", "a").await;
    let b = scheduler(&system, "bob", "b").await;
    let _job = place(&a, "job", 0, &[]).await;
    let request = |node: usize, owner: &str, guard: serde_json::Value| {
        let agent = verb::NodeAndNamespace {
            node: NodeId::new(format!("n{}", node + 1)).unwrap(),
            namespace: Namespace::default(),
        };
        let subject = verb::AgentGuard::subject(&agent);
        let body = serde_json::json!({"namespace": "default", "alloc": "job", "owner": owner,
            "guard": guard});
        (subject, body)
    };
    let valid = process_guard(std::process::id()).unwrap();
    let valid = serde_json::json!(valid);
    let ambiguous = serde_json::json!({"pid": 1, "cgroup": "/x"});
    let escape = serde_json::json!({"lock": "../journal"});
    for (node, owner, guard, code) in [
        (0, "a", valid.clone(), Code::AllocOwned),
        (0, "b", valid.clone(), Code::AllocOwned),
        (1, "a", valid, Code::NoSuchAlloc),
        (0, "a", ambiguous, Code::BadInput),
        (0, "a", escape, Code::BadInput),
    ] {
        let (subject, body) = request(node, owner, guard);
        let refused = system.ask::<serde_json::Value>(&subject, &body).await.unwrap_err();
        assert_eq!(refused.code, code, "{body}: {refused}");
    }
    drop(b);
}

/// The directory of the runs of the first node.
fn runs_dir(system: &System) -> PathBuf {
    system.dir().join("n1/runs")
}

async fn is_mounted(system: &System, volume: &str) -> bool {
    let claims = system.claims(volume).await.claims;
    !claims.is_empty() && !mounts_beneath(&system.dir().join("n1/csi")).is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_is_known_after_the_directory_of_runs_was_removed() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    for (id, is_restarted) in [("while-it-ran", false), ("while-it-was-down", true)] {
        let job = place(&a, id, 0, &["data"]).await;
        job.mount(false, Deadlines::default()).await.unwrap();
        let sleeper = Sleeper::start(Stdio::null());
        job.guard(process_guard(sleeper.0.id()).unwrap()).await.unwrap();
        if is_restarted {
            system.kill9(Part::Agent(0));
        }
        // Moved first: the agent makes missing files again, even while the others are being
        // removed.
        let moved = system.dir().join(format!("{id}-runs"));
        fs::rename(runs_dir(&system), &moved).unwrap();
        fs::remove_dir_all(moved).unwrap();
        if is_restarted {
            system.restart(Part::Agent(0));
            system.healthy().await;
        }
        job.stop(AllocState::Complete, "stopped too early").await.unwrap();
        sleep(Duration::from_secs(3)).await;
        assert!(
            is_mounted(&system, "data").await,
            "{id}: the volume was unmounted under its guard"
        );
        assert!(job.is_guarded().await.unwrap());
        assert!(runs_dir(&system).is_dir(), "the directory was made again");
        hold_until_end(&system, &job, sleeper).await;
    }
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_file_was_removed_guards_its_alloc_while_it_is_held() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    for (id, is_stopped) in [("stopped", true), ("ended", false)] {
        let job = place(&a, id, 0, &["data"]).await;
        job.mount(false, Deadlines::default()).await.unwrap();
        let sleeper = Sleeper::start(Stdio::from(job.lock().await.unwrap()));
        for entry in fs::read_dir(runs_dir(&system)).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|extension| extension == "lock") {
                fs::remove_file(file).unwrap();
            }
        }
        // The restarted agent does not have the file open.
        system.kill9_and_restart(Part::Agent(0)).await;
        system.healthy().await;
        end_guard(&system, &job, sleeper, is_stopped).await;
    }
    system.settle("data").await;
}

/// Waits until claim and node say that the guard cannot be checked. Returns the node's text.
async fn guard_is_unknown(system: &System) -> String {
    wait::until("claim and node say that the guard cannot be checked", SOON, async || {
        let claims = system.claims("data").await.claims;
        let error =
            claims.first().and_then(|claim| claim.error().map(str::to_owned)).unwrap_or_default();
        let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
        let node_text = nodes[0].attributes.get("runs").cloned().unwrap_or_default();
        let dir = runs_dir(system).display().to_string();
        let is_shown = error.contains(Code::RunUnknown.as_str()) && node_text.contains(&dir);
        if is_shown { Ok(node_text) } else { Err(format!("{error:?} {node_text:?}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_lost_both_records_of_its_guards_keeps_the_mounts() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    let job = place(&a, "job", 0, &["data"]).await;
    job.mount(false, Deadlines::default()).await.unwrap();
    let sleeper = Sleeper::start(Stdio::null());
    job.guard(process_guard(sleeper.0.id()).unwrap()).await.unwrap();
    system.kill9(Part::Agent(0));
    for record_dir in ["n1/runs", "n1/known-runs"] {
        fs::remove_dir_all(system.dir().join(record_dir)).unwrap();
    }
    system.restart(Part::Agent(0));
    system.healthy().await;
    job.stop(AllocState::Complete, "stopped too early").await.unwrap();
    let node_text = guard_is_unknown(&system).await;
    assert!(node_text.contains("both records of what runs here are gone"), "{node_text}");
    assert!(is_mounted(&system, "data").await, "the volume was unmounted under its guard");
    drop(sleeper);
    fs::create_dir(runs_dir(&system)).unwrap();
    job.wait(WaitUntil::Free, SOON).await.unwrap();
    system.settle("data").await;
}

/// A file is in the directory's place: no guard can be checked, and the directory cannot be made.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_looked_at_has_not_ended() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let a = scheduler(&system, "anna", "a").await;
    let job = place(&a, "job", 0, &["data"]).await;
    job.mount(false, Deadlines::default()).await.unwrap();
    // The agent may make the directory again in between.
    wait::until("a file is in its place", SOON, async || {
        let _ = fs::remove_dir_all(runs_dir(&system));
        fs::write(runs_dir(&system), "in its place").map_err(|error| error.to_string())
    })
    .await;
    job.stop(AllocState::Complete, "done").await.unwrap();
    guard_is_unknown(&system).await;
    assert!(is_mounted(&system, "data").await);
    let refused = job.lock().await.unwrap_err();
    assert_eq!(refused.problem().code, Code::GuardRefused, "{refused}");
    fs::remove_file(runs_dir(&system)).unwrap();
    job.wait(WaitUntil::Free, SOON).await.unwrap();
    system.settle("data").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_has_ended_is_not_accepted_again() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    let a = scheduler(&system, "anna", "a").await;
    for round in 0..5 {
        let job = place(&a, &format!("job-{round}"), 0, &[]).await;
        let sleeper = Sleeper::start(Stdio::null());
        let guard = process_guard(sleeper.0.id()).unwrap();
        job.guard(guard.clone()).await.unwrap();
        drop(sleeper);
        let refused = job.guard(guard).await.unwrap_err();
        // The alloc may have been stopped meanwhile.
        let code = refused.problem().code;
        assert!(matches!(code, Code::GuardRefused | Code::AllocTerminal), "{refused}");
    }
}
