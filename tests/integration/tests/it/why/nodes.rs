//! Nodes that are down, removed or held, and mounts that are gone.

use berth_contract::verb::{self, Verb as _};
use berth_harness::dirs::Disk;
use berth_harness::namespace;
use berth_harness::root::or_skip;
use berth_harness::wait;
use berth_integration::{Options, Part, RECOVERY, System};
use serde_json::{Value, json};

use super::{NOBODY, YOU, tells};

/// S2, S3, S5, S8 and S9, and a mount that an operator unmounted.
#[tokio::test(flavor = "multi_thread")]
async fn why_tells_a_dead_node_from_a_held_volume_and_a_lost_mount() {
    if !or_skip("real mounts") {
        return;
    }
    let system = System::start(Options { call_timeout_ms: 1_500, ..Options::default() }).await;
    for volume in ["kept", "flips", "lost", "held"] {
        system.volume(volume, &["single-node-writer"]).await;
    }
    system.run("of-kept", 0, "kept").await;
    for flip in 0..3 {
        system.run(&format!("flip-{flip}"), flip % 2, "flips").await;
        system.stop(&format!("flip-{flip}")).await;
        system.freed("flips").await;
    }
    system.run("flip", 1, "flips").await;
    let well = tells(&system, "flips", "nothing", NOBODY, "nothing to do").await;
    assert_eq!(well["state"], "taken by flip on n2, mounted");
    tells(&system, "alloc/flip", "nothing", NOBODY, "nothing to do").await;

    let lost = system.run("of-lost", 1, "lost").await;
    let unmounted = std::process::Command::new("umount").arg(&lost.path).status().unwrap();
    assert!(unmounted.success());
    let held = system.run("of-held", 1, "held").await;
    let script =
        format!("exec 3>> {}/written; while :; do echo x >&3; sleep 0.05; done", held.path);
    let log = system.dir().path().join("writer.log");
    let writer = namespace::shell("writer", &log, "private", system.dir().path(), &script).start();
    wait::until("the process writes", RECOVERY, || async {
        let file = format!("{}/written", held.path);
        std::fs::metadata(file).map(drop).map_err(|error| error.to_string())
    })
    .await;
    system.stop("of-held").await;
    let sentence = format!(
        "the volume is still in use on node n2, by process {} (sh)…, after alloc of-held was to \
         give it up",
        writer.pid()
    );
    let finding = tells(&system, "held", "held-by-process", YOU, &sentence).await;
    let next = finding["next"][0].as_str().unwrap();
    assert!(next.starts_with(&format!("ps -o pid,user,etime,args -p {}", writer.pid())), "{next}");
    drop(writer);
    system.freed("held").await;

    // S2, S5: the agent is killed, and the host is not declared gone.
    system.compared().await;
    system.kill9(Part::Agent(0));
    let sentence = "node n1 is down for …: its agent renews no lease. …";
    let down = tells(&system, "kept", "node-down", YOU, sentence).await;
    assert_eq!(down["state"], "taken by of-kept on n1");
    assert!(down["not_known"][0].as_str().unwrap().starts_with("what node n1 has mounted"));
    tells(&system, "n1", "node-down", YOU, sentence).await;
    system.stop("of-kept").await;
    tells(&system, "kept", "node-down", YOU, sentence).await;

    // S3: the node's record is removed meanwhile.
    let _: Value =
        system.persist(&verb::NodeLeave::subject(&()), &json!({"node": "n1"})).await.unwrap();
    tells(&system, "kept", "node-unknown", YOU, "no node n1 is on record: …").await;
    system.restart(Part::Agent(0));
    system.freed("kept").await;

    let sentence = "the mount of of-lost on node n2 is gone…";
    let missing = tells(&system, "lost", "mount-missing", YOU, sentence).await;
    let command = "berth volume republish lost --node n2 --alloc of-lost";
    assert!(missing["next"][0].as_str().unwrap().starts_with(command), "{missing:#}");
    for alloc in ["flip", "of-lost"] {
        system.stop(alloc).await;
    }
    for volume in ["flips", "lost"] {
        system.freed(volume).await;
    }
    a_full_journal(&system).await;
    system.settle("kept").await;
}

/// The disk below the journal of n2 is filled, and freed again.
async fn a_full_journal(system: &System) {
    let agent = system.daemon(Part::Agent(1));
    agent.terminate().await;
    std::fs::remove_dir_all(system.journal(1)).unwrap();
    let disk = Disk::mount(system.journal(1), 32 << 20);
    agent.restart();
    system.healthy().await;
    disk.fill();
    let mut number = 0;
    wait::until("the journal takes nothing", RECOVERY, || {
        number += 1;
        let alloc = format!("full-{number}");
        async move {
            system.alloc(&alloc, 1, "flips", false).await;
            let mounted = system.try_mount(&alloc, 1, "flips").await;
            // Releases the mount, if the journal still had room for it.
            system.stop(&alloc).await;
            // A mount may also fail because the machine is slow.
            let nodes = system.nodes().await.map_err(|problem| problem.to_string())?.nodes;
            let shows_fault = nodes.iter().any(|node| node.attributes.contains_key("journal"));
            if shows_fault { Ok(()) } else { Err(format!("{mounted:?}")) }
        }
    })
    .await;
    let sentence = "the agent of node n2 can write nothing to its journal, …";
    let finding = tells(system, "n2", "journal-fault", YOU, sentence).await;
    assert!(finding["evidence"][0].as_str().unwrap().contains("No space left"), "{finding}");
    disk.free();
    system.freed("flips").await;
    system.healthy().await;
}
