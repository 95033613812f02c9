//! Reading the log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Entry;

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

/// All entries of a log, in the order they were written. A last line without its end is one that is
/// being written, or was when its writer was killed: it is left out. Holds the whole log; the judge
/// reads line by line.
pub fn read(path: &Path) -> Result<Vec<Entry>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut entries = Vec::new();
    for (index, line) in whole.lines().enumerate() {
        if !line.trim().is_empty() {
            let number = index + 1;
            let wrong = |source| ReadError::Line { path: path.to_owned(), number, source };
            entries.push(serde_json::from_str(line).map_err(wrong)?);
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use berth_csi::{Code, v1};

    use super::*;
    use crate::log::{Call, Effect, Outcome, Recorder};

    fn call() -> Call {
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: "a \"volume\"\nof two lines".into(),
            node_id: "n2".into(),
            readonly: true,
            ..Default::default()
        };
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        Call::of(&request, Some(trace))
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
            answer: serde_json::Value::Null,
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

        // The next writer begins on a line of its own.
        let size = fs::metadata(&path).unwrap().size();
        Recorder::open(&path, "n1").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().size(), size + 1);
        Recorder::open(&path, "n1").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().size(), size + 1);
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
