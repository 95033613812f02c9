//! Processes start, stop, freeze, come back, and never stay behind.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_harness::dirs::Dir;
use berth_harness::process::{Daemon, Program, binary};
use berth_harness::wait;

const SOON: Duration = Duration::from_secs(10);

fn shell(dir: &Dir, script: &str) -> Program {
    Program::new("script", "/bin/sh", dir.join("log")).args(["-c", script])
}

/// The letter of /proc/<pid>/stat: R, S, T (stopped), Z; nothing when there is no such process.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

async fn log_says(daemon: &Daemon, text: &str) {
    wait::until(&format!("log says {text:?}"), SOON, async || {
        let log = daemon.log();
        if log.contains(text) { Ok(()) } else { Err(log) }
    })
    .await;
}

#[tokio::test]
async fn a_program_gets_its_arguments_and_environment_and_nothing_of_berth_from_the_shell() {
    let dir = Dir::new("process");
    let script = r#"echo "$1 $COLOUR $(env | grep -c '^BERTH_') $(pwd)" >&2; exit 7"#;
    let daemon = shell(&dir, script)
        .args(["sh", "first argument"])
        .env("COLOUR", "green")
        .env("BERTH_SET", "by the test")
        .start();
    assert_eq!(daemon.wait_exit(SOON).await.code(), Some(7));
    assert!(daemon.log().starts_with("first argument green 1 /"), "{}", daemon.log());
}

#[tokio::test]
async fn a_killed_process_comes_back_with_the_same_log() {
    let dir = Dir::new("process");
    let daemon = shell(&dir, "echo up as $$; exec sleep 600").start();
    let first = daemon.pid();
    log_says(&daemon, &format!("up as {first}")).await;

    daemon.kill9();
    assert_eq!(daemon.exit_status().unwrap().signal(), Some(9));
    daemon.restart();
    assert!(daemon.is_running());
    log_says(&daemon, &format!("up as {}", daemon.pid())).await;
    assert!(daemon.log().contains(&format!("up as {first}")));
}

#[tokio::test]
async fn terminate_lets_the_process_drain() {
    let dir = Dir::new("process");
    let drain = "trap 'echo drained; exit 3' TERM; echo up; while :; do sleep 0.05; done";
    let daemon = shell(&dir, drain).start();
    log_says(&daemon, "up").await;
    assert_eq!(daemon.terminate().await.code(), Some(3));
    assert!(daemon.log().ends_with("drained\n"));
}

#[tokio::test]
async fn a_paused_process_stands_still_until_resumed() {
    let dir = Dir::new("process");
    let daemon = shell(&dir, "while :; do :; done").start();
    daemon.pause();
    assert_eq!(state_of(daemon.pid()), Some('T'));
    assert!(daemon.is_running());
    daemon.resume();
    wait::until("it runs", SOON, async || match state_of(daemon.pid()) {
        Some('R') => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await;
}

#[tokio::test]
async fn dropping_a_process_ends_what_it_started_too() {
    let dir = Dir::new("process");
    let daemon = shell(&dir, "sleep 600 & echo child $!; wait").start();
    log_says(&daemon, "child ").await;
    let log = daemon.log();
    let child = log.trim_start_matches("child ").trim().parse().unwrap();
    drop(daemon);
    wait::until("the child is gone", SOON, async || match state_of(child) {
        None | Some('Z') => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await;
}

/// Does something only when [`processes_end_with_a_killed_test`] runs it in its own process: starts
/// a process, prints its id, and waits to be killed.
#[test]
fn victim() {
    let Some(log) = std::env::var_os("VICTIM_LOG").map(PathBuf::from) else { return };
    // Started from a thread that ends at once, as threads of tests do.
    let started =
        std::thread::spawn(|| Program::new("sleeper", "/bin/sleep", log).arg("600").start());
    let daemon = started.join().unwrap();
    println!("started {}", daemon.pid());
    std::thread::sleep(Duration::from_secs(600));
}

#[tokio::test]
async fn processes_end_with_a_killed_test() {
    let dir = Dir::new("process");
    let victim = Program::new("victim", std::env::current_exe().unwrap(), dir.join("log"))
        .args(["--exact", "process::victim", "--nocapture"])
        .env("VICTIM_LOG", dir.join("sleeper.log"))
        .start();
    log_says(&victim, "started ").await;
    let log = victim.log();
    let pid = log.split_once("started ").unwrap().1.split_whitespace().next().unwrap();
    let sleeper: u32 = pid.parse().unwrap();
    assert!(
        state_of(sleeper).is_some_and(|state| state != 'Z'),
        "the sleeper outlives the thread that started it"
    );

    victim.kill9();
    wait::until("the kernel has killed the sleeper", SOON, async || match state_of(sleeper) {
        None | Some('Z') => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await;
}

#[test]
fn binaries_of_the_workspace_are_found() {
    let path = binary("berth-gc");
    assert!(path.ends_with("berth-gc") && path.is_file(), "{}", path.display());
    assert_eq!(binary("berth-gc"), path);
    assert_ne!(path.parent().unwrap().file_name(), Some(Path::new("deps").as_os_str()));
}
