//! The lines of the log.
//!
//! Owns: the records and their JSON form. Promises: has no state. Never: writes a file.

use berth_csi::rpc::Unary;
use berth_csi::{Code, Rpc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kernel::PathMounts;
use super::shown::to_bounded_json;
use crate::faults::FaultMark;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "lowercase")]
pub enum LogEntry {
    /// An instance started.
    Start(InstanceStart),
    /// A call arrived.
    Begin(CallBegin),
    /// The caller of an unfinished call left.
    Gone(CallerGone),
    /// The storage fenced the node, or lifted its fence.
    Fence(NodeFence),
    /// The work of a call ended; its answer follows.
    End(Box<CallEnd>),
}

/// Which process wrote a line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LogWriter {
    /// The node it serves.
    pub node_id: String,
    /// The process: its id and its start time.
    pub instance: String,
}

/// An instance started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InstanceStart {
    pub start_us: u64,
    #[serde(flatten)]
    pub source: LogWriter,
    /// Whether volumes must be attached to a node first.
    pub attach: bool,
    /// Whether volumes must be staged first.
    pub stage: bool,
    /// Everything mounted on the node, from the backend's state and the mount table.
    #[serde(default)]
    pub holds: Vec<HeldVolume>,
    /// Whether it is unknown what is mounted on the node: then what was in use still is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
}

/// The storage fenced a node, or lifted its fence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeFence {
    pub fence_us: u64,
    /// The fenced node. `instance` is the process of `berth-csi-dev fence`.
    #[serde(flatten)]
    pub source: LogWriter,
    pub fenced: bool,
}

/// The mounts of one volume on a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldVolume {
    pub volume_id: String,
    /// Where it is staged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staging: Option<String>,
    /// Where it is published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LoggedCall {
    pub rpc: Rpc,
    /// The volume, if the request names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// The caller's trace, if it sent one (W3C `traceparent`).
    #[serde(flatten)]
    pub trace: Option<CallTrace>,
    /// The request under CSI's field names: without secrets and mount flags, cut to the size of a
    /// line.
    #[serde(default)]
    pub args: Value,
}

/// The parts of a W3C `traceparent`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallTrace {
    /// The trace, as 32 hexadecimal digits.
    pub trace_id: String,
    /// The caller's span, as 16 hexadecimal digits.
    pub parent_span_id: String,
}

/// A call arrived.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallBegin {
    /// The number of the call in its instance.
    pub seq: u64,
    pub begin_us: u64,
    #[serde(flatten)]
    pub source: LogWriter,
    #[serde(flatten)]
    pub call: LoggedCall,
}

/// The caller of a call left: its deadline passed, it cancelled, or it died.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallerGone {
    pub seq: u64,
    pub gone_us: u64,
    #[serde(flatten)]
    pub source: LogWriter,
}

/// The effect of a call. The answer may say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallEffect {
    /// Nothing.
    None,
    /// The request is fulfilled, by this call or an earlier one.
    Done,
    /// The call failed in the middle: the change may be done, half done or not done.
    Unknown,
}

/// A call ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CallEnd {
    /// The number of the call's beginning.
    pub seq: u64,
    pub begin_us: u64,
    /// Microseconds since 1970, before the answer was sent.
    pub end_us: u64,
    #[serde(flatten)]
    pub source: LogWriter,
    #[serde(flatten)]
    pub call: LoggedCall,
    pub code: Code,
    /// The answer's message; empty with OK.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub effect: CallEffect,
    /// The rule that the caller broke, according to the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation: Option<String>,
    /// What a planted fault did to the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultMark>,
    /// The answer in the form of `args`; null with an error.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub answer: Value,
    /// The mounts at the paths of a node call, read from the kernel, not reported by the driver. At
    /// the end of a deletion: all mounts of directories that no longer exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Vec<PathMounts>>,
    /// Whether the driver carries out calls that break a rule of order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lenient: bool,
    /// Whether the driver is foreign: for example, it need not mount anything where it stages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub foreign: bool,
}

impl LoggedCall {
    /// The log's form of `request`, which was sent with this `traceparent`.
    pub fn from_request<R: Unary>(request: &R, traceparent: Option<&str>) -> Self {
        let args = to_bounded_json(request);
        let id = |name: &str| args.get(name).and_then(Value::as_str).filter(|id| !id.is_empty());
        // The volume of a list request is only a filter.
        let is_about = R::RPC == Rpc::CreateSnapshot;
        let source = || id("source_volume_id").filter(|_| is_about);
        let volume_id = id("volume_id").or_else(source).map(str::to_owned);
        let trace = traceparent.and_then(CallTrace::parse);
        Self { rpc: R::RPC, volume_id, trace, args }
    }

    /// A text argument, unless it is empty.
    pub fn arg(&self, name: &str) -> Option<&str> {
        self.args.get(name)?.as_str().filter(|text| !text.is_empty())
    }
}

impl CallTrace {
    /// Parses `00-<trace>-<span>-<flags>`. `None` for another form, or for an id of zeros only.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.trim().split('-');
        let mut id = |digits: usize| {
            let part = parts.next()?;
            let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (part.len() == digits && is_hex).then(|| part.to_owned())
        };
        let (version, trace_id, parent_span_id) = (id(2)?, id(32)?, id(16)?);
        let is_set = |id: &str| id.bytes().any(|digit| digit != b'0');
        let is_valid = version != "ff" && is_set(&trace_id) && is_set(&parent_span_id);
        is_valid.then_some(Self { trace_id, parent_span_id })
    }
}

impl LogEntry {
    /// When the entry was written.
    pub fn time_us(&self) -> u64 {
        match self {
            Self::Start(start) => start.start_us,
            Self::Begin(begin) => begin.begin_us,
            Self::Gone(gone) => gone.gone_us,
            Self::Fence(fence) => fence.fence_us,
            Self::End(end) => end.end_us,
        }
    }

    pub fn source(&self) -> &LogWriter {
        match self {
            Self::Start(start) => &start.source,
            Self::Begin(begin) => &begin.source,
            Self::Gone(gone) => &gone.source,
            Self::Fence(fence) => &fence.source,
            Self::End(end) => &end.source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_and_a_bad_one_passed_over() {
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let read = CallTrace::parse(&format!("00-{trace}-{span}-01")).unwrap();
        assert_eq!((read.trace_id.as_str(), read.parent_span_id.as_str()), (trace, span));
        let zeros = "0".repeat(32);
        let (upper, ff) = (trace.to_uppercase(), format!("ff-{trace}-{span}-01"));
        for bad in ["", "00", &ff, &format!("00-{zeros}-{span}-01"), &format!("00-{upper}-{span}")]
        {
            assert_eq!(CallTrace::parse(bad), None, "{bad}");
        }
    }
}
