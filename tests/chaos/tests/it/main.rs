//! One run of chaos. It needs root, for the mounts.
//!
//! `BERTH_CHAOS_SECONDS` says for how long (20; 120 where `CI` is set), `BERTH_CHAOS_SEED` which;
//! with `BERTH_CHAOS_KEEP` all logs are kept in `target/chaos`, as they are when it fails.

#![expect(clippy::panic, reason = "a test must stop where its footing fails")]

use std::fmt;
use std::time::Duration;

use berth_harness::root::or_skip;

/// Safety 1 to 5. Processes are killed, frozen and cut off, and plugins give wrong answers. Still
/// no reply is untrue, no acknowledged claim or release is lost, no two write what one may write,
/// and everything comes to rest.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_breaks_claims_stay_true() -> Result<(), Failure> {
    if !or_skip("real mounts") {
        return Ok(());
    }
    let usual = if std::env::var_os("CI").is_some() { 120 } else { 20 };
    let seconds = given("BERTH_CHAOS_SECONDS").unwrap_or(usual);
    let seed = given("BERTH_CHAOS_SEED").unwrap_or_else(|| berth_chaos::ledger::now_us() % 100_000);
    println!("seed {seed}, {seconds} s");
    let report = berth_chaos::run(seed, Duration::from_secs(seconds)).await;
    if !report.violations().is_empty() || report.mounts == 0 {
        return Err(Failure(report.failure()));
    }
    println!("{report}");
    Ok(())
}

/// What a failed run prints. It is no panic: whose trace would come after what matters.
struct Failure(String);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn given(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is {text:?}, which is no whole number")))
}
