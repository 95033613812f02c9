//! A process that uses a volume in a mount namespace of its own delays the release. A process that
//! only inherited the mount does not.

use std::fs;
use std::time::{Duration, Instant};

use berth_contract::code::Code;
use berth_contract::message::agent::{AgentQuery, AgentStatus};
use berth_contract::verb::{self, Verb as _};
use berth_domain::{Namespace, NodeId};
use berth_harness::namespace;
use berth_harness::process::Daemon;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, RECOVERY, System};
use serde_json::{Value, json};

/// How long the release may take once the process has ended.
const RELEASE_MAX: Duration = Duration::from_secs(15);

/// A process with a private copy of the host's mounts, as in a container. It writes to the volume
/// continuously.
async fn writer(system: &System, path: &str) -> Daemon {
    let script = format!("exec 3>> {path}/written; while :; do echo x >&3; sleep 0.05; done");
    let log = system.dir().path().join("writer.log");
    let writer = namespace::shell("writer", &log, "private", system.dir().path(), &script).start();
    wait::until("the process writes", RECOVERY, || async {
        match fs::metadata(format!("{path}/written")) {
            Ok(file) if file.len() > 2 => Ok(()),
            other => Err(format!("{other:?} {}", writer.log())),
        }
    })
    .await;
    writer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_alloc_keeps_its_volume_while_a_process_elsewhere_has_it() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    let mounted = system.run("a", 0, "data").await;
    let writer = writer(&system, &mounted.path).await;
    let name = format!("process {} (sh)", writer.pid());
    system.stop("a").await;

    // Every view names the process.
    let n1 = NodeId::new("n1").unwrap();
    let views = async || {
        let namespace = Namespace::default();
        let ask = async |subject: String, body: Value| -> String {
            let answer: Value = system.persist(&subject, &body).await.unwrap();
            answer.to_string()
        };
        let status = verb::AgentStatus::subject(&verb::NodeAndNamespace::any_of(n1.clone()));
        let agent: AgentStatus = system.persist(&status, &AgentQuery {}).await.unwrap();
        [
            (
                "claim status",
                ask(verb::ClaimStatus::subject(&namespace), json!({"volume": "data"})).await,
            ),
            (
                "volume status",
                ask(verb::VolumeStatus::subject(&namespace), json!({"id": "data"})).await,
            ),
            ("alloc status", ask(verb::AllocStatus::subject(&namespace), json!({"id": "a"})).await),
            ("agent status", serde_json::to_string(&agent).unwrap()),
        ]
    };
    wait::until("every view names the process", RECOVERY, || async {
        let views = views().await;
        match views.iter().find(|(_, text)| !text.contains(&name)) {
            None => Ok(()),
            Some((view, text)) => Err(format!("{view}: {text}")),
        }
    })
    .await;

    system.alloc("b", 1, "data", false).await;
    let refused = system.try_mount("b", 1, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::Held, "{refused}");
    let written = fs::metadata(format!("{}/written", mounted.path)).unwrap().len();
    wait::until("the process still writes", RECOVERY, || async {
        let file = fs::metadata(format!("{}/written", mounted.path));
        let length = file.map_err(|error| error.to_string())?.len();
        if length > written { Ok(()) } else { Err(format!("{length} bytes")) }
    })
    .await;
    assert_eq!(system.claims("data").await.claims.len(), 1, "the claim stands");
    assert!(system.calls().iter().all(|call| call["rpc"] != "NodeUnpublishVolume"));

    drop(writer);
    let ended = Instant::now();
    system.mount_in_turn("b", 1, "data").await.unwrap();
    assert!(ended.elapsed() < RELEASE_MAX, "it took {:?}", ended.elapsed());
    system.stop("b").await;
    system.settle("data").await;
}

/// Any program of the host may make a mount namespace, which inherits each mount.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_was_made_meanwhile_holds_a_volume_only_while_it_uses_it() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let log = system.dir().path().join("idle.log");
    let start_unshared = |name: &str, script: &str| {
        namespace::shell(name, &log, "private", system.dir().path(), script).start()
    };
    let mounted = system.run("a", 0, "data").await;
    let has_mount = |process: &Daemon| {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", process.pid()));
        table.is_ok_and(|table| table.contains(&mounted.path))
    };
    let idle = start_unshared("idle", "exec sleep 1000");
    let user = start_unshared("user", &format!("cd {}; exec sleep 1000", mounted.path));
    let uses_volume = || {
        let cwd = fs::read_link(format!("/proc/{}/cwd", user.pid()));
        cwd.is_ok_and(|cwd| cwd == std::path::Path::new(&mounted.path))
    };
    wait::until("both have the mount", RECOVERY, || async {
        if has_mount(&idle) && uses_volume() { Ok(()) } else { Err(idle.log()) }
    })
    .await;
    system.stop("a").await;
    let name = format!("process {} (sleep) uses it there", user.pid());
    wait::until("the claim names the user", RECOVERY, || async {
        let claims = system.claims("data").await.claims;
        let error =
            claims.first().and_then(|claim| claim.error().map(str::to_owned)).unwrap_or_default();
        if error.contains(&name) { Ok(()) } else { Err(error) }
    })
    .await;
    assert!(!has_mount(&idle), "the idle process still has the mount");
    drop(user);
    system.freed("data").await;
    assert!(idle.is_running(), "the idle process was ended");
    system.settle("data").await;
}
