//! The rows as the tables of `docs/performance.md` and `docs/scale.md`.

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
        cells: |row| vec![row.name.clone(), shares::in_words(row), times_unit(row)],
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
        out.push_str(&levels(&rows, &former, servers));
    }
    for table in TABLES {
        out.push_str(&table.text(&rows, &former));
    }
    out.push_str(&sizes(&rows, &former));
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
fn levels(rows: &[Row], former: &[&Row], servers: u32) -> String {
    let is_there =
        |row: &&Row| matches!(row.part, Part::Claims | Part::Releases) && row.servers == servers;
    let columns = LEVELS.map(|level| (u64::from(level), format!("{level} at once")));
    Pivot {
        title: numbers::servers(servers),
        columns: columns.to_vec(),
        column_of: |row| Some(row.at_once.into()),
        cell: beside_limit,
    }
    .text(&rows.iter().filter(is_there).collect::<Vec<_>>(), former)
}

/// The numbers of volumes side by side.
fn sizes(rows: &[Row], former: &[&Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.part == Part::Scale).collect();
    let mut sizes: Vec<u64> = rows.iter().filter_map(|row| row.volumes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    Pivot {
        title: "volumes",
        columns: sizes.into_iter().map(|size| (size, numbers::whole(size))).collect(),
        column_of: |row| row.volumes,
        cell: cost,
    }
    .text(&rows, former)
}

/// A table in which the rows of one name share a line.
struct Pivot {
    title: &'static str,
    /// What distinguishes the rows of one name, and the words for it.
    columns: Vec<(u64, String)>,
    column_of: fn(&Row) -> Option<u64>,
    cell: fn(&Row) -> String,
}

impl Pivot {
    /// The table; empty without rows.
    fn text(&self, rows: &[&Row], former: &[&Row]) -> String {
        let mut names: Vec<&str> = Vec::new();
        for row in rows {
            if !names.contains(&row.name.as_str()) {
                names.push(&row.name);
            }
        }
        if names.is_empty() {
            return String::new();
        }
        let heads: Vec<&str> = self.columns.iter().map(|(_, head)| head.as_str()).collect();
        let rule = "---|".repeat(heads.len() + 1);
        let mut out = format!("| {} | {} |\n|{rule}\n", self.title, heads.join(" | "));
        for name in names {
            let at = |column: u64| {
                let is_at = |row: &&&Row| row.name == name && (self.column_of)(row) == Some(column);
                rows.iter().find(is_at).copied()
            };
            let cells = |of: &dyn Fn(&Row) -> Option<String>| {
                let columns = self.columns.iter().map(|(column, _)| at(*column));
                columns.map(|row| row.and_then(of).unwrap_or_default()).collect::<Vec<_>>()
            };
            let lines = [
                (name, cells(&|row| Some((self.cell)(row)))),
                ("before", cells(&|row| row_before(row, former).map(self.cell))),
                ("the same in Nomad", cells(&|row| Some(beside(row)))),
            ];
            for (name, cells) in lines {
                if cells.iter().any(|cell| !cell.is_empty()) {
                    // Writing to a string does not fail.
                    let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
                }
            }
        }
        out.push('\n');
        out
    }
}

/// What a row costs: a size, shares of a core, or the times and the processor time of an operation.
fn cost(row: &Row) -> String {
    let many = row.at_once > 1 && row.per_second.is_some();
    let worked = || row.cpu_us.iter().filter(|(name, _)| *name != "load");
    let all: f64 = worked().map(|(_, us)| us).sum();
    // Who works less than a twentieth of it does something else.
    let worked: Vec<_> = worked()
        .filter(|(_, us)| **us * 20.0 >= all)
        .map(|(name, us)| format!("{name} {}", grouped(*us)))
        .collect();
    let figures = [
        row.rss().map(memory).unwrap_or_default(),
        shares::in_words(row),
        if many { format!("{} a second", rate(row.per_second)) } else { String::new() },
        // A single operation has one time.
        if row.p50_us == row.p99_us { time(row.p50_us) } else { times_unit(row) },
        if worked.is_empty() { String::new() } else { format!("{} µs", worked.join(", ")) },
        row.missed.clone().unwrap_or_default(),
    ];
    figures.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" · ")
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
    fn a_number_of_volumes_has_a_column_and_what_was_missed_a_cell() {
        let at = |name: &str, volumes| Row {
            volumes: Some(volumes),
            ..Row::new(Part::Scale, name, 1, 1)
        };
        let cpu_us = [("claim", 41.3), ("load", 99.0), ("registry", 1.0)];
        let cpu_us = cpu_us.map(|(name, us)| (name.to_owned(), us)).into();
        let claim = Row { p50_us: Some(900.0), p99_us: Some(2e3), cpu_us, ..at("claim", 1_000) };
        let missed = Some("not within 120 s".to_owned());
        let late = Row { missed, ..at("claim", 1_000_000) };
        let size = Row { rss_bytes: Some(3 << 20), ..at("memory", 1_000_000) };
        let lines = [
            "| volumes | 1 000 | 1 000 000 |",
            "|---|---|---|",
            "| claim | 0.90/2.00 ms · claim 41.3 µs | not within 120 s |",
            "| memory |  | 3.0 MiB |",
        ];
        assert_eq!(text_of(vec![claim, late, size]), lines.join("\n"));
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
