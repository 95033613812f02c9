//! What runs an alloc keeps its volumes, and its end is noticed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use berth_client::scheduler::{Alloc, Deadlines, Lost, Refusal, process_guard};
use berth_contract::code::Code;
use berth_contract::message::agent::Guard;
use berth_contract::message::alloc::WaitUntil;
use berth_contract::verb::{self, Verb as _};
use berth_domain::alloc::AllocState;
use berth_domain::{Namespace, NodeId};
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, System};
use tokio::time::{sleep, timeout};

use super::{SOON, place, scheduler};

/// Where the host has cgroups of version 2.
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

/// Ends an alloc's guard, and where it is asked for stops the alloc before.
async fn end_guard(system: &System, job: &Alloc, guard: Sleeper, is_stopped: bool) {
    if is_stopped {
        hold_until_end(system, job, guard).await;
    } else {
        notice_end(job, guard).await;
    }
}

/// A stopped alloc keeps its volume while its guard lives. Once the guard has ended it is free.
async fn hold_until_end(system: &System, job: &Alloc, guard: Sleeper) {
    job.stop(AllocState::Complete, "stopped too early").await.unwrap();
    let waits = async || {
        let claims = system.claims("data").await.claims;
        let tries = claims.first().map_or(0, |claim| claim.tries);
        let said = claims.first().and_then(|claim| claim.error.clone()).unwrap_or_default();
        if tries >= 2 && said.contains("is guarded by") {
            Ok(())
        } else {
            Err(format!("{claims:?}"))
        }
    };
    wait::until("the release waits for the guard", SOON, waits).await;
    drop(guard);
    job.wait(WaitUntil::Free, SOON).await.unwrap();
}

/// A live alloc whose guard ends is reported as ended, and released.
async fn notice_end(job: &Alloc, guard: Sleeper) {
    sleep(Duration::from_millis(1_500)).await;
    assert!(timeout(Duration::from_millis(100), job.lost()).await.is_err(), "it lives");
    drop(guard);
    let lost = timeout(SOON, job.lost()).await.unwrap();
    assert!(matches!(lost, Lost::Ended { state: AllocState::Failed, .. }), "{lost:?}");
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
        // The agent is killed, and knows it all the same.
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
    let found = HIERARCHIES.iter().find(|dir| Path::new(dir).join("cgroup.procs").exists());
    let Some(hierarchy) = found else {
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
        assert_eq!(refused.problem().code, Code::GuardRefused, "it is empty: {refused}");
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
    let own = process_guard(std::process::id()).unwrap();
    let own = serde_json::json!(own);
    let bad = serde_json::json!({"pid": 1, "cgroup": "/x"});
    let escape = serde_json::json!({"lock": "../journal"});
    for (node, owner, guard, code) in [
        (0, "a", own.clone(), Code::AllocOwned),
        (0, "b", own.clone(), Code::AllocOwned),
        (1, "a", own, Code::AllocForeign),
        (0, "a", bad, Code::BadInput),
        (0, "a", escape, Code::BadInput),
    ] {
        let (subject, body) = request(node, owner, guard);
        let refused = system.ask::<serde_json::Value>(&subject, &body).await.unwrap_err();
        assert_eq!(refused.code, code, "{body}: {refused}");
    }
    drop(b);
}
