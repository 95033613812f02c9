//! A failing flow test prints the reason in few lines, however much its processes logged.

use std::io::Write as _;
use std::process::Command;

use berth_harness::root::or_skip;
use berth_integration::{Options, System};

/// The most lines that a failing flow test may print.
const PRINTED_MAX: usize = 300;

/// Fails only when the test below runs it in its own process: a driver's log is damaged, so that
/// the judge cannot read it.
#[tokio::test(flavor = "multi_thread")]
async fn case() {
    if std::env::var_os("FAILING_CASE").is_none() {
        return;
    }
    let system = System::start(Options::default()).await;
    system.volume("data", &["single-node-writer"]).await;
    system.run("a", 0, "data").await;
    system.stop("a").await;
    let log = std::fs::OpenOptions::new().append(true).open(&system.call_logs()[0]);
    log.unwrap().write_all(b"this is no call\n{}\n").unwrap();
    system.settle("data").await;
}

#[test]
fn a_failing_flow_test_prints_little_and_its_reason_last() {
    if !or_skip("real mounts") {
        return;
    }
    let failed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "failing::case"])
        .env("FAILING_CASE", "1")
        .output()
        .unwrap();
    assert!(!failed.status.success());
    let printed = String::from_utf8(failed.stderr).unwrap();
    let captured = String::from_utf8(failed.stdout).unwrap();
    let lines = printed.lines().count() + captured.lines().count();
    assert!(lines <= PRINTED_MAX, "{lines} lines: {printed}{captured}");
    assert!(!printed.contains(" h2::") && !printed.contains(" tower::"), "{printed}");
    let end: Vec<&str> = printed.lines().rev().take(12).collect();
    let ends_with = |text: &str| end.iter().any(|line| line.contains(text));
    assert!(ends_with("failing::case: panicked at"), "{printed}");
    assert!(ends_with("the judge of the call logs ended with"), "{printed}");
    assert!(ends_with("calls-1"), "the judge names the log: {printed}");
}
