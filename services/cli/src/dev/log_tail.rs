//! The end of a process's log.
//!
//! **Promises** that a long log costs no more than its last part. **Never** fails: what cannot be
//! read has no lines.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The most that is read of a log, in bytes.
const TAIL_BYTES_MAX: u64 = 16 * 1024;

/// A log from some point on.
#[derive(Debug)]
pub struct LogTail {
    path: PathBuf,
    from: u64,
}

impl LogTail {
    /// What is in the log already.
    pub fn whole(path: &Path) -> Self {
        Self { path: path.to_owned(), from: 0 }
    }

    /// What will be written to the log from now on.
    pub fn from_now(path: &Path) -> Self {
        let from = fs::metadata(path).map_or(0, |file| file.len());
        Self { path: path.to_owned(), from }
    }

    /// The last lines, empty ones left out, the newest last.
    pub fn last_lines(&self, max: usize) -> Vec<String> {
        let text = self.read().unwrap_or_default();
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(max)..].iter().copied().map(str::to_owned).collect()
    }

    fn read(&self) -> io::Result<String> {
        let mut file = File::open(&self.path)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(self.from.max(end.saturating_sub(TAIL_BYTES_MAX))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tail_has_only_later_lines_and_only_the_end_of_a_long_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let early = LogTail::from_now(&path);
        assert_eq!(early.last_lines(3), Vec::<String>::new());
        fs::write(&path, "one\ntwo\n\n").unwrap();
        let late = LogTail::from_now(&path);
        assert_eq!(early.last_lines(1), ["two"]);
        assert_eq!(late.last_lines(1), Vec::<String>::new());
        let long = "x".repeat(100_000);
        fs::write(&path, format!("one\n{long}\nthree")).unwrap();
        assert_eq!(late.last_lines(1), ["three"]);
        assert_eq!(LogTail::whole(&path).last_lines(9).last().unwrap(), "three");
    }
}
