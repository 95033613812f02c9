//! The rows as tables: a long one for the terminal, short ones in Markdown for
//! `docs/performance.md`.

use std::fmt::Write as _;

use crate::machine::Machine;
use crate::measure::{LEVELS, SERVERS};
use crate::nomad::{self, Figure};
use crate::row::{AIM, Part, Row};
use crate::shares;

const PARTS: [(Part, &str); 11] = [
    (Part::Claims, "claims, each on its own volume"),
    (Part::Releases, "claims and releases, until free, each on its own volume"),
    (Part::Shared, "claims on one shared volume, one after another"),
    (Part::Line, "a line for one volume"),
    (Part::Mounts, "with agent, driver and mounts, one after another"),
    (Part::Jobs, "a scheduler's jobs, from placement to free"),
    (Part::ManyReleases, "many volumes of one node released at once"),
    (Part::Storage, "volumes at their storage, with agent and driver"),
    (Part::Fleet, "a fleet of agents with one plugin each"),
    (Part::Size, "many volumes"),
    (Part::Comparisons, "many volumes, while mirrors are compared with their buckets"),
];
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
    for (part, title) in PARTS {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.part == part).collect();
        if rows.is_empty() {
            continue;
        }
        let mut lines = vec![HEAD.map(str::to_owned)];
        title.clone_into(&mut lines[0][0]);
        lines.extend(rows.into_iter().map(cells));
        out.push('\n');
        out.push_str(&aligned(&lines));
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
    let mut out = String::from("\nµs of a processor per operation\n");
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let column = |name: &str| name.chars().count().max(5);
    // Writing to a string does not fail.
    let _ = write!(out, "{:width$}  at once  servers", "");
    for name in &columns {
        let _ = write!(out, "  {name:>0$}", column(name));
    }
    for row in rows {
        let _ = write!(out, "\n{:width$}  {:>7}  {:>7}", row.name, row.at_once, row.servers);
        for name in &columns {
            let us = row.cpu_us.get(*name).map(|us| format!("{us:.0}")).unwrap_or_default();
            let _ = write!(out, "  {us:>0$}", column(name));
        }
    }
    out
}

fn cells(row: &Row) -> [String; 11] {
    let blank = |text: Option<String>| text.unwrap_or_default();
    let size = row.rss_bytes.map(memory);
    [
        match row.requests {
            Some(requests) => format!("{}, {requests:.2} requests", row.name),
            None => row.name.clone(),
        },
        if row.at_once == 0 { String::new() } else { row.at_once.to_string() },
        row.servers.to_string(),
        blank(size.or(row.per_second.map(grouped))),
        blank(row.p50_us.map(ms)),
        blank(row.p99_us.map(ms)),
        blank(row.writes.map(|writes| format!("{writes:.2}"))),
        blank(row.limit_per_second.map(grouped)),
        blank(row.ratio.map(|ratio| format!("{ratio:.2}"))),
        blank(row.p99_ratio.map(|ratio| format!("{ratio:.2}"))),
        blank(nomad::beside(row).map(|figure| figure.to_string())),
    ]
}

/// Aligns the first column to the left, the others to the right.
fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for line in lines {
        let mut text = format!("{:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(widths).skip(1) {
            // Writing to a string does not fail.
            let _ = write!(text, "  {cell:>width$}");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// The tables of `docs/performance.md`.
pub fn markdown(rows: &[Row], machine: Option<&Machine>) -> String {
    let mut out = String::new();
    if let Some(machine) = machine {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{machine}\n");
    }
    for servers in SERVERS {
        out.push_str(&pivot(rows, servers));
    }
    let rows_of = |part| rows.iter().filter(move |row| row.part == part);
    let mut table = |head: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let columns = "|---".repeat(head.matches('|').count() - 1);
            let _ = writeln!(out, "{head}\n{columns}|\n{}\n", lines.join("\n"));
        }
    };
    let beside = |row: &Row| nomad::beside(row).map_or(String::new(), |figure| figure.to_string());
    table(
        "| one volume, one node | p50 / p99 | the plugin's own calls | Nomad |",
        rows_of(Part::Mounts)
            .map(|row| {
                let limit = row.limit_per_second.map_or(String::new(), |rate| ms(1e6 / rate));
                let aim = if row.limit.as_deref() == Some(AIM) { "aim: " } else { "" };
                let times = times(row);
                format!("| {} | {times} ms | {aim}{limit} ms | {} |", row.name, beside(row))
            })
            .collect(),
    );
    table(
        "| claims on one shared volume | p50 / p99 | a raw guarded write there | Nomad |",
        rows_of(Part::Shared)
            .map(|row| {
                let limit = row.limit_per_second.map_or(String::new(), |rate| ms(1e6 / rate));
                format!("| {} | {} ms | {limit} ms | {} |", row.name, times(row), beside(row))
            })
            .collect(),
    );
    table(
        "| a line for one volume | turns a second | with nobody in line |",
        rows_of(Part::Line)
            .map(|row| {
                let rate = |rate: Option<f64>| rate.map_or(String::new(), grouped);
                let (moves, alone) = (rate(row.per_second), rate(row.limit_per_second));
                format!("| {} | {moves} | {alone} |", row.name)
            })
            .collect(),
    );
    table(
        "| a scheduler's jobs | a second | p50 / p99 | requests each | the plugin's calls allow |",
        rows_of(Part::Jobs)
            .map(|row| {
                let rate = |rate: Option<f64>| rate.map_or(String::new(), grouped);
                let (done, limit) = (rate(row.per_second), rate(row.limit_per_second));
                let requests = row.requests.map_or(String::new(), |many| format!("{many:.2}"));
                let name = format!("{}, {} at once", row.name, row.at_once);
                format!("| {name} | {done} | {} ms | {requests} | {limit} |", times(row))
            })
            .collect(),
    );
    table(
        "| many volumes of one node | all free after | p50 / p99 | aim |",
        rows_of(Part::ManyReleases)
            .map(|row| {
                let all = |rate: Option<f64>| {
                    rate.map_or(String::new(), |rate| ms(f64::from(row.at_once) * 1e6 / rate))
                };
                let (took, aim) = (all(row.per_second), all(row.limit_per_second));
                format!("| {} | {took} ms | {} ms | {aim} ms |", row.name, times(row))
            })
            .collect(),
    );
    table(
        "| volumes at their storage | a second | p50 / p99 | the plugin's own calls | above them |",
        rows_of(Part::Storage)
            .map(|row| {
                let done = row.per_second.map_or(String::new(), grouped);
                let calls = row.limit_per_second.map(|rate| f64::from(row.at_once) * 1e6 / rate);
                let above = calls.zip(row.p50_us).map(|(calls, p50)| p50 - calls);
                let ms_of = |us: Option<f64>| us.map_or(String::new(), ms);
                let (calls, above) = (ms_of(calls), ms_of(above));
                let name = format!("{}, {} at once", row.name, row.at_once);
                format!("| {name} | {done} | {} ms | {calls} ms | {above} ms |", times(row))
            })
            .collect(),
    );
    table(shares::HEAD, shares::markdown(rows));
    table(
        "| many volumes | |",
        rows_of(Part::Size)
            .map(|row| {
                let few = row.limit_per_second.map_or(String::new(), |few| {
                    let limit = row.limit.as_deref().unwrap_or_default();
                    format!(", beside {} {limit}", grouped(few))
                });
                let rate = |rate| format!("{} a second{few}", grouped(rate));
                let figure = match (row.rss_bytes, row.writes, row.p50_us) {
                    (Some(bytes), ..) => memory(bytes),
                    (None, None, Some(us)) if row.ratio.is_none() => format!("{} ms", ms(us)),
                    _ => row.per_second.map_or(String::new(), rate),
                };
                format!("| {} | {figure} |", row.name)
            })
            .collect(),
    );
    table(
        "| while mirrors are compared | p50 / p99 | p99 in quiet | refused |",
        rows_of(Part::Comparisons)
            .map(|row| {
                let quiet = row.limit_p99_us.map_or(String::new(), ms);
                format!("| {} | {} ms | {quiet} ms | 0 |", row.name, times(row))
            })
            .collect(),
    );
    out.trim_end().to_owned()
}

/// The levels side by side: above the claims what they are compared with, below them Nomad.
fn pivot(rows: &[Row], servers: u32) -> String {
    let on_servers: Vec<&Row> = rows
        .iter()
        .filter(|row| matches!(row.part, Part::Claims | Part::Releases) && row.servers == servers)
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for row in &on_servers {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let title = if servers == 1 { "one server" } else { "three servers" };
    let levels = LEVELS.map(|level| format!("{level} at once")).join(" | ");
    let mut out = format!("| {title} | {levels} |\n|{}\n", "---|".repeat(LEVELS.len() + 1));
    for name in names {
        let at = |level| on_servers.iter().find(|row| row.name == name && row.at_once == level);
        let figure = |row: &&Row| {
            let rate = row.per_second.map_or(String::new(), grouped);
            let ratio = row.ratio.map_or(String::new(), |ratio| format!(" · **{ratio:.2}**"));
            let p99 = row.p99_ratio.map_or(String::new(), |ratio| format!(" · {ratio:.1}×"));
            format!("{rate} · {}{ratio}{p99}", times(row))
        };
        let cells = LEVELS.map(|level| at(level).map_or(String::new(), figure)).join(" | ");
        // Writing to a string does not fail.
        let _ = writeln!(out, "| {name} | {cells} |");
        let nomad_figures = LEVELS.map(|level| at(level).and_then(|row| nomad::beside(row)));
        if nomad_figures.iter().any(Option::is_some) {
            let cell = |figure: Option<Figure>| figure.map_or(String::new(), |f| f.to_string());
            let _ =
                writeln!(out, "| the same in Nomad | {} |", nomad_figures.map(cell).join(" | "));
        }
    }
    out.push('\n');
    out
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = ms(self.ms * 1e3);
        match (self.per_second, self.p99_ms) {
            (Some(rate), Some(p99)) => {
                f.pad(&format!("{} · {ms}/{}", grouped(rate), self::ms(p99 * 1e3)))
            }
            _ => f.pad(&format!("{ms} ms")),
        }
    }
}

/// The median and the p99, in milliseconds.
pub fn times(row: &Row) -> String {
    match (row.p50_us, row.p99_us) {
        (Some(p50), Some(p99)) => format!("{}/{}", ms(p50), ms(p99)),
        _ => String::new(),
    }
}

fn memory(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown to three digits")]
    let (all, mib) = (bytes as f64, f64::from(1 << 20));
    if all < mib {
        format!("{} bytes", grouped(all))
    } else {
        format!("{} MiB", grouped(all / mib))
    }
}

/// Microseconds as milliseconds, with two or three significant digits.
fn ms(us: f64) -> String {
    let ms = us / 1e3;
    match ms {
        _ if ms < 10.0 => format!("{ms:.2}"),
        _ if ms < 100.0 => format!("{ms:.1}"),
        _ => grouped(ms),
    }
}

/// A whole number with a space between thousands; one decimal digit below 100.
pub fn grouped(number: f64) -> String {
    if number < 100.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        assert_eq!(
            [7.25, 431.4, 1_950.0, 1_234_567.0].map(grouped),
            ["7.2", "431", "1 950", "1 234 567"]
        );
        assert_eq!([460.0, 12_345.0, 1_500_000.0].map(ms), ["0.46", "12.3", "1 500"]);
    }

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

    #[test]
    fn the_readme_has_a_column_a_level_and_nomad_below_the_claim() {
        let text = markdown(&crate::row::tests::rows(), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| one server | 1 at once | 16 at once | 128 at once |");
        let claim = lines.iter().position(|line| line.starts_with("| claim |")).unwrap();
        assert!(lines[claim].contains("1 800 · 3.00/9.00 · **0.90** | 4 000"), "{text}");
        assert!(lines[claim + 1].starts_with("| the same in Nomad | 1 950 · "), "{text}");
        assert!(!text.contains("three servers"), "{text}");
    }

    #[test]
    fn an_operation_of_the_storage_stands_beside_the_plugins_call() {
        let time = std::time::Duration::from_millis;
        let sample = crate::stats::Sample { per_second: 64.0, p50: time(250), p99: time(400) };
        let row = Row::new(Part::Storage, "create to ready", 16, 1).sample(&sample);
        let text = markdown(&[row.limit("the plugin's own calls", 16.0 / 0.04)], None);
        let expected = "| create to ready, 16 at once | 64.0 | 250/400 ms | 40.0 ms | 210 ms |";
        assert_eq!(text.lines().nth(2), Some(expected), "{text}");
    }
}
