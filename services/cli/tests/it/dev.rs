//! `berth dev`: everything runs, restarts when killed, and ends when stopped or killed.

use berth_harness::process::binary;
use berth_harness::{judge, root, wait};
use nix::sys::signal::Signal;

use crate::system::{SOON, System, is_running, signal};

#[tokio::test]
async fn a_killed_process_is_restarted_and_nothing_is_lost() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(2).await;
    system.volume("data", "single-node-writer");
    let before = system.processes();
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "agent-n1",
        "agent-n2",
        "claim",
        "driver-n1",
        "driver-n2",
        "gc",
        "nats-server",
        "plugin-registry",
        "volumewatcher",
    ];
    assert_eq!(names, expected);
    for (_, pid) in &before {
        signal(u32::try_from(*pid).unwrap(), Signal::SIGKILL);
    }
    wait::until("all run again", SOON, async || {
        let now = system.processes();
        let back = |(name, pid): &(String, i32)| {
            now.iter().any(|(other, other_pid)| {
                other == name && other_pid != pid && is_running(*other_pid)
            })
        };
        if before.iter().all(back) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    // The store survives the restart: the volume is still registered, at the same address.
    let run = ["run", "--node", "n2", "--volume", "data", "--", "true"];
    let ran = system.berth(&run);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(system.daemon.log().contains("claim was killed by signal 9; it starts again"));
    system.stop().await;
}

/// A driver that reads only its arguments, as csi-driver-host-path does.
#[tokio::test]
async fn a_driver_of_the_users_own_runs_on_each_node() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start_with(2, |dir| {
        let driver = binary("berth-csi-dev");
        let command = [
            "/usr/bin/env",
            "-uCSI_ENDPOINT",
            driver.to_str().unwrap(),
            "serve",
            "--endpoint=${CSI_ENDPOINT}",
            "--driver-name=own.example",
            "--node-id=own-${NODE}",
            &format!("--backend={}", dir.join("s/own").display()),
            &format!("--log={}", dir.join("s/calls").join("own-${NODE}.jsonl").display()),
        ];
        let file = dir.join("own.toml");
        std::fs::write(&file, format!("id = 'own.example'\ncommand = {command:?}\n")).unwrap();
        vec!["--plugin".to_owned(), file.display().to_string()]
    })
    .await;
    wait::until("the driver is healthy on both nodes", SOON, async || {
        let ran = system.berth(&["plugin", "status", "own.example", "--json"]);
        let plugin: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_default();
        if plugin["nodes"]["healthy"] == 2 { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    system.volume_of("own.example", "own", "mine", "single-node-writer");
    let write = "echo hello > $BERTH_VOLUME_MINE/f";
    let ran = system.berth(&["run", "--node", "n1", "-v", "mine", "--", "sh", "-c", write]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let read = "cat $BERTH_VOLUME_MINE/f";
    let ran = system.berth(&["run", "--node", "n2", "-v", "mine", "--", "sh", "-c", read]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "hello\n"), "{ran:?}");
    judge::assert_right((1..=2).map(|node| system.state(&format!("calls/own-n{node}.jsonl"))));
    let log = system.daemon.log();
    assert!(log.contains("plugin own.example is added on each node"), "{log}");
    // Neither driver may outlive `berth dev`: `stop` checks every process.
    assert!(system.processes().iter().any(|(name, _)| name == "plugin1-n2"));
    system.stop().await;
}

#[tokio::test]
async fn a_process_that_ends_at_its_start_is_reported_with_the_last_line_of_its_log() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start_with(1, |dir| {
        let file = dir.join("broken.toml");
        let command =
            "command = ['/bin/sh', '-c', 'echo reads its options; echo no such option; exit 3']";
        std::fs::write(&file, format!("id = 'broken.example'\n{command}\n")).unwrap();
        vec!["--plugin".to_owned(), file.display().to_string()]
    })
    .await;
    wait::until("its end is reported", SOON, async || {
        let said = system.daemon.log();
        let ended = said.contains("ended with exit code 3; it starts again in");
        let why = said.contains("its log ends with: no such option");
        if ended && why { Ok(()) } else { Err(said) }
    })
    .await;
    system.stop().await;
}

#[tokio::test]
async fn no_process_outlives_berth_dev_and_the_next_one_keeps_its_state() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("data", "single-node-writer");
    let processes = system.processes();
    system.daemon.kill9();
    wait::until("all are gone with it", SOON, async || {
        let survivors: Vec<_> = processes.iter().filter(|(_, pid)| is_running(*pid)).collect();
        if survivors.is_empty() { Ok(()) } else { Err(format!("{survivors:?}")) }
    })
    .await;
    std::fs::remove_file(system.dir.join("ready")).unwrap();
    system.daemon.restart();
    system.ready().await;
    let ran = system.berth(&["volume", "status", "data"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    // A second `berth dev` in the same directory is refused.
    let state = system.state("");
    let second = crate::berth::berth(&["dev", "--dir", state.to_str().unwrap()]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.err.contains("another `berth dev` runs"), "{second:?}");
    system.stop().await;
}
