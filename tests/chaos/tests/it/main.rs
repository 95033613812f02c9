//! One run of chaos. It needs root, because it mounts.
//!
//! `BERTH_CHAOS_SECONDS` says how long the run is (20; 120 where `CI` is set), and
//! `BERTH_CHAOS_SEED` names the seed. With `BERTH_CHAOS_KEEP`, a run that passed also keeps all
//! logs in `target/chaos`, as a failed one does.

#![expect(clippy::panic, reason = "a test must stop where its footing fails")]

use std::fmt;
use std::time::Duration;

use berth_harness::root::or_skip;

/// Safety 1 to 5. Processes are killed, frozen and cut off, and plugins give wrong answers.
/// Still no reply is untrue, no acknowledged claim or release is lost, no two claims write what
/// only one may write, and everything comes to rest.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_breaks_claims_stay_true() -> Result<(), Failure> {
    if !or_skip("real mounts") {
        return Ok(());
    }
    let usual = if std::env::var_os("CI").is_some() { 120 } else { 20 };
    let seconds = variable_number("BERTH_CHAOS_SECONDS").unwrap_or(usual);
    let seed = variable_number("BERTH_CHAOS_SEED")
        .unwrap_or_else(|| berth_chaos::ledger::now_us() % 100_000);
    println!("seed {seed}, {seconds} s");
    let report = berth_chaos::run(seed, Duration::from_secs(seconds)).await;
    if !report.violations().is_empty() || report.mounts == 0 {
        return Err(Failure(report.failure()));
    }
    println!("{report}");
    Ok(())
}

/// The output of a failed run. The test returns it and does not panic: a backtrace would come after
/// the violations.
struct Failure(String);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn variable_number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is {text:?}, which is no whole number")))
}
