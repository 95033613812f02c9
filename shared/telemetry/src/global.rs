//! The one tracer of a process.
//!
//! A span is made in the middle of everything, as a log line is, and like the logger its tracer is
//! not handed through every function on the way there. Tests that want their own make spans by a
//! [`Tracer`] value.

use std::sync::OnceLock;

use crate::tracer::Tracer;

static TRACER: OnceLock<Tracer> = OnceLock::new();
static OFF: Tracer = Tracer::OFF;

/// The process's tracer: one that records nothing, until one is set.
pub(crate) fn tracer() -> &'static Tracer {
    TRACER.get().unwrap_or(&OFF)
}

/// Sets the process's tracer; false when it was set before.
pub(crate) fn set(tracer: Tracer) -> bool {
    TRACER.set(tracer).is_ok()
}
