//! `berth run` over a running system, with real mounts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;

use berth_harness::{dirs, root, wait};
use nix::sys::signal::Signal;

use crate::berth::Ran;
use crate::system::{SOON, System, signal};

#[tokio::test]
async fn a_command_finds_its_volumes_and_leaves_none_behind() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(2).await;
    system.volume("data", "single-node-writer");
    system.volume("models", "multi-node-single-writer");
    let run = |args: &[&str]| system.berth(&[&["run"], args].concat());

    let write = "echo $$ > $BERTH_VOLUME_DATA/f && touch $BERTH_VOLUME_MODELS/g && echo done";
    let volumes = ["--volume", "models", "--volume", "data"];
    let ran = run(&[&["--node", "n1"], &volumes[..], &["--", "sh", "-c", write]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{ran:?}");
    // Every step of both releases was printed, in order.
    for volume in ["data", "models"] {
        let position_of = |what: &str| ran.err.find(&format!("{volume}: {what}"));
        let steps =
            [position_of("unpublishing"), position_of("node-detached"), position_of("free")];
        assert!(steps.iter().all(Option::is_some) && steps.is_sorted(), "{steps:?}: {ran:?}");
    }

    // On the other node, read-only, and at a path that only the command sees.
    let place = system.dir.join("place");
    fs::create_dir(&place).unwrap();
    let place = place.to_str().unwrap();
    let at_place = format!("data:{place}:ro");
    let look = format!(
        "test -s {place}/f && grep -c ' {place} ' /proc/self/mountinfo; \
        test \"$BERTH_VOLUME_DATA/f\" -ef {place}/f && touch {place}/x"
    );
    let ran = run(&["--node", "n2", "--volume", &at_place, "--", "sh", "-c", &look]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "1\n"), "{ran:?}");
    assert!(ran.err.contains("Read-only file system"), "{ran:?}");
    assert_eq!(dirs::mounts_beneath(place.as_ref()), Vec::<std::path::PathBuf>::new());
    assert_eq!(fs::read_dir(place).unwrap().count(), 0);

    // With `--no-wait-release` the release completes by itself.
    let ran = run(&["--node", "n1", "--volume", "data", "--no-wait-release", "--", "true"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!ran.err.contains("free"), "{ran:?}");
    system.claims_become("data", &[]).await;
    system.stop().await;
}

#[tokio::test]
async fn berth_run_returns_the_exit_code_of_its_command() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("data", "single-node-writer");
    let run = |args: &[&str]| -> Ran {
        let global = ["run", "--node", "n1", "--volume", "data", "--"];
        let ran = system.berth(&[&global[..], args].concat());
        assert!(ran.err.contains("data: free"), "whatever became of it: {ran:?}");
        ran
    };
    assert_eq!(run(&["sh", "-c", "exit 42"]).code, 42);
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"]).code, 137);
    let absent = run(&["/nonexistent/command"]);
    assert_eq!(absent.code, 127, "{absent:?}");
    let file = system.dir.join("no-program");
    fs::write(&file, "text").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(run(&[file.to_str().unwrap()]).code, 126);

    let unknown = system.berth(&["run", "--node", "n1", "--volume", "dat", "--", "true"]);
    assert_eq!(unknown.code, 125, "{unknown:?}");
    assert!(unknown.err.contains("BERTH0101"), "{unknown:?}");
    let nowhere = system.berth(&["run", "--node", "n9", "--volume", "data", "--", "true"]);
    assert_eq!(nowhere.code, 125, "{nowhere:?}");
    assert!(nowhere.err.contains("BERTH0203"), "{nowhere:?}");
    assert_eq!(system.berth(&["volume", "status", "dat"]).code, 3);
    assert_eq!(system.berth(&["plugin", "status", "none"]).code, 3);
    assert_eq!(system.berth(&["node", "status", "n9"]).code, 3);
    assert_eq!(system.berth(&["alloc", "status", "none"]).code, 3);
    assert_eq!(system.berth(&["alloc", "stop", "none"]).code, 3);
    system.claims_become("data", &[]).await;
    system.stop().await;
}

#[tokio::test]
async fn a_refused_run_names_the_holder_and_waiting_runs_get_the_volume_in_turn() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(2).await;
    system.volume("data", "single-node-writer");
    system.volume("other", "single-node-writer");
    let on = |node, alloc| ["run", "--node", node, "--alloc", alloc, "--volume", "data"];
    let holder = system.spawn(&[&on("n1", "holder")[..], &["--", "sleep", "600"]].concat());
    system.claims_become("data", &["taken holder"]).await;

    // The run is refused immediately, and its earlier claims are released.
    let mark = system.dir.join("started");
    let touch = ["--", "touch", mark.to_str().unwrap()];
    let third = ["run", "--node", "n2", "--volume", "data", "--volume", "other"];
    let ran = system.berth(&[&third[..], &touch].concat());
    assert_eq!((ran.code, ran.out.as_str()), (124, ""), "{ran:?}");
    assert!(ran.err.contains("held by alloc holder on node n1"), "{ran:?}");
    assert!(ran.err.contains("berth alloc stop"), "{ran:?}");
    system.claims_become("other", &[]).await;

    // A volume in use is not deregistered.
    let ran = system.berth(&["volume", "deregister", "data"]);
    assert_eq!(ran.code, 5, "{ran:?}");

    // The run waits in the queue, and starts only after the holder's release.
    let waiter = [&on("n2", "waiter")[..], &["--wait"], &touch].concat();
    let mut waiter = system.spawn(&waiter);
    system.claims_become("data", &["taken holder", "waiting waiter"]).await;
    // The waiter prints its position in the queue long before its request for the mount times out,
    // after five seconds.
    let mut printed = BufReader::new(waiter.stderr.take().unwrap()).lines().map(Result::unwrap);
    let place = printed.next().unwrap();
    let (elapsed, place) = place.trim().split_once("s: ").unwrap();
    assert_eq!(place, "data: first in line; waits for its turn, after holder on n1 (taken)");
    assert!(elapsed.parse::<f64>().unwrap() < 4.0, "told after {elapsed} s");
    assert!(!mark.exists());
    signal(holder.id(), Signal::SIGTERM);
    let holder: Ran = holder.wait_with_output().unwrap().into();
    assert_eq!(holder.code, 143, "the signal was handed on: {holder:?}");
    let waiter: Ran = waiter.wait_with_output().unwrap().into();
    assert_eq!(waiter.code, 0, "{waiter:?}");
    assert!(mark.exists());
    system.claims_become("data", &[]).await;
    let ran = system.berth(&["volume", "deregister", "data"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    system.stop().await;
}

#[tokio::test]
async fn a_run_that_is_signalled_before_its_command_starts_releases_everything() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("data", "single-node-writer");
    // The attach hangs until the alloc has ended.
    let hang = r#"[{"rpc":"ControllerPublishVolume","hang":true,"times":1}]"#;
    fs::write(system.state("faults.json"), hang).unwrap();
    let mark = system.dir.join("started");
    let touch = ["--", "touch", mark.to_str().unwrap()];
    let run = ["run", "--node", "n1", "--alloc", "early", "--volume", "data"];
    let run = system.spawn(&[&run[..], &touch].concat());
    system.claims_become("data", &["publishing early"]).await;
    signal(run.id(), Signal::SIGTERM);
    wait::until("its alloc has ended", SOON, async || {
        let ran = system.berth(&["alloc", "status", "early", "--json"]);
        let alloc: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_default();
        if alloc["state"] == "failed" { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    fs::write(system.state("faults.json"), "[]").unwrap();
    let run: Ran = run.wait_with_output().unwrap().into();
    assert_eq!(run.code, 143, "{run:?}");
    assert!(run.err.contains("not started") && run.err.contains("data: free"), "{run:?}");
    assert!(!mark.exists());

    // An operator stops an alloc without a runner, and the command prints the release.
    let orphan = ["run", "--node", "n1", "--alloc", "orphan", "--volume", "data"];
    let mut orphan = system.spawn(&[&orphan[..], &["--", "sleep", "1"]].concat());
    system.claims_become("data", &["taken orphan"]).await;
    orphan.kill().unwrap();
    orphan.wait().unwrap();
    let stopped = system.berth(&["alloc", "stop", "orphan", "--wait"]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    assert!(stopped.err.contains("data: free"), "{stopped:?}");
    assert!(stopped.out.contains("no claims"), "{stopped:?}");
    system.stop().await;
}

/// Where the host's mounts are private, a new mount namespace copies those of every other alloc.
#[tokio::test]
async fn a_command_does_not_hold_the_volumes_of_others() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("one", "single-node-writer");
    system.volume("two", "single-node-writer");
    let place = system.dir.join("place");
    fs::create_dir(&place).unwrap();
    let (first, second) = (system.dir.join("first"), system.dir.join("second"));
    let run = |alloc: &str, volume: &str, there: &std::path::Path| {
        let script =
            format!("cp /proc/self/mountinfo {0}.t && mv {0}.t {0}; sleep 600", there.display());
        let at = format!("{volume}:{}", place.display());
        let args = ["run", "--node", "n1", "--alloc", alloc, "--volume", &at, "--", "sh", "-c"];
        system.spawn(&[&args[..], &[script.as_str()]].concat())
    };
    let began = |there: std::path::PathBuf| async move {
        wait::until("the command runs", SOON, async || {
            fs::read_to_string(&there).map_err(|error| error.to_string())
        })
        .await
    };
    let ends = run("ends", "one", &first);
    let mounts = began(first).await;
    let own = |line: &&str| line.contains("/csi/");
    assert_eq!(mounts.lines().filter(own).count(), 1, "its own volume: {mounts}");
    let stays = run("stays", "two", &second);
    let mounts = began(second).await;
    assert_eq!(mounts.lines().filter(own).count(), 1, "no volume of another's: {mounts}");
    // The mounts remain on the host.
    let host = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let host = host.lines().filter(|line| line.contains(&system.state("").display().to_string()));
    assert!(host.filter(own).count() >= 2);

    signal(ends.id(), Signal::SIGTERM);
    let ends: Ran = ends.wait_with_output().unwrap().into();
    assert!(ends.err.contains("one: free"), "{ends:?}");
    system.claims_become("one", &[]).await;
    system.claims_become("two", &["taken stays"]).await;
    signal(stays.id(), Signal::SIGTERM);
    let stays: Ran = stays.wait_with_output().unwrap().into();
    assert!(stays.err.contains("two: free"), "{stays:?}");
    system.stop().await;
}
