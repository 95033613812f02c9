//! What a failing test prints: a bounded part of its logs, where all logs are kept, and last the
//! reason.
//!
//! A failing test drops some ten processes, whose debug logs have thousands of lines. The reason
//! comes last, because CI keeps the end of an output.
//!
//! Owns: the panic hook, and `target/failed/<test>`. Promises: a failing test prints at most
//! [`LINES_PER_TEST`] lines of logs and [`REASON_LINES`] of its reason; the whole logs, and a
//! longer reason, are kept in files that it names. Never: writes anything for a test that passes.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use crate::repository;

/// Lines of one process's log.
const LINES_PER_LOG: usize = 10;
/// Lines of all logs of a test.
const LINES_PER_TEST: usize = 120;
/// Lines of the reason: a third of its beginning, the rest of its end.
const REASON_LINES: usize = 40;
/// Columns of a line.
const COLUMNS: usize = 400;
/// Frames of the stack, only those of this repository.
const FRAMES: usize = 12;
/// The largest log that is kept, in bytes.
const KEPT_MAX_BYTES: u64 = 256 << 20;

thread_local! {
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
    static LINES_LEFT: Cell<usize> = const { Cell::new(LINES_PER_TEST) };
}

/// Prints panics from here on so that their reason comes last.
pub(crate) fn hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        panic::set_hook(Box::new(|panic| {
            let reason = shorten(&panic.to_string(), REASON_LINES);
            let test = test_name();
            // libtest captures this, too.
            #[expect(clippy::print_stderr, reason = "the default hook prints, too")]
            {
                eprintln!("{}thread '{test}' {reason}", frames(&Backtrace::capture()));
            }
            if reason.contains(LEFT_OUT) {
                let _ = fs::write(fresh_dir(&test).join("reason"), panic.to_string());
            }
            REASON.set(Some(reason));
            LINES_LEFT.set(LINES_PER_TEST);
        }));
    });
}

/// Prints the reason, if this thread panics, past the capture of test output.
pub(crate) fn print_reason() {
    if std::thread::panicking() {
        let reason = REASON.with_borrow(Clone::clone).unwrap_or_default();
        let test = test_name();
        let log_dir = dir_of(&test);
        let _ = writeln!(
            std::io::stderr().lock(),
            "--- all logs of {test} are kept in {}\n--- {test}: {reason}",
            log_dir.display()
        );
    }
}

/// Prints the end of a process's log.
pub(crate) fn print_log(name: &str, path: &Path, log: &str) {
    let lines = excerpt(log);
    let lines_left = LINES_LEFT.get();
    let shown = &lines[lines.len() - lines.len().min(LINES_PER_LOG).min(lines_left)..];
    LINES_LEFT.set(lines_left.saturating_sub(shown.len()));
    let total = log.lines().count();
    let mut out = std::io::stderr().lock();
    let _ = writeln!(
        out,
        "--- {name}: {} of {total} lines, all in {}",
        shown.len(),
        dir_of(&test_name()).join(name_of(path)).display()
    );
    for line in shown {
        let _ = writeln!(out, "{}", cut(line));
    }
}

/// Keeps the logs that lie in a directory of a test that fails.
pub(crate) fn keep_logs(dir: &Path) {
    let log_dir = fresh_dir(&test_name());
    for file in fs::read_dir(dir).into_iter().flatten().flatten().map(|file| file.path()) {
        let is_small = fs::metadata(&file).is_ok_and(|meta| meta.len() <= KEPT_MAX_BYTES);
        if is_log(&file) && is_small {
            // A log that cannot be kept must not hide why the test failed.
            let _ = fs::copy(&file, log_dir.join(name_of(&file)));
        }
    }
}

/// Shortens a text to this many lines: a third of them from its beginning, the rest from its end.
pub fn shorten(text: &str, lines: usize) -> String {
    let text_lines: Vec<&str> = text.lines().collect();
    let left_out = text_lines.len().saturating_sub(lines);
    let (first, rest) =
        text_lines.split_at(if left_out > 0 { lines / 3 } else { text_lines.len() });
    let mut short: Vec<String> = first.iter().map(|line| cut(line)).collect();
    if left_out > 0 {
        short.push(format!("  … {left_out} {LEFT_OUT} …"));
        short.extend(rest[left_out..].iter().map(|line| cut(line)));
    }
    short.join("\n")
}

const LEFT_OUT: &str = "lines left out";

fn cut(line: &str) -> String {
    match line.char_indices().nth(COLUMNS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// The lines of a log without the debug lines of other crates.
fn excerpt(log: &str) -> Vec<&str> {
    let is_foreign = |line: &&str| {
        let level = line.split_whitespace().nth(1);
        matches!(level, Some("DEBUG" | "TRACE")) && !line.contains(" berth_")
    };
    log.lines().filter(|line| !is_foreign(line)).collect()
}

/// The frames of this repository, the innermost first; nothing unless `RUST_BACKTRACE` is set.
fn frames(trace: &Backtrace) -> String {
    let mut text = String::new();
    if trace.status() != BacktraceStatus::Captured {
        return text;
    }
    let root = repository().display().to_string();
    let trace_text = trace.to_string();
    let lines: Vec<&str> = trace_text.lines().map(str::trim).collect();
    let own = lines.windows(2).filter_map(|pair| {
        let location = pair[1].strip_prefix("at ")?;
        // Debug information of the C library also names paths below `.`, which do not exist.
        let file = location.split(':').next().map(Path::new)?;
        let is_own = (location.starts_with("./") || location.starts_with(&root)) && file.exists();
        (is_own && !pair[0].contains("failure::hook")).then_some((pair[0], location))
    });
    for (function, location) in own.take(FRAMES) {
        let _ = writeln!(text, "  {function} at {location}");
    }
    text
}

/// libtest names a test's thread after the test.
fn test_name() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

fn dir_of(test: &str) -> PathBuf {
    repository().join("target/failed").join(test.replace("::", "."))
}

/// The test's directory, without what an earlier run left in it.
fn fresh_dir(test: &str) -> PathBuf {
    static MADE: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = dir_of(test);
    if made.get_or_insert_default().insert(test.to_owned()) {
        let _ = fs::remove_dir_all(&dir);
    }
    let _ = fs::create_dir_all(&dir);
    dir
}

/// The name of a kept log, with its directory's: several directories of a test have a file `log`.
fn name_of(log: &Path) -> String {
    let part = |path: Option<&Path>| {
        path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
    };
    format!("{}-{}", part(log.parent()), part(Some(log)))
}

fn is_log(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let extension = file.extension().unwrap_or_default().to_string_lossy();
    file.is_file()
        && (name == "log"
            || name.starts_with("calls")
            || matches!(&*extension, "log" | "calls" | "jsonl" | "toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let text: Vec<String> = (1..=100).map(|line| format!("line {line}")).collect();
        let short = shorten(&text.join("\n"), 9);
        let lines: Vec<&str> = short.lines().collect();
        assert_eq!(lines[..3], ["line 1", "line 2", "line 3"]);
        assert_eq!(lines[3], "  … 91 lines left out …");
        assert_eq!(lines[4..], ["line 95", "line 96", "line 97", "line 98", "line 99", "line 100"]);
        assert_eq!(shorten("one\ntwo", 2), "one\ntwo");
        assert_eq!(shorten(&"x".repeat(500), 1).chars().count(), COLUMNS + 1);
    }

    #[test]
    fn debug_lines_of_other_crates_are_left_out() {
        let log = "t DEBUG Connection{peer=Client}: h2::codec::framed_write: send frame\n\
                   t DEBUG berth_csi::client: the call failed\n\
                   t  WARN hyper::proto: a warning\n\
                   dev.berth serves node n1";
        let lines = excerpt(log);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(!lines[0].contains("h2::"), "{lines:?}");
    }
}
