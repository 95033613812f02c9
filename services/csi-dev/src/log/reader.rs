//! Reading the log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Entry;

/// An entry and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// In which file.
    pub file: PathBuf,
    /// On which line, counted from 1.
    pub number: usize,
    /// As it stands there.
    pub text: String,
    /// What it says.
    pub entry: Entry,
}

/// Why a log could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file system said no.
    #[error("cannot read the log {}", path.display())]
    Io {
        /// Which log.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is no entry of ours.
    #[error("{}:{number} is no line of a call log", path.display())]
    Line {
        /// Which log.
        path: PathBuf,
        /// Which line, counted from 1.
        number: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// All entries of a log, in the order they were written.
pub fn read(path: &Path) -> Result<Vec<Entry>, ReadError> {
    Ok(read_lines(path)?.into_iter().map(|line| line.entry).collect())
}

/// All entries of a log with their places. A last line without its end is one that is being
/// written, or was when its writer was killed: it is left out.
pub fn read_lines(path: &Path) -> Result<Vec<Line>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = Vec::new();
    for (index, text) in whole.lines().enumerate() {
        if text.trim().is_empty() {
            continue;
        }
        let number = index + 1;
        let wrong = |source| ReadError::Line { path: path.to_owned(), number, source };
        let entry = serde_json::from_str(text).map_err(wrong)?;
        lines.push(Line { file: path.to_owned(), number, text: text.to_owned(), entry });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use berth_csi::{Code, Rpc};

    use super::*;
    use crate::log::{Args, Call, Effect, Outcome, Recorder};

    fn call() -> Call {
        let args = Args { node: Some("n2".into()), readonly: Some(true), ..Args::default() };
        let volume_id = Some("a \"volume\"\nof two lines".to_owned());
        Call { rpc: Rpc::ControllerPublishVolume, volume_id, args }
    }

    #[test]
    fn what_was_written_is_read_and_a_torn_end_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls.log");
        let recorder = Recorder::open(&path, "n1").unwrap();
        recorder.start(true, false, Vec::new()).unwrap();
        let begin = recorder.begin(call()).unwrap();
        recorder.gone(begin.seq).unwrap();
        let violation = None;
        let outcome = Outcome {
            code: Code::Aborted,
            message: "busy".into(),
            effect: Effect::None,
            violation,
            fault: None,
        };
        recorder.end(begin, outcome).unwrap();

        let entries = read(&path).unwrap();
        let kinds: Vec<_> = entries.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 4);
        assert!(entries.windows(2).all(|pair| pair[0].time_us() < pair[1].time_us()));
        assert!(entries.iter().all(|entry| entry.source().instance == recorder.instance()));
        let Entry::End(end) = &entries[3] else { panic!("{entries:?}") };
        assert_eq!((end.code, &end.call), (Code::Aborted, &call()));

        let mut text = fs::read(&path).unwrap();
        text.extend(b"{\"entry\":\"beg");
        fs::write(&path, text).unwrap();
        assert_eq!(read(&path).unwrap(), entries);
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls.log");
        fs::write(&path, "\n{\"entry\":\"nonsense\"}\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.to_string().ends_with("calls.log:2 is no line of a call log"), "{error}");
    }

    #[test]
    fn instances_may_share_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls.log");
        let write = || {
            let recorder = Recorder::open(&path, "n1").unwrap();
            for _ in 0..200 {
                recorder.begin(call()).unwrap();
            }
        };
        std::thread::scope(|scope| _ = [scope.spawn(write), scope.spawn(write)]);
        assert_eq!(read(&path).unwrap().len(), 400);
    }
}
