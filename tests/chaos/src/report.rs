//! The report of a run.
//!
//! Owns: the summary, and the directory where a failed run leaves its evidence. Promises: both
//! contain the seed. Never: decides what is a violation.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_harness::repository;

use crate::ledger::{Book, Violation};
use crate::plan::{Shape, Target};
use crate::run::Run;

/// The number of log lines that a failed run prints. The whole log is in the evidence.
const LINES: usize = 100;

/// The result of a run.
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The shape of its system.
    pub shape: Shape,
    /// How long operations and faults went on.
    pub length: Duration,
    /// The number of mounts that were acknowledged during that time.
    pub mounts: usize,
    /// The time from the end of the plan until no claim was left.
    pub rest: Duration,
    /// Everything that was written down.
    pub book: Book,
}

impl Report {
    /// The violations that were found.
    pub fn violations(&self) -> &[Violation] {
        &self.book.violations
    }

    /// The last `most` lines of the log, with seconds since the start of the run.
    pub fn log(&self, most: usize) -> String {
        let log = &self.book.log;
        let start = log.first().map_or(0, |(at, _)| *at);
        let mut text = String::new();
        for (at, line) in log.iter().skip(log.len().saturating_sub(most)) {
            let since = Duration::from_micros(at - start).as_secs_f64();
            let _ = writeln!(text, "{since:9.3} {line}");
        }
        text
    }

    /// Copies everything that shows what happened to `target/chaos/<seed>`.
    pub(crate) fn keep_evidence(&self, run: &Run) -> Option<PathBuf> {
        let to = repository().join("target/chaos").join(self.seed.to_string());
        let kept = keep(&to, run).and_then(|()| {
            fs::write(to.join("events"), format!("{self}\n{}", self.log(usize::MAX)))
        });
        kept.is_ok().then_some(to)
    }

    /// The output of a failed run. It has the violations at its beginning and again at its end: a
    /// long output is shown with its middle left out.
    pub fn failure(&self) -> String {
        let wrong = self.wrong();
        let log = self.log(LINES);
        let seed = self.seed;
        format!("{wrong}{self}\nthe last of what happened:\n{log}{wrong}again with SEED={seed}")
    }

    fn wrong(&self) -> String {
        let mut text = String::new();
        for violation in self.violations() {
            let _ = writeln!(text, "VIOLATION {violation}");
        }
        if self.mounts == 0 {
            text.push_str("VIOLATION nothing was mounted at all\n");
        }
        text
    }
}

fn keep(to: &Path, run: &Run) -> std::io::Result<()> {
    // It may hold the evidence of an earlier run of the same seed.
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    for file in fs::read_dir(run.site.dir())?.flatten().filter(|file| file.path().is_file()) {
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    for server in (0..run.site.shape.servers).map(Target::Nats) {
        fs::copy(run.site.daemon(server).log_path(), to.join(format!("{server}.log")))?;
    }
    Ok(())
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, shape, length, mounts, rest, book } = self;
        writeln!(f, "seed {seed}: {shape}")?;
        writeln!(f, "{} s of operations and faults; at rest {rest:.1?} later", length.as_secs())?;
        writeln!(f, "operations: {}", book.operations.values().sum::<u64>())?;
        for ((kind, end), count) in &book.operations {
            writeln!(f, "{count:8} {kind}: {end}")?;
        }
        writeln!(f, "mounts acknowledged: {mounts}")?;
        writeln!(f, "faults: {}", book.faults.values().sum::<u64>())?;
        for (kind, count) in &book.faults {
            writeln!(f, "{count:8} {kind}")?;
        }
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for violation in &book.violations {
            *kinds.entry(violation.kind).or_default() += 1;
        }
        writeln!(f, "violations: {}", book.violations.len())?;
        for (kind, count) in kinds {
            writeln!(f, "{count:8} {kind}")?;
        }
        Ok(())
    }
}
