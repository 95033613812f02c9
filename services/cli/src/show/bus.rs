//! The copies of buckets and streams, and their backups.

use std::fmt::Write as _;
use std::path::Path;

use berth_bus::replication::CopiesReport;
use berth_bus::restore::{BegunIncarnation, RestoreStep};

use crate::table::{Table, plain};

/// One line for each bucket and stream, then the servers and what is wrong.
pub fn copies(report: &CopiesReport) -> String {
    let mut text = if report.streams.is_empty() {
        "no bucket or stream of Berth exists yet\n".to_owned()
    } else {
        rows(report)
    };
    let servers = report.servers.iter().map(|server| {
        let note = if server.answers { "" } else { " (does not answer)" };
        format!("{}{note}", server.name)
    });
    let servers = plain(&servers.collect::<Vec<_>>().join(", "));
    // Writing to a string cannot fail.
    let _ = match &report.cluster {
        Some(cluster) => writeln!(text, "\nservers of cluster {}: {servers}", plain(cluster)),
        None => writeln!(text, "\nthe only server: {servers}"),
    };
    for stream in &report.streams {
        if let Some(problem) = &stream.problem {
            let _ = writeln!(text, "{}: {}", stream.stream, plain(problem));
        }
    }
    text
}

fn rows(report: &CopiesReport) -> String {
    let mut table = Table::new(["STREAM", "COPIES", "WANTED", "IN SYNC", "LEADER"]);
    for stream in &report.streams {
        let (copies, in_sync) = match stream.copies {
            Some(copies) => (copies.to_string(), format!("{}/{copies}", stream.in_sync)),
            None => (String::new(), String::new()),
        };
        let leader = stream.leader.clone().unwrap_or_default();
        let wanted = stream.wanted.to_string();
        table.row([stream.stream.clone(), copies, wanted, in_sync, leader]);
    }
    table.to_string()
}

/// How far a raise is, in one line.
pub fn copies_progress(report: &CopiesReport) -> String {
    let settled = report.streams.iter().filter(|stream| stream.is_settled()).count();
    let total = report.streams.len();
    let waiting = report.streams.iter().filter(|stream| !stream.is_settled()).map(|stream| {
        let copies = stream.copies.map_or_else(|| "?".to_owned(), |copies| copies.to_string());
        format!("{} {}/{copies} in sync, {} wanted", stream.stream, stream.in_sync, stream.wanted)
    });
    let waiting: Vec<String> = waiting.collect();
    let waiting_text =
        if waiting.is_empty() { String::new() } else { format!("; {}", waiting.join("; ")) };
    plain(&format!("{settled} of {total} have all their copies{waiting_text}"))
}

/// The buckets that were backed up.
pub fn backed_up(buckets: &[String], dir: &Path) -> String {
    format!("backed up to {}: {}", plain(&dir.to_string_lossy()), buckets.join(", "))
}

/// One step of a restore.
pub fn restore_step(step: &RestoreStep) -> String {
    match step {
        RestoreStep::Removed(bucket) => format!("removed {bucket}"),
        RestoreStep::Waiting(within) => {
            format!("waiting {} s, until no service rests on what it knew", within.as_secs())
        }
        RestoreStep::Restored(bucket) => format!("restored {bucket}"),
        RestoreStep::Finished(bucket) => format!("{bucket} is served again"),
    }
}

/// The incarnations that began.
pub fn begun(incarnations: &[BegunIncarnation]) -> String {
    let mut table = Table::new(["BUCKET", "INCARNATION", "RECORDS TO", "GOES ON ABOVE"]);
    for one in incarnations {
        let numbers = [one.incarnation, one.restored, one.above].map(|number| number.to_string());
        let [incarnation, restored, above] = numbers;
        table.row([one.bucket.clone(), incarnation, restored, above]);
    }
    table.to_string()
}
