//! Writing the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use berth_csi::{Code, Rpc};
use serde_json::Value;

use super::entry::{
    CallBegin, CallEffect, CallEnd, CallerGone, HeldVolume, InstanceStart, LogEntry, LogWriter,
    LoggedCall, NodeFence,
};
use super::kernel::{PathMounts, observe_deleted, observe_mounts};
use crate::faults::FaultMark;

/// The log of one instance.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    source: LogWriter,
    lenient: bool,
    foreign: bool,
    last_us: AtomicU64,
    last_seq: AtomicU64,
}

/// The end of a call, for its log line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallOutcome {
    pub code: Code,
    pub message: String,
    pub effect: CallEffect,
    /// The rule that the caller broke, according to the driver.
    pub violation: Option<String>,
    pub fault: Option<FaultMark>,
    pub answer: Value,
}

impl Recorder {
    /// Appends to the log at `path`, which is created if it is missing, as the instance of
    /// `node_id`.
    pub fn open(path: &Path, node_id: &str) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        if is_torn(&file)? {
            // Another process was killed while it wrote a line.
            (&file).write_all(b"\n")?;
        }
        let now_us = now_us();
        // The kernel reuses process ids; the time makes the name unique.
        let instance = format!("{}@{now_us}", std::process::id());
        let source = LogWriter { node_id: node_id.to_owned(), instance };
        let (last_us, last_seq) = (AtomicU64::new(now_us), AtomicU64::new(0));
        Ok(Self { file, source, lenient: false, foreign: false, last_us, last_seq })
    }

    /// Sets whether the driver carries out calls that break a rule of order.
    #[must_use]
    pub fn lenient(self, lenient: bool) -> Self {
        Self { lenient, ..self }
    }

    /// Marks the driver as foreign: it is unknown what it refuses, and what it has mounted.
    #[must_use]
    pub fn foreign(self) -> Self {
        Self { lenient: true, foreign: true, ..self }
    }

    /// The name of this instance.
    pub fn instance(&self) -> &str {
        &self.source.instance
    }

    /// Logs the start of this instance.
    pub fn start(&self, attach: bool, stage: bool, holds: Vec<HeldVolume>) -> io::Result<()> {
        let (start_us, source, foreign) = (self.time_us(), self.source.clone(), self.foreign);
        let start = InstanceStart { start_us, source, attach, stage, holds, foreign };
        self.write(&LogEntry::Start(start))
    }

    /// Logs that the storage fences the node, or lifts its fence.
    pub fn fence(&self, fenced: bool) -> io::Result<()> {
        let fence_us = self.time_us();
        self.write(&LogEntry::Fence(NodeFence { fence_us, source: self.source.clone(), fenced }))
    }

    /// Logs the beginning of a call.
    pub fn begin(&self, call: LoggedCall) -> io::Result<CallBegin> {
        let seq = self.last_seq.fetch_add(1, Ordering::Relaxed) + 1;
        let begin = CallBegin { seq, begin_us: self.time_us(), source: self.source.clone(), call };
        self.write(&LogEntry::Begin(begin.clone()))?;
        Ok(begin)
    }

    /// Logs that the caller of an unfinished call left.
    pub fn gone(&self, seq: u64) -> io::Result<()> {
        let gone_us = self.time_us();
        self.write(&LogEntry::Gone(CallerGone { seq, gone_us, source: self.source.clone() }))
    }

    /// Logs the end of a call.
    pub fn end(&self, begin: CallBegin, outcome: CallOutcome) -> io::Result<()> {
        let CallBegin { seq, begin_us, source, call } = begin;
        let CallOutcome { code, message, effect, violation, fault, answer } = outcome;
        let kernel = match call.rpc {
            Rpc::DeleteVolume => observe_deleted(),
            _ => mount_paths(&call).and_then(observe_mounts),
        };
        // A planted code is not from the driver. An answer that is lost was the driver's own.
        let is_answered = self.foreign && matches!(fault, None | Some(FaultMark::Lost));
        let effect = if is_answered && is_found_gone(&call, code, kernel.as_deref()) {
            CallEffect::Done
        } else {
            effect
        };
        let end_us = self.time_us();
        #[rustfmt::skip]
        let end = CallEnd {
            seq, begin_us, end_us, source, call, code, message, effect, violation, fault, answer,
            kernel, lenient: self.lenient, foreign: self.foreign,
        };
        self.write(&LogEntry::End(Box::new(end)))
    }

    /// The current time. Strictly increasing, so no two lines of an instance have the same time.
    fn time_us(&self) -> u64 {
        let next = |last: u64| now_us().max(last + 1);
        let last = self
            .last_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        last.map_or_else(|last| last, next)
    }

    fn write(&self, entry: &LogEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        // A single write, so that lines of several instances in one file do not mix.
        (&self.file).write_all(&line)
    }
}

/// The paths at which a call mounts or unmounts; `None` for a call that does neither.
fn mount_paths(call: &LoggedCall) -> Option<impl Iterator<Item = &str>> {
    let arguments: &[&str] = match call.rpc {
        Rpc::NodeStageVolume | Rpc::NodeUnstageVolume => &["staging_target_path"],
        Rpc::NodePublishVolume => &["staging_target_path", "target_path"],
        Rpc::NodeUnpublishVolume => &["target_path"],
        _ => return None,
    };
    Some(arguments.iter().filter_map(|name| call.arg(name)))
}

/// Whether an undoing call was answered that the volume does not exist, and the kernel has nothing
/// mounted of it: the undoing counts as done.
fn is_found_gone(call: &LoggedCall, code: Code, kernel: Option<&[PathMounts]>) -> bool {
    let undoes = matches!(call.rpc, Rpc::NodeUnpublishVolume | Rpc::NodeUnstageVolume);
    let is_empty = |paths: &[PathMounts]| paths.iter().all(|path| path.mounts.is_empty());
    undoes && code == Code::NotFound && kernel.is_some_and(is_empty)
}

/// Whether the last line of the file is unfinished.
fn is_torn(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(false) };
    let mut end = [0];
    file.read_exact_at(&mut end, last)?;
    Ok(end != *b"\n")
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use berth_csi::{Code, v1};

    use super::*;
    use crate::log::CallEffect;

    /// The finished lines.
    fn read(path: &Path) -> Vec<LogEntry> {
        let text = std::fs::read_to_string(path).unwrap();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn call() -> LoggedCall {
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: "a \"volume\"\nof two lines".into(),
            node_id: "n2".into(),
            readonly: true,
            ..Default::default()
        };
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        LoggedCall::from_request(&request, Some(trace))
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
        let outcome = CallOutcome {
            code: Code::Aborted,
            message: "busy".into(),
            effect: CallEffect::None,
            violation,
            fault: None,
            answer: Value::Null,
        };
        recorder.end(begin, outcome).unwrap();

        let entries = read(&path);
        let kinds: Vec<_> = entries.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 4);
        assert!(entries.windows(2).all(|pair| pair[0].time_us() < pair[1].time_us()));
        assert!(entries.iter().all(|entry| entry.source().instance == recorder.instance()));
        let LogEntry::End(end) = &entries[3] else { panic!("{entries:?}") };
        assert_eq!((end.code, &end.call), (Code::Aborted, &call()));

        let mut text = std::fs::read(&path).unwrap();
        text.extend(b"{\"entry\":\"beg");
        std::fs::write(&path, text).unwrap();
        assert_eq!(read(&path), entries);

        // The next writer begins a new line.
        let size = std::fs::metadata(&path).unwrap().size();
        Recorder::open(&path, "n1").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().size(), size + 1);
        Recorder::open(&path, "n1").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().size(), size + 1);
    }

    #[test]
    fn a_volume_that_a_foreign_driver_does_not_find_is_gone_unless_the_code_was_planted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls.log");
        let recorder = Recorder::open(&path, "n1").unwrap().foreign();
        let target_path = dir.path().join("t").to_str().unwrap().to_owned();
        let request = v1::NodeUnpublishVolumeRequest { volume_id: "v".into(), target_path };
        for (fault, effect) in
            [(None, CallEffect::Done), (Some(FaultMark::Before), CallEffect::None)]
        {
            let begin = recorder.begin(LoggedCall::from_request(&request, None)).unwrap();
            let outcome = CallOutcome {
                code: Code::NotFound,
                message: "none".into(),
                effect: CallEffect::None,
                violation: None,
                fault,
                answer: Value::Null,
            };
            recorder.end(begin, outcome).unwrap();
            let entries = read(&path);
            let Some(LogEntry::End(end)) = entries.last() else { panic!("{entries:?}") };
            assert_eq!(end.effect, effect, "{end:?}");
        }
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
        assert_eq!(read(&path).len(), 400);
    }
}
