//! Chaos: random operations and faults by a seed, carried out on real processes and judged.
//!
//! Owns: the plan of a seed ([`plan`]), the system that it is carried out on ([`site`]), what the
//! callers were told ([`ledger`]), and whether that was true ([`verdict`], and the drivers' own
//! judge).
//!
//! Promises: the same seed gives the same system, the same operations and the same faults at the
//! same moments. How the processes interleave depends on the machine: a seed that failed once may
//! pass the next time. Therefore a failed run keeps all its logs.
//!
//! Never: changes the memory or the files of a process, except by a fault of the plan.

#![expect(clippy::expect_used, reason = "a test must stop where its footing fails")]

pub mod dice;
mod identity;
pub mod ledger;
pub mod plan;
pub mod report;
mod run;
pub mod site;
pub mod verdict;

use std::time::Duration;

use plan::Shape;
use report::Report;
use run::Run;

/// Carries out the plan of `seed` for `length`, waits until the system is at rest, and judges
/// it.
pub async fn run(seed: u64, length: Duration) -> Report {
    let shape = Shape::of(seed);
    let run = Run::start(shape).await;
    run.ledger.note(format!("seed {seed}: {shape}"));
    run.carry_out(plan::plan(seed, shape, length)).await;
    let mounts = run.ledger.read().holds.len();
    if let Some(restore) = plan::restore(seed, shape) {
        run.restored(restore).await;
    }
    let rest = run.come_to_rest().await;
    let report = Report { seed, shape, length, mounts, rest, book: run.ledger.read() };
    // The logs of a run that passed explain its summary.
    let wanted = std::env::var_os("BERTH_CHAOS_KEEP").is_some();
    if (wanted || !report.violations().is_empty())
        && let Some(kept) = report.keep_evidence(&run)
    {
        eprintln!("all logs are kept in {}", kept.display());
    }
    report
}
