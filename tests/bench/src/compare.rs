//! A run's figures beside the kept ones: which are worse by more than a tenth, and which better.

use std::fmt::Write as _;

use crate::numbers::{self, grouped, hundredths, memory, ms_unit};
use crate::record::{KEPT, RunRecord};
use crate::row::{AIM, Row};
use crate::shares;

/// A figure has changed if it differs from the kept one by more than this share of the kept one.
const TOLERATED: f64 = 0.1;

/// Which change of a figure is an improvement.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Better {
    More,
    Less,
}

/// A figure that rows are compared by: its name, where it is in a row, and how it is shown.
type Measure = (&'static str, fn(&Row) -> Option<f64>, fn(f64) -> String, Better);

/// Compared on machines that are alike.
const ON_ONE_MACHINE: [Measure; 5] = [
    ("a second", |row| row.per_second, grouped, Better::More),
    ("p50", |row| row.p50_us, ms_unit, Better::Less),
    ("p99", |row| row.p99_us, ms_unit, Better::Less),
    ("size", Row::rss, memory, Better::Less),
    ("percent of a core", shares::percent, grouped, Better::Less),
];
/// Compared on any machine.
const ON_ANY_MACHINE: [Measure; 3] = [
    ("share of the limit", share_of_limit, hundredths, Better::More),
    ("writes", |row| row.writes, hundredths, Better::Less),
    ("requests", |row| row.requests, hundredths, Better::Less),
];

/// A share of an aim says no more than the rate.
fn share_of_limit(row: &Row) -> Option<f64> {
    row.ratio.filter(|_| row.limit.as_deref() != Some(AIM))
}

/// A figure of a row that has changed.
struct Change {
    row: String,
    measure: &'static str,
    figures: String,
    is_better: bool,
}

/// What has changed against the kept rows, for the terminal.
pub fn report(run: &RunRecord, kept: &[RunRecord]) -> String {
    let mut out = String::new();
    for record in kept {
        let pairs = record.pairs(&run.rows);
        if pairs.is_empty() {
            continue;
        }
        let (berth, day) = (&record.machine.berth, &record.machine.day);
        // Writing to a string does not fail.
        let (both, all) = (pairs.len(), run.rows.len());
        let _ = writeln!(out, "\nbeside the rows kept of Berth {berth}, {day} ({both} of {all})");
        let differences = run.machine.differences(&record.machine);
        if !differences.is_empty() {
            let differences = differences.join(", ");
            let _ = writeln!(out, "another machine, so only counts and shares: {differences}");
        }
        let changes = changes(&pairs, differences.is_empty());
        for (title, is_better) in [("worse", false), ("better", true)] {
            let changes = changes.iter().filter(|change| change.is_better == is_better);
            let lines: String = changes.map(line).collect();
            let lines = if lines.is_empty() { " none" } else { &lines };
            let _ = writeln!(out, "{title} by more than a tenth:{lines}");
        }
    }
    if out.is_empty() {
        return format!("\n{KEPT} has no row of this run: nothing to compare");
    }
    out
}

/// What differs between each row and the kept one.
fn changes(pairs: &[(&Row, &Row)], is_same_machine: bool) -> Vec<Change> {
    let on_one_machine: &[Measure] = if is_same_machine { &ON_ONE_MACHINE } else { &[] };
    let mut changes = Vec::new();
    for (row, kept_row) in pairs {
        for &(measure, figure, show, better) in on_one_machine.iter().chain(&ON_ANY_MACHINE) {
            let Some((now, kept)) = figure(row).zip(figure(kept_row)) else { continue };
            if (now - kept).abs() > TOLERATED * kept {
                let is_better = (now > kept) == (better == Better::More);
                let figures = format!("{}, kept {}", show(now), show(kept));
                changes.push(Change { row: label(row), measure, figures, is_better });
            }
        }
    }
    changes
}

fn line(Change { row, measure, figures, .. }: &Change) -> String {
    format!("\n  {row}: {measure} {figures}")
}

fn label(row: &Row) -> String {
    let at_once = match row.at_once {
        0 => String::new(),
        many => format!(", {many} at once"),
    };
    format!("{}{at_once}, {}", row.title(), numbers::servers(row.servers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::machine::tests::machine;
    use crate::row::Part;

    fn claim(at_once: u32) -> Row {
        let row = Row::new(Part::Claims, "claim", at_once, 1);
        let (per_second, p50_us, p99_us) = (Some(1_000.0), Some(800.0), Some(2_000.0));
        let (writes, requests, ratio) = (Some(1.0), Some(4.0), Some(0.6));
        Row { per_second, p50_us, p99_us, ratio, writes, requests, ..row }
    }

    fn with_figures(number: f64) -> Row {
        let figure = Some(number);
        let row = Row { per_second: figure, p50_us: figure, p99_us: figure, ..claim(1) };
        Row { writes: figure, requests: figure, ratio: figure, ..row }
    }

    fn run(rows: Vec<Row>) -> RunRecord {
        RunRecord { machine: machine(), rows }
    }

    /// Measure and direction of each change.
    fn changed(now: Row, kept: Row, is_same_machine: bool) -> Vec<(&'static str, bool)> {
        let changes = changes(&[(&now, &kept)], is_same_machine);
        changes.into_iter().map(|change| (change.measure, change.is_better)).collect()
    }

    #[test]
    fn a_tenth_is_no_change_and_more_is() {
        let within = Row { per_second: Some(900.0), p50_us: Some(880.0), ..claim(1) };
        assert_eq!(changed(within, claim(1), true), []);
        let beyond = Row { per_second: Some(899.0), p50_us: Some(881.0), ..claim(1) };
        assert_eq!(changed(beyond, claim(1), true), [("a second", false), ("p50", false)]);
    }

    #[test]
    fn more_is_better_of_rates_and_shares_and_worse_of_all_else() {
        let all = |number: u32| Row {
            rss_bytes: Some(number.into()),
            core_percent: [("registry".to_owned(), number.into())].into(),
            ..with_figures(number.into())
        };
        let doubled = changed(all(20), all(10), true);
        assert_eq!(doubled.len(), ON_ONE_MACHINE.len() + ON_ANY_MACHINE.len());
        let better: Vec<_> = doubled.iter().filter(|(_, better)| *better).collect();
        assert_eq!(better, [&("a second", true), &("share of the limit", true)]);
        let halved = changed(all(10), all(20), true);
        assert!(halved.iter().zip(&doubled).all(|(half, double)| half.1 != double.1), "{halved:?}");
    }

    #[test]
    fn another_machine_is_compared_by_counts_and_shares() {
        let slower = Row { per_second: Some(10.0), p99_us: Some(1e6), ..claim(1) };
        let now = Row { writes: Some(2.0), requests: Some(3.0), ratio: Some(0.7), ..slower };
        let counts = [("share of the limit", true), ("writes", false), ("requests", true)];
        assert_eq!(changed(now, claim(1), false), counts);
    }

    #[test]
    fn a_figure_that_one_row_lacks_is_not_compared() {
        let now = Row { per_second: None, rss_bytes: Some(1), ..claim(1) };
        assert_eq!(changed(now, claim(1), true), []);
    }

    #[test]
    fn a_write_where_there_was_none_is_worse() {
        let none = Row { writes: Some(0.0), ..claim(1) };
        assert_eq!(changed(claim(1), none.clone(), true), [("writes", false)]);
        assert_eq!(changed(none.clone(), none, true), []);
    }

    #[test]
    fn a_share_of_an_aim_is_not_compared() {
        let beside_aim = |per_second| {
            Row { per_second: Some(per_second), ..Row::new(Part::Mounts, "free", 1, 1) }
                .limit(AIM, 4.0)
        };
        assert_eq!(changed(beside_aim(1.0), beside_aim(2.0), false), []);
        assert_eq!(changed(beside_aim(1.0), beside_aim(2.0), true), [("a second", false)]);
    }

    #[test]
    fn new_rows_and_rows_that_are_gone_or_of_other_callers_are_left_out() {
        let slow = |row: Row| Row { per_second: Some(1.0), ..row };
        let on_three = Row { servers: 3, ..claim(1) };
        let other_part = Row { part: Part::Size, ..claim(1) };
        let new = Row { name: "new".to_owned(), ..claim(1) };
        let gone = Row { name: "gone".to_owned(), ..claim(1) };
        let kept = [run(vec![claim(1), gone])];
        let now = [claim(1), claim(16), on_three, other_part, new].map(slow);
        let text = report(&run(now.to_vec()), &kept);
        let line = "  claim, 1 at once, one server: a second 1.0, kept 1 000";
        assert!(text.contains("(1 of 5)"), "{text}");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
        assert_eq!(lines, [line]);
        assert!(text.contains("better by more than a tenth: none"), "{text}");
    }

    #[test]
    fn each_kept_run_is_compared_by_its_own_machine() {
        let slow = Row { per_second: Some(1.0), ..claim(16) };
        let mut other = run(vec![claim(16)]);
        other.machine = Machine { processor: "another".to_owned(), ..machine() };
        let text = report(&run(vec![claim(1), slow]), &[run(vec![claim(1)]), other]);
        assert_eq!(text.matches("worse by more than a tenth: none").count(), 2, "{text}");
        assert_eq!(text.matches("another machine").count(), 1, "{text}");
        assert!(text.contains("kept 2 × another"), "{text}");
    }

    #[test]
    fn nothing_kept_is_said_in_a_line() {
        let said = "docs/bench.json has no row of this run: nothing to compare";
        assert_eq!(report(&run(vec![claim(1)]), &[]).trim(), said);
        assert_eq!(report(&run(vec![claim(1)]), &[run(vec![claim(16)])]).trim(), said);
    }
}
