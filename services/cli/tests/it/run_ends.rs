//! `berth run` under kills: the volumes are released, and not before the command and all its
//! children have ended.

use std::fs;
use std::path::Path;

use berth_harness::{root, wait};
use nix::sys::signal::Signal;

use crate::berth::Ran;
use crate::system::{SOON, System, is_running, signal};

/// The pid in the file, once it is written.
async fn pid_in(file: &Path) -> i32 {
    let goal = format!("{} says a pid", file.display());
    let read = async || {
        let text = fs::read_to_string(file).unwrap_or_default();
        if text.ends_with('\n') { Ok(text) } else { Err(format!("it says {text:?}")) }
    };
    wait::until(&goal, SOON, read).await.trim().parse().unwrap()
}

async fn ended(pid: i32) {
    let running = async || if is_running(pid) { Err("it runs") } else { Ok(()) };
    wait::until(&format!("process {pid} has ended"), SOON, running).await;
}

/// How often the first node's driver was called to unpublish the volume.
fn unpublished(system: &System, volume: &str) -> usize {
    let log = fs::read_to_string(system.state("calls/n1.jsonl")).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines
        .filter(|line| line["entry"] == "begin" && line["rpc"] == "NodeUnpublishVolume")
        .filter(|line| line["volume_id"] == volume)
        .count()
}

/// A script that leaves a daemon. The daemon closes its inherited files, has its own session,
/// ignores SIGHUP and SIGTERM, and writes until it is killed.
fn daemon(pid_file: &Path, writes: &str) -> String {
    format!(
        "setsid bash -c 'trap \"\" HUP TERM; \
         for fd in /proc/self/fd/*; do n=${{fd##*/}}; [ $n -gt 2 ] && eval \"exec $n>&-\"; done; \
         echo $$ > {}; while :; do echo more >> {writes}; sleep 0.05; done' \
         </dev/null >/dev/null 2>&1 &",
        pid_file.display(),
    )
}

#[tokio::test]
async fn a_killed_runner_takes_its_command_along_and_the_agent_gives_the_volume_back() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("data", "single-node-writer");
    let place = system.dir.join("place");
    fs::create_dir(&place).unwrap();
    let [own, left] = ["own", "left"].map(|name| system.dir.join(name));
    let volume = format!("data:{}", place.display());
    let writes = place.join("f").display().to_string();
    let script = format!("{} echo $$ > {}; sleep 600; true", daemon(&left, &writes), own.display());
    let run = ["run", "--node", "n1", "--alloc", "a", "--volume", &volume, "--"];
    let mut run = system.spawn(&[&run[..], &["sh", "-c", &script]].concat());
    let (own, left) = (pid_in(&own).await, pid_in(&left).await);

    // The command of a stopped alloc may still run.
    let stopped = system.berth(&["alloc", "stop", "a"]);
    assert_eq!(stopped.code, 0, "{stopped:?}");
    wait::until("the release says what it waits for", SOON, async || {
        let ran = system.berth(&["volume", "status", "data", "--json"]);
        let warns = ran.out.contains("the command of alloc a still runs");
        if warns { Ok(()) } else { Err(format!("{ran:?}")) }
    })
    .await;
    assert_eq!(unpublished(&system, "data"), 0);
    assert!(is_running(own) && is_running(left));

    run.kill().unwrap();
    run.wait().unwrap();
    ended(own).await;
    ended(left).await;
    system.claims_become("data", &[]).await;
    assert_eq!(unpublished(&system, "data"), 1, "and exactly once");
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    runs_become_none(&system).await;
    system.stop().await;
}

async fn runs_become_none(system: &System) {
    let dir = system.state("n1/runs");
    wait::until("nothing is watched any more", SOON, async || {
        let remaining: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|one| one.unwrap().path()).collect();
        if remaining.is_empty() { Ok(()) } else { Err(format!("{remaining:?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_run_that_ends_while_agent_and_bus_are_away_is_released_later() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("data", "single-node-writer");
    let pid_of = |name: &str| {
        let processes = system.processes();
        processes.into_iter().find(|(process, _)| process == name).unwrap().1.unsigned_abs()
    };
    let begin = |alloc: &str, own: &Path, go: &Path| {
        let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", go.display());
        let script = format!("echo $$ > {}; {wait}", own.display());
        let run = ["run", "--node", "n1", "--alloc", alloc, "--volume", "data", "--"];
        system.spawn(&[&run[..], &["sh", "-c", &script]].concat())
    };

    // Agent and runner are killed together; `berth dev` starts the agent again.
    let [own, go] = ["own-1", "go-1"].map(|name| system.dir.join(name));
    let mut run = begin("a", &own, &go);
    let own = pid_in(&own).await;
    signal(pid_of("agent-n1"), Signal::SIGKILL);
    run.kill().unwrap();
    run.wait().unwrap();
    ended(own).await;
    system.claims_become("data", &[]).await;

    // The bus is paused when the command ends, and the runner is killed while it waits for the bus.
    let [own, go] = ["own-2", "go-2"].map(|name| system.dir.join(name));
    let mut run = begin("b", &own, &go);
    let own = pid_in(&own).await;
    let bus = pid_of("nats-server");
    signal(bus, Signal::SIGSTOP);
    assert!(is_running(own), "the command goes on without a bus");
    fs::write(&go, "").unwrap();
    ended(own).await;
    let said = system.state("n1/runs/default.b.json");
    wait::until("it is written down how it ended", SOON, async || {
        let text = fs::read_to_string(&said).unwrap();
        if text.contains("exit code 0") { Ok(()) } else { Err(text) }
    })
    .await;
    run.kill().unwrap();
    run.wait().unwrap();
    signal(bus, Signal::SIGCONT);
    system.claims_become("data", &[]).await;
    let status = system.berth(&["alloc", "status", "b", "--json"]);
    assert!(status.out.contains("\"complete\""), "{status:?}");
    runs_become_none(&system).await;
    system.stop().await;
}

#[tokio::test]
async fn processes_left_by_the_command_end_before_its_volume_is_released() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("data", "single-node-writer");
    let left_file = system.dir.join("left");
    let script = format!(
        "sleep 600 & (setsid sleep 700 & echo $! > {}) & sleep 0.2; exit 7",
        left_file.display()
    );
    let run = ["run", "--node", "n1", "--volume", "data", "--", "sh", "-c", &script];
    let ran = system.berth(&run);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.err.contains("left running: sleep"), "{ran:?}");
    assert!(!is_running(pid_in(&left_file).await));
    let position = ran.err.find("left running").unwrap();
    assert!(ran.err.find("data: unpublishing").unwrap() > position, "{ran:?}");
    assert_eq!(unpublished(&system, "data"), 1);
    system.stop().await;
}

#[tokio::test]
async fn signals_are_handed_on() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("data", "single-node-writer");
    let told_file = system.dir.join("told");
    let traps = ["INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"]
        .map(|name| format!("trap 'echo {name} >> {}' {name};", told_file.display()));
    let script = format!(
        "{} echo up > {}; while :; do sleep 0.05; done",
        traps.join(" "),
        told_file.display()
    );
    let run = ["run", "--node", "n1", "--volume", "data", "--", "sh", "-c", &script];
    let run = system.spawn(&run);
    let mut expected = "up\n".to_owned();
    let says = async |expected: &str| {
        wait::until(&format!("it was told {expected:?}"), SOON, async || {
            let text = fs::read_to_string(&told_file).unwrap_or_default();
            if text == expected { Ok(()) } else { Err(text) }
        })
        .await;
    };
    says(&expected).await;
    for (name, number) in [
        ("USR1", Signal::SIGUSR1),
        ("HUP", Signal::SIGHUP),
        ("WINCH", Signal::SIGWINCH),
        ("QUIT", Signal::SIGQUIT),
        ("USR2", Signal::SIGUSR2),
        ("INT", Signal::SIGINT),
    ] {
        signal(run.id(), number);
        expected = format!("{expected}{name}\n");
        says(&expected).await;
    }
    signal(run.id(), Signal::SIGTERM);
    let run: Ran = run.wait_with_output().unwrap().into();
    assert_eq!(run.code, 143, "{run:?}");
    system.claims_become("data", &[]).await;
    system.stop().await;
}

#[tokio::test]
async fn one_volume_at_several_paths_and_paths_that_will_not_do() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("data", "single-node-writer");
    system.volume("inner", "single-node-writer");
    let [place, look, file] = ["place", "look", "file"].map(|name| system.dir.join(name));
    fs::create_dir(&place).unwrap();
    fs::create_dir(&look).unwrap();
    fs::write(&file, "").unwrap();
    let [place, look, file] = [&place, &look, &file].map(|path| path.to_str().unwrap());
    let run = |volumes: &[&str], script: &str| {
        let volumes = volumes.iter().flat_map(|volume| ["--volume", volume]);
        let args: Vec<&str> = ["run", "--node", "n1"]
            .into_iter()
            .chain(volumes)
            .chain(["--", "sh", "-c", script])
            .collect();
        system.berth(&args)
    };

    let (write, read) = (format!("data:{place}"), format!("data:{look}:ro"));
    let script = format!("mkdir {place}/in && test -d {look}/in && ! touch {look}/x && echo so");
    let ran = run(&[&write, &read], &script);
    assert_eq!((ran.code, ran.out.as_str()), (0, "so\n"), "{ran:?}");
    assert!(ran.err.contains("Read-only file system"), "{ran:?}");

    // A path inside a volume belongs to that volume: the run does not create it.
    let inside = format!("inner:{place}/in");
    let ran =
        run(&[&inside, &write], &format!("touch {place}/in/i && grep -c {place} /proc/mounts"));
    assert_eq!((ran.code, ran.out.as_str()), (0, "2\n"), "{ran:?}");
    let nowhere = format!("inner:{place}/none");
    for (volumes, words) in [
        (vec![write.as_str(), nowhere.as_str()], "inside another volume it must be there already"),
        (vec![&*format!("data:{file}")], "a directory for a file system"),
    ] {
        let ran = run(&volumes, "echo started");
        assert_eq!((ran.code, ran.out.as_str()), (125, ""), "{ran:?}");
        assert!(ran.err.contains(words) && ran.err.contains("data: free"), "{ran:?}");
    }

    // A run whose volumes cannot be mounted is refused before anything is claimed.
    let none = ["run", "--node", "n1", "--volume", "data", "--task-driver-mounts", "none"];
    let ran = system.berth(&[&none[..], &["--", "true"]].concat());
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains("can mount no volumes"), "{ran:?}");
    system.claims_become("data", &[]).await;
    system.claims_become("inner", &[]).await;
    runs_become_none(&system).await;
    system.stop().await;
}

#[tokio::test]
async fn each_of_fifty_waiting_runs_gets_the_volume_alone() {
    if !root::or_skip("mounts volumes") {
        return;
    }
    let system = System::start(1).await;
    system.volume("data", "single-node-single-writer");
    // A command that finds another command's directory was not alone with the volume.
    let script = "cd $BERTH_VOLUME_DATA && mkdir alone && echo x >> all && rmdir alone";
    let run = ["run", "--node", "n1", "--volume", "data", "--wait=10m", "--no-wait-release", "--"];
    let runs: Vec<_> =
        (0..50).map(|_| system.spawn(&[&run[..], &["sh", "-c", script]].concat())).collect();
    // A runner that is terminated while it waits leaves the queue.
    let late = ["run", "--node", "n1", "--alloc", "late", "--volume", "data", "--wait", "--"];
    let late = system.spawn(&[&late[..], &["sh", "-c", script]].concat());
    signal(late.id(), Signal::SIGINT);
    let late = late.wait_with_output().unwrap();
    for run in runs {
        let ran: Ran = run.wait_with_output().unwrap().into();
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    let count = ["run", "--node", "n1", "--volume", "data", "--wait", "--"];
    let count = [&count[..], &["sh", "-c", "wc -l < $BERTH_VOLUME_DATA/all"]].concat();
    let ran = system.berth(&count);
    let expected = if late.status.success() { "51\n" } else { "50\n" };
    assert_eq!((ran.code, ran.out.as_str()), (0, expected), "{ran:?}");
    system.claims_become("data", &[]).await;
    system.stop().await;
}
