//! Runs as a file has them: the rows, with the machine and the commit that they were measured at.
//!
//! The kept rows may come from several runs: a run replaces the rows of the parts it measured.

use std::path::Path;

use serde::Deserialize;

use crate::Fatal;
use crate::machine::Machine;
use crate::row::{self, Row};

/// The file of the kept rows, in the repository.
pub const KEPT: &str = "docs/bench.json";

/// The rows of one run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RunRecord {
    pub machine: Machine,
    pub rows: Vec<Row>,
}

impl RunRecord {
    /// Each of these rows that this run has too, and this run's row.
    pub fn pairs<'a>(&'a self, rows: &'a [Row]) -> Vec<(&'a Row, &'a Row)> {
        let pair = |row| Some((row, self.rows.iter().find(|other| other.measures_same(row))?));
        rows.iter().filter_map(pair).collect()
    }
}

/// The rows of all runs.
pub fn rows(runs: &[RunRecord]) -> Vec<Row> {
    runs.iter().flat_map(|run| run.rows.clone()).collect()
}

/// The kept runs after this one, whose parts replace theirs.
pub fn keep(mut kept: Vec<RunRecord>, run: RunRecord) -> Vec<RunRecord> {
    for earlier in &mut kept {
        earlier.rows.retain(|row| run.rows.iter().all(|new| new.part != row.part));
    }
    kept.push(run);
    kept.retain(|run| !run.rows.is_empty());
    kept
}

/// All runs as one JSON array, one row per line.
pub fn to_json(runs: &[RunRecord]) -> Result<String, Fatal> {
    let run_json = |run: &RunRecord| {
        let (machine, rows) = (serde_json::to_string(&run.machine)?, row::to_json(&run.rows)?);
        Ok(format!("{{\"machine\":{machine},\"rows\":{rows}}}"))
    };
    let runs = runs.iter().map(run_json).collect::<Result<Vec<_>, Fatal>>()?;
    Ok(format!("[\n{}\n]\n", runs.join(",\n")))
}

/// The runs of a file.
pub fn read(file: &Path) -> Result<Vec<RunRecord>, Fatal> {
    let failed = |error: Fatal| {
        Fatal::from(format!("{}: {error}; `make bench` writes such a file", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.into()))?;
    serde_json::from_str(&text).map_err(|error| failed(error.into()))
}

/// The runs of a file that may not be there.
pub fn read_if_there(file: &Path) -> Result<Vec<RunRecord>, Fatal> {
    if file.exists() { read(file) } else { Ok(Vec::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;
    use crate::row::Part;

    fn run(berth: &str, rows: &[(Part, &str)]) -> RunRecord {
        let rows = rows.iter().map(|(part, name)| Row::new(*part, *name, 1, 1)).collect();
        RunRecord { machine: Machine { berth: berth.to_owned(), ..machine() }, rows }
    }

    #[test]
    fn a_run_replaces_the_parts_that_it_measured() {
        let first = run("v1", &[(Part::Line, "renamed"), (Part::Jobs, "job"), (Part::Size, "few")]);
        let kept = keep(Vec::new(), first);
        let kept = keep(kept, run("v2", &[(Part::Line, "line"), (Part::Size, "few")]));
        let line_and_size = [(Part::Line, "line"), (Part::Size, "few")];
        assert_eq!(kept, [run("v1", &[(Part::Jobs, "job")]), run("v2", &line_and_size)]);
        let kept = keep(kept, run("v3", &[(Part::Jobs, "job")]));
        assert_eq!(kept, [run("v2", &line_and_size), run("v3", &[(Part::Jobs, "job")])]);
    }

    #[test]
    fn a_run_without_rows_replaces_nothing() {
        let kept = vec![run("v1", &[(Part::Mounts, "claim to mounted")])];
        assert_eq!(keep(kept.clone(), run("v2", &[])), kept);
    }

    #[test]
    fn written_runs_are_read_again_and_each_row_is_a_line() {
        let rows = row::tests::rows();
        let runs = [RunRecord { machine: machine(), rows }, run("v2", &[(Part::Line, "line")])];
        let text = to_json(&runs).unwrap();
        assert_eq!(serde_json::from_str::<Vec<RunRecord>>(&text).unwrap(), runs);
        assert_eq!(text.lines().filter(|line| line.contains("\"name\":")).count(), 7, "{text}");
        assert!(serde_json::from_str::<Vec<RunRecord>>(&to_json(&[]).unwrap()).unwrap().is_empty());
    }
}
