//! The rows as the tables of `docs/performance.md`.

use std::fmt::Write as _;

use crate::measure::{LEVELS, SERVERS};
use crate::nomad;
use crate::numbers::{self, grouped, hundredths, memory, ms_unit, times};
use crate::record::{self, RunRecord};
use crate::row::{AIM, Part, Row};
use crate::shares;

/// The table of a part.
struct Table {
    part: Part,
    head: &'static str,
    /// How many cells after the name are figures of the row itself, not of its limit.
    own: usize,
    cells: fn(&Row) -> Vec<String>,
}

const TABLES: [Table; 9] = [
    Table {
        part: Part::Mounts,
        head: "| one volume, one node | p50 / p99 | the plugin's own calls | Nomad |",
        own: 1,
        cells: |row| {
            let aim = if row.limit.as_deref() == Some(AIM) { "aim: " } else { "" };
            let limit = format!("{aim}{}", limit_each(row));
            vec![row.name.clone(), times_unit(row), limit, beside(row)]
        },
    },
    Table {
        part: Part::Shared,
        head: "| claims on one shared volume | p50 / p99 | a raw guarded write there | Nomad |",
        own: 1,
        cells: |row| vec![row.name.clone(), times_unit(row), limit_each(row), beside(row)],
    },
    Table {
        part: Part::Line,
        head: "| a line for one volume | turns a second | with nobody in line |",
        own: 1,
        cells: |row| vec![row.name.clone(), rate(row.per_second), rate(row.limit_per_second)],
    },
    Table {
        part: Part::Jobs,
        head: "| a scheduler's jobs | a second | p50 / p99 | requests each \
               | the plugin's calls allow |",
        own: 3,
        cells: |row| {
            let requests = row.requests.map(hundredths).unwrap_or_default();
            let (done, limit) = (rate(row.per_second), rate(row.limit_per_second));
            vec![name_at_once(row), done, times_unit(row), requests, limit]
        },
    },
    Table {
        part: Part::ManyReleases,
        head: "| many volumes of one node | all free after | p50 / p99 | aim |",
        own: 2,
        cells: |row| {
            let (all, aim) = (all_at(row, row.per_second), all_at(row, row.limit_per_second));
            vec![row.name.clone(), time(all), times_unit(row), time(aim)]
        },
    },
    Table {
        part: Part::Storage,
        head: "| volumes at their storage | a second | p50 / p99 | the plugin's own calls \
               | above them |",
        own: 2,
        cells: |row| {
            let calls = all_at(row, row.limit_per_second);
            let above = calls.zip(row.p50_us).map(|(calls, p50)| p50 - calls);
            let done = rate(row.per_second);
            vec![name_at_once(row), done, times_unit(row), time(calls), time(above)]
        },
    },
    Table {
        part: Part::Fleet,
        head: "| a fleet | nats-server and registry, of one core | p50 / p99 |",
        own: 2,
        cells: |row| vec![row.name.clone(), shares::of_the_bus(row), times_unit(row)],
    },
    Table {
        part: Part::Size,
        head: "| many volumes | |",
        own: 1,
        cells: |row| {
            let few = row.limit_per_second.zip(row.limit.as_ref());
            let few = few.map(|(few, limit)| format!(", beside {} {limit}", grouped(few)));
            let figure = match (row.rss(), row.writes, row.p50_us) {
                (Some(bytes), ..) => memory(bytes),
                (None, None, Some(us)) if row.ratio.is_none() => ms_unit(us),
                _ => format!("{} a second{}", rate(row.per_second), few.unwrap_or_default()),
            };
            vec![row.name.clone(), figure]
        },
    },
    Table {
        part: Part::Comparisons,
        head: "| while mirrors are compared | p50 / p99 | p99 in quiet | refused |",
        own: 1,
        cells: |row| vec![row.name.clone(), times_unit(row), time(row.limit_p99_us), "0".into()],
    },
];

/// All tables that have a row, with the figures of former runs beside those of the same row.
pub fn tables(runs: &[RunRecord], former: &[RunRecord]) -> String {
    let (mut out, rows) = (String::new(), record::rows(runs));
    let has_other = |run: &&RunRecord| run.pairs(&rows).iter().any(|(now, before)| now != before);
    let former: Vec<&RunRecord> = former.iter().filter(has_other).collect();
    let titled = runs.iter().map(|run| ("", run));
    for (title, run) in titled.chain(former.iter().map(|run| ("before: ", *run))) {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{title}{}\n", run.machine);
    }
    let former: Vec<&Row> = former.iter().flat_map(|run| &run.rows).collect();
    for servers in SERVERS {
        out.push_str(&pivot(&rows, &former, servers));
    }
    for table in TABLES {
        out.push_str(&table.text(&rows, &former));
    }
    out.trim_end().to_owned()
}

impl Table {
    /// The table; empty without rows. It has a column of former figures if there is one.
    fn text(&self, rows: &[Row], former: &[&Row]) -> String {
        let rows = rows.iter().filter(|row| row.part == self.part);
        let lines = rows
            .map(|row| (format!("| {} |", (self.cells)(row).join(" | ")), row_before(row, former)));
        let lines: Vec<(String, Option<&Row>)> = lines.collect();
        if lines.is_empty() {
            return String::new();
        }
        let mut head = self.head.to_owned();
        let has_former = lines.iter().any(|(_, before)| before.is_some());
        if has_former {
            head.push_str(" before |");
        }
        let mut out = format!("{head}\n{}|\n", "|---".repeat(head.matches('|').count() - 1));
        for (mut line, before) in lines {
            if has_former {
                let before = before.map(|row| self.own_figures(row)).unwrap_or_default();
                line = format!("{line} {before} |");
            }
            out.push_str(&line);
            out.push('\n');
        }
        out.push('\n');
        out
    }

    fn own_figures(&self, row: &Row) -> String {
        let cells = (self.cells)(row).into_iter().skip(1).take(self.own);
        cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(" · ")
    }
}

/// The former figures of a row; none if this is that row.
fn row_before<'a>(row: &Row, former: &[&'a Row]) -> Option<&'a Row> {
    former.iter().copied().find(|other| other.measures_same(row)).filter(|other| *other != row)
}

/// The levels side by side: above the claims what they are compared with, below each row its former
/// figures and Nomad's.
fn pivot(rows: &[Row], former: &[&Row], servers: u32) -> String {
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
    let levels = LEVELS.map(|level| format!("{level} at once")).join(" | ");
    let columns = "---|".repeat(LEVELS.len() + 1);
    let mut out = format!("| {} | {levels} |\n|{columns}\n", numbers::servers(servers));
    for name in names {
        let at = LEVELS.map(|level| {
            on_servers.iter().find(|row| row.name == name && row.at_once == level).copied()
        });
        let before = at.map(|row| row.and_then(|row| row_before(row, former)));
        let lines = [
            (name, at.map(|row| row.map(beside_limit))),
            ("before", before.map(|row| row.map(beside_limit))),
            ("the same in Nomad", at.map(|row| row.map(beside).filter(|cell| !cell.is_empty()))),
        ];
        for (name, cells) in
            lines.into_iter().filter(|(_, cells)| cells.iter().any(Option::is_some))
        {
            // Writing to a string does not fail.
            let _ =
                writeln!(out, "| {name} | {} |", cells.map(Option::unwrap_or_default).join(" | "));
        }
    }
    out.push('\n');
    out
}

/// Rate and times, with their shares of the limit's.
fn beside_limit(row: &Row) -> String {
    let ratio = row.ratio.map_or(String::new(), |ratio| format!(" · **{ratio:.2}**"));
    let p99 = row.p99_ratio.map_or(String::new(), |ratio| format!(" · {ratio:.1}×"));
    format!("{} · {}{ratio}{p99}", rate(row.per_second), times(row))
}

fn beside(row: &Row) -> String {
    nomad::beside(row).map_or(String::new(), |figure| figure.to_string())
}

fn name_at_once(row: &Row) -> String {
    format!("{}, {} at once", row.name, row.at_once)
}

fn rate(per_second: Option<f64>) -> String {
    per_second.map(grouped).unwrap_or_default()
}

fn time(us: Option<f64>) -> String {
    us.map(ms_unit).unwrap_or_default()
}

fn times_unit(row: &Row) -> String {
    let times = times(row);
    if times.is_empty() { times } else { format!("{times} ms") }
}

/// The limit's time for one operation.
fn limit_each(row: &Row) -> String {
    time(row.limit_per_second.map(|rate| 1e6 / rate))
}

/// How long all callers together take for one operation each at this rate, in microseconds.
fn all_at(row: &Row, per_second: Option<f64>) -> Option<f64> {
    per_second.map(|rate| f64::from(row.at_once) * 1e6 / rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::machine;

    fn run(rows: Vec<Row>) -> RunRecord {
        RunRecord { machine: machine(), rows }
    }

    /// The tables of one run, without its machine.
    fn text_of(rows: Vec<Row>) -> String {
        tables(&[run(rows)], &[]).split_once("\n\n").unwrap().1.to_owned()
    }

    #[test]
    fn a_level_has_a_column_and_nomad_a_line_below_the_claim() {
        let text = text_of(crate::row::tests::rows());
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
        let text = text_of(vec![row.limit("the plugin's own calls", 16.0 / 0.04)]);
        let expected = "| create to ready, 16 at once | 64.0 | 250/400 ms | 40.0 ms | 210 ms |";
        assert_eq!(text.lines().nth(2), Some(expected), "{text}");
    }

    #[test]
    fn former_figures_stand_below_a_level_and_beside_other_rows() {
        let storage = |at_once, per_second| {
            let row = Row::new(Part::Storage, "create", at_once, 1);
            Row { per_second: Some(per_second), p50_us: Some(5e3), p99_us: Some(9e3), ..row }
        };
        let mut former = crate::row::tests::rows();
        former.retain(|row| row.at_once == 16);
        for row in &mut former {
            row.per_second = Some(700.0);
        }
        former.push(storage(1, 30.0));
        let rows = crate::row::tests::rows().into_iter();
        let now = rows.chain([storage(1, 40.0), storage(16, 50.0)]).collect();
        let text = tables(&[run(now)], &[run(former)]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].starts_with("before: 2 × a processor"), "{text}");
        let claim = lines.iter().position(|line| line.starts_with("| claim |")).unwrap();
        assert_eq!(lines[claim + 1], "| before |  | 700 · 5.00/15.0 · **0.80** |  |", "{text}");
        let head = lines.iter().position(|line| line.starts_with("| volumes at")).unwrap();
        assert!(lines[head].ends_with("| above them | before |"), "{text}");
        assert_eq!(lines[head + 1], "|---|---|---|---|---|---|");
        assert!(lines[head + 2].ends_with("|  |  | 30.0 · 5.00/9.00 ms |"), "{text}");
        assert!(lines[head + 3].ends_with("|  |  |  |"), "{text}");
    }

    #[test]
    fn former_rows_of_other_things_and_the_run_itself_are_not_shown() {
        let rows = crate::row::tests::rows();
        let other = vec![Row::new(Part::Storage, "create", 1, 1)];
        let alone = tables(&[run(rows.clone())], &[]);
        assert_eq!(tables(&[run(rows.clone())], &[run(other)]), alone);
        assert_eq!(tables(&[run(rows.clone())], &[run(rows)]), alone);
    }
}
