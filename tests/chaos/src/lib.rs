//! Chaos: random operations and faults by a seed, over real processes, and all of it judged.
//!
//! Owns: a plan by a seed ([`plan`]), the system it is carried out on ([`site`]), what the callers
//! were told ([`ledger`]), and whether that was true ([`verdict`], and the drivers' own judge).
//!
//! Promises: the same seed gives the same system, the same operations and the same faults at the
//! same moments. How the processes interleave is the machine's affair: a seed that failed may pass,
//! which is why a failed run keeps all its logs.
//!
//! Never: reaches into a process, or helps one along.

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

/// Carries out the plan of a seed for so long, lets everything come to rest, and judges.
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
    let report = Report { seed, shape, length, mounts, rest: rest.took, book: run.ledger.read() };
    // The logs of a run that passed explain its summary.
    let wanted = std::env::var_os("BERTH_CHAOS_KEEP").is_some();
    if (wanted || !report.violations().is_empty())
        && let Some(kept) = report.keep_evidence(&run)
    {
        eprintln!("all logs are kept in {}", kept.display());
    }
    report
}
