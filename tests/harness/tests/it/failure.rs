//! A test that fails says why, in few lines, and keeps all its logs.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use berth_harness::dirs::Dir;
use berth_harness::process::Program;
use berth_harness::{repository, wait};

/// Debug lines of another crate that each process of the failing case logs.
const NOISE: usize = 3_000;
const PROCESSES: usize = 12;
/// Lines that a failing test may print: its logs, its reason twice, frames, and libtest's own.
const PRINTED_MAX: usize = 300;
const REASON: &str = "the volume is attached to two nodes";

/// Fails only when the tests below run it in its own process.
#[tokio::test]
async fn case() {
    let Ok(lines) = std::env::var("FAILING_CASE").map(|lines| lines.parse::<usize>().unwrap())
    else {
        return;
    };
    let dir = Dir::new("failing");
    let script = format!(
        "for line in $(seq {NOISE}); do echo \"t DEBUG h2::codec: frame $line\"; done; \
         echo 't ERROR berth_claim: what went wrong'; echo done; exec sleep 600"
    );
    let start = |number: usize| {
        let log = dir.join(format!("{number}.log"));
        Program::new(&format!("process {number}"), "/bin/sh", log).args(["-c", &script]).start()
    };
    let processes: Vec<_> = (0..PROCESSES).map(start).collect();
    for process in &processes {
        wait::until("all is logged", Duration::from_secs(30), async || {
            let log = process.log();
            if log.ends_with("done\n") { Ok(()) } else { Err(log.len()) }
        })
        .await;
    }
    panic!("{REASON}{}", "\nand this is so".repeat(lines));
}

/// Runs the case; returns what it prints past libtest's capture, what libtest prints, and where its
/// logs are kept.
fn fail(lines: usize) -> (String, String, PathBuf) {
    let failed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "failure::case"])
        .env("FAILING_CASE", lines.to_string())
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap();
    assert!(!failed.status.success());
    let [stderr, captured] =
        [failed.stderr, failed.stdout].map(|out| String::from_utf8(out).unwrap());
    (stderr, captured, repository().join("target/failed/failure.case"))
}

#[test]
fn a_failing_test_prints_few_lines_and_its_reason_last() {
    let (stderr, captured, log_dir) = fail(0);
    let printed = stderr.lines().count() + captured.lines().count();
    assert!(printed <= PRINTED_MAX, "{printed} lines: {stderr}{captured}");
    assert!(!stderr.contains("h2::codec"), "{stderr}");
    assert!(stderr.contains("berth_claim: what went wrong"), "{stderr}");
    assert_eq!(stderr.lines().last(), Some(REASON), "{stderr}");
    // libtest's summary comes after what it captured.
    let (test_output, _) = captured.rsplit_once("failures:").unwrap();
    assert_eq!(test_output.trim_end().lines().last(), Some(REASON), "{captured}");
    assert!(captured.contains("at ./tests/it/failure.rs:"), "where it failed: {captured}");

    assert!(stderr.contains(&*log_dir.to_string_lossy()), "{stderr}");
    let logs = std::fs::read_dir(&log_dir).unwrap().flatten().map(|file| file.path());
    let sizes: Vec<usize> =
        logs.map(|log| std::fs::read_to_string(log).unwrap().lines().count()).collect();
    assert_eq!(sizes, vec![NOISE + 2; PROCESSES], "{}", log_dir.display());

    // A long reason is printed in part, and kept whole.
    let (stderr, captured, log_dir) = fail(3_000);
    let printed = stderr.lines().count() + captured.lines().count();
    assert!(printed <= PRINTED_MAX, "{printed} lines: {stderr}{captured}");
    assert!(stderr.contains(REASON) && stderr.contains("lines left out"), "{stderr}");
    let reason = std::fs::read_to_string(log_dir.join("reason")).unwrap();
    assert_eq!(reason.lines().count(), 3_002, "{reason}");
}
