//! Writing the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use berth_csi::Code;
use serde_json::Value;

use super::{Begin, Call, Effect, End, Entry, Fence, Gone, Holding, Source, Start, kernel};
use crate::faults::Planted;
use crate::rules::Violation;

/// The log of one instance.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    source: Source,
    last_us: AtomicU64,
    last_seq: AtomicU64,
}

/// What came of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The answer's code.
    pub code: Code,
    /// The answer's message.
    pub message: String,
    /// What was changed.
    pub effect: Effect,
    /// The rule that the caller broke.
    pub violation: Option<Violation>,
    /// The planted fault that made the answer.
    pub fault: Option<Planted>,
    /// The answer itself, as the log shows it.
    pub answer: Value,
}

impl Recorder {
    /// Appends to the log at `path`, which is made when missing, as the instance of `node_id`.
    pub fn open(path: &Path, node_id: &str) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        if is_torn(&file)? {
            // Another process was killed in the midst of a line: ours begin on lines of their own.
            (&file).write_all(b"\n")?;
        }
        let now_us = now_us();
        // A process id comes back, together with the same time it does not.
        let instance = format!("{}@{now_us}", std::process::id());
        let source = Source { node_id: node_id.to_owned(), instance };
        let (last_us, last_seq) = (AtomicU64::new(now_us), AtomicU64::new(0));
        Ok(Self { file, source, last_us, last_seq })
    }

    /// The name of this instance.
    pub fn instance(&self) -> &str {
        &self.source.instance
    }

    /// Notes that this instance starts to serve.
    pub fn start(&self, attach: bool, stage: bool, holds: Vec<Holding>) -> io::Result<()> {
        let (start_us, source) = (self.time_us(), self.source.clone());
        self.write(&Entry::Start(Start { start_us, source, attach, stage, holds }))
    }

    /// Notes that the storage fences the node, or lifts its fence.
    pub fn fence(&self, fenced: bool) -> io::Result<()> {
        let fence_us = self.time_us();
        self.write(&Entry::Fence(Fence { fence_us, source: self.source.clone(), fenced }))
    }

    /// Notes that a call arrived.
    pub fn begin(&self, call: Call) -> io::Result<Begin> {
        let seq = self.last_seq.fetch_add(1, Ordering::Relaxed) + 1;
        let begin = Begin { seq, begin_us: self.time_us(), source: self.source.clone(), call };
        self.write(&Entry::Begin(begin.clone()))?;
        Ok(begin)
    }

    /// Notes that nobody waits any more for the call that began so.
    pub fn gone(&self, seq: u64) -> io::Result<()> {
        let gone_us = self.time_us();
        self.write(&Entry::Gone(Gone { seq, gone_us, source: self.source.clone() }))
    }

    /// Notes what came of the call that began so.
    pub fn end(&self, begin: Begin, outcome: Outcome) -> io::Result<()> {
        let Begin { seq, begin_us, source, call } = begin;
        let Outcome { code, message, effect, violation, fault, answer } = outcome;
        let kernel = kernel::observe(&call);
        let end_us = self.time_us();
        #[rustfmt::skip]
        let end = End {
            seq, begin_us, end_us, source, call, code, message, effect, violation, fault, answer,
            kernel,
        };
        self.write(&Entry::End(Box::new(end)))
    }

    /// Now, but later than ever before: no two lines of an instance have the same time.
    fn time_us(&self) -> u64 {
        let next = |last: u64| now_us().max(last + 1);
        let last = self
            .last_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        last.map_or_else(|last| last, next)
    }

    fn write(&self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        // One write: lines of several instances in one file do not mix.
        (&self.file).write_all(&line)
    }
}

/// Whether the file ends in the midst of a line.
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
