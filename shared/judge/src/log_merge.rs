//! The lines of all logs in the order of time.
//!
//! Owns: reading several logs side by side.
//!
//! Promises: bounded memory. An instance writes each line at once, so a log is nearly in order of
//! time, and sorting within a window is enough. An unfinished last line is skipped with a note: its
//! writer is still writing, or was killed. So is an unfinished line that is followed by the first
//! line of another instance.
//!
//! Never: skips any other line.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use thiserror::Error;

use super::finding::LogLine;
use super::log_row::LogRow;

/// Why a log could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file system said no.
    #[error("cannot read the log {}", path.display())]
    Io {
        /// The log.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A line is no entry of a log.
    #[error("{}:{number} is no line of a call log", path.display())]
    Line {
        /// The log.
        path: PathBuf,
        /// The number of the line, counted from 1.
        number: usize,
        /// The fault of the line.
        source: serde_json::Error,
    },
}

/// Lines of one log that are read ahead and sorted, at most.
const WINDOW: usize = 1024;

pub(super) struct LogMerge {
    logs: Vec<LogReader>,
    /// A note for each skipped line.
    pub notes: Vec<String>,
}

/// The order of lines: time, rank of the entry, log, line number.
type LineKey = (u64, u8, usize, usize);

struct LogReader {
    place: usize,
    path: Rc<Path>,
    lines: Option<BufReader<File>>,
    number: usize,
    window: BinaryHeap<Reverse<BufferedLine>>,
    /// The instances that have written to this log so far.
    instances: HashSet<String>,
}

struct BufferedLine {
    key: LineKey,
    row: LogRow,
    line: LogLine,
}

/// A line that cannot be parsed.
struct DamagedLine {
    number: usize,
    error: serde_json::Error,
}

impl LogMerge {
    pub fn open<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<Self, ReadError> {
        let open = |(place, path): (usize, &PathBuf)| {
            let file =
                File::open(path).map_err(|source| ReadError::Io { path: path.clone(), source })?;
            let lines = Some(BufReader::with_capacity(1 << 16, file));
            let path = Rc::from(path.as_path());
            Ok(LogReader {
                place,
                path,
                lines,
                number: 0,
                window: BinaryHeap::new(),
                instances: HashSet::new(),
            })
        };
        let logs = paths.enumerate().map(open).collect::<Result<_, ReadError>>()?;
        Ok(Self { logs, notes: Vec::new() })
    }

    /// The next line of all logs.
    pub fn next(&mut self) -> Result<Option<(LogRow, LogLine)>, ReadError> {
        for log in &mut self.logs {
            log.fill(&mut self.notes)?;
        }
        let first = self.logs.iter_mut().filter(|log| !log.window.is_empty());
        let first = first.min_by_key(|log| log.window.peek().map(|Reverse(next)| next.key));
        let next = first.and_then(|log| log.window.pop());
        Ok(next.map(|Reverse(next)| (next.row, next.line)))
    }
}

impl LogReader {
    fn fill(&mut self, notes: &mut Vec<String>) -> Result<(), ReadError> {
        let mut damaged: Option<DamagedLine> = None;
        while self.lines.is_some() && (self.window.len() < WINDOW || damaged.is_some()) {
            let Some((text, whole)) = self.read_line().map_err(|source| self.failed(source))?
            else {
                self.lines = None;
                break;
            };
            if !whole {
                // The rest of the line may be written at this moment, and would be read as a line
                // of its own. So the judge reads no further in this log.
                notes.push(
                    self.describe_damage(self.number, "has no end yet, or its writer was killed"),
                );
                self.lines = None;
                break;
            }
            if text.trim().is_empty() {
                continue;
            }
            let row = match (serde_json::from_str::<LogRow>(&text), damaged.take()) {
                (Ok(row), None) => row,
                // An unfinished line is allowed if it is followed by an instance that started
                // later.
                (Ok(row), Some(gap)) if !self.instances.contains(&row.instance) => {
                    notes.push(self.describe_damage(gap.number, "cut off by its writer's end"));
                    row
                }
                (Ok(_) | Err(_), Some(gap)) => return Err(self.wrong(gap)),
                (Err(error), None) => {
                    damaged = Some(DamagedLine { number: self.number, error });
                    continue;
                }
            };
            if !self.instances.contains(&row.instance) {
                self.instances.insert(row.instance.clone());
            }
            let key = (row.time_us(), row.rank(), self.place, self.number);
            let (file, number) = (Rc::clone(&self.path), self.number);
            let line = LogLine { file, number, text: text.into() };
            self.window.push(Reverse(BufferedLine { key, row, line }));
        }
        damaged.map_or(Ok(()), |gap| Err(self.wrong(gap)))
    }

    /// The next line, and whether it is finished.
    fn read_line(&mut self) -> io::Result<Option<(String, bool)>> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        let mut bytes = Vec::new();
        if lines.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let whole = bytes.pop_if(|last| *last == b'\n').is_some();
        Ok(Some((String::from_utf8_lossy(&bytes).into_owned(), whole)))
    }

    fn describe_damage(&self, number: usize, what: &str) -> String {
        format!("{}:{number}: {what}; left out", self.path.display())
    }

    fn wrong(&self, gap: DamagedLine) -> ReadError {
        ReadError::Line { path: self.path.to_path_buf(), number: gap.number, source: gap.error }
    }

    fn failed(&self, source: io::Error) -> ReadError {
        ReadError::Io { path: self.path.to_path_buf(), source }
    }
}

impl PartialEq for BufferedLine {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for BufferedLine {}

impl PartialOrd for BufferedLine {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BufferedLine {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}
