//! The log of calls: what a CO asked for, when, and what came of it.
//!
//! Owns: the records and their form on disk, one JSON object per line. Promises: a call's last
//! line, `end`, holds all there is to say about it; a call is written when it begins, too, so one
//! that was killed half-way is seen as a beginning without an end; each line is written at once, so
//! instances may share a file, and is bounded in size; no secret and no mount flag is ever in it.
//! Never: judges; see `berth-judge`.
//!
//! Times are microseconds since 1970. Within one instance they strictly increase.

mod entry;
mod kernel;
mod recorder;
mod shown;

pub use entry::{
    CallBegin, CallEffect, CallEnd, CallTrace, CallerGone, Entry, HeldVolume, InstanceStart,
    LogWriter, LoggedCall, NodeFence,
};
pub use recorder::{CallOutcome, Recorder};
pub(crate) use shown::to_bounded_json;
