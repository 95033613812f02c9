//! The log of calls: what a CO requested, when, and the outcome.
//!
//! Owns: the records and their JSON form, one object per line.
//!
//! Promises: the last line of a call (`end`) has everything about it. A beginning without an end is
//! a call that was killed. Each line is one write of bounded size, so instances may share a file.
//! No line has a secret or a mount flag.
//!
//! Never: judges; see `berth-judge`.
//!
//! Times are microseconds since 1970. Within one instance they strictly increase.

mod entry;
mod kernel;
mod recorder;
mod shown;

pub use entry::{
    CallBegin, CallEffect, CallEnd, CallTrace, CallerGone, HeldVolume, InstanceStart, LogEntry,
    LogWriter, LoggedCall, NodeFence,
};
pub use recorder::{CallOutcome, Recorder};
pub(crate) use shown::to_bounded_json;
