//! The rows as tables for the terminal.

use std::fmt::Write as _;

use clap::ValueEnum as _;

use crate::nomad;
use crate::numbers::{grouped, hundredths, memory, ms};
use crate::row::{Part, Row};

const HEAD: [&str; 11] = [
    "",
    "at once",
    "servers",
    "per second",
    "p50 ms",
    "p99 ms",
    "writes",
    "limit",
    "ratio",
    "p99 ratio",
    "Nomad",
];

/// Every row with its limit beside it, in columns.
pub fn terminal(rows: &[Row]) -> String {
    let mut out = String::new();
    for part in Part::value_variants() {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.part == *part).collect();
        if rows.is_empty() {
            continue;
        }
        let mut lines = vec![HEAD.map(str::to_owned).to_vec()];
        part.title().clone_into(&mut lines[0][0]);
        lines.extend(rows.iter().copied().map(cells));
        out.push('\n');
        out.push_str(&aligned(&lines));
        for (row, missed) in rows.iter().filter_map(|row| Some((row, row.missed.as_ref()?))) {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{}: {missed}", row.title());
        }
    }
    out
}

/// Processor time of each process per operation: it decides the rate where all cores are busy.
pub fn work(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.cpu_us.is_empty()).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut columns: Vec<&String> = rows.iter().flat_map(|row| row.cpu_us.keys()).collect();
    columns.sort();
    columns.dedup();
    let head = ["µs of a processor per operation", "at once", "servers"].map(str::to_owned);
    let mut lines = vec![head.into_iter().chain(columns.iter().copied().cloned()).collect()];
    lines.extend(rows.into_iter().map(|row| {
        let us = |name: &&String| row.cpu_us.get(*name).map(|us| format!("{us:.0}"));
        let mut line = vec![row.title(), row.at_once.to_string(), row.servers.to_string()];
        line.extend(columns.iter().map(|name| us(name).unwrap_or_default()));
        line
    }));
    format!("\n{}", aligned(&lines))
}

fn cells(row: &Row) -> Vec<String> {
    let blank = |text: Option<String>| text.unwrap_or_default();
    let size = row.rss().map(memory);
    vec![
        match row.requests {
            Some(requests) => format!("{}, {requests:.2} requests", row.title()),
            None => row.title(),
        },
        if row.at_once == 0 { String::new() } else { row.at_once.to_string() },
        row.servers.to_string(),
        blank(size.or(row.per_second.map(grouped))),
        blank(row.p50_us.map(ms)),
        blank(row.p99_us.map(ms)),
        blank(row.writes.map(hundredths)),
        blank(row.limit_per_second.map(grouped)),
        blank(row.ratio.map(hundredths)),
        blank(row.p99_ratio.map(hundredths)),
        blank(nomad::beside(row).map(|figure| figure.to_string())),
    ]
}

/// Aligns the first column to the left, the others to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len)).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = format!("{:<1$}", line[0], widths[0]);
        for (cell, &width) in line.iter().zip(&widths).skip(1) {
            // Writing to a string does not fail.
            let _ = write!(text, "  {cell:>width$}");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let table = terminal(&crate::row::tests::rows());
        let lines: Vec<&str> = table.lines().filter(|line| !line.is_empty()).collect();
        let (head, claim) = (lines[0], lines[3]);
        let end = |line: &str, of: &str| line.find(of).map(|at| at + of.len());
        assert_eq!(end(head, "per second"), end(claim, "1 800"), "{table}");
        assert_eq!(end(head, "ratio"), end(claim, "0.90"), "{table}");
        assert!(claim.ends_with("1 950 · 0.46/1.30"), "{table}");
    }
}
