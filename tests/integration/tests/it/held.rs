//! A process that uses a volume in a mount namespace of its own keeps the release waiting; one that
//! only inherited its mount does not.

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
const PROMPTLY: Duration = Duration::from_secs(15);

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
    let named = format!("process {} (sh)", writer.pid());
    system.stop("a").await;

    // Every view names the process.
    let n1 = NodeId::new("n1").unwrap();
    let views = async || {
        let namespace = Namespace::default();
        let about = async |subject: String, body: Value| -> String {
            let answer: Value = system.persist(&subject, &body).await.unwrap();
            answer.to_string()
        };
        let status = verb::AgentStatus::subject(&verb::NodeAndNamespace::any_of(n1.clone()));
        let agent: AgentStatus = system.persist(&status, &AgentQuery {}).await.unwrap();
        [
            (
                "claim status",
                about(verb::ClaimStatus::subject(&namespace), json!({"volume": "data"})).await,
            ),
            (
                "volume status",
                about(verb::VolumeStatus::subject(&namespace), json!({"id": "data"})).await,
            ),
            (
                "alloc status",
                about(verb::AllocStatus::subject(&namespace), json!({"id": "a"})).await,
            ),
            ("agent status", serde_json::to_string(&agent).unwrap()),
        ]
    };
    wait::until("every view names the process", RECOVERY, || async {
        let views = views().await;
        match views.iter().find(|(_, said)| !said.contains(&named)) {
            None => Ok(()),
            Some((view, said)) => Err(format!("{view}: {said}")),
        }
    })
    .await;

    system.alloc("b", 1, "data", false).await;
    let refused = system.try_mount("b", 1, "data").await.unwrap_err();
    assert_eq!(refused.code, Code::Held, "{refused}");
    let written = fs::metadata(format!("{}/written", mounted.path)).unwrap().len();
    wait::until("it still writes", RECOVERY, || async {
        let now = fs::metadata(format!("{}/written", mounted.path)).map_err(|e| e.to_string())?;
        if now.len() > written { Ok(()) } else { Err("no more".to_owned()) }
    })
    .await;
    assert_eq!(system.claims("data").await.claims.len(), 1, "the claim stands");
    assert!(system.calls().iter().all(|call| call["rpc"] != "NodeUnpublishVolume"));

    drop(writer);
    let ended = Instant::now();
    system.mount_in_turn("b", 1, "data").await.unwrap();
    assert!(ended.elapsed() < PROMPTLY, "it took {:?}", ended.elapsed());
    system.stop("b").await;
    system.settle("data").await;
}

/// As any program of the host makes one: it inherits each mount, for as long as it lives.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_was_made_meanwhile_holds_a_volume_only_while_it_uses_it() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { nodes: 1, ..Options::default() }).await;
    system.volume("data", &["single-node-writer"]).await;
    let log = system.dir().path().join("idle.log");
    let unshared = |name: &str, script: &str| {
        namespace::shell(name, &log, "private", system.dir().path(), script).start()
    };
    let mounted = system.run("a", 0, "data").await;
    let has = |holder: &Daemon| {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", holder.pid()));
        table.is_ok_and(|table| table.contains(&mounted.path))
    };
    let idle = unshared("idle", "exec sleep 1000");
    let user = unshared("user", &format!("cd {}; exec sleep 1000", mounted.path));
    let is_within = || {
        let within = fs::read_link(format!("/proc/{}/cwd", user.pid()));
        within.is_ok_and(|within| within == std::path::Path::new(&mounted.path))
    };
    wait::until("both have it", RECOVERY, || async {
        if has(&idle) && is_within() { Ok(()) } else { Err(idle.log()) }
    })
    .await;
    system.stop("a").await;
    let named = format!("process {} (sleep) uses it there", user.pid());
    wait::until("the claim names the user", RECOVERY, || async {
        let claims = system.claims("data").await.claims;
        let error =
            claims.first().and_then(|claim| claim.error().map(str::to_owned)).unwrap_or_default();
        if error.contains(&named) { Ok(()) } else { Err(error) }
    })
    .await;
    assert!(!has(&idle), "it was unmounted where nothing used it");
    drop(user);
    system.freed("data").await;
    assert!(idle.is_running(), "nothing was ended");
    system.settle("data").await;
}
