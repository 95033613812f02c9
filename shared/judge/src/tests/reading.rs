//! Logs as they occur: in several files, torn, out of order, long.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::thread;
use std::time::Duration;

use super::log::*;
use crate::{judge, judge_files};

#[test]
fn lines_out_of_order_and_in_several_files_are_judged_alike() {
    let text = published().ok("n2", DETACH, on("n1")).text();
    let lines: Vec<&str> = text.lines().collect();
    let join = |lines: &[&str]| lines.join("\n") + "\n";
    let reversed: Vec<_> = lines.iter().rev().copied().collect();
    assert_eq!(judged(&join(&reversed)).len(), judged(&text).len());

    let dir = tempfile::tempdir().unwrap();
    let (n1, n2): (Vec<&str>, Vec<&str>) =
        lines.iter().partition(|line| line.contains("\"node_id\":\"n1\",\"rpc"));
    let paths = [("n1.log", n1), ("n2.log", n2)].map(|(name, lines)| {
        let path = dir.path().join(name);
        fs::write(&path, join(&lines)).unwrap();
        path
    });
    let both_with_repeat = [paths[0].clone(), paths[1].clone(), paths[0].clone()];
    assert_eq!(judge_files(&both_with_repeat).unwrap().len(), judged(&text).len());
}

#[test]
fn a_line_torn_by_its_writers_end_is_left_out_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("torn.log");
    let torn = r#"{"entry":"begin","seq":9,"#;
    let read = |text: String| {
        fs::write(&path, text).unwrap();
        judge(std::slice::from_ref(&path), &mut |_| {})
    };
    let summary = read(attached().text() + torn).unwrap();
    assert_eq!((summary.lines, summary.notes.len()), (4, 1));
    assert!(summary.notes[0].contains("torn.log:5: has no end"), "{:?}", summary.notes);

    // The next instance begins on a line of its own.
    let restarted = attached().start("n1'", serde_json::json!([])).text();
    let (before, start) = restarted.trim_end().rsplit_once('\n').unwrap();
    let summary = read(format!("{before}\n{torn}\n{start}\n")).unwrap();
    assert_eq!((summary.lines, summary.notes.len()), (5, 1));
    assert!(summary.notes[0].contains("torn.log:5: cut off"), "{:?}", summary.notes);
    // An instance without a node logs no start; a fence by the administrator is one line.
    for log in [attached().ok("n2'", DETACH, on("n1")), attached().fence("n1", true)] {
        let (before, next) = (attached().text(), log.text());
        let next = next.strip_prefix(&before).unwrap();
        let summary = read(format!("{before}{torn}\n{next}")).unwrap();
        let lines = log.text().lines().count() as u64;
        assert_eq!((summary.lines, summary.notes.len()), (lines, 1), "{next}");
    }

    // Any other unreadable line is an error that names it. An unfinished line is torn only if
    // another instance follows.
    for wrong in [format!("{torn}\n"), format!("{torn}\n{}", life(900))] {
        let error = read(attached().text() + &wrong).unwrap_err();
        assert!(error.to_string().ends_with("torn.log:5 is no line of a call log"), "{error}");
    }
}

#[test]
fn a_long_log_is_read_to_its_end() {
    let mut text = Log::nodes().text();
    let mut lines = 2;
    for round in 0..500_u64 {
        let life = life(round * 1_000 + 100);
        lines += life.lines().count() as u64;
        text.push_str(&life);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.log");
    fs::write(&path, text).unwrap();
    let summary = judge(&[path], &mut |finding| panic!("{finding}")).unwrap();
    assert_eq!(summary.lines, lines);
}

/// A use of the volume from creation to deletion, beginning at this time.
pub fn life(from_us: u64) -> String {
    Log::at(from_us)
        .ok("n1", ATTACH, on("n1"))
        .ok("n1", STAGE, staging("n1"))
        .ok("n1", PUBLISH, target("n1"))
        .ok("n1", UNPUBLISH, target("n1"))
        .ok("n1", UNSTAGE, staging("n1"))
        .ok("n1", DETACH, on("n1"))
        .text()
}

/// A log is judged while its driver writes it, so its last line may be incomplete.
#[test]
fn a_last_line_that_is_being_written_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("growing.log");
    fs::write(&path, Log::nodes().text()).unwrap();
    let write = || {
        let mut log = OpenOptions::new().append(true).open(&path).unwrap();
        for line in (0..50).flat_map(|round| lines(&life(round * 1_000 + 100))) {
            let (first, second) = line.split_at(line.len() / 2);
            for half in [first, second] {
                log.write_all(half.as_bytes()).unwrap();
                thread::sleep(Duration::from_micros(200));
            }
        }
    };
    let read = || judge(std::slice::from_ref(&path), &mut |_| {}).unwrap();
    let unfinished = thread::scope(|scope| {
        let writer = scope.spawn(write);
        let mut unfinished = 0;
        while !writer.is_finished() {
            unfinished += read().notes.len();
        }
        unfinished
    });
    assert!(unfinished > 0, "no half line was met");
    let whole = read();
    assert_eq!((whole.lines, whole.notes.len()), (2 + 50 * 12, 0));
}

fn lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n').map(str::to_owned).collect()
}
